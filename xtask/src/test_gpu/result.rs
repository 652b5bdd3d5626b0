//! The results of the rows, for readers and as JSON.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::matrix::Row;
use crate::Outcome;
use crate::suite::process::Run;
use crate::suite::table::Table;
use crate::suite::{Case, Program, Verdict};
use crate::target::{Libraries, Target};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "status", content = "reason")]
pub(crate) enum Status {
    Passed,
    Failed,
    /// With the reason.
    NotRun(String),
}

/// A test that ran.
#[derive(Debug, Serialize)]
pub(crate) struct Test {
    pub(crate) suite: String,
    pub(crate) name: String,
    pub(crate) seconds: f64,
    /// Its output, if it failed.
    pub(crate) failure: Option<String>,
}

/// A test that its row did not run.
#[derive(Debug, Serialize)]
pub(crate) struct LeftOut {
    pub(crate) suite: String,
    pub(crate) test: String,
    pub(crate) reason: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct RowResult {
    pub(crate) name: String,
    pub(crate) devices: u32,
    #[serde(flatten)]
    pub(crate) status: Status,
    pub(crate) seconds: f64,
    pub(crate) tests: Vec<Test>,
    pub(crate) left_out: Vec<LeftOut>,
    /// Errors of a process although its tests passed.
    pub(crate) complaints: Vec<String>,
    /// What tests reported beside their verdicts.
    pub(crate) notes: Vec<String>,
}

impl RowResult {
    pub(crate) fn new(row: &Row) -> Self {
        Self {
            name: row.to_string(),
            devices: row.devices,
            status: Status::Passed,
            seconds: 0.0,
            tests: Vec::new(),
            left_out: Vec::new(),
            complaints: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds the results of a program for the tests that it was asked to run: each must have run.
    pub(crate) fn add(&mut self, suite: &str, names: &[&str], run: Run) {
        let mut missing: HashSet<&str> = names.iter().copied().collect();
        for finished in run.finished {
            missing.remove(finished.name.as_str());
            let failure = match finished.verdict {
                Verdict::Passed => None,
                Verdict::Failed(output) => Some(output),
                Verdict::Ignored(reason) => {
                    Some(format!("skipped although asked to run: {reason}"))
                }
            };
            self.tests.push(Test {
                suite: suite.into(),
                name: Case::parse(&finished.name).title().into(),
                seconds: finished.time.as_secs_f64(),
                failure,
            });
        }
        for name in missing {
            let failure = Some("it was asked for and did not run".into());
            let name = Case::parse(name).title().into();
            self.tests.push(Test { suite: suite.into(), name, seconds: 0.0, failure });
        }
        self.complaints.extend(run.complaint);
        self.notes.extend(run.notes);
    }

    pub(crate) fn conclude(&mut self, elapsed: Duration) {
        self.seconds = elapsed.as_secs_f64();
        if self.failed() > 0 {
            self.status = Status::Failed;
        }
    }

    fn passed(&self) -> usize {
        self.tests.iter().filter(|test| test.failure.is_none()).count()
    }

    fn failed(&self) -> usize {
        self.tests.len() - self.passed() + self.complaints.len()
    }
}

/// Tests left out, by reason.
fn by_reason(left_out: &[LeftOut]) -> BTreeMap<&str, Vec<&str>> {
    let mut reasons = BTreeMap::<_, Vec<_>>::new();
    for LeftOut { test, reason, .. } in left_out {
        reasons.entry(reason.as_str()).or_default().push(test.as_str());
    }
    reasons
}

impl fmt::Display for RowResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Status::NotRun(reason) = &self.status {
            return writeln!(f, "{}: not run: {reason}", self.name);
        }
        let total = self.tests.len() + self.left_out.len();
        writeln!(
            f,
            "{}: ran {} of {total}: {} passed, {} failed, {:.1} s",
            self.name,
            self.tests.len(),
            self.passed(),
            self.failed(),
            self.seconds
        )?;
        for (reason, tests) in by_reason(&self.left_out) {
            // The tests that need more devices are the same for all such rows, so they are only
            // counted.
            if reason.starts_with("needs ") {
                writeln!(f, "    left out, {}: {reason}", tests.len())?;
            } else {
                writeln!(f, "    left out, {}: {reason}: {}", tests.len(), tests.join(", "))?;
            }
        }
        for test in &self.tests {
            if let Some(output) = &test.failure {
                writeln!(f, "    FAILED {}: {}", test.suite, test.name)?;
                indented(f, output)?;
            }
        }
        for complaint in &self.complaints {
            writeln!(f, "    FAILED although its tests passed:")?;
            indented(f, complaint)?;
        }
        for note in &self.notes {
            writeln!(f, "    noted: {note}")?;
        }
        Ok(())
    }
}

fn indented(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    text.trim_end().lines().try_for_each(|line| writeln!(f, "        {line}"))
}

/// Every row, and the tests that they cover together.
#[derive(Debug, Serialize)]
pub(crate) struct Matrix {
    pub(crate) target: String,
    /// Libraries beside the driver.
    libraries: Option<Libraries>,
    /// Number of tests in the programs.
    pub(crate) exist: usize,
    /// Number of tests that ran in some row.
    pub(crate) ran: usize,
    pub(crate) never_ran: Vec<String>,
    pub(crate) rows: Vec<RowResult>,
    /// Why the run fails, whatever its tests did.
    pub(crate) shortfall: Option<String>,
    #[serde(skip)]
    names: Vec<String>,
}

impl Matrix {
    pub(crate) fn new(target: &Target, programs: &[(Program, Vec<Case>)]) -> Self {
        let names: Vec<String> = programs
            .iter()
            .flat_map(|(program, cases)| {
                cases.iter().map(|case| format!("{}: {}", program.suite, case.title()))
            })
            .collect();
        Self {
            target: target.to_string(),
            libraries: target.libraries().cloned(),
            exist: names.len(),
            ran: 0,
            never_ran: Vec::new(),
            rows: Vec::new(),
            shortfall: None,
            names,
        }
    }

