//! Raw calls on the thread's context stack, which the library under test does not see.
//!
//! Handles are compared, never ordinals: two contexts of one device are two contexts.

use std::ptr;

use cuda_sys::{
    CUcontext, CUdevice, cuCtxCreate_v2, cuCtxDestroy_v2, cuCtxGetCurrent, cuCtxPopCurrent_v2,
    cuCtxPushCurrent_v2, cuCtxSetCurrent, cuDeviceGet, cuDevicePrimaryCtxRelease_v2,
    cuDevicePrimaryCtxRetain, cuInit,
};

use crate::driver::check;

/// Returns the context that `cuCtxGetCurrent` reports on this thread; null for none.
///
/// # Panics
/// If the driver returns an error.
#[track_caller]
pub fn current() -> CUcontext {
    let mut context = ptr::null_mut();
    // SAFETY: `context` is valid for the one handle that the driver writes.
    check("cuCtxGetCurrent", unsafe { cuCtxGetCurrent(&mut context) });
    context
}

/// Calls `cuCtxSetCurrent`; null pops one entry.
///
/// # Panics
/// If the driver returns an error: an invalid handle, say.
#[track_caller]
pub fn set_current(context: CUcontext) {
    // SAFETY: the driver checks the handle against those that exist.
    check("cuCtxSetCurrent", unsafe { cuCtxSetCurrent(context) });
}

/// Calls `cuCtxPushCurrent`.
///
/// # Panics
/// If the driver returns an error: an invalid handle, say.
#[track_caller]
pub fn push(context: CUcontext) {
    // SAFETY: the driver checks the handle against those that exist.
    check("cuCtxPushCurrent", unsafe { cuCtxPushCurrent_v2(context) });
}

/// Calls `cuCtxPopCurrent` and returns the context that was on top, or `None` if the stack is empty.
///
/// # Panics
/// If the driver returns an error other than that of an empty stack.
#[track_caller]
pub fn pop() -> Option<CUcontext> {
    let mut context = ptr::null_mut();
    // SAFETY: `context` is valid for the one handle that the driver writes.
    let result = unsafe { cuCtxPopCurrent_v2(&mut context) };
    if result == cuda_sys::CUDA_ERROR_INVALID_CONTEXT {
        return None;
    }
    check("cuCtxPopCurrent", result);
    Some(context)
}

/// Returns the driver's device of that ordinal.
///
/// # Panics
/// If there is no such device.
#[track_caller]
pub fn device(ordinal: u32) -> CUdevice {
    let mut device = 0;
    let ordinal = i32::try_from(ordinal).expect("an ordinal fits an int");
    // SAFETY: takes no pointer, and may be called at any time, repeatedly: the test may be the first.
    check("cuInit", unsafe { cuInit(0) });
    // SAFETY: `device` is valid for the one `CUdevice` that the driver writes.
    check("cuDeviceGet", unsafe { cuDeviceGet(&mut device, ordinal) });
    device
}

/// Returns the handle of a device's primary context, by retaining and releasing it.
///
/// It stays valid afterwards only if something else retains it too, such as the library under test.
///
/// # Panics
/// If the driver returns an error.
#[track_caller]
pub fn primary(ordinal: u32) -> CUcontext {
    let device = device(ordinal);
    let mut context = ptr::null_mut();
    // SAFETY: `context` is valid for the one handle that the driver writes.
    check("cuDevicePrimaryCtxRetain", unsafe { cuDevicePrimaryCtxRetain(&mut context, device) });
    // SAFETY: releases the one count that the call above took.
    check("cuDevicePrimaryCtxRelease", unsafe { cuDevicePrimaryCtxRelease_v2(device) });
    context
}

/// A context made with the raw call, without the library's knowledge; destroyed when dropped.
pub struct Foreign {
    // INVARIANT: made by `cuCtxCreate`, destroyed in `drop` only.
    handle: CUcontext,
}

// SAFETY: any thread may use the handle, and destroy it.
unsafe impl Send for Foreign {}
// SAFETY: a shared reference gives access to the handle alone, which threads may use concurrently.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// Creates a context on the device and leaves the thread's context stack as it was.
    ///
    /// # Panics
    /// If the driver returns an error.
    #[track_caller]
    pub fn create(ordinal: u32) -> Self {
        let device = device(ordinal);
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is valid for the one handle that the driver writes.
        check("cuCtxCreate", unsafe { cuCtxCreate_v2(&mut handle, 0, device) });
        // Creating pushes.
        assert_eq!(pop(), Some(handle));
        Self { handle }
    }

    /// Returns the context's handle, valid until this value is dropped.
    pub fn handle(&self) -> CUcontext {
        self.handle
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: the invariant; the test no longer uses the handle.
        let result = unsafe { cuCtxDestroy_v2(self.handle) };
        if !std::thread::panicking() {
            check("cuCtxDestroy", result);
        }
    }
}
