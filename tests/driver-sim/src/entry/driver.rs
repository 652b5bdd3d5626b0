//! Initialisation and version.

use std::ffi::{c_int, c_uint};

use cuda_sys::*;

use crate::call::put;

/// CUDA 13.0.
pub(crate) const VERSION: c_int = 13_000;

entries! {
    floor cuInit(flags: c_uint) |call| {
        if flags != 0 || !call.config.refused.is_empty() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if call.devices.is_empty() {
            return Err(CUDA_ERROR_NO_DEVICE);
        }
        call.initialized = true;
        Ok(())
    }

    floor cuDriverGetVersion(version: *mut c_int) |_| {
        // SAFETY: the caller passes a place for the version.
        unsafe { put(version, VERSION) }
    }
}
