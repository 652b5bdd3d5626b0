//! Failing allocations, and how adaptors handle them.

use std::sync::{Arc, Mutex, PoisonError};

use cuda_core::adaptors::{
    HookEvent, Hooks, Limiting, Logging, OnFailure, Statistics, Tracking, Verdict,
};
use cuda_core::{
    Allocator, Device, DeviceAllocator, DeviceBuffer, Error, Rejected, Result, Stream,
};
use support::gpu_test;

use super::{MIB, Shared, alloc, counter, out_of_memory, shared, stream};

gpu_test! {
    needs 1;
    fn a_callback_makes_room() -> Result<()> {
        let stream = stream()?;
        let limiting = Limiting::new(Allocator::driver_pool(), 4 * MIB);
        let spare: Arc<Mutex<Vec<DeviceBuffer<u8>>>> = Arc::default();
        let calls: Arc<Mutex<Vec<_>>> = Arc::default();
        let (callbacks_spare, callbacks_calls) = (Arc::clone(&spare), Arc::clone(&calls));
        let (_, allocator) = shared(OnFailure::new(limiting, move |failure| {
            let heard = (failure.bytes, failure.device, failure.attempt);
            callbacks_calls.lock().unwrap().push(heard);
            assert_eq!(failure.error.code(), Some(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY));
            match callbacks_spare.lock().unwrap().pop() {
                Some(_freed) => Verdict::Retry,
                None => Verdict::GiveUp,
            }
        }));
        for _ in 0..3 {
            let buffer = alloc(&allocator, &stream, MIB)?;
            spare.lock().unwrap().push(buffer);
        }
        let device = Device::get(0)?;
        let buffer = alloc(&allocator, &stream, 3 * MIB)?;
        assert_eq!(*calls.lock().unwrap(), [(3 * MIB, device, 1), (3 * MIB, device, 2)]);
        out_of_memory(alloc(&allocator, &stream, 2 * MIB));
        assert_eq!(calls.lock().unwrap().len(), 4, "one to spare, then none");
        drop(buffer);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a_callback_is_not_asked_for_ever() -> Result<()> {
        let stream = stream()?;
        let calls = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&calls);
        let inner = Limiting::new(Allocator::driver_pool(), MIB);
        let stubborn = OnFailure::new(inner, move |_| {
            *counted.lock().unwrap() += 1;
            Verdict::Retry
        });
        let (_, allocator) = shared(stubborn.max_retries(3));
        out_of_memory(alloc(&allocator, &stream, 2 * MIB));
        assert_eq!(*calls.lock().unwrap(), 0, "more than the limit, whatever it frees");
        let held = alloc(&allocator, &stream, 1)?;
        out_of_memory(alloc(&allocator, &stream, MIB));
        assert_eq!(*calls.lock().unwrap(), 3);
        drop(held);

        let inner = Limiting::new(Allocator::driver_pool(), MIB);
        let counted = Arc::clone(&calls);
        let (panicking, allocator) = shared(OnFailure::new(inner, move |_| {
            *counted.lock().unwrap() += 1;
            panic!("in the callback")
        }));
        let held = alloc(&allocator, &stream, 1)?;
        out_of_memory(alloc(&allocator, &stream, MIB));
        assert_eq!(*calls.lock().unwrap(), 4, "once more");
        drop(held);
        drop(alloc(&allocator, &stream, MIB)?);
        assert_eq!(panicking.inner().used(), 0);
        Ok(())
    }
}

/// An allocator that allocates, fails or panics, as set.
struct Moody {
    inner: Allocator,
    mood: Arc<Mutex<Mood>>,
}

#[derive(Clone, Copy)]
enum Mood {
    Good,
    Refuses,
    Panics,
    /// Returns null, as an allocator in C does that has no memory.
    ReturnsNull,
}

impl Moody {
    fn mind(&self) -> Result<()> {
        let mood = *self.mood.lock().unwrap_or_else(PoisonError::into_inner);
        match mood {
            Mood::Good => Ok(()),
            Mood::Refuses => Err(Error::ContextInUse),
            Mood::Panics => panic!("the allocator panics"),
            Mood::ReturnsNull => Ok(()),
        }
    }
}

// SAFETY: the inner allocator fulfils the contract.
unsafe impl DeviceAllocator for Moody {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<u64> {
        self.mind()?;
        match *self.mood.lock().unwrap_or_else(PoisonError::into_inner) {
            Mood::ReturnsNull => Ok(0),
            _ => self.inner.allocate(stream, bytes),
        }
    }

