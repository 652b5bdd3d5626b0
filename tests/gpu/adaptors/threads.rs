//! Adaptors used by many threads, and on threads other than the one that made them.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use cuda_core::adaptors::{Limiting, OnFailure, Statistics, Tracking, Verdict};
use cuda_core::{Allocator, CachingPool, Device, Result};
use support::gpu_test;

use super::{MIB, alloc, counter, out_of_memory, shared, stream};

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
        // The buffer is dropped outside the scope, on another thread, after the last handle.
        drop(stream);
        thread::scope(|scope| scope.spawn(|| drop(buffer)).join().expect("no panic"));
        assert_eq!(stray.counters().bytes, counter(0, 100, 100));
        Ok(())
    }
}

/// A barrier for two threads, either of which may end without reaching it.
#[derive(Default)]
struct Meeting {
    came: Mutex<u32>,
    more: Condvar,
}

impl Meeting {
    fn come(&self) {
        *self.came.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.more.notify_all();
    }

    fn await_both(&self) {
        let came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.more.wait_while(came, |came| *came < 2));
    }
}

gpu_test! {
    needs 1;
    fn n04_callbacks_that_allocate_from_the_pool_above_do_not_wait_for_each_other() -> Result<()> {
        thread_local! {
            static NESTED: Cell<bool> = const { Cell::new(false) };
        }
        let streams = [stream()?, stream()?];
        let (meeting, above) = (Arc::new(Meeting::default()), Arc::new(Mutex::new(None)));
        let (meets, pool) = (meeting.clone(), above.clone());
        let limited = Arc::new(Limiting::new(Allocator::plain(), 4 * MIB));
        let _all = alloc(&Allocator::new(limited.clone()), &streams[0], 4 * MIB)?;
        let upstream = OnFailure::new(limited, move |_| {
            if !NESTED.replace(true) {
                meets.come();
                meets.await_both();
                let pool: Option<Allocator> = pool.lock().expect("no panic").clone();
                out_of_memory(alloc(&pool.expect("it is set"), &stream().expect("a stream"), 100));
            }
            Verdict::GiveUp
        });
        let pool = CachingPool::builder().upstream(&Allocator::new(upstream)).build()?.allocator();
        *above.lock().expect("no panic") = Some(pool.clone());
        thread::scope(|scope| {
            for stream in &streams {
                scope.spawn(|| {
                    let refused = alloc(&pool, stream, 100);
                    meeting.come();
                    assert!(NESTED.get());
                    out_of_memory(refused);
                });
            }
        });
        // Breaks the cycle: the adaptor refers to itself.
        *above.lock().expect("no panic") = None;
        Ok(())
    }
}
