//! What a pool holds, keeps and reuses.

use std::ffi::c_int;

use cuda_sys::{CUmemPool_attribute, symbol as cu};

use super::handle::MemoryPool;
use crate::error::{Result, check};

/// Bytes that a pool holds.
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// # let stream = device.create_stream()?;
/// let pool = device.default_memory_pool()?;
/// let buffer = stream.alloc_from::<u8>(&pool, 1 << 20)?;
/// let usage = pool.usage()?;
/// assert!(usage.used >= 1 << 20 && usage.reserved >= usage.used);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolUsage {
    /// Taken from the device.
    pub reserved: u64,
    /// The most that was taken since the peaks were reset.
    pub reserved_peak: u64,
    /// Allocated from the pool.
    pub used: u64,
    /// The most that was allocated since the peaks were reset.
    pub used_peak: u64,
}

/// When a pool hands out memory that another stream has freed.
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// use cuda_core::PoolReuse;
///
/// // Streams never wait for each other because of memory, and more of it may be taken.
/// let pool = device.default_memory_pool()?;
/// pool.set_reuse(PoolReuse::InternalDependencies, false)?;
/// assert!(pool.reuse(PoolReuse::FollowEventDependencies)?);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolReuse {
    /// When an event orders the allocation behind the free.
    FollowEventDependencies,
    /// When the free happens to have completed.
    Opportunistic,
    /// Always: the driver makes the stream wait where it must.
    InternalDependencies,
}

impl PoolReuse {
    fn attribute(self) -> CUmemPool_attribute {
        match self {
            Self::FollowEventDependencies => {
                cuda_sys::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            }
            Self::Opportunistic => cuda_sys::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
            Self::InternalDependencies => {
                cuda_sys::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
            }
        }
    }
}

impl MemoryPool {
    /// Bytes that the pool keeps when a stream, an event or a context is synchronised, instead of
    /// giving them back to the device.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's.
    pub fn release_threshold(&self) -> Result<u64> {
        self.number(cuda_sys::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    }

    /// Sets [`release_threshold`](Self::release_threshold): `cuMemPoolSetAttribute`.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's.
    pub fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        self.set_number(cuda_sys::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes)
    }

    /// Whether the pool reuses memory that way: `cuMemPoolGetAttribute`.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's.
    pub fn reuse(&self, reuse: PoolReuse) -> Result<bool> {
        let pool = self.live()?;
        let mut value: c_int = 0;
        // SAFETY: the pool is live; the attribute's value is an int, for which the pointer is valid.
        check("cuMemPoolGetAttribute", unsafe {
            cu::cuMemPoolGetAttribute(pool, reuse.attribute(), (&raw mut value).cast())
        })?;
        Ok(value != 0)
    }

    /// Says whether the pool reuses memory that way: `cuMemPoolSetAttribute`. All ways are on to
    /// begin with.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's.
    pub fn set_reuse(&self, reuse: PoolReuse, on: bool) -> Result<()> {
        let pool = self.live()?;
        let mut value = c_int::from(on);
        // SAFETY: the pool is live; the attribute's value is an int, for which the pointer is valid.
        check("cuMemPoolSetAttribute", unsafe {
            cu::cuMemPoolSetAttribute(pool, reuse.attribute(), (&raw mut value).cast())
        })
    }

    /// What the pool holds, the whole process included: `cuMemPoolGetAttribute`, four times.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's.
    pub fn usage(&self) -> Result<PoolUsage> {
        Ok(PoolUsage {
            reserved: self.number(cuda_sys::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
            reserved_peak: self.number(cuda_sys::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
            used: self.number(cuda_sys::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            used_peak: self.number(cuda_sys::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
        })
    }

    /// Makes the peaks of [`usage`](Self::usage) what is there now: `cuMemPoolSetAttribute`, twice.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's, and then one peak may have been reset
    /// and the other not.
    pub fn reset_peaks(&self) -> Result<()> {
        self.set_number(cuda_sys::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0)?;
        self.set_number(cuda_sys::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)
    }

    /// Gives memory that nobody has allocated back to the device, until no more than `keep` bytes
    /// are reserved: `cuMemPoolTrimTo`.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp); the driver's. Memory that is in use stays, which
    /// is no error.
    ///
    /// ```no_run
    /// let pool = cuda_core::Device::get(0)?.default_memory_pool()?;
    /// pool.trim_to(0)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn trim_to(&self, keep: usize) -> Result<()> {
        let pool = self.live()?;
        // SAFETY: `self` keeps the pool, and `live` refuses one that may be gone; any number of
        // bytes will do.
        check("cuMemPoolTrimTo", unsafe {
            cu::cuMemPoolTrimTo(pool, keep)
        })
    }

    fn number(&self, attribute: CUmemPool_attribute) -> Result<u64> {
        let pool = self.live()?;
        let mut value = 0u64;
        // SAFETY: the pool is live; the attribute's value is a cuuint64_t, for which the pointer is
        // valid.
        check("cuMemPoolGetAttribute", unsafe {
            cu::cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast())
        })?;
        Ok(value)
    }

    fn set_number(&self, attribute: CUmemPool_attribute, mut value: u64) -> Result<()> {
        let pool = self.live()?;
        // SAFETY: `self` keeps the pool; all attributes that come here have a cuuint64_t, which the
        // call reads from a local that outlives it.
        check("cuMemPoolSetAttribute", unsafe {
            cu::cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast())
        })
    }
}
