//! Times two ways of doing the same work, in turn, in batches. For operations of many devices at once, also
//! times each device alone and the capacity of their links.

use std::iter;
use std::time::Instant;

use anyhow::ensure;
use cuda_sys::{CUDA_SUCCESS, CUresult};
use serde::{Deserialize, Serialize};

/// The extent of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Effort {
    /// The number of batches for each way.
    pub(crate) batches: usize,
    /// The number of processes for each way, for operations that need a fresh process.
    pub(crate) processes: usize,
    /// The divisor of large memory sizes.
    shrink: usize,
}

impl Effort {
    pub(crate) const FULL: Self = Self { batches: 1001, processes: 5, shrink: 1 };
    pub(crate) const QUICK: Self = Self { batches: 31, processes: 1, shrink: 1 };
    /// For the simulated driver, which shows that the operations work, not what they cost.
    pub(crate) const SIMULATED: Self = Self { batches: 3, processes: 1, shrink: 256 };

    /// The same with at most this many batches.
    pub(crate) fn at_most(self, batches: usize) -> Self {
        Self { batches: self.batches.min(batches), ..self }
    }

    /// The size to use for an operation of `bytes` bytes: smaller on the simulated driver, for sizes from one
    /// MiB on.
    pub(crate) fn bytes(self, bytes: usize) -> usize {
        bytes / self.shrink
    }
}

/// The unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Unit {
    /// Nanoseconds per operation: fewer are better.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// 10⁹ bytes per second: more are better.
    #[serde(rename = "GB/s")]
    Gigabytes,
    /// 10⁶ operations per second: more are better.
    #[serde(rename = "M/s")]
    Millions,
}

impl Unit {
    /// Formats a figure with three significant digits.
    pub(crate) fn show(self, figure: f64) -> String {
        let (figure, unit) = match (self, figure) {
            (Self::Gigabytes, _) => (figure, "GB/s"),
            (Self::Millions, _) => (figure, "M/s"),
            (Self::Nanoseconds, ..999.5) => return format!("{figure:.0} ns"),
            (Self::Nanoseconds, ..999.5e3) => (figure / 1e3, "µs"),
            (Self::Nanoseconds, ..999.5e6) => (figure / 1e6, "ms"),
            (Self::Nanoseconds, _) => (figure / 1e9, "s"),
        };
        let decimals = match figure.abs() {
            ..9.995 => 2,
            ..99.95 => 1,
            _ => 0,
        };
        format!("{figure:.decimals$} {unit}")
    }

    /// Returns a figure as a multiple of the raw one: above 1 it is worse.
    pub(crate) fn ratio(self, figure: f64, raw: f64) -> f64 {
        match self {
            Self::Nanoseconds => figure / raw,
            Self::Gigabytes | Self::Millions => raw / figure,
        }
    }
}

/// The result of one operation.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) unit: Unit,
    /// The figure of the safe layer.
    pub(crate) ours: f64,
    /// The figure of the raw driver calls that do the same; [`None`] if there are none.
    pub(crate) raw: Option<f64>,
    /// The safe layer's time as a multiple of the raw time.
    pub(crate) ratio: Option<f64>,
    /// For operations of many devices at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) many: Option<Many>,
}

impl Measured {
    pub(crate) fn new(unit: Unit, ours: f64, raw: Option<f64>) -> Self {
        Self { unit, ours, raw, ratio: raw.map(|raw| unit.ratio(ours, raw)), many: None }
    }

    /// Converts times to bandwidths: the timed work moves `bytes` bytes.
    pub(crate) fn moving(self, bytes: usize) -> Self {
        let raw = self.raw.map(|raw| rate(bytes, raw));
        Self { unit: Unit::Gigabytes, ours: rate(bytes, self.ours), raw, ..self }
    }

    /// The number of nanoseconds more than the raw calls, if times were measured.
    pub(crate) fn more(&self) -> Option<f64> {
        let time = self.unit == Unit::Nanoseconds;
        Some(self.raw.filter(|_| time)? * (self.ratio? - 1.0))
    }
}

/// Times `ours` and `raw` in batches of `batch` calls. Returns the nanoseconds of one call: medians over all
/// batches. `settle` runs, untimed, after each batch.
///
/// The ratio comes from the median difference between neighbouring batches: the machine's speed drifts, but
/// hardly between neighbours.
pub(crate) fn pair(
    effort: Effort,
    batch: usize,
    ours: impl FnMut() -> cuda_core::Result<()>,
    raw: impl FnMut() -> CUresult,
    settle: impl FnMut() -> cuda_core::Result<()>,
) -> anyhow::Result<Measured> {
    let (measured, _) = pair_and_alone(effort, batch, ours, raw, settle, &[])?;
    Ok(measured)
}

