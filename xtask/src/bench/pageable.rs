//! Copies of borrowed slices, compared with copies of pinned memory and with the driver's own copies.

use std::time::Instant;

use anyhow::Context as _;
use cuda_core::PinnedBuffer;

use super::ends::{Direction, Ends, RawEnds};
use super::measure::median;
use super::raw::check;
use super::{Fixture, Goal, Measured, Operation, Unit};

/// The number of runs, of which the median is used.
const RUNS: usize = 5;

/// The number of bytes that a batch moves: enough to keep threads, chunks and processors as busy as in a real
/// program, whatever the size of a copy.
const BATCH: usize = 1 << 30;

/// Sizes in mebibytes, with the required share of the bandwidth of pinned memory.
const SHARES: [(usize, f64); 3] = [(64, 0.80), (256, 0.90), (1024, 0.95)];

/// The largest slice, as an exponent of two.
const LARGEST: u32 = 30;

pub(super) fn operations() -> Vec<Operation> {
    let mut operations = Vec::new();
    for (direction, what) in Direction::BOTH {
        for (mebibytes, share) in SHARES {
            let name = format!("slice {what} + wait {mebibytes} MiB beside pinned memory");
            let run = move |fixture: &Fixture| beside_pinned(fixture, mebibytes << 20, direction);
            operations.push(Operation::new(name, run).goal(Goal::Share(share)));
        }
        let name = format!("slice {what}, the worst of all powers of two up to 1 GiB");
        let run = move |fixture: &Fixture| worst(fixture, direction);
        operations.push(Operation::new(name, run).goal(Goal::Ratio(1.05)));
    }
    operations
}

fn beside_pinned(fixture: &Fixture, bytes: usize, to: Direction) -> anyhow::Result<Measured> {
    let batch = BATCH / bytes;
    let bytes = fixture.effort.bytes(bytes);
    let stream = &fixture.stream;
    let mut ends = Ends::pageable(fixture, bytes)?;
    let mut pinned = PinnedBuffer::<u8>::zeroed(&fixture.context, bytes)?;
    let raw = RawEnds { host: pinned.as_mut_slice()?.as_mut_ptr(), ..ends.raw()? };
    let ours = || ends.copy(stream, to);
    // SAFETY: both have this many bytes, and the library's copies end before the raw calls begin.
    let measured = fixture.waited(RUNS, batch, ours, || unsafe { raw.copy(fixture, to) })?;
    Ok(measured.moving(bytes))
}

/// Measures the size at which the library is slowest relative to the driver's own blocking copy of the same
/// slice.
fn worst(fixture: &Fixture, to: Direction) -> anyhow::Result<Measured> {
    let most = fixture.effort.bytes(1 << LARGEST);
    let sizes = (0..=LARGEST).map(|shift| 1 << shift).take_while(|bytes| *bytes <= most);
    let all = sizes.map(|bytes| beside_blocking(fixture, bytes, to));
    let all: Vec<Measured> = all.collect::<anyhow::Result<_>>()?;
    let worse = |one: Measured, other: Measured| if one.ratio < other.ratio { other } else { one };
    all.into_iter().reduce(worse).context("no size was measured")
}

fn beside_blocking(fixture: &Fixture, bytes: usize, to: Direction) -> anyhow::Result<Measured> {
    let mut ends = Ends::pageable(fixture, bytes)?;
    let raw = ends.raw()?;
    let repeats = ((1 << 20) / bytes).clamp(1, 100);
    let (mut our_times, mut raw_times) = (Vec::new(), Vec::new());
    let timed = |copy: &mut dyn FnMut() -> anyhow::Result<()>| -> anyhow::Result<f64> {
        let mut spent = 0;
        for _ in 0..repeats {
            let start = Instant::now();
            copy()?;
            spent += start.elapsed().as_nanos();
            // An upload need not wait, but the next one must not wait for it.
            fixture.context.synchronize()?;
        }
        Ok(spent as f64 / repeats as f64)
    };
    // SAFETY: the memory outlives the call, and no other code uses it.
    let mut raw_copy = || check("the raw copy", unsafe { raw.copy_blocking(to) });
    let mut our_copy = || Ok(ends.copy(&fixture.stream, to)?);
    for run in 0..=RUNS {
        for is_ours in [run % 2 == 0, run % 2 == 1] {
            match is_ours {
                true => our_times.push(timed(&mut our_copy)?),
                false => raw_times.push(timed(&mut raw_copy)?),
            }
        }
    }
    // The first run is a warm-up.
    let raw = Some(median(&raw_times[1..]));
    Ok(Measured::new(Unit::Nanoseconds, median(&our_times[1..]), raw))
}
