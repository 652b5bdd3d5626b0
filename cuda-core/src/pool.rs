//! The driver's stream-ordered pool of a device, from which buffers come.

use std::ffi::c_int;
use std::ptr;

use cuda_sys::{CUmemAccess_flags, CUmemAccessDesc, CUmemLocationType, symbol as cu};

use crate::device::{Device, Pool};
use crate::error::{Result, check};

/// Finds a device's default pool and keeps it from giving memory back at every synchronisation.
pub(crate) fn prepare_default(device: Device) -> Result<Option<Pool>> {
    let supported = device.attribute(cuda_sys::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)?;
    if supported == 0 {
        return Ok(None);
    }
    let mut raw = ptr::null_mut();
    // SAFETY: the pointer is valid for a write.
    check("cuDeviceGetDefaultMemPool", unsafe {
        cu::cuDeviceGetDefaultMemPool(&mut raw, device.as_raw())
    })?;
    let mut threshold = u64::MAX;
    // SAFETY: the attribute's value is a cuuint64_t, which the pointer is valid for.
    check("cuMemPoolSetAttribute", unsafe {
        cu::cuMemPoolSetAttribute(
            raw,
            cuda_sys::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            (&raw mut threshold).cast(),
        )
    })?;
    Ok(Some(Pool(raw)))
}

/// `CUmemAccessDesc` for a device, as every header since 11.8 lays it out. The header's own type
/// is not used, since 13.x moved the device's number into an anonymous union.
#[repr(C)]
struct DeviceAccess {
    location_type: CUmemLocationType,
    location_id: c_int,
    flags: CUmemAccess_flags,
}

const _: () = assert!(size_of::<DeviceAccess>() == size_of::<CUmemAccessDesc>());
const _: () = assert!(align_of::<DeviceAccess>() == align_of::<CUmemAccessDesc>());

/// Opens or closes `owner`'s default pool to `peer`: `cuMemPoolSetAccess`.
pub(crate) fn set_access(owner: Device, peer: Device, flags: CUmemAccess_flags) -> Result<()> {
    let Some(pool) = owner.default_pool()? else {
        return Ok(());
    };
    let access = DeviceAccess {
        location_type: cuda_sys::CU_MEM_LOCATION_TYPE_DEVICE,
        location_id: peer.as_raw(),
        flags,
    };
    // SAFETY: the pool lives as long as the driver; one descriptor is passed and counted, laid
    // out as the call expects it.
    check("cuMemPoolSetAccess", unsafe {
        cu::cuMemPoolSetAccess(pool.0, (&raw const access).cast(), 1)
    })
}