/// Raw calls and a wait for them, made while nothing else runs.
pub(crate) type Alone<'a> = Box<dyn Fn() -> CUresult + 'a>;

/// [`pair`], and the time of each of `alone`, which run once after each pair of batches: medians, in
/// nanoseconds.
pub(crate) fn pair_and_alone(
    effort: Effort,
    batch: usize,
    mut ours: impl FnMut() -> cuda_core::Result<()>,
    mut raw: impl FnMut() -> CUresult,
    mut settle: impl FnMut() -> cuda_core::Result<()>,
    alone: &[Alone<'_>],
) -> anyhow::Result<(Measured, Vec<f64>)> {
    let warm_up = effort.batches / 10 + 1;
    let (mut our_times, mut raw_times) = (Vec::new(), Vec::new());
    let mut alone_times = vec![Vec::new(); alone.len()];
    for round in 0..effort.batches + warm_up {
        // The order alternates, so that neither way always finds the cache lines that the other has loaded.
        for is_ours in [round % 2 == 0, round % 2 == 1] {
            match is_ours {
                true => our_times.push(each_of(batch, &mut ours)?),
                false => raw_times.push(time_raw(batch, &mut raw)?),
            }
            settle()?;
        }
        for (times, mut calls) in alone_times.iter_mut().zip(alone) {
            times.push(time_raw(1, &mut calls)?);
        }
    }
    let measured = beside(&our_times[warm_up..], &raw_times[warm_up..]);
    let alone = alone_times.iter().map(|times| median(&times[warm_up..]));
    Ok((measured, alone.collect()))
}

/// Returns the nanoseconds of one of `calls` calls.
pub(crate) fn each_of<E>(calls: usize, mut call: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    for _ in 0..calls {
        call()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / calls as f64)
}

/// Returns the nanoseconds of a call. Its result is dropped afterwards.
pub(crate) fn once<T>(call: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<f64> {
    let start = Instant::now();
    let result = call()?;
    let took = start.elapsed();
    drop(result);
    Ok(took.as_nanos() as f64)
}

/// Returns the nanoseconds of one of `batch` raw calls. Their codes are checked afterwards.
fn time_raw(batch: usize, raw: &mut impl FnMut() -> CUresult) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut worst = CUDA_SUCCESS;
    for _ in 0..batch {
        let code = raw();
        if code != CUDA_SUCCESS {
            worst = code;
        }
    }
    let took = start.elapsed().as_nanos() as f64 / batch as f64;
    ensure!(worst == CUDA_SUCCESS, "the raw calls: error {}", worst.0);
    Ok(took)
}

/// The result of times, in nanoseconds, that were measured in neighbouring batches.
pub(crate) fn beside(ours: &[f64], raw: &[f64]) -> Measured {
    let more: Vec<f64> = ours.iter().zip(raw).map(|(o, r)| o - r).collect();
    let median_raw = median(raw);
    let ratio = Some(1.0 + median(&more) / median_raw);
    Measured { ratio, ..Measured::new(Unit::Nanoseconds, median(ours), Some(median_raw)) }
}

/// The median; 0 if there are no figures.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// The median of `count` figures, each measured anew.
pub(crate) fn median_of<E>(count: usize, figure: impl FnMut() -> Result<f64, E>) -> Result<f64, E> {
    let figures = iter::repeat_with(figure).take(count).collect::<Result<Vec<_>, _>>()?;
    Ok(median(&figures))
}

/// Rates in GB/s of raw calls that run alone, in the same rounds as the operations of many devices.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Many {
    pub(crate) devices: usize,
    /// The sum of the rates of each device's part while the others are idle; [`None`] if only one device has
    /// a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) singles: Option<f64>,
    /// [`None`] if no copy goes between devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) links: Option<Links>,
}

/// The capacity of links between devices.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Links {
    /// The rate from one device to another, for the fastest pair.
    pub(crate) one_way: f64,
    /// The rate in both directions at once, for the fastest pair.
    pub(crate) both_ways: f64,
    /// The limit in one direction for all sending devices.
    pub(crate) limit: f64,
}

impl Many {
    /// Computed from parts of `bytes` bytes each, and the nanoseconds that each part takes alone.
    pub(crate) fn new(devices: usize, bytes: usize, alone: &[f64], links: Option<Links>) -> Self {
        let singles = alone.iter().map(|&time| rate(bytes, time));
        Self { devices, singles: (alone.len() > 1).then(|| singles.sum()), links }
    }
}

