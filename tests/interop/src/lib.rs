//! cuda-core after a plain C interface: `interop.py` nests its guard with those of PyTorch and CuPy
//! in one process, and hands tensors and arrays to them and takes theirs. It is a tool for NVTX, too.
//!
//! Functions return zero for success, the driver's code for the driver's errors, and −1 for all
//! others; [`interop_last_error`] has the text.

pub mod arrays;
mod elements;
pub mod nvtx_tool;
pub mod tensors;

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::slice;

use cuda_core::{Context, Device, Error, Guard, PointerAttributes, Result};

thread_local! {
    /// The text of this thread's last failed call.
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Makes the device's primary context current on this thread and stores the guard that does at
/// `guard`.
///
/// # Safety
/// `guard` is valid for a write of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_enter(ordinal: c_int, guard: *mut *mut Guard) -> c_int {
    tell(device(ordinal).and_then(Device::enter).map(|entered| {
        // SAFETY: valid for a write, by this function's contract.
        unsafe { guard.write(Box::into_raw(Box::new(entered))) }
    }))
}

/// Ends a guard: what was current before it is so again.
///
/// # Safety
/// `guard` came from [`interop_enter`] on this thread and has not been passed here before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_leave(guard: *mut Guard) -> c_int {
    // SAFETY: from `Box::into_raw`, and taken back once, by this function's contract.
    let guard = unsafe { Box::from_raw(guard) };
    tell(guard.restore())
}

/// The handle of this thread's current context, as the driver returns it; null for none.
///
/// # Safety
/// `context` is valid for a write of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_current(context: *mut *mut c_void) -> c_int {
    let mut current = ptr::null_mut();
    // SAFETY: the call writes one handle, to a local that outlives it.
    let code = unsafe { cuda_sys::symbol::cuCtxGetCurrent(&mut current) };
    let result = match code {
        cuda_sys::CUDA_SUCCESS => Ok(()),
        code => Err(Error::Driver { op: "cuCtxGetCurrent", code }),
    };
    tell(result.map(|()| {
        // SAFETY: valid for a write, by this function's contract.
        unsafe { context.write(current.cast()) }
    }))
}

/// Allocates, fills and downloads `length` numbers on the device in its primary context, whatever
/// is current, and says on which device the driver saw the memory.
///
/// # Safety
/// `numbers` points to `length` numbers that no other code uses during the call, and `landed` to
/// one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_work_on(
    ordinal: c_int,
    value: u32,
    numbers: *mut u32,
    length: usize,
    landed: *mut c_int,
) -> c_int {
    // SAFETY: numbers that no other code uses, by this function's contract.
    let numbers = unsafe { slice::from_raw_parts_mut(numbers, length) };
    let context = device(ordinal).and_then(Device::context);
    tell(context.and_then(|context| work(&context, value, numbers)).map(|on| {
        // SAFETY: valid for a write, by this function's contract.
        unsafe { landed.write(on) }
    }))
}

/// [`interop_work_on`], in the context that the caller has made current on this thread.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_work_here(
    value: u32,
    numbers: *mut u32,
    length: usize,
    landed: *mut c_int,
) -> c_int {
    // SAFETY: numbers that no other code uses, by this function's contract.
    let numbers = unsafe { slice::from_raw_parts_mut(numbers, length) };
    let current = Context::current().and_then(|current| {
        current.ok_or(Error::Driver {
            op: "cuCtxGetCurrent",
            code: cuda_sys::CUDA_ERROR_INVALID_CONTEXT,
        })
    });
    tell(current.and_then(|context| work(&context, value, numbers)).map(|on| {
        // SAFETY: valid for a write, by this function's contract.
        unsafe { landed.write(on) }
    }))
}

/// The text of this thread's last failed call; valid until its next failed call.
#[unsafe(no_mangle)]
pub extern "C" fn interop_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}

/// How many drops failed in this process.
#[unsafe(no_mangle)]
pub extern "C" fn interop_drop_failures() -> u64 {
    cuda_core::drops::failures()
}

/// A negative ordinal names no device.
fn device(ordinal: c_int) -> Result<Device> {
    Device::get(u32::try_from(ordinal).unwrap_or(u32::MAX))
}

/// The ordinal of the device that the memory was on; −1 where the driver does not know it.
fn work(context: &Context, value: u32, numbers: &mut [u32]) -> Result<c_int> {
    let stream = context.create_stream()?;
    let mut buffer = stream.alloc::<u32>(numbers.len())?;
    stream.fill(&mut buffer, value)?;
    stream.download(&buffer, numbers)?;
    let landed = PointerAttributes::of_device(buffer.as_raw())?.device;
    Ok(landed.map_or(-1, |device| device.ordinal() as c_int))
}

fn tell(result: Result<()>) -> c_int {
    let Err(error) = result else {
        return 0;
    };
    let text = CString::new(error.to_string()).unwrap_or_default();
    LAST_ERROR.set(text);
    error.code().map_or(-1, |code| code.0 as c_int)
}
