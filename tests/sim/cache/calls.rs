//! The pool's driver calls: a hit makes none.

use cuda_core::{
    Allocator, CachingPool, Device, Error, Rejected, pools::PoolLimit, with_allocator,
};
use cuda_sim::Fault;

use super::*;

/// Returns sizes as of a program that allocates many kinds of buffers.
fn mixed(step: usize) -> usize {
    const SIZES: [usize; 12] =
        [1, 64, 300, 1024, 4096, 5000, 9999, 65_536, 100_000, 1 << 20, 3 << 20, 30 << 20];
    SIZES[step * 7 % SIZES.len()]
}

#[test]
#[cfg_attr(miri, ignore = "loops long")]
fn h30_steady_state_no_driver() {
    run(|session| {
        let stream = Device::get(0)?.create_stream()?;
        for allocator in [Allocator::cache(), CachingPool::new().allocator()] {
            let mut held = Vec::new();
            let mut mark = session.mark();
            for step in 0..12_000 {
                held.push(stream.alloc_with::<u8>(&allocator, mixed(step))?);
                if held.len() > 20 {
                    // Frees in an order other than that of the allocations.
                    drop(held.swap_remove(step % 20));
                }
                if step == 2000 {
                    mark = session.mark();
                }
            }
            assert_eq!(session.names_since(mark), [""; 0], "{allocator:?}");
        }
        Ok(())
    });
}

#[test]
fn a_hit_calls_no_driver_whatever_thread_frees() {
    run(|session| {
        let stream = Device::get(0)?.create_stream()?;
        for allocator in [Allocator::cache(), CachingPool::new().allocator()] {
            let allocate = || stream.alloc_with::<u8>(&allocator, 1000);
            drop(allocate()?);
            let mark = session.mark();
            let buffer = allocate()?;
            let place = buffer.as_raw();
            std::thread::spawn(move || drop(buffer)).join().expect("no panic");
            assert_eq!(allocate()?.as_raw(), place);
            buffer_closed(allocate()?);
            with_allocator(&allocator, || {
                assert_eq!(stream.alloc::<u8>(1000)?.as_raw(), place);
                Ok::<(), Error>(())
            })?;
            assert_eq!(session.names_since(mark), [""; 0]);
        }
        Ok(())
    });
}

fn buffer_closed(buffer: DeviceBuffer<u8>) {
    if let Err(Rejected { error, .. }) = buffer.close() {
        panic!("unexpected error: {error}");
    }
}

#[test]
fn h14_a_share_of_the_memory_is_asked_about_once() {
    run(|session| {
        let stream = Device::get(0)?.create_stream()?;
        let pool = CachingPool::builder().limit(PoolLimit::Fraction(0.5)).build()?;
        let first = alloc(&stream, &pool, 100)?;
        let mark = session.mark();
        let second = alloc(&stream, &pool, 3 << 20)?;
        assert!(!session.names_since(mark).contains(&"cuDeviceTotalMem_v2"));
        let mark = session.mark();
        assert!(pool.usage(stream.device()).limit.is_some());
        assert_eq!(session.names_since(mark), [""; 0]);
        drop((first, second));
        Ok(())
    });
}

#[test]
fn growth_asks_once() {
    run(|session| {
        let stream = Device::get(0)?.create_stream()?;
        let pool = CachingPool::new();
        let mark = session.mark();
        let small = (alloc(&stream, &pool, 100)?, alloc(&stream, &pool, 1 << 20)?);
        assert_eq!(session.calls("cuMemAlloc_v2"), 1, "small blocks share a segment");
        let large = (alloc(&stream, &pool, 3 << 20)?, alloc(&stream, &pool, 9 << 20)?);
        assert_eq!(session.calls("cuMemAlloc_v2"), 2, "and so do larger ones");
        let own = alloc(&stream, &pool, 10 << 20)?;
        assert_eq!(pool.usage(stream.device()).reserved, (2 << 20) + (20 << 20) + (10 << 20));
        drop((small, large, own));
        assert_eq!(session.calls("cuMemAlloc_v2"), 3);
        let asked: Vec<_> = session.names_since(mark);
        assert!(!asked.contains(&"cuMemFree_v2") && !asked.contains(&"cuEventRecord"), "{asked:?}");
        Ok(())
    });
}

