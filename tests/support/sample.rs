//! How much of what takes long a test run does: everything, or a sample that differs from run to run.

use std::env;

/// How many calls of a test fail in turn, at most; unset: as many as the sweep would.
const CALLS: &str = "CUDA_TESTS_CALLS";

/// Which sample is taken.
const ROTATION: &str = "CUDA_TESTS_ROTATION";

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

/// The most calls that fail in turn, unless the run sets a lower limit.
pub fn calls(most: u64) -> u64 {
    number(CALLS).map_or(most, |limit| limit.clamp(1, most))
}

/// The first of numbers from 1 on that are `stride` apart, of the sample `index` of this run.
pub fn first(stride: u64, index: u64) -> u64 {
    let rotation = number(ROTATION).unwrap_or(0);
    1 + (index + rotation % stride) % stride
}