    /// Compares the tests that ran with those that exist, and the rows with those required.
    pub(crate) fn conclude(&mut self, require: Option<u32>) {
        let ran: HashSet<String> = self
            .rows
            .iter()
            .flat_map(|row| &row.tests)
            .map(|test| format!("{}: {}", test.suite, test.name))
            .collect();
        self.never_ran = self.names.iter().filter(|name| !ran.contains(*name)).cloned().collect();
        self.ran = self.exist - self.never_ran.len();
        self.shortfall = self.find_shortfall(require);
    }

    fn find_shortfall(&self, require: Option<u32>) -> Option<String> {
        if self.rows.iter().all(|row| matches!(row.status, Status::NotRun(_))) {
            return Some("no row ran".into());
        }
        let devices = require?;
        let unmet = |row: &&RowResult| {
            // A tool that is not installed is reported; missing devices are an error.
            row.devices <= devices
                && matches!(&row.status, Status::NotRun(reason) if reason.starts_with("needs "))
        };
        if let Some(row) = self.rows.iter().find(unmet) {
            return Some(format!("--require {devices}: row {} did not run", row.name));
        }
        let covered = self
            .rows
            .iter()
            .any(|row| row.devices >= devices && !matches!(row.status, Status::NotRun(_)));
        (!covered).then(|| format!("--require {devices}: no row with that many devices ran"))
    }

