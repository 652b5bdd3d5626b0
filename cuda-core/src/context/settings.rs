//! Properties and settings of a context: memory, flags, limits, caches, priorities.

use cuda_sys::{CUfunc_cache, CUlimit, symbol as cu};

use crate::context::Context;
use crate::error::{Result, asked};
use crate::types::MemoryInfo;
use crate::util::flags;

flags! {
    /// How a created context waits and what it allows: the flags of `cuCtxCreate`.
    ///
    /// ```no_run
    /// use cuda_core::{ContextFlags, Device};
    ///
    /// // Before the device's first use: waiting threads leave their cores to others.
    /// Device::get(0)?.set_primary_flags(ContextFlags::SCHED_BLOCKING_SYNC)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    ContextFlags {
        /// The same as [`NONE`](Self::NONE). The driver chooses how a thread waits:
        /// `CU_CTX_SCHED_AUTO`.
        SCHED_AUTO = cuda_sys::CU_CTX_SCHED_AUTO.0;
        /// A waiting thread spins: `CU_CTX_SCHED_SPIN`.
        SCHED_SPIN = cuda_sys::CU_CTX_SCHED_SPIN.0;
        /// A waiting thread yields: `CU_CTX_SCHED_YIELD`.
        SCHED_YIELD = cuda_sys::CU_CTX_SCHED_YIELD.0;
        /// A waiting thread blocks: `CU_CTX_SCHED_BLOCKING_SYNC`.
        SCHED_BLOCKING_SYNC = cuda_sys::CU_CTX_SCHED_BLOCKING_SYNC.0;
        /// Pinned memory can be mapped, which is always so since CUDA 11.0: `CU_CTX_MAP_HOST`.
        MAP_HOST = cuda_sys::CU_CTX_MAP_HOST.0;
        /// Local memory that a kernel needed stays allocated for later kernels: `CU_CTX_LMEM_RESIZE_TO_MAX`.
        LMEM_RESIZE_TO_MAX = cuda_sys::CU_CTX_LMEM_RESIZE_TO_MAX.0;
        /// Exceptions on the device write a core dump: `CU_CTX_COREDUMP_ENABLE`, from CUDA 12.1 on.
        COREDUMP_ENABLE = cuda_sys::CU_CTX_COREDUMP_ENABLE.0;
        /// A core dump can be requested through a pipe: `CU_CTX_USER_COREDUMP_ENABLE`, from CUDA
        /// 12.1 on.
        USER_COREDUMP_ENABLE = cuda_sys::CU_CTX_USER_COREDUMP_ENABLE.0;
        /// Synchronous copies and fills always block until they are done: `CU_CTX_SYNC_MEMOPS`,
        /// from CUDA 12.1 on.
        SYNC_MEMOPS = cuda_sys::CU_CTX_SYNC_MEMOPS.0;
    }
}

