//! Initialisation and version.

use std::ffi::{CStr, c_int};

use cuda_sys::*;

use crate::call::put;

/// The driver's version: CUDA 13.0.
pub(crate) const VERSION: c_int = 13_000;

entries! {
    cuInit(flags) |call| {
        if flags != 0 || !call.config.refused.is_empty() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if call.config.seen_twice {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        if call.devices.is_empty() {
            return Err(CUDA_ERROR_NO_DEVICE);
        }
        call.initialized = true;
        crate::exit::leave_with_the_process();
        Ok(())
    }

    cuDriverGetVersion(version) |_| {
        // SAFETY: the caller passes a place for the version.
        unsafe { put(version, VERSION) }
    }

    cuGetProcAddress(symbol, found, _version, _flags) |call| {
        if symbol.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so the caller passes a NUL-terminated string.
        let symbol = unsafe { CStr::from_ptr(symbol) };
        let address = super::resolve(symbol, &call.config.missing).cast_mut();
        // SAFETY: the caller passes a place for the address.
        unsafe { put(found, address) }?;
        if address.is_null() { Err(CUDA_ERROR_NOT_FOUND) } else { Ok(()) }
    }

    cuProfilerStart() |call| {
        call.current().map(drop)
    }

    cuProfilerStop() |call| {
        call.current().map(drop)
    }
}
