//! What a context has and can be told: memory, flags, limits, caches, priorities.

use std::ops::BitOr;

use cuda_sys::{CUfunc_cache, CUlimit, symbol as cu};

use crate::context::Context;
use crate::error::{Result, check};

/// Free and total memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that an allocation could get.
    pub free: usize,
    /// Bytes that the device has.
    pub total: usize,
}

/// How a created context waits and what it allows: the flags of `cuCtxCreate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContextFlags(pub u32);

impl ContextFlags {
    /// The driver chooses how a thread waits.
    pub const SCHED_AUTO: Self = Self(0);
    /// A waiting thread spins.
    pub const SCHED_SPIN: Self = Self(1);
    /// A waiting thread yields.
    pub const SCHED_YIELD: Self = Self(2);
    /// A waiting thread blocks.
    pub const SCHED_BLOCKING_SYNC: Self = Self(4);
}

impl BitOr for ContextFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Context {
    /// Free and total memory of the device: `cuMemGetInfo_v2`.
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let _entered = self.enter_briefly()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are valid for a write.
        check("cuMemGetInfo", unsafe {
            cu::cuMemGetInfo_v2(&mut free, &mut total)
        })?;
        Ok(MemoryInfo { free, total })
    }

    /// The least and the greatest priority of a stream, the greatest being the smaller number:
    /// `cuCtxGetStreamPriorityRange`.
    pub fn stream_priority_range(&self) -> Result<(i32, i32)> {
        let _entered = self.enter_briefly()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both pointers are valid for a write.
        check("cuCtxGetStreamPriorityRange", unsafe {
            cu::cuCtxGetStreamPriorityRange(&mut least, &mut greatest)
        })?;
        Ok((least, greatest))
    }

    /// A limit of the context, in the unit that CUDA gives it: `cuCtxGetLimit`.
    ///
    /// # Errors
    /// The driver's `UNSUPPORTED_LIMIT` or `INVALID_VALUE` for a limit that it does not know.
    pub fn limit(&self, limit: CUlimit) -> Result<usize> {
        let _entered = self.enter_briefly()?;
        let mut value = 0;
        // SAFETY: the pointer is valid for a write; an unknown limit is an error.
        check("cuCtxGetLimit", unsafe {
            cu::cuCtxGetLimit(&mut value, limit)
        })?;
        Ok(value)
    }

    /// Sets a limit of the context; the driver may round it up: `cuCtxSetLimit`.
    pub fn set_limit(&self, limit: CUlimit, value: usize) -> Result<()> {
        let _entered = self.enter_briefly()?;
        // SAFETY: takes no pointer; an unknown limit is an error.
        check("cuCtxSetLimit", unsafe { cu::cuCtxSetLimit(limit, value) })
    }

    /// How kernels split cache and shared memory by default, a hint: `cuCtxGetCacheConfig`.
    pub fn cache_config(&self) -> Result<CUfunc_cache> {
        let _entered = self.enter_briefly()?;
        let mut config = CUfunc_cache(0);
        // SAFETY: the pointer is valid for a write.
        check("cuCtxGetCacheConfig", unsafe {
            cu::cuCtxGetCacheConfig(&mut config)
        })?;
        Ok(config)
    }

    /// Sets the hint: `cuCtxSetCacheConfig`.
    pub fn set_cache_config(&self, config: CUfunc_cache) -> Result<()> {
        let _entered = self.enter_briefly()?;
        // SAFETY: takes no pointer; an unknown value is an error.
        check("cuCtxSetCacheConfig", unsafe {
            cu::cuCtxSetCacheConfig(config)
        })
    }

    /// How threads wait in the context, and what else it was created with: `cuCtxGetFlags`.
    ///
    /// # Errors
    /// The driver's.
    pub fn flags(&self) -> Result<ContextFlags> {
        let _entered = self.enter_briefly()?;
        let mut flags = 0;
        // SAFETY: the pointer is valid for a write; a live context is current.
        check("cuCtxGetFlags", unsafe { cu::cuCtxGetFlags(&mut flags) })?;
        Ok(ContextFlags(flags))
    }

    /// A number that no other context of the process ever has, unlike its handle: `cuCtxGetId`, of
    /// drivers from CUDA 12.0 on.
    ///
    /// # Errors
    /// The driver's.
    #[cfg(cuda_12_0)]
    pub fn id(&self) -> Result<u64> {
        crate::driver::ensure()?;
        let mut id = 0;
        // SAFETY: the context is live; the pointer is valid for a write.
        check("cuCtxGetId", unsafe {
            cu::cuCtxGetId(self.as_raw(), &mut id)
        })?;
        Ok(id)
    }

    /// The version of the driver API that the context was created with: `cuCtxGetApiVersion`.
    ///
    /// # Errors
    /// The driver's.
    pub fn api_version(&self) -> Result<u32> {
        crate::driver::ensure()?;
        let mut version = 0;
        // SAFETY: the context is live; the pointer is valid for a write.
        check("cuCtxGetApiVersion", unsafe {
            cu::cuCtxGetApiVersion(self.as_raw(), &mut version)
        })?;
        Ok(version)
    }

    /// Makes all persisting lines of the L2 cache normal again: `cuCtxResetPersistingL2Cache`.
    ///
    /// # Errors
    /// The driver's.
    pub fn reset_persisting_l2_cache(&self) -> Result<()> {
        let _entered = self.enter_briefly()?;
        // SAFETY: takes nothing; a live context is current.
        check("cuCtxResetPersistingL2Cache", unsafe {
            cu::cuCtxResetPersistingL2Cache()
        })
    }
}