    unsafe fn deallocate(&self, stream: &Stream, address: u64, bytes: usize) -> Result<()> {
        self.mind()?;
        // SAFETY: the inner allocator allocated it, and the caller no longer uses it.
        unsafe { self.inner.deallocate(stream, address, bytes) }
    }
}

gpu_test! {
    needs 1;
    fn i07_counts_survive_failures_and_panics() -> Result<()> {
        let stream = stream()?;
        let mood = Arc::new(Mutex::new(Mood::Good));
        let moody = Moody { inner: Allocator::driver_pool(), mood: Arc::clone(&mood) };
        let log = Shared::default();
        let logging = Logging::new(Tracking::new(moody), log.clone()).expect("writing to memory");
        let (statistics, allocator) = shared(Statistics::new(Limiting::new(logging, MIB)));
        let set = |to| *mood.lock().unwrap_or_else(PoisonError::into_inner) = to;
        let limiting = statistics.inner();
        let tracking = limiting.inner().inner();
        let used = || {
            let counters = statistics.counters();
            let bytes = tracking.report().bytes();
            assert_eq!((counters.bytes.value, limiting.used()), (bytes as i64, bytes));
            assert_eq!(counters.blocks.value, tracking.outstanding().len() as i64);
            bytes
        };
        let buffer = alloc(&allocator, &stream, 1000)?;
        for bad in [Mood::Refuses, Mood::Panics] {
            set(bad);
            assert!(alloc(&allocator, &stream, 10).is_err());
            assert_eq!(used(), 1000);
        }
        set(Mood::Refuses);
        let Rejected { error, value: buffer } = buffer.close().expect_err("a bad mood");
        assert!(!error.is_sticky());
        assert_eq!((used(), tracking.outstanding()[0].address), (1000, buffer.as_raw()));
        set(Mood::Good);
        drop(buffer);
        assert_eq!(used(), 0);
        assert_eq!(statistics.counters().bytes, counter(0, 1000, 1000));
        let ops: Vec<_> = log.text().lines().skip(2)
            .map(|line| line.split(',').nth(4).expect("an operation").to_owned()).collect();
        assert_eq!(ops, [
            "allocate",
            "allocate_failed", "allocate_failed",
            "deallocate", "deallocate_failed", "deallocate",
        ]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn i07_null_is_no_block() -> Result<()> {
        let stream = stream()?;
        let none = || Moody {
            inner: Allocator::driver_pool(),
            mood: Arc::new(Mutex::new(Mood::ReturnsNull)),
        };
        let statistics = Statistics::new(none());
        statistics.allocate(&stream, 10).expect_err("null");
        assert_eq!(statistics.counters().blocks, counter(0, 0, 0));
        let limiting = Limiting::new(none(), MIB);
        limiting.allocate(&stream, 10).expect_err("null");
        assert_eq!(limiting.used(), 0);
        let tracking = Tracking::new(none());
        tracking.allocate(&stream, 10).expect_err("null");
        assert!(tracking.report().is_empty());
        let log = Shared::default();
        let logging = Logging::new(none(), log.clone()).expect("writing to memory");
        logging.allocate(&stream, 10).expect_err("null");
        assert!(log.text().ends_with(",allocate_failed,0x0,10\n"), "{}", log.text());
        let failed = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&failed);
        let hooks = Hooks::new(none());
        let count = move |event: &HookEvent<'_>| {
            *counted.lock().unwrap() += u32::from(event.error.is_some());
        };
        hooks.with(count, || hooks.allocate(&stream, 10)).expect_err("null");
        assert_eq!(*failed.lock().unwrap(), 1);

        // Allocators in C report a lack of memory by returning null.
        let around: [fn(Moody) -> Allocator; 2] = [
            Allocator::new,
            |moody| Allocator::new(Limiting::new(Statistics::new(moody), MIB)),
        ];
        for inner in around {
            let mood = Arc::new(Mutex::new(Mood::ReturnsNull));
            let better = Arc::clone(&mood);
            let inner = inner(Moody { inner: Allocator::driver_pool(), mood });
            let (_, allocator) = shared(OnFailure::new(inner, move |failure| {
                assert!(failure.error.to_string().contains("null"), "{}", failure.error);
                *better.lock().unwrap() = Mood::Good;
                Verdict::Retry
            }));
            drop(alloc(&allocator, &stream, 10)?);
        }
        Ok(())
    }
}
