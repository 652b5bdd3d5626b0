//! Allocation and free of device memory.

use std::sync::Barrier;

use cuda_core::{Allocator, CachingPool, Stream, with_allocator};
use cuda_sys::{self as sys, CUresult, CUstream};

use super::BATCH;
use crate::bench::measure::{each_of, median};
use crate::bench::raw::{check, first_error};
use crate::bench::{Fixture, Goal, Measured, Operation, Unit};
use crate::queue;

/// Bytes of a block.
const BLOCK: usize = 1 << 20;

/// What a cached block may take.
const CACHED: Goal = Goal::Absolute(30.0, Unit::Nanoseconds);

/// What it may take from a pool passed explicitly.
const CACHED_OWN: Goal = Goal::Absolute(60.0, Unit::Nanoseconds);

/// Threads that allocate at once, each on its own stream.
const THREADS: usize = 16;

/// Millions of blocks per second, all threads together.
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

/// The driver's pool, used through the library and directly.
fn stream_ordered(fixture: &Fixture) -> anyhow::Result<Measured> {
    with_allocator(&Allocator::driver_pool(), || by_default(fixture, BATCH))
}

/// Blocks of the allocator that is set.
fn by_default(fixture: &Fixture, batch: usize) -> anyhow::Result<Measured> {
    let ours = || fixture.stream.alloc::<u8>(BLOCK).map(drop);
    fixture.pair(batch, ours, || raw_pair(fixture.raw_stream()))
}

fn cached_own(fixture: &Fixture) -> anyhow::Result<Measured> {
    let allocator = CachingPool::new().allocator();
    let ours = || fixture.stream.alloc_with::<u8>(&allocator, BLOCK).map(drop);
    fixture.pair(10 * BATCH, ours, || raw_pair(fixture.raw_stream()))
}

/// Millions per second of both ways, over all threads.
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

/// Millions per second of `calls` on each stream, each stream with its own thread.
fn rate(
    streams: &[Stream],
    calls: usize,
    call: impl Fn(&Stream) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<f64> {
    let start = Barrier::new(streams.len());
    let time_of = |stream: &Stream| {
        with_allocator(&Allocator::cache(), || {
            // Warm-up, so that every thread has what it needs.
            let warm = call(stream);
            start.wait();
            warm?;
            each_of(calls, || call(stream))
        })
    };
    // A thread for each, since all wait for each other.
    let times = queue::each(streams.len(), streams.iter().collect(), time_of);
    let times = times.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let slowest = times.into_iter().fold(0.0, f64::max);
    // One for each nanosecond would be a thousand millions per second.
    Ok(1e3 * streams.len() as f64 / slowest)
}
