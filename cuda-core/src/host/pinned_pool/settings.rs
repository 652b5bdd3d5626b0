//! The public interface of the slabs: their usage, limit and backend.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::backend::{self, PinnedBackend};
use super::{SHARED, Slabs, allocate};
use crate::context::Context;
use crate::error::Result;
use crate::host::PinnedBuffer;
use crate::host::pinned::PinnedBacking;
use crate::process::driver;
use crate::types::{Pod, PoolUsage};
use crate::util::{compare_by, debug_by, lock};

/// Pinned memory that is kept for [`PinnedBuffer`]s: the [shared](Self::shared) pool, from which
/// [`PinnedBuffer::new`] and staged copies allocate, or one of the program's own.
///
/// This is a handle: clones refer to the same pool. A pool of the program's own lives as long as its
/// handles and its buffers; the memory that it kept then goes to the shared pool. If the system has no
/// memory left, a pool releases its own idle slabs; to release those of other pools, call their
/// [`trim`](Self::trim).
///
/// Memory that the driver allocates is not part of a pool: [write-combined](PinnedBuffer::write_combined)
/// buffers, and with [`PinnedBackend::Driver`] all buffers of the shared pool.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// use cuda_core::PinnedPool;
///
/// let pool = PinnedPool::new(); // the buffers of one part of the program
/// pool.set_limit(1 << 30);
/// let batch = pool.alloc::<f32>(&context, 1 << 20)?;
/// println!("{} bytes at most", pool.usage()?.used_peak);
/// if PinnedPool::shared().usage()?.free > 1 << 30 {
///     PinnedPool::shared().trim(0)?;
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
pub struct PinnedPool(Option<Arc<Slabs>>);

impl PinnedPool {
    /// Returns the pool of the process.
    pub const fn shared() -> Self {
        Self(None)
    }

    /// Creates a pool of the program's own, without memory. No driver call.
    #[expect(clippy::new_without_default, reason = "the default would be the shared one")]
    pub fn new() -> Self {
        Self(Some(Slabs::others()))
    }

    /// Allocates `len` elements of unspecified value, as [`PinnedBuffer::new`] does, from this pool.
    /// The [backend](Self::set_backend) matters only for the shared pool.
    ///
    /// # Errors
    /// Those of [`PinnedBuffer::new`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let pool = cuda_core::PinnedPool::new();
    /// let mut host = pool.alloc::<f32>(&context, 1000)?;
    /// host.as_mut_slice()?.fill(1.0);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemHostAlloc", "cudaMallocHost", "cudaHostAlloc"))]
    pub fn alloc<T: Pod>(&self, context: &Context, len: usize) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::allocated(context, len, |bytes| {
            let chunk = match self.0.is_none() && backend::is_driver()? {
                true => allocate(context, bytes)?,
                false => self.slabs().take(context, bytes)?,
            };
            Ok((chunk.base, PinnedBacking::Cached(context.clone(), chunk, self.clone())))
        })
    }

    pub(in crate::host) fn slabs(&self) -> &Slabs {
        self.0.as_deref().unwrap_or(&SHARED)
    }

    /// Returns how much pinned memory is used and kept. No driver call.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked) in a forked child, and
    /// [`Error::Exiting`](crate::Error::Exiting).
    ///
    /// ```
    /// let usage = cuda_core::PinnedPool::shared().usage()?;
    /// println!("{} of {} MiB pinned are used", usage.used >> 20, usage.reserved >> 20);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn usage(&self) -> Result<PoolUsage> {
        driver::ensure_not_gone()?;
        Ok(PoolUsage { limit: self.limit(), ..lock(&self.slabs().cache).usage() })
    }

    /// Sets the peaks of [`PinnedPool::usage`] to the present values. No driver call.
    ///
    /// # Errors
    /// Those of [`PinnedPool::usage`].
    pub fn reset_peaks(&self) -> Result<()> {
        driver::ensure_not_gone()?;
        lock(&self.slabs().cache).reset_peaks();
        Ok(())
    }

    /// Releases memory that is kept for later buffers, until at most `keep` bytes are reserved, and
    /// returns the number of bytes released. Calls `cuMemHostUnregister`, whose duration grows with the
    /// size and which may wait for work of devices.
    ///
    /// Does not itself wait for copies: a slab stays if a device still uses a byte of it, or a buffer
    /// lives in it. Once the streams concerned have been synchronised, only the memory of live buffers
    /// is in use.
    ///
    /// Memory that was dropped before its copies were done is checked here, when memory of its size is
    /// allocated or dropped, and by [`Context::synchronize`](crate::Context::synchronize) and
    /// [`Context::close`](crate::Context::close) of contexts that are not primary. Until it is checked,
    /// the contexts of the streams that used it stay alive.
    ///
    /// # Errors
    /// The driver's. The memory may have been released despite the error: the slab is not used again,
    /// and is reported to the hook of [`drops::set_hook`](crate::drops::set_hook). Everything else is
    /// kept. The bytes released before the error are not counted.
    ///
    /// ```no_run
    /// cuda_core::PinnedPool::shared().trim(0)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemHostUnregister", "cudaHostUnregister"))]
    pub fn trim(&self, keep: usize) -> Result<usize> {
        self.slabs().trim(keep)
    }

    /// Returns the number of bytes that may be reserved before idle memory is released; [`None`], the
    /// default, means no limit.
    pub fn limit(&self) -> Option<usize> {
        Some(self.slabs().limit.load(Ordering::Relaxed)).filter(|limit| *limit < usize::MAX)
    }

    /// Sets how much pinned memory may be reserved before idle memory is released.
    ///
    /// The limit is checked when a new slab is needed: idle memory is then released first, as by
    /// [`PinnedPool::trim`], until the reserved and the needed memory together are within the limit.
    /// Memory in use is not limited.
    ///
    /// ```
    /// cuda_core::PinnedPool::shared().set_limit(4 << 30);
    /// cuda_core::PinnedPool::shared().set_limit(None); // no limit again
    /// ```
    pub fn set_limit(&self, bytes: impl Into<Option<usize>>) {
        self.slabs().limit.store(bytes.into().unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// Returns the present allocator of pinned memory of the shared pool.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the environment variable `CUDA_CORE_PINNED` decides
    /// and has an unknown value.
    pub fn backend() -> Result<PinnedBackend> {
        Ok(if backend::is_driver()? { PinnedBackend::Driver } else { PinnedBackend::Slab })
    }

    /// Sets what allocates pinned memory of the shared pool from now on. A buffer is freed by its own
    /// allocator.
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

debug_by! { [] PinnedPool: |it| "PinnedPool" { is_shared: it.0.is_none(), limit: it.limit() } }

compare_by! { PinnedPool: |it| it.0.as_ref().map(Arc::as_ptr) }
