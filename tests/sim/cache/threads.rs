//! Many threads use a pool concurrently.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use cuda_core::{Allocator, CachingPool, Device, pools::PoolLimit};
use support::{assert_pattern, fill};

use super::*;

const THREADS: usize = if cfg!(miri) { 3 } else { 8 };
const ROUNDS: usize = if cfg!(miri) { 4 } else { 300 };

/// A generator of pseudo-random numbers.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }
}

/// Each thread allocates on its own stream and on a shared one, writes, reads back, and passes blocks to
/// other threads, which free them.
fn stress(session: &Session, pool: &CachingPool) -> Result<()> {
    let device = Device::get(0)?;
    let before = session.device_bytes_in_use(0);
    let shared = device.create_stream()?;
    let handed: Mutex<Vec<DeviceBuffer<u8>>> = Mutex::default();
    let together = Barrier::new(THREADS);
    let work = |seed: u64| -> Result<()> {
        let mut chance = Chance((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let own = device.create_stream()?;
        together.wait();
        for round in 0..ROUNDS {
            let home = if chance.below(3) == 0 { &shared } else { &own };
            let len = 1 + chance.below(if cfg!(miri) { 600 } else { 100_000 });
            let mut buffer = match alloc(home, pool, len) {
                Ok(buffer) => buffer,
                Err(error) => {
                    assert_eq!(error.code(), Some(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY));
                    handed.lock().expect("no panic").clear();
                    continue;
                }
            };
            if round % 4 == 0 {
                let taken = session.device_bytes_in_use(0) - before;
                let limit = pool.usage(device).limit;
                assert!(limit.is_none_or(|limit| taken <= limit), "{taken} bytes");
            }
            let value = (seed as usize + round) as u8;
            let user = if chance.below(2) == 0 { &own } else { home };
            let end = len.min(64);
            user.fill(buffer.slice_mut(..end)?, value)?;
            let mut back = [0; 64];
            home.download(buffer.slice(..end)?, &mut back[..end])?;
            assert!(back[..end].iter().all(|byte| *byte == value), "another thread wrote");
            if chance.below(2) == 0 {
                handed.lock().expect("no panic").push(buffer);
            }
            if chance.below(4) == 0 {
                let other = handed.lock().expect("no panic").pop();
                drop(other);
            }
            if chance.below(50) == 0 {
                pool.trim(chance.below(U))?;
            }
        }
        Ok(())
    };
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS as u64).map(|seed| scope.spawn(move || work(seed))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        ended.collect::<Result<()>>()
    })?;
    handed.into_inner().expect("no panic").clear();
    assert_eq!(used(pool, device), 0);
    Ok(())
}

#[test]
fn many_threads_in_the_shared_pool() {
    run(|session| stress(session, &CachingPool::shared()?));
}

#[test]
fn many_threads_in_a_pool_of_their_own() {
    run(|session| stress(session, &CachingPool::new()));
}

#[test]
fn n04_never_over_the_limit() {
    run(|session| {
        // Other threads request memory while the allocation is in progress.
        let upstream = plain_after(|_| (0..100).for_each(|_| std::thread::yield_now()));
        let limited = CachingPool::builder().limit(PoolLimit::Bytes(U));
        let pool = limited.upstream(&upstream).build()?;
        stress(session, &pool)?;
        assert!(pool.usage(Device::get(0)?).reserved_peak <= U);
        Ok(())
    });
}

/// Until the driver has taken a segment back, the device holds it.
#[test]
fn n04_never_over_the_limit_while_memory_is_given_back() {
    run(|session| {
        let device = Device::get(0)?;
        let (a, b) = (device.create_stream()?, device.create_stream()?);
        let pool = CachingPool::builder().limit(PoolLimit::Bytes(U)).build()?;
        let before = session.device_bytes_in_use(0);
        drop(alloc(&a, &pool, U)?);
        a.synchronize()?;
        std::thread::scope(|scope| {
            let held = session.hold("cuMemFree_v2");
            let trims = scope.spawn(|| pool.trim(0));
            held.await_call();
            let (begun, begins) = channel();
            let (b, of_pool) = (&b, &pool);
            let grows = scope.spawn(move || {
                let _ = begun.send(());
                alloc(b, of_pool, U).map(drop)
            });
            let _ = begins.recv();
            // Long enough for an allocation that does not wait.
            let until = Instant::now() + Duration::from_millis(200);
            while !grows.is_finished() && Instant::now() < until {
                std::thread::yield_now();
            }
            assert!(!grows.is_finished(), "it waits for the trim");
            assert_eq!(session.device_bytes_in_use(0) - before, U);
            drop(held);
            assert_eq!(trims.join().expect("no panic")?, U);
            grows.join().expect("no panic")
        })
    });
}

