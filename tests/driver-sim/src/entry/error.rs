//! Names and descriptions of result codes.

use cuda_sys::*;

use crate::call::put;

entries! {
    cuGetErrorName(error, text) |_| {
        let found = error.texts();
        // SAFETY: the caller passes a place for the pointer.
        unsafe { put(text, found.map_or(std::ptr::null(), |(name, _)| name.as_ptr())) }?;
        found.map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    cuGetErrorString(error, text) |_| {
        let found = error.texts();
        // SAFETY: the caller passes a place for the pointer.
        unsafe { put(text, found.map_or(std::ptr::null(), |(_, text)| text.as_ptr())) }?;
        found.map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
}
