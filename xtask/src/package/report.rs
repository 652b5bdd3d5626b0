//! The results of the rows.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Outcome;
use crate::suite::table::Table;

/// The result of a row.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// What the row found.
    Passed(String),
    /// What the row found instead.
    Failed(String),
    /// The reason.
    NotRun(String),
}

/// A row and its result.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    pub(super) time: Duration,
}

/// The error of a row that this machine cannot run.
#[derive(Debug)]
pub(super) struct NotRun(pub(super) String);

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotRun {}

/// An error that makes the row count as not run.
pub(super) fn not_run(reason: impl Into<String>) -> anyhow::Error {
    NotRun(reason.into()).into()
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Verdict::Passed(_) => "passed",
            Verdict::Failed(_) => "FAILED",
            Verdict::NotRun(_) => "not run",
        }
    }

    fn detail(&self) -> &str {
        match self {
            Verdict::Passed(text) | Verdict::Failed(text) | Verdict::NotRun(text) => text,
        }
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, detail) = (self.verdict.word(), self.verdict.detail());
        let seconds = self.time.as_secs_f32();
        write!(f, "{word:8} {:22} {seconds:6.1} s  {detail}", self.name)
    }
}

/// One line per row, and a line of counts.
pub(super) fn table(rows: &[Finished]) -> String {
    let mut table = Table::new(["row", "result", "seconds"]);
    for row in rows {
        table.row([
            row.name.to_owned(),
            row.verdict.word().to_owned(),
            format!("{:.1}", row.time.as_secs_f32()),
        ]);
    }
    let mut text = table.to_string();
    for row in rows {
        if let Verdict::NotRun(reason) = &row.verdict {
            text += &format!("not run: {}: {reason}\n", row.name);
        }
    }
    let (passed, failed, not_run) = count(rows);
    text + &format!("{passed} passed, {failed} failed, {not_run} not run\n")
}

/// The rows as a JSON array.
pub(super) fn json(rows: &[Finished]) -> Value {
    let row = |row: &Finished| {
        json!({
            "row": row.name,
            "result": row.verdict.word().to_lowercase(),
            "seconds": row.time.as_secs_f64(),
            "detail": row.verdict.detail(),
        })
    };
    rows.iter().map(row).collect()
}

/// Failed if any row failed, and passed only if a row passed.
pub(super) fn outcome(rows: &[Finished]) -> Outcome {
    match count(rows) {
        (_, 1.., _) => Outcome::Failed,
        (0, 0, _) => Outcome::CouldNotRun,
        (_, 0, _) => Outcome::Passed,
    }
}

fn count(rows: &[Finished]) -> (usize, usize, usize) {
    let of = |word| rows.iter().filter(|row| row.verdict.word() == word).count();
    (of("passed"), of("FAILED"), of("not run"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(verdicts: Vec<Verdict>) -> Vec<Finished> {
        let row = |verdict| Finished { name: "a-row", verdict, time: Duration::from_millis(1500) };
        verdicts.into_iter().map(row).collect()
    }

    #[test]
    fn one_failure_fails_and_nothing_run_is_no_pass() {
        let passed = || Verdict::Passed(String::new());
        let failed = || Verdict::Failed(String::new());
        let skipped = || Verdict::NotRun("no cc".into());
        assert_eq!(outcome(&rows(vec![passed(), failed(), skipped()])), Outcome::Failed);
        assert_eq!(outcome(&rows(vec![passed(), skipped()])), Outcome::Passed);
        assert_eq!(outcome(&rows(vec![skipped()])), Outcome::CouldNotRun);
        assert_eq!(outcome(&rows(vec![])), Outcome::CouldNotRun);
    }

    #[test]
    fn a_row_that_did_not_run_says_why() {
        let text = table(&rows(vec![Verdict::NotRun("no cc".into())]));
        assert!(text.contains("not run: a-row: no cc\n"), "{text}");
        assert!(text.ends_with("0 passed, 0 failed, 1 not run\n"), "{text}");
    }
}