/// # Settings
impl Context {
    /// Free and total memory of the device: `cuMemGetInfo_v2`.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's, if earlier work has failed.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let memory = context.memory_info()?;
    /// println!("{} of {} MiB are free", memory.free >> 20, memory.total >> 20);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemGetInfo", "cudaMemGetInfo", "mem_get_info"))]
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let (free, total) = self.ask("cuMemGetInfo", (0, 0), |(free, total)| {
            // SAFETY: a live context is current; the call writes two sizes, to exclusive borrows.
            unsafe { cu::cuMemGetInfo_v2(free, total) }
        })?;
        Ok(MemoryInfo { free, total })
    }

    /// Returns the least and the greatest priority of a stream; the greatest is the smaller number:
    /// `cuCtxGetStreamPriorityRange`.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's, if earlier work has failed.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let (least, greatest) = context.stream_priority_range()?; // (0, -5), say
    /// assert!(greatest <= least);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxGetStreamPriorityRange", "cudaDeviceGetStreamPriorityRange"))]
    pub fn stream_priority_range(&self) -> Result<(i32, i32)> {
        self.ask("cuCtxGetStreamPriorityRange", (0, 0), |(least, greatest)| {
            // SAFETY: a live context is current; the call writes two ints, to exclusive borrows.
            unsafe { cu::cuCtxGetStreamPriorityRange(least, greatest) }
        })
    }

    /// A limit of the context, in CUDA's unit for it: `cuCtxGetLimit`.
    ///
    /// # Errors
    /// The driver's `UNSUPPORTED_LIMIT` or `INVALID_VALUE` for a limit that it does not know.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let before = context.limit(cuda_core::sys::CU_LIMIT_PRINTF_FIFO_SIZE)?;
    /// context.set_limit(cuda_core::sys::CU_LIMIT_PRINTF_FIFO_SIZE, 2 * before)?; // in bytes
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxGetLimit", "cudaDeviceGetLimit"))]
    pub fn limit(&self, limit: CUlimit) -> Result<usize> {
        // SAFETY: the call writes one number, to an exclusive borrow; an unknown limit is an
        // error.
        self.ask("cuCtxGetLimit", 0, |value| unsafe { cu::cuCtxGetLimit(value, limit) })
    }

    /// Sets a limit of the context; the driver may round it up: `cuCtxSetLimit`.
    ///
    /// # Errors
    /// The driver's: `UNSUPPORTED_LIMIT` or `INVALID_VALUE` for a limit that it does not know or
    /// that cannot be set, `OUT_OF_MEMORY` if the device has no room for what it reserves.
    #[doc(alias("cuCtxSetLimit", "cudaDeviceSetLimit"))]
    pub fn set_limit(&self, limit: CUlimit, value: usize) -> Result<()> {
        // SAFETY: takes no pointer; an unknown limit is an error.
        self.call("cuCtxSetLimit", (), |()| unsafe { cu::cuCtxSetLimit(limit, value) })
    }

    /// Returns how kernels split cache and shared memory by default, a hint: `cuCtxGetCacheConfig`.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's, if earlier work has failed.
    #[doc(alias("cuCtxGetCacheConfig", "cudaDeviceGetCacheConfig"))]
    pub fn cache_config(&self) -> Result<CUfunc_cache> {
        self.ask("cuCtxGetCacheConfig", CUfunc_cache(0), |config| {
            // SAFETY: a live context is current; the call writes one number, to an exclusive
            // borrow. Any number is a `CUfunc_cache`.
            unsafe { cu::cuCtxGetCacheConfig(config) }
        })
    }

    /// Sets the default split of cache and shared memory, a hint: `cuCtxSetCacheConfig`.
    ///
    /// # Errors
    /// The driver's `INVALID_VALUE` for a value that is no `CUfunc_cache`.
    #[doc(alias("cuCtxSetCacheConfig", "cudaDeviceSetCacheConfig"))]
    pub fn set_cache_config(&self, config: CUfunc_cache) -> Result<()> {
        // SAFETY: takes no pointer; an unknown value is an error.
        self.call("cuCtxSetCacheConfig", (), |()| unsafe { cu::cuCtxSetCacheConfig(config) })
    }

    /// The context's flags: `cuCtxGetFlags`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuCtxGetFlags", "cudaGetDeviceFlags"))]
    pub fn flags(&self) -> Result<ContextFlags> {
        // SAFETY: the call writes one number, to an exclusive borrow; a live context is current.
        let flags = self.ask("cuCtxGetFlags", 0, |flags| unsafe { cu::cuCtxGetFlags(flags) })?;
        Ok(ContextFlags(flags))
    }

    /// Returns an id that, unlike the handle, no other context of the process ever has: `cuCtxGetId`, of
    /// drivers from CUDA 12.0 on.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuCtxGetId"))]
    pub fn driver_id(&self) -> Result<u64> {
        let raw = self.live()?.0;
        // SAFETY: `self` keeps the context alive; the call writes one number, to an exclusive borrow.
        asked("cuCtxGetId", 0, |id| unsafe { cu::cuCtxGetId(raw, id) })
    }

    /// The version of the driver API that the context was created with: `cuCtxGetApiVersion`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuCtxGetApiVersion"))]
    pub fn api_version(&self) -> Result<u32> {
        let raw = self.live()?.0;
        // SAFETY: `self` keeps the context alive; the call writes one number, to an exclusive borrow.
        asked("cuCtxGetApiVersion", 0, |version| unsafe { cu::cuCtxGetApiVersion(raw, version) })
    }

    /// Makes all persisting lines of the L2 cache normal again: `cuCtxResetPersistingL2Cache`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuCtxResetPersistingL2Cache", "cudaCtxResetPersistingL2Cache"))]
    pub fn reset_persisting_l2_cache(&self) -> Result<()> {
        self.ask("cuCtxResetPersistingL2Cache", (), |()| {
            // SAFETY: takes nothing; a live context is current.
            unsafe { cu::cuCtxResetPersistingL2Cache() }
        })
    }
}
