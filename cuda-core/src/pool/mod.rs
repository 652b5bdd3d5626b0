//! The driver's stream-ordered pools.

use std::ptr;

use cuda_sys::{CUmemAccess_flags, symbol as cu};

use crate::capture::Relaxed;
use crate::device::{Device, Pool};
use crate::error::{Result, check};
use crate::location;

pub(crate) mod attributes;
pub(crate) mod handle;
pub(crate) mod share;

/// Finds a device's default pool and keeps it from giving memory back at every synchronisation.
pub(crate) fn prepare_default(device: Device) -> Result<Option<Pool>> {
    let supported = device.attribute(cuda_sys::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)?;
    if supported == 0 {
        return Ok(None);
    }
    let mut raw = ptr::null_mut();
    // SAFETY: the device's handle is one that the driver gave; the call writes one handle, to a
    // local that outlives it.
    check("cuDeviceGetDefaultMemPool", unsafe {
        cu::cuDeviceGetDefaultMemPool(&mut raw, device.as_raw())
    })?;
    let mut threshold = u64::MAX;
    let _relaxed = Relaxed::enter()?;
    // SAFETY: the attribute's value is a cuuint64_t, which the call reads from a local that
    // outlives it; default pools are never destroyed.
    check("cuMemPoolSetAttribute", unsafe {
        cu::cuMemPoolSetAttribute(
            raw,
            cuda_sys::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            (&raw mut threshold).cast(),
        )
    })?;
    Ok(Some(Pool(raw)))
}

/// Opens or closes `owner`'s default pool to `peer`: `cuMemPoolSetAccess`.
pub(crate) fn set_access(owner: Device, peer: Device, flags: CUmemAccess_flags) -> Result<()> {
    match owner.default_pool()? {
        Some(pool) => set_pool_access(pool, peer, flags),
        None => Ok(()),
    }
}

/// `cuMemPoolSetAccess`. The caller holds a live pool.
fn set_pool_access(pool: Pool, peer: Device, flags: CUmemAccess_flags) -> Result<()> {
    let access = location::access(peer, flags);
    let _relaxed = Relaxed::enter()?;
    // SAFETY: the pool is live; one descriptor is passed and counted.
    check("cuMemPoolSetAccess", unsafe {
        cu::cuMemPoolSetAccess(pool.0, &access, 1)
    })
}
