//! Segments that cannot be freed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use cuda_core::adaptors::Statistics;
use cuda_core::{
    Allocator, Device, DeviceAllocator, Error, Rejected,
    pools::{CacheBlockState, PoolLimit},
};
use cuda_sim::Fault;

use super::*;

/// A segment that could not be freed is neither used nor freed again, and does not delay others.
#[test]
fn segments_that_may_be_gone_are_left_alone() {
    run(|session| {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pool = CachingPool::new();
        let (small, large) = (alloc(&stream, &pool, 100)?, alloc(&stream, &pool, 30 * U)?);
        drop((small, large));
        stream.synchronize()?;
        let gone = Fault::new(cuda_sys::CUDA_ERROR_UNKNOWN).function("cuMemFree_v2");
        session.inject(gone.takes_effect());
        pool.trim(0).expect_err("the first was refused");
        assert_eq!(pool.usage(device).reserved, 0, "the second was not");
        assert_eq!(session.calls("cuMemFree_v2"), 2);
        drop(pool);
        assert_eq!(session.calls("cuMemFree_v2"), 2);
        Ok(())
    });
}

/// An allocator of plain memory whose first frees fail, as many as `refusals`.
struct Stubborn {
    refusals: AtomicU32,
    asked: AtomicU32,
}

// SAFETY: the inner allocator fulfils the contract.
unsafe impl DeviceAllocator for Stubborn {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<u64> {
        Allocator::plain().allocate(stream, bytes)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: u64, bytes: usize) -> Result<()> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let left = |left: u32| left.checked_sub(1);
        let (now, then) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.refusals.fetch_update(now, then, left).is_ok() {
            return Err(Error::LostStream);
        }
        // SAFETY: the plain allocator allocated it, and the caller no longer uses it.
        unsafe { Allocator::plain().deallocate(stream, address, bytes) }
    }
}

/// By its contract, an allocator that returned an error still has the segment: the pool offers it once more,
/// but not a third time.
#[test]
fn segments_that_an_allocator_refused_are_offered_once_more() {
    run(|session| {
        let device = Device::get(0)?;
        for (refusals, asked) in [(0, 1), (1, 2), (2, 2)] {
            for trims in [true, false] {
                let stream = device.create_stream()?;
                let stubborn = Arc::new(Stubborn { refusals: refusals.into(), asked: 0.into() });
                let upstream = Allocator::new(stubborn.clone());
                let pool = CachingPool::builder().upstream(&upstream).build()?;
                drop(alloc(&stream, &pool, 100)?);
                stream.synchronize()?;
                let reported = cuda_core::drops::failures();
                if trims {
                    assert_eq!(pool.trim(0).is_ok(), refusals < 1);
                    let left = if refusals < 1 { 0 } else { U };
                    let usage = pool.usage(device);
                    assert_eq!((usage.reserved, usage.pending, usage.free), (left, left, 0));
                    let shown = pool.segments(device);
                    let mut blocks = shown.iter().flat_map(|segment| &segment.blocks);
                    assert!(blocks.all(|block| block.state == CacheBlockState::Pending));
                    assert_eq!(pool.trim(U).is_ok(), refusals < 2);
                    assert_eq!(pool.usage(device).reserved, 0);
                    assert_eq!(pool.trim(0)?, 0);
                }
                drop((pool, stream));
                cuda_core::drops::flush();
                assert_eq!(stubborn.asked.load(Ordering::Relaxed), asked);
                let lost = u64::from(refusals > 1);
                assert_eq!(cuda_core::drops::failures() - reported, lost);
                let leaks = session.leaks();
                assert_eq!(leaks.len() as u64, lost, "{leaks:#?}");
                support::judge::take_away(session, leaks);
            }
        }
        Ok(())
    });
}

/// With an adaptor between pool and driver, a segment that the driver refused is not offered again.
#[test]
fn what_the_driver_refused_behind_an_adaptor_is_left_alone() {
    run(|session| {
        let stream = Device::get(0)?.create_stream()?;
        let upstream = Allocator::new(Statistics::new(Allocator::plain()));
        let pool = CachingPool::builder().upstream(&upstream).build()?;
        drop(alloc(&stream, &pool, 100)?);
        stream.synchronize()?;
        let gone = Fault::new(cuda_sys::CUDA_ERROR_UNKNOWN).function("cuMemFree_v2");
        session.inject(gone.takes_effect());
        pool.trim(0).expect_err("it was refused");
        assert_eq!(pool.trim(0)?, 0);
        drop(pool);
        assert_eq!(session.calls("cuMemFree_v2"), 1);
        Ok(())
    });
}

/// An allocator that, on each request, asks its own pool for the largest size, and fails.
#[derive(Default)]
struct Greedy {
    pool: OnceLock<CachingPool>,
    refused: Mutex<Option<Error>>,
}

