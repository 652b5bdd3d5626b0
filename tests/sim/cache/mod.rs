//! The caching pool: its driver calls, its use of the address space, and its behaviour under
//! threads, random programs and faults.

mod branches;
mod calls;
mod chance;
mod held;
mod refused;
mod space;
mod threads;

use cuda_core::{Allocator, CachingPool, Device, DeviceAllocator, DeviceBuffer, Result, Stream};
use cuda_sim::Session;

/// The size of a pool's segment.
const U: usize = 2 << 20;

/// Runs `test` in its own session, and asserts at the end that it left no memory: neither in the process's
/// pool, once that is trimmed, nor elsewhere.
fn run<R: Send>(test: impl FnOnce(&Session) -> Result<R> + Send) -> R {
    let session = support::simulator();
    let before = kept();
    let result = std::thread::scope(|scope| {
        let test = scope.spawn(|| {
            for device in Device::all()? {
                device.context()?;
            }
            test(&session)
        });
        test.join()
    });
    let result = match result {
        Ok(result) => result.expect("no fault was injected, or it was expected"),
        Err(panic) => std::panic::resume_unwind(panic),
    };
    // Pending memory is freed after its work.
    cuda_core::drops::flush();
    support::trim_cache(&session).expect("no fault is left");
    assert_eq!(kept(), before, "in use, free and pending, by device");
    cuda_core::staging::trim().expect("no fault is left");
    session.assert_clean();
    result
}

/// Returns the bytes that the process's pool holds. Tests with faults may have left segments that were given
/// up.
fn kept() -> Vec<(usize, usize, usize)> {
    let shared = CachingPool::shared().expect("the environment sets no limit");
    let devices = Device::all().expect("the simulated driver has devices");
    let usages = devices.map(|device| shared.usage(device));
    usages.map(|usage| (usage.used, usage.free, usage.pending)).collect()
}

/// Allocates `bytes` from the pool, as one buffer.
fn alloc(stream: &Stream, pool: &CachingPool, bytes: usize) -> Result<DeviceBuffer<u8>> {
    stream.alloc_with(&pool.allocator(), bytes)
}

/// Returns a plain allocator that calls `before` with the number of bytes before each allocation.
fn plain_after(before: impl Fn(usize) + Send + Sync + 'static) -> Allocator {
    let allocate = move |stream: &Stream, bytes| {
        before(bytes);
        Allocator::plain().allocate(stream, bytes)
    };
    let free = |stream: &Stream, address, bytes| {
        // SAFETY: the plain allocator allocated it, and the caller no longer uses it.
        unsafe { Allocator::plain().deallocate(stream, address, bytes) }
    };
    // SAFETY: the inner allocator fulfils the contract.
    unsafe { Allocator::from_closures(allocate, free) }
}

/// Allocates all of `bytes`, in blocks of a small segment.
fn fill_up(stream: &Stream, pool: &CachingPool, bytes: usize) -> Result<Vec<DeviceBuffer<u8>>> {
    assert!(bytes < U && bytes % 512 == 0);
    let sizes = (9..=20).map(|power| 1 << power);
    let sizes = sizes.filter(|size| bytes & size > 0);
    sizes.map(|size| alloc(stream, pool, size)).collect()
}

/// Asserts that the counters add up, and returns the bytes in use.
#[track_caller]
fn used(pool: &CachingPool, device: Device) -> usize {
    let usage = pool.usage(device);
    assert_eq!(usage.used + usage.free + usage.pending, usage.reserved, "{usage:?}");
    assert!(usage.largest_free <= usage.free, "{usage:?}");
    usage.used
}