impl Links {
    /// Computed from copies of `bytes` bytes, and the nanoseconds that pairs of devices take in one direction
    /// and in both, for an operation with `senders` sending devices.
    pub(crate) fn new(bytes: usize, one_way: &[f64], both_ways: &[f64], senders: usize) -> Self {
        let best = |bytes, times: &[f64]| {
            let rates = times.iter().map(|&time| rate(bytes, time));
            rates.fold(0.0, f64::max)
        };
        let one_way = best(bytes, one_way);
        Self { one_way, both_ways: best(2 * bytes, both_ways), limit: one_way * senders as f64 }
    }

    /// The faster of both for each figure.
    pub(crate) fn best(self, other: Self) -> Self {
        Self {
            one_way: self.one_way.max(other.one_way),
            both_ways: self.both_ways.max(other.both_ways),
            limit: self.limit.max(other.limit),
        }
    }
}

/// Returns a rate in GB/s, which is bytes per nanosecond.
pub(crate) fn rate(bytes: usize, time: f64) -> f64 {
    bytes as f64 / time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_compared_not_medians() {
        // Between two batches the machine slows down to a third; all other pairs differ by 10.
        let measured = beside(&[110.0, 310.0, 310.0], &[100.0, 100.0, 300.0]);
        assert_eq!((measured.ours, measured.raw), (310.0, Some(100.0)));
        assert!((measured.more().unwrap() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn three_digits_count() {
        assert_eq!(Unit::Nanoseconds.show(17.6), "18 ns");
        assert_eq!(Unit::Nanoseconds.show(1022.0), "1.02 µs");
        assert_eq!(Unit::Nanoseconds.show(1_216_095.0), "1.22 ms");
        assert_eq!(Unit::Nanoseconds.show(99_960.0), "100 µs");
        assert_eq!(Unit::Gigabytes.show(392.77), "393 GB/s");
        assert_eq!(Unit::Millions.show(0.268), "0.27 M/s");
    }

    #[test]
    fn a_bandwidth_keeps_the_ratio_of_its_times() {
        let measured = beside(&[2e6], &[1e6]).moving(1 << 20);
        assert_eq!(measured.ratio, Some(2.0));
        assert_eq!(measured.raw, Some(1.048576));
        assert_eq!(measured.more(), None);
        let rate = Measured::new(Unit::Gigabytes, 40.0, Some(50.0));
        assert_eq!(rate.ratio, Some(1.25));
    }

    #[test]
    fn what_runs_alone_runs_in_every_round_and_may_fail() {
        use std::cell::Cell;

        let (both, alone) = (Cell::new(0), Cell::new(0));
        let count = |calls: &Cell<usize>| {
            calls.set(calls.get() + 1);
            CUDA_SUCCESS
        };
        let measure = |calls: &[Alone<'_>]| {
            let ours = || {
                count(&both);
                Ok(())
            };
            pair_and_alone(Effort::SIMULATED, 2, ours, || count(&both), || Ok(()), calls)
        };
        let calls: Alone<'_> = Box::new(|| {
            // The two batches that are compared run directly one after the other.
            assert_eq!(both.get() % 4, 0);
            count(&alone)
        });
        let (_, times) = measure(&[calls]).unwrap();
        assert_eq!((both.get(), alone.get(), times.len()), (16, 4, 1));
        let refused: Alone<'_> = Box::new(|| CUresult(1));
        assert!(measure(&[refused]).is_err());
    }

    #[test]
    fn what_each_reaches_alone_is_added_up() {
        // 50 and 25 GB/s.
        let many = Many::new(2, 1000, &[20.0, 40.0], None);
        assert_eq!(many.singles, Some(75.0));
        // There is no sum if only one device has a part, or if none was timed.
        assert_eq!(Many::new(2, 1000, &[20.0], None).singles, None);
        assert_eq!(Many::new(2, 1000, &[], None).singles, None);
    }

    #[test]
    fn the_best_pair_limits_all_that_send() {
        // One-way rates of 100, 200 and 125 GB/s; both-ways rates of 250 and 400.
        let links = Links::new(1000, &[10.0, 5.0, 8.0], &[8.0, 5.0], 3);
        let expected = Links { one_way: 200.0, both_ways: 400.0, limit: 600.0 };
        assert_eq!(links, expected);
        let other = Links::new(1000, &[4.0], &[10.0], 1);
        let best = links.best(other);
        assert_eq!((best.one_way, best.both_ways), (250.0, 400.0));
    }
}
