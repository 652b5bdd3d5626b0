//! Tensors of cuda-core for Python, and Python's for cuda-core. Elements are `f32`, unless a function is
//! given another type by its code and bits.

use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::Arc;

use cuda_core::dlpack::{Consumer, ImportedTensor, Tensor};
use cuda_core::{CachingPool, DeviceBuffer, Result, Stream};

use crate::elements::Elements;
use crate::{device, tell};

/// Creates a stream, and stores it and what `__cuda_stream__` returns for it.
///
/// # Safety
/// All are valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_stream(
    ordinal: c_int,
    stream: *mut *mut Stream,
    version: *mut u32,
    handle: *mut usize,
) -> c_int {
    tell(device(ordinal).and_then(|device| device.create_stream()).map(|created| {
        let protocol = created.protocol_handle();
        // SAFETY: valid for a write, by this function's contract.
        unsafe { version.write(protocol.0) };
        // SAFETY: as above.
        unsafe { handle.write(protocol.1) };
        // SAFETY: as above.
        unsafe { stream.write(Box::into_raw(Box::new(created))) };
    }))
}

/// Drops a stream.
///
/// # Safety
/// It came from [`interop_stream`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_stream_drop(stream: *mut Stream) {
    // SAFETY: from `Box::into_raw`, and taken back once, by this function's contract.
    drop(unsafe { Box::from_raw(stream) });
}

/// Fills a new matrix on `stream`, finally with `value`, and hands it over, perhaps only for reads, for the
/// stream that the protocol calls `consumer`. Stores the managed tensor, of DLPack 1.x if `versioned`, and
/// the address of its elements.
///
/// # Safety
/// `stream` came from [`interop_stream`]; `consumer` is a stream for as long as the tensor lives;
/// `tensor` and `address` are valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_export(
    stream: *const Stream,
    value: f32,
    rows: usize,
    columns: usize,
    read_only: bool,
    consumer: i64,
    versioned: bool,
    tensor: *mut *mut c_void,
    address: *mut u64,
) -> c_int {
    // SAFETY: a live stream, by this function's contract.
    let stream = unsafe { &*stream };
    let export = || {
        let mut buffer = stream.alloc::<f32>(rows * columns)?;
        for step in (0..20u8).rev() {
            stream.fill(&mut buffer, value + f32::from(step))?;
        }
        let at = buffer.as_raw();
        let made = match read_only {
            true => Tensor::shared(buffer, &[rows, columns], None)?,
            false => Tensor::new(buffer, &[rows, columns], None)?,
        };
        // SAFETY: a stream for as long as the tensor lives, by this function's contract.
        Ok((unsafe { hand_over(made, stream, consumer, versioned) }?, at))
    };
    tell(export().map(|(raw, at)| {
        // SAFETY: valid for a write, by this function's contract.
        unsafe { tensor.write(raw) };
        // SAFETY: as above.
        unsafe { address.write(at) };
    }))
}

/// [`interop_export`], of numbers of a type, `size` bytes in all, with `dimensions` lengths and, if there are
/// strides, as many of these after them.
///
/// # Safety
/// As there; `bytes` and `extents` point to so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_export_numbers(
    stream: *const Stream,
    code: u8,
    bits: u8,
    bytes: *const u8,
    size: usize,
    extents: *const usize,
    dimensions: usize,
    has_strides: bool,
    consumer: i64,
    versioned: bool,
    tensor: *mut *mut c_void,
    address: *mut u64,
) -> c_int {
    // SAFETY: a live stream, by this function's contract.
    let stream = unsafe { &*stream };
    // SAFETY: so many bytes, by this function's contract.
    let bytes = unsafe { slice::from_raw_parts(bytes, size) };
    let count = if has_strides { 2 * dimensions } else { dimensions };
    // SAFETY: so many numbers, by this function's contract.
    let extents = unsafe { slice::from_raw_parts(extents, count) };
    let (shape, strides) = extents.split_at(dimensions);
    let export = || {
        let make = Elements::of(code, bits)?.tensor;
        let (made, at) = make(stream, bytes, (shape, has_strides.then_some(strides)))?;
        // SAFETY: a stream for as long as the tensor lives, by this function's contract.
        Ok((unsafe { hand_over(made, stream, consumer, versioned) }?, at))
    };
    tell(export().map(|(raw, at)| {
        // SAFETY: valid for a write, by this function's contract.
        unsafe { tensor.write(raw) };
        // SAFETY: as above.
        unsafe { address.write(at) };
    }))
}

/// The managed tensor, of DLPack 1.x if `versioned`, for the stream that the protocol calls `consumer`.
///
/// # Safety
/// That is a stream for as long as the tensor lives.
unsafe fn hand_over(
    tensor: Tensor,
    stream: &Stream,
    consumer: i64,
    versioned: bool,
) -> Result<*mut c_void> {
    // SAFETY: this function's contract.
    let consumer =
        unsafe { Consumer::of_protocol(Some(consumer), stream.context(), Arc::new(())) }?;
    Ok(match versioned {
        true => tensor.into_raw(&consumer)?.as_ptr().cast(),
        false => tensor.into_raw_unversioned(&consumer)?.as_ptr().cast(),
    })
}

