//! Arrays of cuda-core that Python code takes by `__cuda_array_interface__`.

use std::ffi::{c_char, c_int};
use std::slice;

use cuda_core::{DeviceBuffer, Stream};

use crate::elements::Elements;
use crate::tell;

/// What `__cuda_array_interface__` says of memory in one dimension.
#[repr(C)]
pub struct Entries {
    length: usize,
    address: u64,
    stream: usize,
    version: u32,
    read_only: bool,
    /// Ends at a zero.
    typestr: [c_char; 8],
}

/// Uploads numbers of a type, and stores the memory and its entries.
///
/// # Safety
/// `stream` came from [`interop_stream`](crate::tensors::interop_stream); `bytes` points to `size`
/// bytes; the others are valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_array(
    stream: *const Stream,
    code: u8,
    bits: u8,
    bytes: *const u8,
    size: usize,
    writable: bool,
    array: *mut *mut DeviceBuffer<u8>,
    entries: *mut Entries,
) -> c_int {
    // SAFETY: a live stream, by this function's contract.
    let stream = unsafe { &*stream };
    // SAFETY: so many bytes, by this function's contract.
    let bytes = unsafe { slice::from_raw_parts(bytes, size) };
    let make = || {
        let elements = Elements::of(code, bits)?;
        let mut buffer = stream.upload_new(bytes)?;
        let found = (elements.entries)(&mut buffer, stream, writable)?;
        let mut typestr = [0; 8];
        for (to, from) in typestr.iter_mut().zip(found.typestr.bytes()) {
            *to = from as c_char;
        }
        let (length, stream) = (found.shape[0], found.stream.unwrap_or_default());
        let ((address, read_only), version) = (found.data, found.version);
        Ok((buffer, Entries { length, address, stream, version, read_only, typestr }))
    };
    tell(make().map(|(buffer, made)| {
        // SAFETY: valid for a write, by this function's contract.
        unsafe { entries.write(made) };
        // SAFETY: as above.
        unsafe { array.write(Box::into_raw(Box::new(buffer))) };
    }))
}

/// Downloads the memory, after all that `stream` was given.
///
/// # Safety
/// `stream` came from [`interop_stream`](crate::tensors::interop_stream), and `array` from
/// [`interop_array`]; `bytes` points to as many bytes as the array has, which no other code uses during
/// the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_array_read(
    stream: *const Stream,
    array: *const DeviceBuffer<u8>,
    bytes: *mut u8,
) -> c_int {
    // SAFETY: a live stream, by this function's contract.
    let stream = unsafe { &*stream };
    // SAFETY: a live array, by this function's contract.
    let array = unsafe { &*array };
    // SAFETY: as many bytes, by this function's contract.
    let bytes = unsafe { slice::from_raw_parts_mut(bytes, array.len()) };
    tell(stream.download(array, bytes))
}

/// Frees the memory.
///
/// # Safety
/// It came from [`interop_array`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_array_drop(array: *mut DeviceBuffer<u8>) {
    // SAFETY: from `Box::into_raw`, and taken back once, by this function's contract.
    drop(unsafe { Box::from_raw(array) });
}
