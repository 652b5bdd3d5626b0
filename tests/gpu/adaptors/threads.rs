//! Adaptors used by many threads, and on other threads than they were made on.

use std::sync::Arc;
use std::thread;

use cuda_core::adaptors::{Limiting, Statistics, Tracking};
use cuda_core::{Allocator, Device, Result};
use support::gpu_test;

use super::{alloc, counter, out_of_memory, shared, stream};

gpu_test! {
    needs 1;
    fn eight_threads_end_at_zero() -> Result<()> {
        const THREADS: usize = 8;
        let rounds = if cfg!(miri) { 4 } else { 200 };
        let device = Device::get(0)?;
        let limit = THREADS * 3 * 4096;
        let limiting = Limiting::new(Tracking::new(Allocator::driver_pool()), limit);
        let (statistics, allocator) = shared(Statistics::new(limiting));
        thread::scope(|scope| {
            let work = |thread: usize| {
                let stream = device.create_stream().expect("a stream");
                let mut total = 0;
                for round in 0..rounds {
                    let bytes = |index: usize| 1 + (thread * 31 + round * 7 + index * 1013) % 4096;
                    let alloc = |bytes| alloc(&allocator, &stream, bytes);
                    let buffers: Vec<_> = (0..3)
                        .map(|index| alloc(bytes(index)).expect("within the limit"))
                        .collect();
                    total += (0..3).map(bytes).sum::<usize>();
                    if round % 16 == thread {
                        out_of_memory(alloc(limit));
                    }
                    drop(buffers);
                }
                total
            };
            let threads = (0..THREADS).map(|thread| scope.spawn(move || work(thread)));
            let threads: Vec<_> = threads.collect();
            let totals = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            let total: usize = totals.sum();
            assert_eq!(statistics.counters().bytes.total, total as u64);
        });
        let counters = statistics.counters();
        assert_eq!((counters.bytes.value, counters.blocks.value), (0, 0));
        assert_eq!(counters.blocks.total, (THREADS * rounds * 3) as u64);
        assert!(counters.bytes.peak <= limit as i64, "{counters:?}");
        assert_eq!(statistics.inner().used(), 0);
        assert!(statistics.inner().inner().report().is_empty());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a_block_goes_back_where_it_came_from() -> Result<()> {
        let stream = stream()?;
        let (statistics, allocator) = shared(Statistics::new(Allocator::driver_pool()));
        let buffer = alloc(&allocator, &stream, 100)?;
        let stray = Arc::clone(&statistics);
        drop(allocator);
        // Outside the scope, on another thread, after the last handle was dropped.
        drop(stream);
        thread::scope(|scope| scope.spawn(|| drop(buffer)).join().expect("no panic"));
        assert_eq!(stray.counters().bytes, counter(0, 100, 100));
        Ok(())
    }
}
