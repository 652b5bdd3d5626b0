//! The results of a list of checks, as a table and an exit code.

use std::fmt;
use std::time::{Duration, Instant};

use crate::table::Table;
use crate::{Outcome, Refusal};

/// A check and its result.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) name: &'static str,
    pub(crate) outcome: Outcome,
    /// The check's findings, or the reason why it did not run.
    pub(crate) detail: String,
    time: Duration,
}

impl Finished {
    /// Runs a check. A [`Refusal`] counts as not run.
    pub(crate) fn of(
        name: &'static str,
        check: impl FnOnce() -> anyhow::Result<(Outcome, String)>,
    ) -> Self {
        let start = Instant::now();
        let (outcome, detail) = check().unwrap_or_else(|error| match error.downcast::<Refusal>() {
            Ok(Refusal(reason)) => (Outcome::CouldNotRun, reason),
            Err(error) => (Outcome::Failed, format!("{error:#}")),
        });
        Self { name, outcome, detail, time: start.elapsed() }
    }

    fn word(&self) -> &'static str {
        match self.outcome {
            Outcome::Passed => "passed",
            Outcome::Failed => "FAILED",
            Outcome::CouldNotRun => "not run",
        }
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, detail, .. } = self;
        write!(f, "{:8} {name:22} {:6.1} s  {detail}", self.word(), self.time.as_secs_f32())
    }
}

/// Formats one line per check, and a line of counts.
pub(crate) fn table(what: &str, checks: &[Finished]) -> String {
    let mut table = Table::new([what, "result", "seconds"]);
    for check in checks {
        table.row([check.name, check.word(), &format!("{:.1}", check.time.as_secs_f32())]);
    }
    let mut text = table.to_string();
    let not_run = checks.iter().filter(|check| check.outcome == Outcome::CouldNotRun);
    text.extend(not_run.map(|it| format!("not run: {}: {}\n", it.name, it.detail)));
    let [passed, failed, not_run] = counts(checks);
    text + &format!("{passed} passed, {failed} failed, {not_run} not run\n")
}

/// Returns failed if any check failed, and passed only if one passed or, with `strict`, all did.
pub(crate) fn outcome(checks: &[Finished], strict: bool) -> Outcome {
    match counts(checks).into() {
        (_, 1.., _) => Outcome::Failed,
        (0, 0, _) => Outcome::CouldNotRun,
        (_, 0, 1..) if strict => Outcome::CouldNotRun,
        (_, 0, _) => Outcome::Passed,
    }
}

/// The numbers of checks that passed, failed, and did not run.
fn counts(checks: &[Finished]) -> [usize; 3] {
    [Outcome::Passed, Outcome::Failed, Outcome::CouldNotRun]
        .map(|wanted| checks.iter().filter(|check| check.outcome == wanted).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_fails_and_nothing_run_is_no_pass() {
        use Outcome::{CouldNotRun, Failed, Passed};
        let of = |outcomes: &[Outcome], strict| {
            let check = |&it: &Outcome| Finished::of("a-check", || Ok((it, String::new())));
            outcome(&outcomes.iter().map(check).collect::<Vec<_>>(), strict)
        };
        assert_eq!(of(&[Passed, Failed, CouldNotRun], true), Failed);
        assert_eq!(of(&[Passed, CouldNotRun], false), Passed);
        assert_eq!(of(&[Passed, CouldNotRun], true), CouldNotRun);
        assert_eq!(of(&[Passed], true), Passed);
        assert_eq!(of(&[CouldNotRun], false), CouldNotRun);
        assert_eq!(of(&[], false), CouldNotRun);
    }

    #[test]
    fn a_check_that_did_not_run_says_why() {
        let refused = Finished::of("a-check", || Err(crate::refuse("no cc")));
        assert_eq!((refused.outcome, &*refused.detail), (Outcome::CouldNotRun, "no cc"));
        let text = table("check", &[refused]);
        assert!(text.contains("not run: a-check: no cc\n"), "{text}");
        assert!(text.ends_with("0 passed, 0 failed, 1 not run\n"), "{text}");
        let failed = Finished::of("a-check", || Err(anyhow::anyhow!("wrong")));
        assert_eq!((failed.outcome, &*failed.detail), (Outcome::Failed, "wrong"));
    }
}
