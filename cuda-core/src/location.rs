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

impl AccessDescriptor {
    pub(crate) fn of(device: Device, flags: CUmemAccess_flags) -> Self {
        Self {
            location: Location::of(device),
            flags,
        }
    }
}