    pub(crate) fn outcome(&self) -> Outcome {
        if self.rows.iter().any(|row| row.status == Status::Failed) {
            Outcome::Failed
        } else if self.shortfall.is_some() {
            Outcome::CouldNotRun
        } else {
            Outcome::Passed
        }
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(["row", "passed", "failed", "left out", "seconds"]);
        for row in &self.rows {
            if let Status::NotRun(_) = row.status {
                table.row([row.name.clone(), "not run".into(), "".into(), "".into(), "".into()]);
            } else {
                table.row([
                    row.name.clone(),
                    row.passed().to_string(),
                    row.failed().to_string(),
                    row.left_out.len().to_string(),
                    format!("{:.1}", row.seconds),
                ]);
            }
        }
        writeln!(f, "{table}")?;
        writeln!(f, "{}: {} of {} tests ran in some row", self.target, self.ran, self.exist)?;
        for name in &self.never_ran {
            writeln!(f, "    never ran: {name}")?;
        }
        if let Some(shortfall) = &self.shortfall {
            writeln!(f, "could not run: {shortfall}")?;
        }
        let passed: usize = self.rows.iter().map(RowResult::passed).sum();
        let failed: usize = self.rows.iter().map(RowResult::failed).sum();
        let not_run = self.rows.iter().filter(|row| matches!(row.status, Status::NotRun(_)));
        writeln!(f, "{passed} passed, {failed} failed, {} rows not run", not_run.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Finished;
    use crate::test_gpu::matrix::Variant;

    fn matrix(rows: Vec<RowResult>) -> Matrix {
        let program = Program { suite: "gpu".into(), path: "gpu".into(), directory: None };
        let cases = vec![Case::parse("a::needs_1"), Case::parse("b::needs_2")];
        let mut matrix = Matrix::new(&Target::Simulated { devices: 2 }, &[(program, cases)]);
        matrix.rows = rows;
        matrix
    }

    fn row(devices: u32) -> RowResult {
        RowResult::new(&Row { devices, variant: Variant::Lazy })
    }

    fn run(name: &str, verdict: Verdict) -> Run {
        let finished = vec![Finished { name: name.into(), verdict, time: Duration::ZERO }];
        Run { finished, ..Run::default() }
    }

    #[test]
    fn what_ran_is_counted_against_what_exists() {
        let mut one = row(1);
        one.add("gpu", &["a::needs_1"], run("a::needs_1", Verdict::Passed));
        one.conclude(Duration::ZERO);
        let mut matrix = matrix(vec![one]);
        matrix.conclude(None);
        assert_eq!((matrix.ran, matrix.exist), (1, 2));
        assert_eq!(matrix.never_ran, ["gpu: b"]);
        assert_eq!(matrix.outcome(), Outcome::Passed);
        matrix.conclude(Some(2));
        assert_eq!(matrix.outcome(), Outcome::CouldNotRun, "no row had two devices");
    }

    #[test]
    fn a_test_that_was_asked_for_and_vanished_has_failed() {
        let mut one = row(1);
        one.add("gpu", &["a::needs_1", "c::needs_1"], run("a::needs_1", Verdict::Passed));
        one.conclude(Duration::ZERO);
        assert_eq!((one.passed(), one.failed()), (1, 1));
        assert_eq!(one.status, Status::Failed);
    }

    #[test]
    fn a_skip_in_a_row_is_a_failure() {
        let mut one = row(1);
        one.add("gpu", &["a::needs_1"], run("a::needs_1", Verdict::Ignored("why".into())));
        one.conclude(Duration::ZERO);
        assert_eq!(one.status, Status::Failed);
    }

    #[test]
    fn requiring_devices_that_are_not_there_is_an_error() {
        let mut absent = row(2);
        absent.status = Status::NotRun("needs 2 devices, 1 visible".into());
        let mut present = row(1);
        present.add("gpu", &["a::needs_1"], run("a::needs_1", Verdict::Passed));
        let mut matrix = matrix(vec![present, absent]);
        matrix.conclude(Some(1));
        assert_eq!(matrix.outcome(), Outcome::Passed);
        matrix.conclude(Some(2));
        assert_eq!(matrix.outcome(), Outcome::CouldNotRun);
    }
}
