//! Each device's default pool, kept from giving memory back at every synchronisation.

use std::ptr;

use cuda_sys::{CUmemAccess_flags, CUmemPool_attribute, CUmemoryPool, symbol as cu};

use crate::device::{Device, mem_location};
use crate::error::{Result, asked, check};
use crate::process::{Handle, RelaxedCaptureMode};
use crate::util::get_or_try_init;

/// A pool's handle. A device's default pool lives as long as the driver.
pub(crate) type RawPool = Handle<CUmemoryPool>;

/// # Pools
impl Device {
    /// Returns the default pool with its release threshold raised, or [`None`] if the device has no pools.
    pub(crate) fn default_pool(self) -> Result<Option<RawPool>> {
        get_or_try_init(&self.state.default_pool, || prepare(self)).copied()
    }
}

/// Finds a device's default pool and keeps it from giving memory back at every synchronisation.
fn prepare(device: Device) -> Result<Option<RawPool>> {
    if !device.attributes().memory_pools_supported()? {
        return Ok(None);
    }
    // SAFETY: the device's handle is one that the driver gave; the call writes one handle, to an
    // exclusive borrow.
    let raw = asked("cuDeviceGetDefaultMemPool", ptr::null_mut(), |raw| unsafe {
        cu::cuDeviceGetDefaultMemPool(raw, device.as_raw())
    })?;
    // SAFETY: a device's default pool is never destroyed.
    unsafe { set_attribute(raw, cuda_sys::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX) }?;
    Ok(Some(Handle(raw)))
}

/// `cuMemPoolSetAttribute`.
///
/// # Safety
/// The pool is live.
pub(crate) unsafe fn set_attribute(
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    mut value: u64,
) -> Result<()> {
    let _relaxed = RelaxedCaptureMode::enter()?;
    // SAFETY: the pool is live, by the caller's promise. The attribute's value is a cuuint64_t or an int; on
    // a little-endian machine, as all that CUDA supports are, the int is at the same address. The call reads
    // the value from a local that outlives it.
    check("cuMemPoolSetAttribute", unsafe {
        cu::cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast())
    })
}

/// Opens or closes `owner`'s default pool to `peer`: `cuMemPoolSetAccess`.
pub(crate) fn set_access(owner: Device, peer: Device, flags: CUmemAccess_flags) -> Result<()> {
    owner.default_pool()?.map_or(Ok(()), |pool| set_pool_access(pool, peer, flags))
}

/// `cuMemPoolSetAccess`. The caller holds a live pool.
pub(crate) fn set_pool_access(pool: RawPool, peer: Device, flags: CUmemAccess_flags) -> Result<()> {
    let access = mem_location::access(peer, flags);
    let _relaxed = RelaxedCaptureMode::enter()?;
    // SAFETY: the pool is live; one descriptor is passed and counted.
    check("cuMemPoolSetAccess", unsafe { cu::cuMemPoolSetAccess(pool.0, &access, 1) })
}
