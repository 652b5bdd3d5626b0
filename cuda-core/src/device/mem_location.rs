//! Locations of memory and access rights, in the driver's structures.

use std::ffi::c_int;

use cuda_sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocation_st__bindgen_ty_1,
    CUmemLocationType,
};

use crate::device::Device;

/// The location of a device's memory.
pub(crate) fn of(device: Device) -> CUmemLocation {
    numbered(cuda_sys::CU_MEM_LOCATION_TYPE_DEVICE, device.as_raw())
}

/// A NUMA node of the host's memory.
pub(crate) fn host_numa(node: u32) -> CUmemLocation {
    // No real node has a number that does not fit; the driver refuses the substitute.
    let node = c_int::try_from(node).unwrap_or(c_int::MAX);
    numbered(cuda_sys::CU_MEM_LOCATION_TYPE_HOST_NUMA, node)
}

/// The NUMA node that the calling thread is closest to.
pub(crate) fn host_numa_current() -> CUmemLocation {
    numbered(cuda_sys::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0)
}

/// The access rights `flags` for a device.
pub(crate) fn access(device: Device, flags: CUmemAccess_flags) -> CUmemAccessDesc {
    CUmemAccessDesc { location: of(device), flags }
}

fn numbered(kind: CUmemLocationType, id: c_int) -> CUmemLocation {
    CUmemLocation { type_: kind, __bindgen_anon_1: CUmemLocation_st__bindgen_ty_1 { id } }
}
