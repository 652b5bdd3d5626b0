//! Blocks that streams keep of pools other than the process's pool.

use std::sync::Barrier;

use cuda_core::{
    Allocator, Device, DeviceAllocator, Error, Signal, WaitValue,
    pools::{CacheBlockState, PoolLimit},
    set_default_allocator, with_allocator,
};
use cuda_sim::Mode;

use super::*;

const ROUNDS: usize = if cfg!(miri) { 4 } else { 200 };

/// A stream keeps the blocks of each pool apart, whichever thread frees them, in whatever order.
#[test]
fn pools_on_one_stream_stay_apart() {
    run(|session| {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pools = [CachingPool::new(), CachingPool::shared()?, CachingPool::new()];
        let all = || -> Result<Vec<_>> {
            let blocks = pools.iter().map(|pool| alloc(&stream, pool, 5000));
            blocks.collect()
        };
        let places = |blocks: &[DeviceBuffer<u8>]| -> Vec<_> {
            blocks.iter().map(DeviceBuffer::as_raw).collect()
        };
        let before = used(&pools[1], device);
        let mut blocks = all()?;
        let first = places(&blocks);
        let mark = session.mark();
        for turn in 0..3 {
            for pool in [&pools[0], &pools[2]] {
                assert_eq!(used(pool, device), 5120);
            }
            blocks.rotate_left(turn);
            let free = std::thread::spawn(move || drop(blocks));
            free.join().expect("no panic");
            let left = pools.each_ref().map(|pool| used(pool, device));
            assert_eq!(left, [0, before, 0]);
            blocks = all()?;
            assert_eq!(places(&blocks), first);
        }
        assert_eq!(session.names_since(mark), [""; 0]);
        assert_eq!(pools[2].usage(device).allocations, 4);
        Ok(())
    });
}

/// The blocks that a stream keeps of a pool are freed with the pool, not with the stream.
#[test]
fn a_pool_takes_along_what_streams_keep() {
    run(|session| {
        let device = Device::get(0)?;
        let streams = [device.create_stream()?, device.create_stream()?];
        let pool = CachingPool::new();
        for stream in &streams {
            drop((alloc(stream, &pool, 1000)?, alloc(stream, &pool, 3 * U)?));
        }
        let segments = pool.segments(device);
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let mut states = blocks.map(|block| block.state);
        assert!(states.all(|state| state == CacheBlockState::Free));
        drop(pool);
        cuda_core::drops::flush();
        assert_eq!(session.calls("cuMemFree_v2"), segments.len() as u64);
        // No block of the pool remains for another pool.
        let other = CachingPool::new();
        let mark = session.mark();
        let block = alloc(&streams[0], &other, 1000)?;
        assert!(session.names_since(mark).contains(&"cuMemAlloc_v2"));
        drop((other, block));
        Ok(())
    });
}

/// Blocks that outlive their pool return to their segment, which is freed after all work on them.
#[test]
fn a_pool_goes_while_blocks_are_in_use() {
    run(|session| {
        session.set_mode(Mode::Lazy);
        let device = Device::get(0)?;
        let (home, other) = (device.create_stream()?, device.create_stream()?);
        // Deferred frees of earlier tests are not counted.
        cuda_core::drops::flush();
        for while_there_is_a_pool in [true, false] {
            let before = session.calls("cuMemFree_v2");
            let pool = CachingPool::new();
            let go = Signal::new(&device.context()?, 0u32)?;
            let (kept, mut elsewhere) = (alloc(&home, &pool, 1000)?, alloc(&home, &pool, 1000)?);
            drop(alloc(&home, &pool, 1000)?);
            other.wait_signal(&go, WaitValue::Geq(1))?;
            other.fill(&mut elsewhere, 1)?;
            if while_there_is_a_pool {
                drop(elsewhere);
                assert_eq!(pool.usage(device).pending, 1024);
                drop(pool);
            } else {
                drop(pool);
                drop(elsewhere);
            }
            let early = session.calls("cuMemFree_v2");
            go.set(1);
            drop(kept);
            cuda_core::drops::flush();
            other.synchronize()?;
            cuda_core::drops::flush();
            let freed = session.calls("cuMemFree_v2");
            assert_eq!([early, freed], [before, before + 1]);
        }
        Ok(())
    });
}

/// A stream's kept blocks do not keep the stream alive, and serve other streams once it is gone.
#[test]
fn streams_leave_a_pool_what_they_keep() {
    run(|session| {
        let device = Device::get(0)?;
        let pool = CachingPool::new();
        let stream = device.create_stream()?;
        let buffer = alloc(&stream, &pool, 1000)?;
        let place = buffer.as_raw();
        drop(alloc(&stream, &pool, 9000)?);
        let handle = stream.clone();
        drop((buffer, stream));
        assert_eq!(session.calls("cuStreamDestroy_v2"), 0);
        drop(handle);
        assert_eq!(session.calls("cuStreamDestroy_v2"), 1);
        assert_eq!(used(&pool, device), 0);
        let other = device.create_stream()?;
        let _rest = fill_up(&other, &pool, U - 1024 - 9216)?;
        assert_eq!(alloc(&other, &pool, 1000)?.as_raw(), place);
        Ok(())
    });
}

