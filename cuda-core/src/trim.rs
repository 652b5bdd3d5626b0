//! Everything that the library keeps for reuse, given back at once.

use crate::alloc::caching::pool::CachingPool;
use crate::copy::borrowed::staging::trim_staging;
use crate::error::Result;
use crate::wait::flush::flush_deferred_drops;

/// Gives back all memory that the library keeps for reuse and that no work uses any more, and
/// returns its bytes: [`drops::flush`](crate::drops::flush), then [`CachingPool::trim`]`(0)` and
/// [`PinnedPool::trim`](crate::PinnedPool::trim)`(0)` of the shared pools, and
/// [`staging::trim`](crate::staging::trim).
///
/// For a program that leaves the devices to others for a while, and for the end of a test that must
/// have released everything: there, wait for all work first, such as by
/// [`Device::synchronize`](crate::Device::synchronize), since what work may still use is kept. Each
/// segment is freed by `cuMemFree`, which waits for all work of its device. Pools of the program's own are trimmed by their own methods.
///
/// # Errors
/// The first error of those functions; the others run regardless.
///
/// ```no_run
/// let bytes = cuda_core::trim()?;
/// println!("{} MiB for other processes", bytes >> 20);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub fn trim() -> Result<usize> {
    flush_deferred_drops();
    let cached = CachingPool::shared().and_then(|pool| pool.trim(0));
    let pinned = trim_staging();
    Ok(cached? + pinned?)
}
