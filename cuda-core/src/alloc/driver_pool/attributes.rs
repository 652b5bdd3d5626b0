//! A pool's usage, release threshold and reuse of memory.

use std::ptr;

use cuda_sys::{CUmemPool_attribute, symbol as cu};

use super::memory_pool::MemoryPool;
use crate::device::default_pool;
use crate::error::{Result, asked, check};
use crate::process::RelaxedCaptureMode;
use crate::types::PoolUsage;
use crate::util::raw_enum;

raw_enum! {
    /// When a pool reuses memory that another stream has freed.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// use cuda_core::pools::PoolReuse;
    ///
    /// // Streams never wait for each other because of memory, and more of it may be taken.
    /// let pool = device.default_memory_pool()?;
    /// pool.set_reuse(PoolReuse::InternalDependencies, false)?;
    /// assert!(pool.reuse(PoolReuse::FollowEventDependencies)?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    PoolReuse: CUmemPool_attribute {
        /// When an event orders the allocation after the free.
        FollowEventDependencies = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
        /// When the free happens to have completed.
        Opportunistic = CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        /// Always: the driver makes the stream wait if needed.
        InternalDependencies = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
    }
}

/// # Attributes
impl MemoryPool {
    /// Bytes that the pool keeps when a stream, an event or a context is synchronised, instead of giving them
    /// back to the device; [`usize::MAX`] stands for all.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's.
    #[doc(alias("cuMemPoolGetAttribute", "cudaMemPoolGetAttribute"))]
    pub fn release_threshold(&self) -> Result<usize> {
        self.bytes(cuda_sys::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    }

    /// Sets [`release_threshold`](Self::release_threshold): `cuMemPoolSetAttribute`.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let pool = device.default_memory_pool()?;
    /// pool.set_release_threshold(1 << 30)?; // a synchronization leaves up to a gibibyte in the pool
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemPoolSetAttribute", "cudaMemPoolSetAttribute"))]
    pub fn set_release_threshold(&self, bytes: usize) -> Result<()> {
        self.set_bytes(cuda_sys::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes)
    }

    /// Whether the pool reuses memory in this way: `cuMemPoolGetAttribute`.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's.
    #[doc(alias("cuMemPoolGetAttribute", "cudaMemPoolGetAttribute"))]
    pub fn reuse(&self, reuse: PoolReuse) -> Result<bool> {
        Ok(self.bytes(reuse.as_raw())? != 0)
    }

    /// Sets whether the pool reuses memory in this way: `cuMemPoolSetAttribute`. All ways are
    /// initially on.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// use cuda_core::pools::PoolReuse;
    ///
    /// // Which memory is reused does not depend on how far other streams have come.
    /// device.default_memory_pool()?.set_reuse(PoolReuse::Opportunistic, false)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemPoolSetAttribute", "cudaMemPoolSetAttribute"))]
    pub fn set_reuse(&self, reuse: PoolReuse, on: bool) -> Result<()> {
        self.set_bytes(reuse.as_raw(), on.into())
    }

    /// Returns what the pool holds for the whole process: `cuMemPoolGetAttribute`, four times.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let usage = device.default_memory_pool()?.usage()?;
    /// println!("{} of {} bytes are in use", usage.used, usage.reserved);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemPoolGetAttribute", "cudaMemPoolGetAttribute"))]
    pub fn usage(&self) -> Result<PoolUsage> {
        self.live()?;
        let _relaxed = RelaxedCaptureMode::enter()?;
        let reserved = self.bytes(cuda_sys::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        let used = self.bytes(cuda_sys::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
        Ok(PoolUsage {
            reserved,
            reserved_peak: self.bytes(cuda_sys::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
            used,
            used_peak: self.bytes(cuda_sys::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
            free: reserved.saturating_sub(used),
            ..PoolUsage::default()
        })
    }

    /// Sets the peaks of [`usage`](Self::usage) to the present values: `cuMemPoolSetAttribute`,
    /// twice.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's: one peak may then have been reset
    /// and the other not.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let pool = stream.device().default_memory_pool()?;
    /// pool.reset_peaks()?;
    /// drop(stream.alloc_from::<u8>(&pool, 1 << 20)?);
    /// assert!(pool.usage()?.used_peak >= 1 << 20);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemPoolSetAttribute", "cudaMemPoolSetAttribute"))]
    pub fn reset_peaks(&self) -> Result<()> {
        self.live()?;
        let _relaxed = RelaxedCaptureMode::enter()?;
        self.set_bytes(cuda_sys::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0)?;
        self.set_bytes(cuda_sys::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)
    }

    /// Gives unallocated memory back to the device, until no more than `keep` bytes are reserved,
    /// and returns the bytes given back: `cuMemPoolTrimTo`, and `cuMemPoolGetAttribute` before and
    /// after it. Memory that the pool takes meanwhile makes the number smaller.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's, possibly although the pool was trimmed.
    /// Memory in use stays, which is not an error.
    ///
    /// ```no_run
    /// let pool = cuda_core::Device::get(0)?.default_memory_pool()?;
    /// println!("{} bytes given back", pool.trim(0)?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemPoolTrimTo", "cuMemPoolGetAttribute"))]
    #[doc(alias("cudaMemPoolTrimTo", "cudaMemPoolGetAttribute"))]
    pub fn trim(&self, keep: usize) -> Result<usize> {
        let pool = self.live()?;
        let _relaxed = RelaxedCaptureMode::enter()?;
        let reserved = || self.bytes(cuda_sys::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        let before = reserved()?;
        // SAFETY: `self` keeps the pool alive, and `live` refuses one that may be gone; any number
        // of bytes is valid.
        check("cuMemPoolTrimTo", unsafe { cu::cuMemPoolTrimTo(pool, keep) })?;
        Ok(before.saturating_sub(reserved()?))
    }

    fn bytes(&self, attribute: CUmemPool_attribute) -> Result<usize> {
        let pool = self.live()?;
        let _relaxed = RelaxedCaptureMode::enter()?;
        // SAFETY: `self` keeps the pool alive; the attribute's value is a cuuint64_t or an int, which
        // the call writes to an exclusive borrow that has room for either.
        let value = asked("cuMemPoolGetAttribute", 0u64, |value| unsafe {
            cu::cuMemPoolGetAttribute(pool, attribute, ptr::from_mut(value).cast())
        })?;
        // No value exceeds the address space.
        Ok(value as usize)
    }

    fn set_bytes(&self, attribute: CUmemPool_attribute, bytes: usize) -> Result<()> {
        let pool = self.live()?;
        // SAFETY: live until it is closed, which takes the value that is borrowed here.
        unsafe { default_pool::set_attribute(pool, attribute, bytes as u64) }
    }
}
