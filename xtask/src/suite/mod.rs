//! Runs libtest programs one by one, and knows the result of every test in them.

pub(crate) mod build;
pub(crate) mod case;
pub(crate) mod libtest;
pub(crate) mod process;
pub(crate) mod queue;
pub(crate) mod table;

pub(crate) use case::{Case, Tag};
pub(crate) use process::{Invocation, Program};

use std::time::Duration;

/// The result of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    /// The test's output.
    Failed(String),
    /// The reason in its `#[ignore]`, if any.
    Ignored(String),
}

/// A test and its result.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    /// Since the end of the previous test: the test's own time if tests run one after the other.
    pub(crate) time: Duration,
}

/// The counts of one table row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
}

impl Counts {
    pub(crate) fn of(finished: &[Finished]) -> Self {
        let mut counts = Self::default();
        for test in finished {
            match test.verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Failed(_) => counts.failed += 1,
                Verdict::Ignored(_) => counts.ignored += 1,
            }
        }
        counts
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            ignored: self.ignored + other.ignored,
        }
    }
}
