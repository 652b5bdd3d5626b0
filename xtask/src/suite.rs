//! Runs libtest programs one by one, and collects the result of every test in them.

pub(crate) mod case;
pub(crate) mod junit;
pub(crate) mod libtest;
pub(crate) mod process;
pub(crate) mod report;
pub(crate) mod setting;

pub(crate) use case::{Case, Tag};
pub(crate) use process::{Invocation, Program, Run};
pub(crate) use report::{Report, Row};
pub(crate) use setting::{Setting, Variant};

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
    /// The time since the end of the previous test: the test's own time if tests run one after another.
    pub(crate) time: Duration,
}

impl Finished {
    /// Returns a test that has failed for this reason without reporting a verdict.
    pub(crate) fn lost(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: Verdict::Failed(reason.into()), time: Duration::ZERO }
    }

    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.verdict, Verdict::Failed(_))
    }
}

/// Formats the times of the slowest tests, the candidates to shrink if a run takes too long.
pub(crate) fn slowest(mut times: Vec<(Duration, String)>, named: usize) -> String {
    times.sort_unstable();
    let all: Duration = times.iter().map(|(time, _)| *time).sum();
    let mut text = format!("{:.0} s of tests; the slowest:", all.as_secs_f64());
    let slow = times.iter().rev().take(named);
    text.extend(slow.map(|(time, name)| format!("\n    {:6.1} s {name}", time.as_secs_f64())));
    text
}
