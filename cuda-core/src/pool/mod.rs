//! The driver's stream-ordered pools, from which buffers come.

use std::ffi::{c_int, c_void};
use std::ptr;

use cuda_sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPoolProps, symbol as cu,
};

use crate::device::{Device, Pool};
use crate::error::{Result, check};

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

/// `CUmemLocation`, `CUmemAccessDesc` and `CUmemPoolProps` as every driver since 11.8 lays them out.
/// The header's own types are not used, since 13.x moved the device's number into an anonymous union
/// and 12.2 the maximum size out of what was reserved.
#[repr(C)]
#[derive(Clone, Copy)]
struct Location {
    kind: CUmemLocationType,
    id: c_int,
}

#[repr(C)]
struct DeviceAccess {
    location: Location,
    flags: CUmemAccess_flags,
}

#[repr(C)]
struct Properties {
    kind: CUmemAllocationType,
    handle_types: CUmemAllocationHandleType,
    location: Location,
    win32_security_attributes: *mut c_void,
    max_size: usize,
    reserved: [u8; 56],
}

const _: () = assert!(size_of::<Location>() == size_of::<CUmemLocation>());
const _: () = assert!(align_of::<Location>() == align_of::<CUmemLocation>());
const _: () = assert!(size_of::<DeviceAccess>() == size_of::<CUmemAccessDesc>());
const _: () = assert!(align_of::<DeviceAccess>() == align_of::<CUmemAccessDesc>());
const _: () = assert!(size_of::<Properties>() == size_of::<CUmemPoolProps>());
const _: () = assert!(align_of::<Properties>() == align_of::<CUmemPoolProps>());

impl Location {
    fn of(device: Device) -> Self {
        Self {
            kind: cuda_sys::CU_MEM_LOCATION_TYPE_DEVICE,
            id: device.as_raw(),
        }
    }
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
    let access = DeviceAccess {
        location: Location::of(peer),
        flags,
    };
    // SAFETY: the pool is live; one descriptor is passed and counted, laid out as the call expects
    // it.
    check("cuMemPoolSetAccess", unsafe {
        cu::cuMemPoolSetAccess(pool.0, (&raw const access).cast(), 1)
    })
}