#[test]
fn used_elsewhere_costs_nothing_until_it_is_needed() {
    run(|session| {
        let device = Device::get(0)?;
        let (home, other) = (device.create_stream()?, device.create_stream()?);
        let pool = CachingPool::shared()?;
        let before = pool.usage(device).pending;
        let mut buffer = alloc(&home, &pool, 1000)?;
        other.fill(&mut buffer, 1)?;
        let mark = session.mark();
        drop(buffer);
        assert_eq!(session.names_since(mark), [""; 0], "freed without a wait");
        assert!(pool.usage(device).pending >= before + 1000);
        used(&pool, device);
        other.synchronize()?;
        let mark = session.mark();
        drop(alloc(&home, &pool, 1000)?);
        assert_eq!(session.names_since(mark), [""; 0], "known to be done");
        assert_eq!(pool.usage(device).pending, before);
        Ok(())
    });
}

#[test]
fn h16_oom_error() {
    run(|session| {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pool = CachingPool::new();
        let held = alloc(&stream, &pool, 3 * U)?;
        let before = pool.usage(device);
        let empty = Fault::new(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY).function("cuMemAlloc_v2");
        session.inject(empty.from_then_on());
        match alloc(&stream, &pool, 11 * U) {
            Err(Error::PoolExhausted(it)) => {
                assert_eq!((it.requested, it.device), (11 * U, 0));
                assert_eq!(it.usage, before);
                assert!(it.memory.is_some());
            }
            other => panic!("there is no memory: {other:?}"),
        }
        assert_eq!(pool.usage(device), before);
        session.clear_faults();
        let other = Fault::new(cuda_sys::CUDA_ERROR_UNKNOWN).function("cuMemAlloc_v2");
        session.inject(other);
        let error = alloc(&stream, &pool, 11 * U).expect_err("the driver refused");
        assert_eq!(error.code(), Some(cuda_sys::CUDA_ERROR_UNKNOWN), "its own code");
        session.clear_faults();
        drop(alloc(&stream, &pool, 11 * U)?);
        drop(held);
        Ok(())
    });
}

#[test]
fn growth_backs_off() {
    run(|session| {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pool = CachingPool::new();
        session.inject(Fault::new(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY).function("cuMemAlloc_v2"));
        let buffer = alloc(&stream, &pool, 3 << 20)?;
        assert_eq!(pool.usage(device).reserved, 4 << 20, "no more than needed");
        drop(buffer);
        Ok(())
    });
}

#[test]
fn shortage_is_reported_and_relieved() {
    use std::sync::{Arc, Mutex};
    const PARTS: usize = if cfg!(miri) { 4 } else { 16 };
    run(|_| {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let spare = Arc::new(Mutex::new(Vec::new()));
        let kept = spare.clone();
        let pool = CachingPool::builder()
            .limit(cuda_core::pools::PoolLimit::Bytes(4 * U))
            .on_shortage(move |error| {
                assert_eq!(error.code(), Some(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY));
                kept.lock().expect("no panic").pop().is_some()
            })
            .build()?;
        // Released one at a time, as often as needed.
        for _ in 0..4 * PARTS {
            spare.lock().expect("no panic").push(alloc(&stream, &pool, U / PARTS)?);
        }
        let large = alloc(&stream, &pool, 3 * U)?;
        assert_eq!(spare.lock().expect("no panic").len(), PARTS);
        // No part is released for a request beyond the limit.
        assert!(alloc(&stream, &pool, 5 * U).is_err());
        assert_eq!(spare.lock().expect("no panic").len(), PARTS);
        // Memory that the pool reserved before the limit is reused.
        spare.lock().expect("no panic").push(large);
        pool.set_limit(U)?;
        drop(alloc(&stream, &pool, 3 * U)?);
        spare.lock().expect("no panic").clear();
        let refused = CachingPool::builder()
            .limit(cuda_core::pools::PoolLimit::Bytes(U))
            .on_shortage(|_| panic!("of its own"))
            .build()?;
        let held = alloc(&stream, &refused, U)?;
        assert!(alloc(&stream, &refused, U).is_err());
        drop(held);
        Ok(())
    });
}
