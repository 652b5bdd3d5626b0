//! The results of a list of checks, as a table and an exit code.

use std::fmt;
use std::time::{Duration, Instant};

use crate::table::Table;
use crate::{Outcome, Refusal};

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// What the check found.
    Passed(String),
    /// What it found instead.
    Failed(String),
    /// The reason.
    NotRun(String),
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Self::Passed(_) => "passed",
            Self::Failed(_) => "FAILED",
            Self::NotRun(_) => "not run",
        }
    }

    fn detail(&self) -> &str {
        match self {
            Self::Passed(text) | Self::Failed(text) | Self::NotRun(text) => text,
        }
    }
}

/// A check and its result.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) time: Duration,
}

impl Finished {
    /// Runs a check; a [`Refusal`] counts as not run.
    pub(crate) fn of(name: &'static str, check: impl FnOnce() -> anyhow::Result<Verdict>) -> Self {
        let start = Instant::now();
        let verdict = check().unwrap_or_else(|error| match error.downcast::<Refusal>() {
            Ok(Refusal(reason)) => Verdict::NotRun(reason),
            Err(error) => Verdict::Failed(format!("{error:#}")),
        });
        Self { name, verdict, time: start.elapsed() }
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, detail) = (self.verdict.word(), self.verdict.detail());
        let seconds = self.time.as_secs_f32();
        write!(f, "{word:8} {:22} {seconds:6.1} s  {detail}", self.name)
    }
}

/// One line per check, and a line of counts.
pub(crate) fn table(what: &str, checks: &[Finished]) -> String {
    let mut table = Table::new([what, "result", "seconds"]);
    for Finished { name, verdict, time } in checks {
        let seconds = format!("{:.1}", time.as_secs_f32());
        table.row([(*name).to_owned(), verdict.word().to_owned(), seconds]);
    }
    let mut text = table.to_string();
    for check in checks {
        if let Verdict::NotRun(reason) = &check.verdict {
            text += &format!("not run: {}: {reason}\n", check.name);
        }
    }
    let (passed, failed, not_run) = counts(checks);
    text + &format!("{passed} passed, {failed} failed, {not_run} not run\n")
}

/// Failed if any check failed, and passed only if one passed; with `strict`, if all did.
pub(crate) fn outcome(checks: &[Finished], strict: bool) -> Outcome {
    match counts(checks) {
        (_, 1.., _) => Outcome::Failed,
        (0, 0, _) => Outcome::CouldNotRun,
        (_, 0, 1..) if strict => Outcome::CouldNotRun,
        (_, 0, _) => Outcome::Passed,
    }
}

fn counts(checks: &[Finished]) -> (usize, usize, usize) {
    let verdicts = || checks.iter().map(|check| check.verdict.word());
    let of = |wanted| verdicts().filter(|word| *word == wanted).count();
    (of("passed"), of("FAILED"), of("not run"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(verdicts: &[Verdict]) -> Vec<Finished> {
        let check = |verdict: &Verdict| Finished::of("a-check", || Ok(verdict.clone()));
        verdicts.iter().map(check).collect()
    }

    #[test]
    fn one_failure_fails_and_nothing_run_is_no_pass() {
        let passed = Verdict::Passed(String::new());
        let failed = Verdict::Failed(String::new());
        let skipped = Verdict::NotRun("no cc".into());
        let of = |verdicts: &[&Verdict], strict| {
            let verdicts: Vec<_> = verdicts.iter().map(|verdict| (*verdict).clone()).collect();
            outcome(&checks(&verdicts), strict)
        };
        let all = of(&[&passed, &failed, &skipped], true);
        assert_eq!(all, Outcome::Failed);
        assert_eq!(of(&[&passed, &skipped], false), Outcome::Passed);
        assert_eq!(of(&[&passed, &skipped], true), Outcome::CouldNotRun);
        assert_eq!(of(&[&passed], true), Outcome::Passed);
        assert_eq!(of(&[&skipped], false), Outcome::CouldNotRun);
        assert_eq!(of(&[], false), Outcome::CouldNotRun);
    }

    #[test]
    fn a_check_that_did_not_run_says_why() {
        let refused = Finished::of("a-check", || Err(crate::refuse("no cc")));
        assert_eq!(refused.verdict, Verdict::NotRun("no cc".into()));
        let text = table("check", &[refused]);
        assert!(text.contains("not run: a-check: no cc\n"), "{text}");
        assert!(text.ends_with("0 passed, 0 failed, 1 not run\n"), "{text}");
        let failed = Finished::of("a-check", || Err(anyhow::anyhow!("wrong")));
        assert_eq!(failed.verdict, Verdict::Failed("wrong".into()));
    }
}
