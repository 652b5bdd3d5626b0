//! The tests that ran, failed, or did not run, and the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use super::{Case, Run, Verdict};
use crate::Outcome;
use crate::table::Table;

/// The number of names printed per reason; the others are counted.
const NAMES_A_REASON: usize = 12;

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "status", content = "reason")]
pub(crate) enum Status {
    #[default]
    Passed,
    Failed,
    /// Not run, for this reason.
    NotRun(String),
}

/// A test that ran.
#[derive(Debug, Serialize)]
pub(crate) struct Test {
    pub(crate) suite: String,
    pub(crate) name: String,
    pub(crate) seconds: f64,
    /// The test's output if it failed.
    pub(crate) failure: Option<String>,
}

/// A test, or a group of tests, that did not run.
#[derive(Debug, Serialize)]
pub(crate) struct LeftOut {
    pub(crate) suite: String,
    pub(crate) test: String,
    pub(crate) reason: String,
}

/// The results of tests that ran with the same settings.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) status: Status,
    /// The sum over all tests.
    pub(crate) seconds: f64,
    pub(crate) tests: Vec<Test>,
    pub(crate) left_out: Vec<LeftOut>,
    /// Errors of a process although its tests passed.
    pub(crate) complaints: Vec<String>,
    /// Reports of tests besides their verdicts.
    pub(crate) notes: Vec<String>,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// A row that failed for a reason that is none of its tests'.
    pub(crate) fn failed_as_a_whole(name: impl Into<String>, why: String) -> Self {
        Self { status: Status::Failed, complaints: vec![why], ..Self::new(name) }
    }

    /// Adds the results of a suite's tests.
    pub(crate) fn add(&mut self, suite: &str, run: Run) {
        for test in run.finished {
            self.seconds += test.time.as_secs_f64();
            let failure = match test.verdict {
                Verdict::Passed => None,
                Verdict::Failed(output) => Some(output),
                Verdict::Ignored(reason) => {
                    self.leave_out(suite, &test.name, &reason);
                    continue;
                }
            };
            self.tests.push(Test {
                suite: suite.into(),
                name: Case::parse(&test.name).title,
                seconds: test.time.as_secs_f64(),
                failure,
            });
        }
        self.complaints.extend(run.complaint);
        self.notes.extend(run.notes);
        if self.failed() > 0 {
            self.status = Status::Failed;
        }
    }

    /// Adds a test that did not run.
    pub(crate) fn leave_out(&mut self, suite: &str, test: &str, reason: &str) {
        let reason = if reason.is_empty() { "ignored, no reason given" } else { reason };
        let left_out = LeftOut { suite: suite.into(), test: test.into(), reason: reason.into() };
        self.left_out.push(left_out);
    }

    /// Whether the row has neither results nor tests that it left out.
    pub(crate) fn is_empty(&self) -> bool {
        self.tests.is_empty() && self.left_out.is_empty() && self.complaints.is_empty()
    }

    pub(crate) fn has_run(&self) -> bool {
        !matches!(self.status, Status::NotRun(_))
    }

    pub(crate) fn passed(&self) -> usize {
        self.tests.iter().filter(|test| test.failure.is_none()).count()
    }

    pub(crate) fn failed(&self) -> usize {
        self.tests.len() - self.passed() + self.complaints.len()
    }

    /// Returns the failures, each with its output.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (String, &str)> {
        let complaints = self.complaints.iter().map(|text| (self.name.clone(), text.as_str()));
        let tests = self.tests.iter().filter_map(|test| {
            Some((format!("{}: {}", self.name, test.name), test.failure.as_deref()?))
        });
        tests.chain(complaints)
    }
}

/// The results of all rows.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    /// Tests that no row ran, and remarks that belong to no row.
    #[serde(skip)]
    beside: Row,
}

