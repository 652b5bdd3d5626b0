//! How much of the long checks runs.

use std::env;
use std::fmt;
use std::path::Path;

use crate::workspace::git;

/// The number of driver calls of a test that fail in turn in a sampled run, for each kind of failure. The
/// time of a test's sweep grows with the square of its calls: half of the calls take a quarter of the time.
/// Most tests have fewer than a hundred.
const SAMPLED_CALLS: u64 = 30;

const ROTATION: &str = "CUDA_TESTS_ROTATION";

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
        let number = git(root, "rev-list --count HEAD");
        let number = number.and_then(|number| number.parse().ok());
        // Without history, any sample will do.
        Self::Sampled { rotation: number.unwrap_or(0) }
    }

    /// What `CUDA_TESTS_ROTATION` asks of `cargo xtask test`: a sample if it has a number, else everything.
    pub(super) fn of_environment() -> Self {
        let rotation = env::var(ROTATION).ok().and_then(|text| text.trim().parse().ok());
        rotation.map_or(Self::Full, |rotation| Self::Sampled { rotation })
    }

    /// Returns the share of a run, out of `shares`; [`None`] if it runs all.
    pub(crate) fn share(self, shares: usize) -> Option<usize> {
        match self {
            Self::Full => None,
            Self::Sampled { rotation } => Some((rotation % shares.max(1) as u64) as usize),
        }
    }

    /// The depth of what only every second run has.
    pub(crate) fn every_second(self) -> Self {
        match self {
            Self::Full => self,
            Self::Sampled { rotation } => Self::Sampled { rotation: rotation / 2 },
        }
    }

    /// Variables for the tests, which `tests/support/sample.rs` reads.
    pub(crate) fn environment(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Full => Vec::new(),
            Self::Sampled { rotation } => vec![
                ("CUDA_TESTS_CALLS", SAMPLED_CALLS.to_string()),
                (ROTATION, rotation.to_string()),
            ],
        }
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Sampled { rotation } = self else {
            return f.write_str("everything, without samples");
        };
        let repeat = format!("--rotation {rotation} repeats it");
        write!(f, "long steps take a sample: {repeat}, --full takes everything")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotations_in_a_row_have_each_share_once() {
        let mut had: Vec<_> =
            (1000..1007).map(|rotation| Depth::Sampled { rotation }.share(7)).collect();
        had.sort_unstable();
        assert_eq!(had, (0..7).map(Some).collect::<Vec<_>>());
        assert_eq!(Depth::Full.share(7), None);
    }

    #[test]
    fn only_a_sample_sets_variables() {
        assert!(Depth::Full.environment().is_empty());
        let environment = Depth::Sampled { rotation: 7 }.environment();
        assert!(environment.contains(&("CUDA_TESTS_ROTATION", "7".into())));
    }
}
