//! What users see of the slabs: their usage, limit and backend.

use std::sync::atomic::Ordering;

use super::backend::{self, PinnedBackend};
use super::cache::CACHE;
use super::growth::{LIMIT, release_idle};
use crate::error::Result;
use crate::process::driver;
use crate::types::usage::PoolUsage;
use crate::util::sync::lock;

/// The pinned memory that the process keeps for [`PinnedBuffer`](crate::PinnedBuffer)s. There is
/// one.
///
/// Memory that the driver allocates is not part of it: that with
/// [flags](crate::pinned::PinnedFlags) of its own, or all with [`PinnedBackend::Driver`].
///
/// ```no_run
/// use cuda_core::PinnedPool;
///
/// PinnedPool::reset_peaks()?;
/// // … one step of the program …
/// println!("{} bytes at most", PinnedPool::usage()?.used_peak);
/// if PinnedPool::usage()?.free > 1 << 30 {
///     PinnedPool::trim(0)?;
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct PinnedPool;

impl PinnedPool {
    /// How much pinned memory is used and kept. No driver call.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked) in a fork's child, and
    /// [`Error::Exiting`](crate::Error::Exiting).
    ///
    /// ```
    /// let usage = cuda_core::PinnedPool::usage()?;
    /// println!("{} of {} MiB pinned are used", usage.used >> 20, usage.reserved >> 20);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn usage() -> Result<PoolUsage> {
        driver::gone().map_or(Ok(()), Err)?;
        Ok(PoolUsage { limit: Self::limit(), ..lock(&CACHE).usage() })
    }

    /// Sets the peaks of [`PinnedPool::usage`] to the present values. No driver call.
    ///
    /// # Errors
    /// Those of [`PinnedPool::usage`].
    pub fn reset_peaks() -> Result<()> {
        driver::gone().map_or(Ok(()), Err)?;
        lock(&CACHE).reset_peaks();
        Ok(())
    }

    /// Gives memory back that is kept for later buffers, until at most `keep` bytes are reserved,
    /// and returns the bytes given back: `cuMemHostUnregister`, whose duration grows with the size
    /// and which may wait for work of devices.
    ///
    /// Does not itself wait for copies: a slab stays if a device still uses a byte of it, or a
    /// buffer lives in it. Once the streams concerned have been synchronised, only the memory of
    /// live buffers is in use.
    ///
    /// Memory that was dropped before its copies were done is checked here, and when memory of its
    /// size is allocated or dropped. Until then the contexts of the streams that used it stay
    /// alive.
    ///
    /// # Errors
    /// The driver's. The memory may be gone despite the error: that slab is not used again, and is
    /// reported to the hook of [`drops::set_hook`](crate::drops::set_hook). All else is kept. The
    /// bytes given back before the error are not counted.
    ///
    /// ```no_run
    /// cuda_core::PinnedPool::trim(0)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemHostUnregister", "cudaHostUnregister"))]
    pub fn trim(keep: usize) -> Result<usize> {
        driver::ensure()?;
        super::ask_about_all();
        release_idle(keep)
    }

    /// The most that is reserved before idle memory is given back; [`None`], the default, without a
    /// limit.
    pub fn limit() -> Option<usize> {
        Some(LIMIT.load(Ordering::Relaxed)).filter(|limit| *limit < usize::MAX)
    }

    /// Sets how much pinned memory may be reserved before idle memory is given back.
    ///
    /// The limit is checked when a new slab is needed: idle memory is then given back first, as by
    /// [`PinnedPool::trim`], until what is reserved and what is needed are within the limit. Memory
    /// in use is not limited.
    ///
    /// ```
    /// cuda_core::PinnedPool::set_limit(4 << 30);
    /// cuda_core::PinnedPool::set_limit(None); // no limit again
    /// ```
    pub fn set_limit(bytes: impl Into<Option<usize>>) {
        LIMIT.store(bytes.into().unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// What allocates pinned memory now.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the environment variable `CUDA_CORE_PINNED`
    /// decides and has an unknown value.
    pub fn backend() -> Result<PinnedBackend> {
        Ok(if backend::is_driver()? { PinnedBackend::Driver } else { PinnedBackend::Slab })
    }

    /// Sets what allocates pinned memory from now on. A buffer is freed by what allocated it.
    ///
    /// Without this call the environment variable `CUDA_CORE_PINNED` decides: `driver`, or `slab`,
    /// which is also the default; white space around the value is ignored. With any other value,
    /// allocations fail with [`Error::Invalid`](crate::Error::Invalid).
    ///
    /// ```
    /// use cuda_core::{PinnedPool, pinned::PinnedBackend};
    ///
    /// PinnedPool::set_backend(PinnedBackend::Slab);
    /// ```
    pub fn set_backend(backend: PinnedBackend) {
        backend::set(backend);
    }
}