impl Report {
    /// Returns the row with that name; adds it if it is new.
    pub(crate) fn row(&mut self, name: &str) -> &mut Row {
        let found = self.rows.iter().position(|row| row.name == name);
        let at = found.unwrap_or_else(|| {
            self.rows.push(Row::new(name));
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }

    /// Adds the results of other rows.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.beside.left_out.extend(other.beside.left_out);
        self.beside.notes.extend(other.beside.notes);
    }

    /// Adds tests that did not run and that belong to no row.
    pub(crate) fn not_run(&mut self, suite: &str, name: &str, reason: &str) {
        self.beside.leave_out(suite, name, reason);
    }

    /// Adds a remark that belongs to no row.
    pub(crate) fn note(&mut self, note: String) {
        self.beside.notes.push(note);
    }

    pub(crate) fn outcome(&self) -> Outcome {
        match (self.sum(Row::failed), self.sum(Row::passed)) {
            (0, 0) => Outcome::CouldNotRun,
            (0, _) => Outcome::Passed,
            _ => Outcome::Failed,
        }
    }

    fn sum(&self, count: fn(&Row) -> usize) -> usize {
        self.rows.iter().map(count).sum()
    }

    /// Formats the failures, a line per row, the tests that did not run, and a line of counts.
    pub(crate) fn text(&self, elapsed: Duration) -> String {
        let mut text = String::new();
        let failures = || self.rows.iter().flat_map(Row::failures);
        text.extend(failures().map(|(name, it)| format!("\n---- {name}\n{}\n", it.trim_end())));
        let mut table = Table::new(["suite", "passed", "failed", "not run", "seconds"]);
        for row in &self.rows {
            table.row([
                row.name.clone(),
                row.passed().to_string(),
                row.failed().to_string(),
                match row.status {
                    Status::NotRun(_) => "all".to_owned(),
                    _ => row.left_out.len().to_string(),
                },
                format!("{:.1}", row.seconds),
            ]);
        }
        text += &format!("\n{table}\n");
        for row in &self.rows {
            if let Status::NotRun(reason) = &row.status {
                text += &format!("not run: {}: {reason}\n", row.name);
            }
            text.extend(row.notes.iter().map(|note| format!("noted: {}: {note}\n", row.name)));
        }
        text.extend(self.beside.notes.iter().map(|note| format!("{note}\n")));
        // Names by reason, each once, since several rows may leave out the same test.
        let mut reasons = BTreeMap::<_, BTreeSet<_>>::new();
        let rows = self.rows.iter().chain([&self.beside]);
        for LeftOut { suite, test, reason } in rows.flat_map(|row| &row.left_out) {
            reasons.entry(reason).or_default().insert(format!("{suite}: {test}"));
        }
        for (reason, tests) in &reasons {
            text += &format!("not run, {} of them: {reason}\n", tests.len());
            text.extend(tests.iter().take(NAMES_A_REASON).map(|test| format!("    {test}\n")));
            if tests.len() > NAMES_A_REASON {
                text += &format!("    and {} more\n", tests.len() - NAMES_A_REASON);
            }
        }
        text.extend(failures().map(|(name, _)| format!("failed: {name}\n")));
        let skipped: usize = reasons.values().map(BTreeSet::len).sum();
        text + &format!(
            "\n{} passed, {} failed, {skipped} skipped in {:.1} s\n",
            self.sum(Row::passed),
            self.sum(Row::failed),
            elapsed.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::Finished;
    use super::*;

    fn run(verdicts: &[(&str, Verdict)]) -> Run {
        let test = |(name, verdict): &(&str, Verdict)| Finished {
            name: (*name).into(),
            verdict: verdict.clone(),
            time: Duration::ZERO,
        };
        Run { finished: verdicts.iter().map(test).collect(), ..Run::default() }
    }

    #[test]
    fn a_complaint_fails_a_row_in_which_all_tests_passed() {
        let mut report = Report::default();
        assert_eq!(report.outcome(), Outcome::CouldNotRun);
        let row = report.row("gpu, lazy");
        row.add("gpu", run(&[("a::needs_1", Verdict::Passed)]));
        assert_eq!((row.passed(), row.failed()), (1, 0));
        assert_eq!(report.outcome(), Outcome::Passed);
        let complaint = Some("a leak".to_owned());
        let row = report.row("gpu, lazy");
        row.add("gpu", Run { complaint, ..Run::default() });
        assert_eq!(row.status, Status::Failed);
        assert_eq!(report.outcome(), Outcome::Failed);
        let text = report.text(Duration::ZERO);
        assert!(text.contains("---- gpu, lazy\na leak\n"), "{text}");
        assert!(text.ends_with("1 passed, 1 failed, 0 skipped in 0.0 s\n"), "{text}");
    }

    #[test]
    fn what_did_not_run_is_listed_once_with_its_reason() {
        let mut report = Report::default();
        for name in ["gpu, lazy", "gpu, eager"] {
            let ignored = Verdict::Ignored(String::new());
            report.row(name).add("gpu", run(&[("a", ignored)]));
        }
        report.not_run("Miri", "all", "no Miri");
        let text = report.text(Duration::ZERO);
        let ignored = "not run, 1 of them: ignored, no reason given\n    gpu: a\n";
        assert!(text.contains(ignored), "{text}");
        assert!(text.contains("1 of them: no Miri\n    Miri: all"), "{text}");
        assert!(text.contains(" 2 skipped in"), "{text}");
    }
}
