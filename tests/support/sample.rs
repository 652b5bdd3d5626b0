//! Chooses how much of a long test runs: everything, or a sample that differs from run to run.

use std::env;
use std::ops::Range;
use std::time::UNIX_EPOCH;

/// The variable that limits how many calls of a test fail in turn; if unset, the sweep chooses.
const CALLS: &str = "CUDA_TESTS_CALLS";

/// The variable that selects the sample and the random programs; if unset, the first sample, and other
/// programs each second.
const ROTATION: &str = "CUDA_TESTS_ROTATION";

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Returns how many calls fail in turn: `most`, unless the run sets a lower limit.
pub fn calls(most: u64) -> u64 {
    number(CALLS).map_or(most, |limit| limit.clamp(1, most))
}

/// Returns `sampled` in a run that takes samples, so that it has one in `sampled` of all; else 1.
pub fn stride(sampled: u64) -> u64 {
    number(ROTATION).map_or(1, |_| sampled)
}

/// Returns the first number of sample `index` of this run; its numbers, from 1 on, are `stride` apart.
pub fn first(stride: u64, index: u64) -> u64 {
    let rotation = number(ROTATION).unwrap_or(0);
    1 + (index + rotation % stride) % stride
}

/// Returns the seeds of `count` random programs of this run. A test that fails shows how to repeat them.
pub fn seeds(count: u64) -> Range<u64> {
    let seconds = || UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    // Miri has no clock.
    let rotation = number(ROTATION).unwrap_or_else(|| if cfg!(miri) { 0 } else { seconds() });
    println!("{ROTATION}={rotation} repeats these random programs");
    rotation * count..(rotation + 1) * count
}