/// Small blocks that streams keep serve other streams when memory runs out, and can be released.
#[test]
fn what_streams_keep_is_not_lost_to_others() {
    run(|_| {
        let device = Device::get(0)?;
        let (one, two) = (device.create_stream()?, device.create_stream()?);
        let limited = CachingPool::builder().limit(PoolLimit::Bytes(U));
        let pool = limited.build()?;
        let blocks = [U / 2, U / 4, U / 4].map(|bytes| alloc(&one, &pool, bytes));
        drop(blocks);
        let other = alloc(&two, &pool, U / 2)?;
        assert_eq!(pool.usage(device).reserved, U);
        drop((alloc(&one, &pool, U / 4)?, other));
        assert_eq!(pool.trim(0)?, U);
        assert_eq!(used(&pool, device), 0);
        Ok(())
    });
}

/// A pool that is the default is looked up without its lock, and released when another becomes the default.
#[test]
fn a_pool_of_ones_own_as_the_default() {
    run(|session| {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pools = [CachingPool::new(), CachingPool::new()];
        let before = set_default_allocator(&pools[0].allocator())?;
        drop(stream.alloc::<u8>(1000)?);
        let mark = session.mark();
        drop(stream.alloc::<u8>(1000)?);
        assert_eq!(session.names_since(mark), [""; 0]);
        assert_eq!(pools[0].usage(device).allocations, 2);
        drop(with_allocator(&pools[1].allocator(), || stream.alloc::<u8>(1000))?);
        // If devices have default pools of their own, those are used.
        device.set_allocator(Some(&pools[1].allocator()))?;
        drop(stream.alloc::<u8>(1000)?);
        let elsewhere = Device::get(1)?.create_stream()?;
        drop(elsewhere.alloc::<u8>(1000)?);
        let counts = pools.each_ref().map(|pool| {
            let devices = [device, elsewhere.device()];
            devices.map(|device| pool.usage(device).allocations)
        });
        assert_eq!(counts, [[2, 1], [2, 0]]);
        device.set_allocator(None)?;
        set_default_allocator(&Allocator::plain())?;
        let mark = session.mark();
        let frees =
            || session.since(mark).iter().filter(|call| call.name == "cuMemFree_v2").count();
        drop(pools);
        cuda_core::drops::flush();
        assert_eq!(frees(), 3, "since the pools went: {:?}", session.since(mark));
        drop(stream.alloc::<u8>(1000)?);
        assert_eq!(frees(), 4);
        set_default_allocator(&before)?;
        Ok(())
    });
}

/// The pool, the streams and the blocks are dropped concurrently, each on its own thread.
#[test]
fn all_go_at_once() {
    run(|session| {
        let device = Device::get(0)?;
        for round in 0..ROUNDS {
            let stream = device.create_stream()?;
            let pool = CachingPool::new();
            let blocks = [(); 3].map(|()| alloc(&stream, &pool, 1000 << (round % 3)));
            let [one, two, three] = blocks;
            drop(three?);
            let together = Barrier::new(4);
            let gone = &together;
            std::thread::scope(|scope| {
                let drops: [Box<dyn FnOnce() + Send>; 4] = [
                    Box::new(move || drop(pool)),
                    Box::new(move || drop(stream)),
                    Box::new(move || drop(one)),
                    Box::new(move || drop(two)),
                ];
                for drops in drops {
                    scope.spawn(move || {
                        gone.wait();
                        drops();
                    });
                }
            });
        }
        cuda_core::drops::flush();
        assert_eq!(session.calls("cuStreamDestroy_v2"), ROUNDS as u64);
        assert_eq!(session.calls("cuMemFree_v2"), ROUNDS as u64);
        Ok(())
    });
}

/// Memory that another stream has finished using is reused before the pool grows.
#[test]
fn large_blocks_that_others_have_finished_with_are_taken() {
    run(|_| {
        let device = Device::get(0)?;
        let worker = device.create_stream()?;
        for pool in [CachingPool::new(), CachingPool::shared()?] {
            let before = pool.usage(device).reserved;
            let streams: Result<Vec<_>> = (0..8).map(|_| device.create_stream()).collect();
            // All streams exist until the end, and keep their blocks.
            let streams = streams?;
            for stream in &streams {
                let mut block = alloc(stream, &pool, 12 * U)?;
                worker.fill(&mut block, 1)?;
                drop(block);
                worker.synchronize()?;
                stream.synchronize()?;
            }
            assert_eq!(pool.usage(device).reserved - before, 12 * U);
            pool.trim(0)?;
        }
        Ok(())
    });
}

#[test]
fn the_largest_block_may_be_a_streams() {
    run(|_| {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pool = CachingPool::new();
        drop(alloc(&stream, &pool, 12 * U)?);
        let usage = pool.usage(device);
        assert_eq!((usage.free, usage.largest_free), (12 * U, 12 * U));
        Ok(())
    });
}

/// Called directly, a pool checks sizes itself.
#[test]
fn s05_sizes_that_a_pool_is_asked_for() {
    run(|_| {
        let stream = Device::get(0)?.create_stream()?;
        let pool = CachingPool::new();
        drop(alloc(&stream, &pool, 12 * U)?);
        for bytes in [usize::MAX, isize::MAX as usize + 1] {
            let refused = DeviceAllocator::allocate(&pool, &stream, bytes);
            assert!(matches!(refused, Err(Error::SizeOverflow { .. })), "{refused:?}");
        }
        Ok(())
    });
}
