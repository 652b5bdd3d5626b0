//! Allocation and free of device memory.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use cuda_core::{Allocator, CachingPool, Stream, with_allocator};
use cuda_sys::{CUresult, CUstream, cuMemAllocAsync, cuMemFreeAsync};

use super::BATCH;
use crate::bench::goal::Goal;
use crate::bench::measure::{Measured, Unit, median};
use crate::bench::operation::{Fixture, Operation};
use crate::bench::raw::{check, first_error};

/// Bytes of a block.
const BLOCK: usize = 1 << 20;

/// Nanoseconds that a cached block may take.
const CACHED: f64 = 30.0;

/// Nanoseconds that it may take from a pool passed explicitly.
const CACHED_OWN: f64 = 60.0;

/// Threads that allocate at once, each on its own stream.
const THREADS: usize = 16;

/// Millions of blocks per second, all threads together.
const TOGETHER: f64 = 200.0;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new("alloc + free 1 MiB, cached", cached)
            .goal(Goal::Absolute(CACHED, Unit::Nanoseconds)),
        Operation::new("alloc + free 1 MiB, cached, pool of one's own", cached_own)
            .goal(Goal::Absolute(CACHED_OWN, Unit::Nanoseconds)),
        Operation::new("alloc + free 1 MiB, cached, 16 threads", together)
            .goal(Goal::Absolute(TOGETHER, Unit::Millions)),
        // The library exchanges the thread's capture mode before and after each call.
        Operation::new("alloc + free 1 MiB, stream-ordered", stream_ordered).calls(4),
    ]
}

fn raw_pair(stream: CUstream) -> CUresult {
    let mut address = 0;
    // SAFETY: the pointer is valid for a write; the caller keeps the stream.
    let allocated = unsafe { cuMemAllocAsync(&mut address, BLOCK, stream) };
    // SAFETY: allocated on the same stream, freed once.
    let freed = unsafe { cuMemFreeAsync(address, stream) };
    first_error([allocated, freed])
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
    let alloc = || fixture.stream.alloc_with::<u8>(&allocator, BLOCK);
    let raw = || raw_pair(fixture.raw_stream());
    fixture.pair(10 * BATCH, || alloc().map(drop), raw)
}

/// Millions per second of both ways, over all threads.
fn together(fixture: &Fixture) -> anyhow::Result<Measured> {
    let streams = (0..THREADS)
        .map(|_| fixture.context.create_stream())
        .collect::<cuda_core::Result<Vec<Stream>>>()?;
    let calls = fixture.effort.batches;
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..fixture.effort.at_most(5).batches {
        ours.push(rate(&streams, 100 * calls, &|stream| {
            Ok(stream.alloc::<u8>(BLOCK).map(drop)?)
        })?);
        raw.push(rate(&streams, calls, &|stream| {
            check("the raw calls", raw_pair(stream.as_raw()))
        })?);
    }
    let raw = Some(median(&raw));
    Ok(Measured::new(Unit::Millions, median(&ours), raw))
}

/// Millions per second of `calls` on each stream, each stream with its own thread.
fn rate(
    streams: &[Stream],
    calls: usize,
    call: &(dyn Fn(&Stream) -> anyhow::Result<()> + Sync),
) -> anyhow::Result<f64> {
    let start = Barrier::new(streams.len());
    let time_of = |stream: &Stream| -> anyhow::Result<Duration> {
        with_allocator(&Allocator::cache(), || {
            // Warm-up, so that every thread has what it needs.
            let warm = call(stream);
            start.wait();
            warm?;
            let start = Instant::now();
            for _ in 0..calls {
                call(stream)?;
            }
            Ok(start.elapsed())
        })
    };
    let slowest = thread::scope(|scope| {
        let threads = streams.iter().map(|stream| scope.spawn(|| time_of(stream)));
        let threads: Vec<_> = threads.collect();
        let times = threads.into_iter().map(|thread| {
            let joined = thread.join();
            joined.unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
        });
        times.collect::<anyhow::Result<Vec<Duration>>>()
    })?;
    let slowest = slowest.into_iter().max().unwrap_or_default();
    Ok((calls * streams.len()) as f64 / slowest.as_secs_f64() / 1e6)
}