/// Takes a tensor over, whose producer has made `stream` wait, and fills the
/// elements from `filled` on with `value`. Stores the buffer, its address and its length.
///
/// # Safety
/// `stream` came from [`interop_stream`]; `tensor` is a live managed tensor, of DLPack 1.x if
/// `versioned`, that is this function's from now on if it returns zero; the others are valid for a
/// write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_import(
    stream: *const Stream,
    tensor: *mut c_void,
    versioned: bool,
    filled: usize,
    value: f32,
    buffer: *mut *mut DeviceBuffer<f32>,
    address: *mut u64,
    length: *mut usize,
) -> c_int {
    // SAFETY: a live stream, by this function's contract.
    let stream = unsafe { &*stream };
    // SAFETY: this function's contract.
    let imported = unsafe { import(stream, tensor, versioned) };
    let fill = || {
        let mut taken = imported?.into_buffer::<f32>()?;
        stream.fill(taken.slice_mut(filled..)?, value)?;
        stream.synchronize()?;
        Ok(taken)
    };
    tell(fill().map(|taken| {
        // SAFETY: valid for a write, by this function's contract.
        unsafe { address.write(taken.as_raw()) };
        // SAFETY: as above.
        unsafe { length.write(taken.len()) };
        // SAFETY: as above.
        unsafe { buffer.write(Box::into_raw(Box::new(taken))) };
    }))
}

/// Takes a tensor over, whose producer has made `stream` wait, reads its numbers, puts others in their
/// place, and drops it. Stores its address and its length.
///
/// # Safety
/// `stream` came from [`interop_stream`]; `tensor` is a live managed tensor, of DLPack 1.x if
/// `versioned`, that is this function's from now on, also if it is refused; `found` and `left` point to
/// `size` bytes each; the others are valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_exchange(
    stream: *const Stream,
    tensor: *mut c_void,
    versioned: bool,
    code: u8,
    bits: u8,
    found: *mut u8,
    left: *const u8,
    size: usize,
    address: *mut u64,
    length: *mut usize,
) -> c_int {
    // SAFETY: a live stream, by this function's contract.
    let stream = unsafe { &*stream };
    // SAFETY: this function's contract.
    let imported = unsafe { import(stream, tensor, versioned) };
    // SAFETY: so many bytes, which no other code uses during the call.
    let found = unsafe { slice::from_raw_parts_mut(found, size) };
    // SAFETY: so many bytes, by this function's contract.
    let left = unsafe { slice::from_raw_parts(left, size) };
    let exchange = || (Elements::of(code, bits)?.exchange)(imported?, stream, found, left);
    tell(exchange().map(|(at, count)| {
        // SAFETY: valid for a write, by this function's contract.
        unsafe { address.write(at) };
        // SAFETY: as above.
        unsafe { length.write(count) };
    }))
}

/// # Safety
/// `tensor` is a live managed tensor, of DLPack 1.x if `versioned`, whose producer has made the stream wait.
unsafe fn import(stream: &Stream, tensor: *mut c_void, versioned: bool) -> Result<ImportedTensor> {
    match versioned {
        // SAFETY: a live tensor after which the stream is ordered, by this function's contract.
        true => unsafe { ImportedTensor::from_raw(tensor.cast(), stream) },
        // SAFETY: as above.
        false => unsafe { ImportedTensor::from_raw_unversioned(tensor.cast(), stream) },
    }
}

/// Drops a buffer that was taken over.
///
/// # Safety
/// It came from [`interop_import`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_buffer_drop(buffer: *mut DeviceBuffer<f32>) {
    // SAFETY: from `Box::into_raw`, and taken back once, by this function's contract.
    drop(unsafe { Box::from_raw(buffer) });
}

/// Allocates as many elements as a tensor has, in each free block of that size, fills them with
/// `value`, waits, and frees them: tensors that are still used must not change.
///
/// # Safety
/// `stream` came from [`interop_stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_overwrite(
    stream: *const Stream,
    value: f32,
    length: usize,
) -> c_int {
    // SAFETY: a live stream, by this function's contract.
    let stream = unsafe { &*stream };
    let overwrite = || {
        let mut kept = Vec::new();
        for _ in 0..4 {
            let mut buffer = stream.alloc::<f32>(length)?;
            stream.fill(&mut buffer, value)?;
            kept.push(buffer);
        }
        stream.synchronize()
    };
    tell(overwrite())
}

/// Stores how many bytes of the device's pool are in use.
///
/// # Safety
/// `used` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interop_used(ordinal: c_int, used: *mut usize) -> c_int {
    let usage = device(ordinal).and_then(|device| Ok(CachingPool::shared()?.usage(device)));
    tell(usage.map(|usage| {
        // SAFETY: valid for a write, by this function's contract.
        unsafe { used.write(usage.used) }
    }))
}