// SAFETY: it returns no memory.
unsafe impl DeviceAllocator for Greedy {
    fn allocate(&self, stream: &Stream, _: usize) -> Result<u64> {
        let pool = self.pool.get().expect("set before the first allocation");
        let refused = DeviceAllocator::allocate(pool, stream, isize::MAX as usize);
        *self.refused.lock().expect("no panic") = refused.err();
        Err(Error::ContextInUse)
    }

    unsafe fn deallocate(&self, _: &Stream, _: u64, _: usize) -> Result<()> {
        Ok(())
    }
}

#[test]
fn two_requests_beyond_all_memory_are_refused() {
    run(|_| {
        let stream = Device::get(0)?.create_stream()?;
        let greedy = Arc::new(Greedy::default());
        let pool = CachingPool::builder()
            .upstream(&Allocator::new(greedy.clone()))
            .limit(PoolLimit::Bytes(usize::MAX))
            .build()?;
        greedy.pool.set(pool.clone()).expect("set once");
        let refused = alloc(&stream, &pool, isize::MAX as usize).expect_err("beyond all memory");
        assert!(matches!(refused, Error::ContextInUse), "{refused:?}");
        let inner = greedy.refused.lock().expect("no panic").take();
        assert!(matches!(inner, Some(Error::PoolExhausted(_))), "{inner:?}");
        Ok(())
    });
}

/// An allocator of plain memory whose frees work and then panic.
struct Loud;

// SAFETY: the inner allocator fulfils the contract.
unsafe impl DeviceAllocator for Loud {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<u64> {
        Allocator::plain().allocate(stream, bytes)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: u64, bytes: usize) -> Result<()> {
        // SAFETY: the plain allocator allocated it, and the caller no longer uses it.
        unsafe { Allocator::plain().deallocate(stream, address, bytes) }?;
        panic!("after it was freed")
    }
}

#[test]
fn a_block_that_was_freed_by_what_panicked_is_given_up() {
    run(|session| {
        let stream = Device::get(0)?.create_stream()?;
        let loud = Allocator::new(Loud);
        let buffer = stream.alloc_with::<u8>(&loud, 64)?;
        let Rejected { value: buffer, .. } = buffer.close().expect_err("it panicked");
        assert_eq!(buffer.len(), 0);
        drop(buffer);
        let pool = CachingPool::builder().upstream(&loud).build()?;
        drop(alloc(&stream, &pool, 100)?);
        stream.synchronize()?;
        pool.trim(0).expect_err("it panicked");
        assert_eq!(pool.trim(0)?, 0, "it is not asked once more");
        assert_eq!(session.violations(), []);
        Ok(())
    });
}

/// A request that can never be served is refused, although the pool's memory changes whenever it looks.
#[test]
fn n04_what_never_fits_is_refused_though_memory_moves() {
    const MANY: u32 = 100;
    run(|_| {
        let device = Device::get(0)?;
        let (stream, other) = (device.create_stream()?, device.create_stream()?);
        let of_pool = Arc::new(Mutex::new(None::<CachingPool>));
        let frees = Arc::new(AtomicU32::new(0));
        let (pool, count) = (of_pool.clone(), frees.clone());
        // With each segment that goes, another one comes, and is unused at once.
        let free = move |stream: &Stream, address, bytes| {
            let pool = pool.lock().expect("no panic").clone();
            if let Some(pool) = pool.filter(|_| count.fetch_add(1, Ordering::Relaxed) < MANY) {
                drop(alloc(stream, &pool, 1000)?);
            }
            // SAFETY: the plain allocator allocated it, and the caller no longer uses it.
            unsafe { Allocator::plain().deallocate(stream, address, bytes) }
        };
        let allocate = |stream: &Stream, bytes| Allocator::plain().allocate(stream, bytes);
        // SAFETY: the inner allocator fulfils the contract.
        let upstream = unsafe { Allocator::from_closures(allocate, free) };
        let limited = CachingPool::builder().limit(PoolLimit::Bytes(4 * U));
        let pool = limited.upstream(&upstream).build()?;
        let live = alloc(&stream, &pool, 2 * U)?;
        drop(alloc(&other, &pool, 1000)?);
        *of_pool.lock().expect("no panic") = Some(pool.clone());
        let refused = alloc(&stream, &pool, 3 * U).map(drop);
        assert!(matches!(refused, Err(Error::PoolExhausted(_))), "{refused:?}");
        let looked = frees.load(Ordering::Relaxed);
        assert!((1..MANY).contains(&looked), "it looked {looked} times");
        *of_pool.lock().expect("no panic") = None;
        drop(live);
        Ok(())
    });
}
