//! Measures whether an operation costs the same however many streams exist, or existed. Uses a driver that
//! does nothing, so that only the library's own time is measured.

mod driver;
mod modes;

use std::time::Duration;

use anyhow::ensure;

use super::run::sample_elsewhere;
use crate::Outcome;
use crate::progress::Progress;
use crate::table::Table;
use modes::{MODES, Mode};

/// The numbers of streams, buffers or other objects of a mode.
const SIZES: [usize; 3] = [10, 1_000, 20_000];

/// The factor by which the cost of an operation may grow with a hundred times as many objects, and again with
/// twenty times as many: room for a logarithm, and for caches that no longer hold everything. A linear cost
/// would grow by a hundred and by twenty.
const MOST: f64 = 5.0;

/// The number of processes, of which the fastest counts.
const RUNS: usize = 5;

/// The time limit of a process; a mode that exceeds it counts as not flat.
const PATIENCE: Duration = Duration::from_secs(20);

/// Measures each mode in fresh processes for each size.
pub(super) fn run(wanted: impl Fn(&str) -> bool) -> anyhow::Result<Outcome> {
    let modes: Vec<Mode> = MODES.into_iter().filter(|(name, ..)| wanted(name)).collect();
    ensure!(!modes.is_empty(), super::nothing_of_that_name());
    let progress = Progress::new(modes.len());
    let mut table = Table::new(["nanoseconds for", "10", "1,000", "20,000", "shape"]);
    let mut grown = 0;
    for (name, _, what) in &modes {
        progress.step((*what).to_owned());
        let found = SIZES.map(|size| fastest(name, size));
        let [few, many, most] = found.each_ref().map(|cost| match cost {
            Ok(cost) => format!("{cost:.0}"),
            Err(error) => format!("{error:#}"),
        });
        let is_flat = is_flat(&found.map(Result::ok));
        grown += usize::from(!is_flat);
        let shape = if is_flat { "flat" } else { "GROWS" };
        table.row([what, &*few, &many, &most, shape]);
    }
    progress.finish();
    println!("{table}\n{} of {} are flat", modes.len() - grown, modes.len());
    Ok(Outcome::of(grown == 0))
}

fn is_flat(costs: &[Option<f64>; 3]) -> bool {
    let within = |pair: &[_]| matches!(pair, [Some(few), Some(more)] if *more <= MOST * few);
    costs.windows(2).all(within)
}

fn fastest(mode: &str, size: usize) -> anyhow::Result<f64> {
    let words = ["--scale-of", mode, &size.to_string()];
    let mut costs = (0..RUNS).map(|_| sample_elsewhere(&words, PATIENCE));
    costs.try_fold(f64::INFINITY, |fastest, cost| Ok(fastest.min(cost?)))
}

/// Prints nanoseconds per operation, for the process that started this one. The mode's objects are not
/// dropped, since the process ends.
pub(super) fn sample(name: &str, size: usize) -> anyhow::Result<Outcome> {
    let mode = MODES.into_iter().find(|(mode, ..)| *mode == name);
    let (_, cost, _) = mode.ok_or_else(super::nothing_of_that_name)?;
    driver::install()?;
    println!("{}", cost(size)?);
    Ok(Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linear_grows_and_a_logarithm_does_not() {
        assert!(is_flat(&[Some(100.0), Some(150.0), Some(300.0)]));
        assert!(is_flat(&[Some(10_000.0), Some(150.0), Some(300.0)]));
        assert!(!is_flat(&[Some(100.0), Some(150.0), Some(3000.0)]));
        assert!(!is_flat(&[Some(100.0), Some(2000.0), Some(2000.0)]));
        assert!(!is_flat(&[Some(100.0), Some(150.0), None]));
    }
}