/// A trim moves the free blocks of all streams, and has them in hand for a moment.
#[test]
fn n04_a_trim_takes_no_memory_from_other_threads() {
    run(|_| {
        let device = Device::get(0)?;
        let (a, b) = (device.create_stream()?, device.create_stream()?);
        let pool = CachingPool::builder().limit(PoolLimit::Bytes(U)).build()?;
        let _live = alloc(&a, &pool, 100)?;
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let trims = scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    pool.trim(U)?;
                }
                Ok(())
            });
            let served = (0..10 * ROUNDS).try_for_each(|_| alloc(&b, &pool, 50_000).map(drop));
            has_ended.store(true, Ordering::Relaxed);
            served.and(trims.join().expect("no panic"))
        })
    });
}

/// The last handle of a stream is dropped while other threads free its blocks.
#[test]
fn handles_go_while_blocks_come_back() {
    run(|session| {
        let device = Device::get(0)?;
        for _ in 0..ROUNDS / 3 {
            let stream = device.create_stream()?;
            let buffers: Vec<_> = (1..=THREADS)
                .map(|n| stream.alloc_with::<u8>(&Allocator::cache(), n * 100))
                .collect::<Result<_>>()?;
            let together = Barrier::new(THREADS + 1);
            std::thread::scope(|scope| {
                for buffer in buffers {
                    scope.spawn(|| {
                        together.wait();
                        drop(buffer);
                    });
                }
                together.wait();
                drop(stream);
            });
            assert_eq!(used(&CachingPool::shared()?, device), 0);
        }
        assert_eq!(session.calls("cuStreamDestroy_v2"), ROUNDS as u64 / 3);
        Ok(())
    });
}

#[test]
fn bytes_look_as_they_were_written() {
    run(|_| {
        let stream = Device::get(0)?.create_stream()?;
        let mut host = vec![0; 3000];
        fill(&mut host, 5);
        let mut buffer = stream.alloc_with::<u8>(&Allocator::cache(), 3000)?;
        stream.upload(&host, &mut buffer)?;
        drop(stream.alloc_with::<u8>(&Allocator::cache(), 3000)?);
        let mut back = vec![0; 3000];
        stream.download(&buffer, &mut back)?;
        assert_pattern(&back, 5);
        Ok(())
    });
}

/// A limit of as many blocks as there are threads suffices for threads that have one each.
#[test]
fn n04_limit_race() {
    run(|_| {
        let device = Device::get(0)?;
        let most = THREADS * U;
        let pool = CachingPool::builder().limit(PoolLimit::Bytes(most)).build()?;
        let together = Barrier::new(THREADS);
        let work = || -> Result<()> {
            let stream = device.create_stream()?;
            together.wait();
            for _ in 0..ROUNDS.min(50) {
                let mut buffer = alloc(&stream, &pool, U)?;
                assert!(pool.usage(device).reserved <= most);
                stream.fill(buffer.slice_mut(..64)?, 1)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads = [(); THREADS].map(|()| scope.spawn(work));
            for thread in threads {
                thread.join().expect("no panic")?;
            }
            Ok(())
        })
    });
}

/// The limit leaves room for one segment, which one of the threads allocates. The others request memory
/// meanwhile.
#[test]
fn n04_threads_that_begin_together_share_the_only_segment() {
    let slow = |_| (0..if cfg!(miri) { 20 } else { 2000 }).for_each(|_| std::thread::yield_now());
    run(|_| {
        let device = Device::get(0)?;
        let upstream = plain_after(slow);
        for _ in 0..4 {
            let limited = CachingPool::builder().limit(PoolLimit::Bytes(U));
            let pool = limited.upstream(&upstream).build()?;
            let together = Barrier::new(THREADS);
            let work = || {
                let stream = device.create_stream()?;
                together.wait();
                alloc(&stream, &pool, 100)
            };
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
                let ended = threads.into_iter().map(|thread| thread.join().expect("no panic"));
                ended.collect::<Result<Vec<_>>>().map(drop)
            })?;
            assert_eq!(pool.usage(device).reserved, U);
        }
        Ok(())
    });
}
