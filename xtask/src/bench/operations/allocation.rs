//! Allocation and free of device memory.

use std::sync::Barrier;

use cuda_core::{Allocator, CachingPool, Stream, with_allocator};
use cuda_sys::{self as sys, CUresult, CUstream};

use super::BATCH;
use crate::bench::measure::{each_of, median};
use crate::bench::raw::{check, first_error};
use crate::bench::{Fixture, Goal, Measured, Operation, Unit};
use crate::queue;

/// Size of a block in bytes.
const BLOCK: usize = 1 << 20;

/// The time allowed for a cached block.
const CACHED: Goal = Goal::Absolute(30.0, Unit::Nanoseconds);

/// The time allowed for a cached block from a pool that is passed explicitly.
const CACHED_OWN: Goal = Goal::Absolute(60.0, Unit::Nanoseconds);

/// The number of threads that allocate at once, each on a stream of its own.
const THREADS: usize = 16;

/// Millions of blocks per second, for all threads together.
const TOGETHER: Goal = Goal::Absolute(200.0, Unit::Millions);

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new("alloc + free 1 MiB, cached", cached).goal(CACHED),
        Operation::new("alloc + free 1 MiB, cached, pool of one's own", cached_own)
            .goal(CACHED_OWN),
        Operation::new("alloc + free 1 MiB, cached, 16 threads", together).goal(TOGETHER),
        // The library exchanges the thread's capture mode before and after each call.
        Operation::new("alloc + free 1 MiB, stream-ordered", stream_ordered).calls(4),
    ]
}

fn raw_pair(stream: CUstream) -> CUresult {
    let mut address = 0;
    // SAFETY: the pointer is valid for a write; the caller keeps the stream.
    let allocated = unsafe { sys::cuMemAllocAsync(&mut address, BLOCK, stream) };
    // SAFETY: allocated on the same stream, freed once.
    first_error([allocated, unsafe { sys::cuMemFreeAsync(address, stream) }])
}

fn cached(fixture: &Fixture) -> anyhow::Result<Measured> {
    with_allocator(&Allocator::cache(), || by_default(fixture, 10 * BATCH))
}

/// Compares the library's use of the driver's pool with direct calls.
fn stream_ordered(fixture: &Fixture) -> anyhow::Result<Measured> {
    with_allocator(&Allocator::driver_pool(), || by_default(fixture, BATCH))
}

/// Measures blocks of the current allocator.
fn by_default(fixture: &Fixture, batch: usize) -> anyhow::Result<Measured> {
    let ours = || fixture.stream.alloc::<u8>(BLOCK).map(drop);
    fixture.pair(batch, ours, || raw_pair(fixture.raw_stream()))
}

fn cached_own(fixture: &Fixture) -> anyhow::Result<Measured> {
    let allocator = CachingPool::new().allocator();
    let ours = || fixture.stream.alloc_with::<u8>(&allocator, BLOCK).map(drop);
    fixture.pair(10 * BATCH, ours, || raw_pair(fixture.raw_stream()))
}

/// Measures millions of blocks per second for both ways, over all threads.
fn together(fixture: &Fixture) -> anyhow::Result<Measured> {
    let streams = (0..THREADS).map(|_| fixture.context.create_stream());
    let streams = streams.collect::<cuda_core::Result<Vec<Stream>>>()?;
    let calls = fixture.effort.batches;
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    let our_call = |stream: &Stream| Ok(stream.alloc::<u8>(BLOCK).map(drop)?);
    let raw_call = |stream: &Stream| check("the raw calls", raw_pair(stream.as_raw()));
    for _ in 0..fixture.effort.at_most(5).batches {
        ours.push(rate(&streams, 100 * calls, our_call)?);
        raw.push(rate(&streams, calls, raw_call)?);
    }
    Ok(Measured::new(Unit::Millions, median(&ours), Some(median(&raw))))
}

/// Returns the millions of `calls` per second on all streams, each with a thread of its own.
fn rate(
    streams: &[Stream],
    calls: usize,
    call: impl Fn(&Stream) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<f64> {
    let start = Barrier::new(streams.len());
    let time_of = |stream: &Stream| {
        with_allocator(&Allocator::cache(), || {
            // A warm-up, so that every thread has its caches filled.
            let warm = call(stream);
            start.wait();
            warm?;
            each_of(calls, || call(stream))
        })
    };
    // One thread for each stream, since all wait for each other.
    let times = queue::each(streams.len(), streams.iter().collect(), time_of);
    let times = times.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let slowest = times.into_iter().fold(0.0, f64::max);
    // One block per nanosecond is a thousand millions per second.
    Ok(1e3 * streams.len() as f64 / slowest)
}
