//! Fills: `cuMemsetD8`, `D16`, `D32` and their asynchronous forms.
//!
//! The forms without a stream are work on the legacy stream; as in CUDA, the host waits for them
//! only where the memory is pinned.

use std::ffi::c_uint;

use cuda_sys::*;

use crate::call::{Call, Outcome};
use crate::engine::enqueue::Submission;
use crate::engine::work::{Access, AccessKind, Place, Work};
use crate::graph::node::NodeKind;

entries! {
    cuMemsetD2D8Async(dst, pitch, value, width, height, stream) |call| {
        fill_rows(call, (dst, pitch), Pattern::Byte(value), (width, height), stream)
    }

    cuMemsetD2D16Async(dst, pitch, value, width, height, stream) |call| {
        fill_rows(call, (dst, pitch), Pattern::Short(value), (width, height), stream)
    }

    cuMemsetD2D32Async(dst, pitch, value, width, height, stream) |call| {
        fill_rows(call, (dst, pitch), Pattern::Word(value), (width, height), stream)
    }

    cuMemsetD8_v2(dst, value, count) |call| {
        fill(call, dst, Pattern::Byte(value), count, None)
    }

    cuMemsetD16_v2(dst, value, count) |call| {
        fill(call, dst, Pattern::Short(value), count, None)
    }

    cuMemsetD32_v2(dst, value, count) |call| {
        fill(call, dst, Pattern::Word(value), count, None)
    }

    cuMemsetD8Async(dst, value, count, stream) |call| {
        fill(call, dst, Pattern::Byte(value), count, Some(stream))
    }

    cuMemsetD16Async(dst, value, count, stream) |call| {
        fill(call, dst, Pattern::Short(value), count, Some(stream))
    }

    cuMemsetD32Async(dst, value, count, stream) |call| {
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
    let params = CUDA_MEMSET_NODE_PARAMS {
        dst,
        pitch: 0,
        value: pattern,
        elementSize: width as c_uint,
        width: count,
        height: 1,
    };
    let dst = call.device_place(name, dst, bytes)?;
    let device = call.streams[&home].device;
    if call.device_block(&dst).is_some_and(|block| block.device != device) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let wait = stream.is_none() && matches!(dst, Place::Pinned { .. });
    let access = dst.access(bytes, AccessKind::Write);
    let work = Work::Fill { dst, pattern, width, count };
    let mut submission = Submission::new(home, NodeKind::Memset(params), work);
    submission.accesses.extend(access);
    let point = call.enqueue(name, submission)?;
    if let (true, Some(point)) = (wait, point) {
        let clock = call.streams[&home].clock.clone();
        call.drive(point);
        call.host_join(&clock);
    }
    Ok(())
}

/// Rows of `width` patterns, `pitch` bytes apart.
fn fill_rows(
    call: &mut Call,
    (dst, pitch): (CUdeviceptr, usize),
    pattern: Pattern,
    (count, height): (usize, usize),
    stream: CUstream,
) -> Outcome {
    let home = call.stream(stream)?;
    let (pattern, width) = pattern.parts();
    let bytes = count.checked_mul(width).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let aligned = dst % width as u64 == 0 && (height <= 1 || pitch % width == 0);
    if !aligned || (height > 1 && bytes > pitch) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if count == 0 || height == 0 {
        return Ok(());
    }
    let (name, device) = (call.name, call.streams[&home].device);
    let params = CUDA_MEMSET_NODE_PARAMS {
        dst,
        pitch,
        value: pattern,
        elementSize: width as c_uint,
        width: count,
        height,
    };
    let (works, accesses) = plan(call, &params, device)?;
    let mut submission = Submission::new(home, NodeKind::Memset(params), Work::Each(works));
    submission.accesses = accesses;
    call.enqueue(name, submission)?;
    Ok(())
}

/// The rows of a fill of a device's memory.
pub(super) fn plan(
    call: &mut Call,
    params: &CUDA_MEMSET_NODE_PARAMS,
    device: usize,
) -> Outcome<(Vec<Work>, Vec<Access>)> {
    let (name, count, pattern) = (call.name, params.width, params.value);
    let width = params.elementSize as usize;
    let bytes = count.checked_mul(width).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let (mut works, mut accesses) = (Vec::new(), Vec::new());
    for y in 0..params.height {
        let dst = call.device_place(name, params.dst + (y * params.pitch) as u64, bytes)?;
        if call.device_block(&dst).is_some_and(|block| block.device != device) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        accesses.extend(dst.access(bytes, AccessKind::Write));
        works.push(Work::Fill { dst, pattern, width, count });
    }
    Ok((works, accesses))
}
