//! The ends of copies, as the driver's copy descriptions have them.

use std::ffi::c_void;
use std::ptr;

use cuda_sys::{CUdeviceptr, CUmemorytype};

use crate::memory::Place;

/// One end of a copy, as in the driver's copy descriptions.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) kind: CUmemorytype,
    pub(crate) host: *mut c_void,
    pub(crate) device: CUdeviceptr,
}

impl Side {
    pub(crate) fn of(place: Place) -> Self {
        match place {
            Place::Host(pointer) => {
                Self { kind: cuda_sys::CU_MEMORYTYPE_HOST, host: pointer.cast(), device: 0 }
            }
            Place::Device(device) => {
                Self { kind: cuda_sys::CU_MEMORYTYPE_DEVICE, host: ptr::null_mut(), device }
            }
        }
    }
}
