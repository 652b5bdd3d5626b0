//! Fills: `cuMemsetD8`, `D16`, `D32`, and their asynchronous variants.
//!
//! The variants without a stream are work on the legacy stream. As in CUDA, the host waits for them only if
//! the memory is pinned.

use std::ffi::c_uint;

use cuda_sys::*;

use super::copy::finish;
use crate::call::{Call, Outcome};
use crate::engine::enqueue::Submission;
use crate::engine::work::{Access, AccessKind, Place, Work};
use crate::graph::node::NodeKind;

entries! {
    cuMemsetD2D8Async(dst, pitch, value, width, height, stream) |call| {
        fill(call, (dst, pitch), value, (width, height), Some(stream))
    }

    cuMemsetD2D16Async(dst, pitch, value, width, height, stream) |call| {
        fill(call, (dst, pitch), value, (width, height), Some(stream))
    }

    cuMemsetD2D32Async(dst, pitch, value, width, height, stream) |call| {
        fill(call, (dst, pitch), value, (width, height), Some(stream))
    }

    cuMemsetD8_v2(dst, value, count) |call| {
        fill(call, (dst, 0), value, (count, 1), None)
    }

    cuMemsetD32_v2(dst, value, count) |call| {
        fill(call, (dst, 0), value, (count, 1), None)
    }

    cuMemsetD8Async(dst, value, count, stream) |call| {
        fill(call, (dst, 0), value, (count, 1), Some(stream))
    }

    cuMemsetD16Async(dst, value, count, stream) |call| {
        fill(call, (dst, 0), value, (count, 1), Some(stream))
    }

    cuMemsetD32Async(dst, value, count, stream) |call| {
        fill(call, (dst, 0), value, (count, 1), Some(stream))
    }
}

/// Fills `height` rows of `count` values each, `pitch` bytes apart.
fn fill<T: Into<u32>>(
    call: &mut Call,
    (dst, pitch): (CUdeviceptr, usize),
    value: T,
    (count, height): (usize, usize),
    stream: Option<CUstream>,
) -> Outcome {
    let home = call.stream(stream.unwrap_or(std::ptr::null_mut()))?;
    let width = size_of::<T>();
    let bytes = count.checked_mul(width).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let aligned = dst % width as u64 == 0 && (height <= 1 || pitch % width == 0);
    if !aligned || (height > 1 && bytes > pitch) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if count == 0 || height == 0 {
        return Ok(());
    }
    let params = CUDA_MEMSET_NODE_PARAMS {
        dst,
        pitch,
        value: value.into(),
        elementSize: width as c_uint,
        width: count,
        height,
    };
    let (works, accesses) = plan(call, &params, call.streams[&home].device)?;
    let on_host = |work: &Work| matches!(work, Work::Fill { dst: Place::Pinned { .. }, .. });
    let wait = stream.is_none() && works.iter().any(on_host);
    let mut submission = Submission::new(home, NodeKind::Memset(params), Work::Each(works));
    submission.accesses = accesses;
    finish(call, submission, wait)
}

/// Returns the rows of a fill of a device's memory.
pub(super) fn plan(
    call: &mut Call,
    params: &CUDA_MEMSET_NODE_PARAMS,
    device: usize,
) -> Outcome<(Vec<Work>, Vec<Access>)> {
    let (count, pattern) = (params.width, params.value);
    let width = params.elementSize as usize;
    let bytes = count.checked_mul(width).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let (mut works, mut accesses) = (Vec::new(), Vec::new());
    for y in 0..params.height {
        let start = params.dst.checked_add(y.saturating_mul(params.pitch) as u64);
        let dst = call.device_memory(start.ok_or(CUDA_ERROR_INVALID_VALUE)?, bytes)?;
        if call.device_block(&dst).is_some_and(|block| block.device != device) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        accesses.extend(dst.access(bytes, AccessKind::Write));
        works.push(Work::Fill { dst, pattern, width, count });
    }
    Ok((works, accesses))
}
