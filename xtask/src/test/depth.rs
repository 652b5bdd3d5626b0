//! How much of the long checks runs.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

/// How many driver calls of a test fail in turn in a sampled run. The time of a test's sweep grows
/// with the square of its calls: a third of the calls takes a ninth of the time.
const SAMPLED_CALLS: u64 = 200;

/// In a sampled run, Miri runs every n-th test.
const SAMPLED_TESTS: u64 = 8;

/// How much of the long checks runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// A sample, which changes with the rotation.
    Sampled { rotation: u64 },
    /// Everything.
    Full,
}

impl Depth {
    /// A sample that differs from the previous commit's, so that a series of commits covers
    /// everything.
    pub(crate) fn of_commit(root: &Path) -> Self {
        let output = Command::new("git")
            .args(["rev-list", "--count", "HEAD"])
            .current_dir(root)
            .stderr(Stdio::null())
            .output();
        let number = output.ok().and_then(|output| {
            let text = String::from_utf8(output.stdout).ok()?;
            text.trim().parse().ok()
        });
        // Without history, any sample will do.
        Self::Sampled {
            rotation: number.unwrap_or(0),
        }
    }

    /// Whether Miri runs the test of that number.
    pub(crate) fn interprets(self, number: usize) -> bool {
        match self {
            Self::Full => true,
            Self::Sampled { rotation } => number as u64 % SAMPLED_TESTS == rotation % SAMPLED_TESTS,
        }
    }

    /// Variables that the tests read: `tests/support/sample.rs`.
    pub(crate) fn environment(self) -> Vec<(String, String)> {
        match self {
            Self::Full => Vec::new(),
            Self::Sampled { rotation } => vec![
                ("CUDA_TESTS_CALLS".into(), SAMPLED_CALLS.to_string()),
                ("CUDA_TESTS_ROTATION".into(), rotation.to_string()),
            ],
        }
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("everything, without samples"),
            Self::Sampled { rotation } => write!(
                f,
                "long steps take a sample: --rotation {rotation} repeats it, --full takes everything"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotations_in_a_row_interpret_each_test_once() {
        for number in 0..100 {
            let times = (1000..1000 + SAMPLED_TESTS)
                .filter(|&rotation| Depth::Sampled { rotation }.interprets(number))
                .count();
            assert_eq!(times, 1, "{number}");
            assert!(Depth::Full.interprets(number));
        }
    }

    #[test]
    fn only_a_sample_is_told_to_the_tests() {
        assert!(Depth::Full.environment().is_empty());
        let environment = Depth::Sampled { rotation: 7 }.environment();
        assert!(environment.contains(&("CUDA_TESTS_ROTATION".into(), "7".into())));
    }
}
