//! Copies of borrowed slices: beside pinned memory, beside the driver's own copies, and by threads
//! and chunks.

use std::time::Instant;

use cuda_core::{
    DeviceBuffer, PinnedBuffer, Stream,
    staging::{self, StagingOptions},
};
use cuda_sys::{cuMemcpyDtoH_v2, cuMemcpyHtoD_v2};

use super::goal::Goal;
use super::measure::{Measured, Unit, median};
use super::operation::{Fixture, Operation};
use super::raw::{self, Direction};

/// The median of this many runs is used.
const RUNS: usize = 5;

/// Bytes that a batch moves: enough that threads, chunks and processors are as busy as in a real
/// program, whatever the size of a copy.
const BATCH: usize = 1 << 30;

/// Mebibytes, and the required share of the bandwidth of pinned memory.
const SHARES: [(usize, f64); 3] = [(64, 0.80), (256, 0.90), (1024, 0.95)];

/// Numbers of copying threads and sizes of chunks, in mebibytes, of a study.
pub(super) const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
pub(super) const CHUNKS: [usize; 4] = [1, 2, 4, 8];

/// The largest slice, as a power of two.
const LARGEST: u32 = 30;

pub(super) fn name(direction: Direction) -> &'static str {
    direction.pick("slice upload", "slice download")
}

/// The operations with goals.
pub(super) fn goals() -> Vec<Operation> {
    let mut operations = Vec::new();
    for direction in Direction::BOTH {
        let what = name(direction);
        for (mebibytes, share) in SHARES {
            let name = format!("{what} + wait {mebibytes} MiB beside pinned memory");
            let run = move |fixture: &Fixture| beside_pinned(fixture, mebibytes << 20, direction);
            operations.push(Operation::new(name, run).goal(Goal::Share(share)));
        }
        let name = format!("{what}, the worst of all powers of two up to 1 GiB");
        let run = move |fixture: &Fixture| worst(fixture, direction);
        operations.push(Operation::new(name, run).goal(Goal::Ratio(1.05)));
    }
    operations
}

/// The study of threads and chunks.
pub(super) fn matrix() -> Vec<Operation> {
    let mut operations = Vec::new();
    for direction in Direction::BOTH {
        for threads in THREADS {
            for mebibytes in CHUNKS {
                let run = move |fixture: &Fixture| {
                    let before = staging::options()?;
                    // The calling thread is one of them.
                    let options = StagingOptions::new(threads - 1, mebibytes << 20);
                    staging::set_options(options)?;
                    let measured = beside_pinned(fixture, 256 << 20, direction);
                    staging::set_options(before)?;
                    measured
                };
                let name = name_in_matrix(direction, threads, mebibytes);
                let study = Operation::new(name, run);
                operations.push(study.without_goal("the default is what counts"));
            }
        }
    }
    operations
}

pub(super) fn name_in_matrix(direction: Direction, threads: usize, mebibytes: usize) -> String {
    let name = name(direction);
    let plural = if threads == 1 { "" } else { "s" };
    format!("{name} + wait 256 MiB, {threads} thread{plural}, chunks of {mebibytes} MiB")
}

/// A slice of pageable memory with every page touched, and its buffer.
struct Ends {
    slice: Vec<u8>,
    buffer: DeviceBuffer<u8>,
}

impl Ends {
    fn new(fixture: &Fixture, bytes: usize) -> anyhow::Result<Self> {
        let mut buffer = fixture.stream.alloc(bytes)?;
        fixture.stream.fill(&mut buffer, 7)?;
        fixture.settle()?;
        Ok(Self { slice: vec![7; bytes], buffer })
    }

    fn copy(&mut self, stream: &Stream, bytes: usize, to: Direction) -> cuda_core::Result<()> {
        let slice = &mut self.slice[..bytes];
        match to {
            Direction::Up => stream.upload(&*slice, self.buffer.slice_mut(..bytes)?),
            Direction::Down => stream.download(self.buffer.slice(..bytes)?, slice),
        }
    }
}

fn beside_pinned(
    fixture: &Fixture,
    bytes: usize,
    direction: Direction,
) -> anyhow::Result<Measured> {
    let batch = BATCH / bytes;
    let bytes = fixture.effort.bytes(bytes);
    let stream = &fixture.stream;
    let mut ends = Ends::new(fixture, bytes)?;
    let mut pinned = PinnedBuffer::<u8>::zeroed(&fixture.context, bytes)?;
    let (address, memory) = (ends.buffer.as_raw(), pinned.as_mut_slice()?.as_mut_ptr());
    let measured = fixture.waited(
        RUNS,
        batch,
        || ends.copy(stream, bytes, direction),
        // SAFETY: both have this many bytes, and the library's copies end before the raw calls begin.
        || unsafe { raw::transfer(stream, direction, address, memory, bytes) },
    )?;
    Ok(measured.moving(bytes))
}

/// The size at which the library does worst relative to the driver's own blocking copy of the same
/// slice.
fn worst(fixture: &Fixture, direction: Direction) -> anyhow::Result<Measured> {
    let most = fixture.effort.bytes(1 << LARGEST);
    let stream = &fixture.stream;
    let mut ends = Ends::new(fixture, most)?;
    let mut worst: Option<Measured> = None;
    for bytes in (0..=LARGEST).map(|shift| 1 << shift) {
        if bytes > most {
            break;
        }
        let repeats = ((1 << 20) / bytes).clamp(1, 100);
        let (mut ours, mut raw) = (Vec::new(), Vec::new());
        // The first run is a warm-up.
        for run in 0..=RUNS {
            let mut time = 0;
            for _ in 0..repeats {
                let start = Instant::now();
                ends.copy(stream, bytes, direction)?;
                time += start.elapsed().as_nanos();
                // An upload need not wait, but the next one should not wait for it.
                stream.synchronize()?;
            }
            let theirs = blocking(&mut ends, bytes, repeats, direction)?;
            if run > 0 {
                ours.push(time as f64 / repeats as f64);
                raw.push(theirs);
            }
        }
        let measured = Measured::new(Unit::Nanoseconds, median(&ours), Some(median(&raw)));
        if worst.is_none_or(|worst| worst.ratio < measured.ratio) {
            worst = Some(measured);
        }
    }
    worst.ok_or_else(|| anyhow::anyhow!("no size was measured"))
}

/// Nanoseconds of the driver's own copy.
fn blocking(
    ends: &mut Ends,
    bytes: usize,
    repeats: usize,
    direction: Direction,
) -> anyhow::Result<f64> {
    let (address, slice) = (ends.buffer.as_raw(), ends.slice.as_mut_ptr());
    let start = Instant::now();
    for _ in 0..repeats {
        let code = match direction {
            // SAFETY: both sides have `bytes` bytes; when the call returns the copy is done, or the
            // driver has read the whole slice.
            Direction::Up => unsafe { cuMemcpyHtoD_v2(address, slice.cast(), bytes) },
            // SAFETY: both sides have `bytes` bytes, and no other code accesses the slice; the copy
            // is done when the call returns.
            Direction::Down => unsafe { cuMemcpyDtoH_v2(slice.cast(), address, bytes) },
        };
        raw::check("the raw copy", code)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / repeats as f64)
}
