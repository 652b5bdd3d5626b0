//! Fills: `cuMemsetD8`, `D16`, `D32` and their asynchronous forms.
//!
//! The forms without a stream are work on the legacy stream; as CUDA says, the host does not wait
//! for them unless the memory is pinned.

use std::ffi::{c_uchar, c_uint, c_ushort};

use cuda_sys::*;

use crate::call::{Call, Outcome};
use crate::engine::enqueue::Submission;
use crate::engine::work::{AccessKind, Place, Work};

entries! {
    floor cuMemsetD8_v2(dst: CUdeviceptr, value: c_uchar, count: usize) |call| {
        fill(call, dst, Pattern::Byte(value), count, None)
    }

    floor cuMemsetD16_v2(dst: CUdeviceptr, value: c_ushort, count: usize) |call| {
        fill(call, dst, Pattern::Short(value), count, None)
    }

    floor cuMemsetD32_v2(dst: CUdeviceptr, value: c_uint, count: usize) |call| {
        fill(call, dst, Pattern::Word(value), count, None)
    }

    floor cuMemsetD8Async(
        dst: CUdeviceptr,
        value: c_uchar,
        count: usize,
        stream: CUstream,
    ) |call| {
        fill(call, dst, Pattern::Byte(value), count, Some(stream))
    }

    floor cuMemsetD16Async(
        dst: CUdeviceptr,
        value: c_ushort,
        count: usize,
        stream: CUstream,
    ) |call| {
        fill(call, dst, Pattern::Short(value), count, Some(stream))
    }

    floor cuMemsetD32Async(
        dst: CUdeviceptr,
        value: c_uint,
        count: usize,
        stream: CUstream,
    ) |call| {
        fill(call, dst, Pattern::Word(value), count, Some(stream))
    }
}

enum Pattern {
    Byte(u8),
    Short(u16),
    Word(u32),
}

impl Pattern {
    /// The pattern in the low bytes of a little-endian word, and its width.
    fn parts(&self) -> (u32, usize) {
        match *self {
            Self::Byte(value) => (value.into(), 1),
            Self::Short(value) => (value.into(), 2),
            Self::Word(value) => (value, 4),
        }
    }
}

fn fill(
    call: &mut Call,
    dst: CUdeviceptr,
    pattern: Pattern,
    count: usize,
    stream: Option<CUstream>,
) -> Outcome {
    let home = call.stream(stream.unwrap_or(std::ptr::null_mut()))?;
    let (pattern, width) = pattern.parts();
    if dst % width as u64 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if count == 0 {
        return Ok(());
    }
    let name = call.name;
    let bytes = count.checked_mul(width).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let dst = call.device_place(name, dst, bytes)?;
    let device = call.streams[&home].device;
    if call
        .device_block(&dst)
        .is_some_and(|block| block.device != device)
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let wait = stream.is_none() && matches!(dst, Place::Pinned { .. });
    let access = dst.access(bytes, AccessKind::Write);
    let mut submission = Submission::new(
        home,
        Work::Fill {
            dst,
            pattern,
            width,
            count,
        },
    );
    submission.accesses.extend(access);
    let point = call.enqueue(name, submission)?;
    if let (true, Some(point)) = (wait, point) {
        let clock = call.streams[&home].clock.clone();
        call.drive(point);
        call.host_join(&clock);
    }
    Ok(())
}
