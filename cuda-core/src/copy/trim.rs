//! Release of all memory that the library keeps for reuse.

use crate::alloc::CachingPool;
use crate::context;
use crate::copy::borrowed::staging::trim_staging;
use crate::error::Result;
use crate::host::PinnedPool;
use crate::process::driver;
use crate::wait::flush::flush_deferred_drops;

/// Gives back all memory that the library keeps for reuse and that no work uses any more, and returns
/// the number of bytes: [`drops::flush`](crate::drops::flush), then [`CachingPool::trim`]`(0)` and
/// [`PinnedPool::trim`](crate::PinnedPool::trim)`(0)` of the shared pools, and
/// [`staging::trim`](crate::staging::trim).
///
/// Use it when a program leaves the devices to others for a while. Memory that work may still use is
/// kept: at the end of a test that must have released everything, call [`synchronize_and_trim`]. Each
/// segment is freed by `cuMemFree`, which waits for all work of its device. Pools of the program's own
/// are trimmed by their own methods.
///
/// # Errors
/// The first error of those functions; the others run regardless.
///
/// ```no_run
/// let bytes = cuda_core::trim()?;
/// println!("{} MiB for other processes", bytes >> 20);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("empty_cache", "free_all_blocks", "cuMemPoolTrimTo", "cudaMemPoolTrimTo"))]
pub fn trim() -> Result<usize> {
    flush_deferred_drops();
    let cached = CachingPool::shared().and_then(|pool| pool.trim(0));
    let staged = trim_staging();
    // `trim_staging` includes this, unless something failed before.
    let pinned = PinnedPool::shared().trim(0);
    Ok(cached? + staged? + pinned?)
}

/// Waits for all work of every context that this library knows, by `cuCtxSynchronize`, then does what
/// [`trim`] does. After that no object that the program dropped remains, except primary contexts. Use
/// it at the end of a program, or of a test that looks for leaks. Returns the number of bytes given
/// back, as [`trim`] does.
///
/// # Errors
/// The first error of [`Context::synchronize`](crate::Context::synchronize), or else that of [`trim`];
/// the other steps run regardless.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// let zeros = stream.alloc_zeroed::<f32>(1 << 20)?;
/// drop((zeros, stream));
/// cuda_core::synchronize_and_trim()?; // the memory is the device's again
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("cuCtxSynchronize", "cudaDeviceSynchronize"))]
pub fn synchronize_and_trim() -> Result<usize> {
    driver::ensure_not_gone()?;
    let waits = context::all_known().map(|context| context.synchronize());
    let waited = waits.fold(Ok(()), Result::and);
    let trimmed = trim();
    waited.and(trimmed)
}
