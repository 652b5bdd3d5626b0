//! Where memory is and who may reach it, as every driver since 11.8 lays that out.
//!
//! The header's own types are not used, since 13.x moved the device's number into an anonymous
//! union; nor are those that hold one of these.

use std::ffi::c_int;

use cuda_sys::{CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType};

use crate::device::Device;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Location {
    kind: CUmemLocationType,
    id: c_int,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AccessDescriptor {
    location: Location,
    flags: CUmemAccess_flags,
}

const _: () = assert!(size_of::<Location>() == size_of::<CUmemLocation>());
const _: () = assert!(align_of::<Location>() == align_of::<CUmemLocation>());
const _: () = assert!(size_of::<AccessDescriptor>() == size_of::<CUmemAccessDesc>());
const _: () = assert!(align_of::<AccessDescriptor>() == align_of::<CUmemAccessDesc>());

impl Location {
    pub(crate) fn of(device: Device) -> Self {
        Self {
            kind: cuda_sys::CU_MEM_LOCATION_TYPE_DEVICE,
            id: device.as_raw(),
        }
    }
}

#[cfg(cuda_12_2)]
impl Location {
    /// A node of the host's memory.
    pub(crate) fn host_numa(node: u32) -> Self {
        Self {
            kind: cuda_sys::CU_MEM_LOCATION_TYPE_HOST_NUMA,
            // No node has a number that does not fit; the driver refuses what stands for it.
            id: c_int::try_from(node).unwrap_or(c_int::MAX),
        }
    }

    /// The node that the calling thread is closest to.
    pub(crate) fn host_numa_current() -> Self {
        Self {
            kind: cuda_sys::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT,
            id: 0,
        }
    }

    /// The header's own type, for calls that take it by value.
    pub(crate) fn into_raw(self) -> CUmemLocation {
        // SAFETY: two numbers on both sides, of the same size and alignment, as asserted above.
        unsafe { std::mem::transmute::<Self, CUmemLocation>(self) }
    }
}

impl AccessDescriptor {
    pub(crate) fn of(device: Device, flags: CUmemAccess_flags) -> Self {
        Self {
            location: Location::of(device),
            flags,
        }
    }
}
