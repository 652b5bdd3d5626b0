//! S35: memory pools in a forked child, whatever locks the parent's threads held.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cuda_core::{
    Allocator, CachingPool, Device, Error, PoolUsage, Result, pools::PoolLimit,
    set_default_allocator,
};
use support::{gpu_test, in_a_fork};

/// Operations that take each lock of a pool, or that of the defaults.
fn locks_everything(device: Device, pool: &CachingPool) -> Result<()> {
    let stream = device.create_stream()?;
    drop(stream.alloc_with::<u8>(&pool.allocator(), 1000)?);
    for _ in 0..100 {
        pool.set_limit(PoolLimit::Fraction(0.5))?;
        drop((pool.limit(), pool.usage(device), pool.segments(device)));
        pool.reset_peaks(device);
        set_default_allocator(&Allocator::cache())?;
        device.set_allocator(None)?;
    }
    pool.trim(0).map(drop)
}

/// The number of the first operation that does not answer as it should; 0 if there is none.
fn wrong(device: Device, pool: &CachingPool) -> u8 {
    let forked = |answer: Option<Error>| matches!(answer, Some(Error::Forked));
    pool.reset_peaks(device);
    let shown = format!("{pool:?} {:?}", pool.allocator());
    let answers = [
        forked(pool.set_limit(PoolLimit::None).err()),
        forked(pool.trim(0).err()),
        forked(set_default_allocator(&Allocator::plain()).err()),
        forked(device.set_allocator(None).err()),
        pool.limit() == PoolLimit::None,
        pool.usage(device) == PoolUsage::default(),
        pool.segments(device).is_empty(),
        shown.contains("CachingPool"),
    ];
    let wrong = answers.iter().position(|right| !right);
    wrong.map_or(0, |index| index as u8 + 1)
}

gpu_test! {
    needs 1;
    fn s35_fork_pools_answer() -> Result<()> {
        let device = Device::get(0)?;
        let pools = [CachingPool::new(), CachingPool::shared()?];
        let stop = AtomicBool::new(false);
        let work = |pool: &CachingPool| {
            while !stop.load(Ordering::Relaxed) {
                locks_everything(device, pool)?;
            }
            Ok::<(), Error>(())
        };
        std::thread::scope(|scope| {
            let threads = pools.each_ref().map(|pool| scope.spawn(|| work(pool)));
            let started = Instant::now();
            while started.elapsed() < Duration::from_secs(1) {
                in_a_fork(|| {
                    let wrong = pools.each_ref().map(|pool| wrong(device, pool));
                    wrong[0].max(wrong[1])
                });
            }
            stop.store(true, Ordering::Relaxed);
            threads.map(|thread| thread.join().expect("no panic")).into_iter().collect()
        })
    }
}

gpu_test! {
    needs 1;
    fn s35_fork_pools_are_dropped() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let stop = AtomicBool::new(false);
        let work = || {
            while !stop.load(Ordering::Relaxed) {
                drop(stream.alloc_with::<u8>(&Allocator::cache(), 1000)?);
            }
            Ok::<(), Error>(())
        };
        std::thread::scope(|scope| {
            let busy = scope.spawn(work);
            let started = Instant::now();
            while started.elapsed() < Duration::from_secs(1) {
                let pool = CachingPool::new();
                let block = stream.alloc_with::<u8>(&pool.allocator(), 1000)?;
                drop(stream.alloc_with::<u8>(&pool.allocator(), 1000)?);
                // The other thread may have locked the stream, which keeps blocks of the pool.
                in_a_fork(move || {
                    drop((pool, block));
                    0
                });
            }
            stop.store(true, Ordering::Relaxed);
            busy.join().expect("no panic")
        })
    }
}
