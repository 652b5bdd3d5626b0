//! A budget for one part of a program: a limit, statistics of the part's allocations, and their peak.

mod shared;

use std::process::ExitCode;
use std::sync::Arc;

use cuda_core::adaptors::{Limiting, Statistics};
use cuda_core::{
    Allocator, AllocatorError, CachingPool, Error, Result, Stream, pools::PoolLimit, with_allocator,
};

const MIB: usize = 1 << 20;

/// The part of the program that has the budget; its code does not know of it.
fn part(stream: &Stream) -> Result<()> {
    for round in 1..=4 {
        let mut scratch = stream.alloc::<u8>(round * MIB)?;
        stream.fill(&mut scratch, 0)?;
        // The memory is freed in stream order after the fill, and cached, without a wait.
    }
    Ok(())
}

fn example() -> shared::Result {
    let device = shared::device()?;
    let stream = device.create_stream()?;

    // The part has a pool of its own: all memory that the pool keeps can be released at once.
    let pool = CachingPool::builder().limit(PoolLimit::Bytes(64 * MIB)).build()?;
    let statistics = Arc::new(Statistics::new(pool.allocator()));
    let counted = Allocator::new(Arc::clone(&statistics));
    with_allocator(&counted, || part(&stream))?;
    let bytes = statistics.counters().bytes;
    assert_eq!((bytes.value, bytes.peak, bytes.total), (0, 4 << 20, 10 << 20));
    println!("10 MiB in all, 4 MiB at once, {} bytes of the device's", pool.usage(device).reserved);
    stream.synchronize()?;
    pool.trim(0)?;
    assert_eq!(pool.usage(device).reserved, 0);

    // A limit below the part's needs: the allocation that would exceed it returns an error.
    let limited = Allocator::new(Limiting::new(pool.allocator(), 2 * MIB));
    match with_allocator(&limited, || part(&stream)) {
        Err(Error::Allocator(why)) if matches!(*why, AllocatorError::LimitExceeded { .. }) => {
            println!("refused: beyond the limit of 2 MiB");
        }
        other => return Err(format!("not refused: {other:?}").into()),
    }
    Ok(())
}

fn main() -> ExitCode {
    shared::run(example)
}
