//! Values in memory that streams write and wait for.

use std::ffi::c_uint;

use cuda_sys::*;

use crate::call::{Call, Outcome};
use crate::engine::enqueue::Submission;
use crate::engine::work::{Compare, Place, Work};
use crate::graph::node::NodeKind;

entries! {
    cuStreamWriteValue32_v2(stream, address, value, flags) |call| {
        write(call, stream, address, value.into(), 4, flags)
    }

    cuStreamWriteValue64_v2(stream, address, value, flags) |call| {
        write(call, stream, address, value, 8, flags)
    }

    cuStreamWaitValue32_v2(stream, address, value, flags) |call| {
        wait(call, stream, address, value.into(), 4, flags)
    }

    cuStreamWaitValue64_v2(stream, address, value, flags) |call| {
        wait(call, stream, address, value, 8, flags)
    }
}

/// Returns the place of a value. Drivers refuse memory of pools.
fn place(call: &mut Call, address: CUdeviceptr, width: usize) -> Outcome<Place> {
    let place = call.device_memory(address, width)?;
    let pooled = call.device_block(&place).is_some_and(|block| block.pool.is_some());
    if pooled {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(place)
}

/// Enqueues a write. As on real devices, no flag is accepted, not even
/// `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`. Streams synchronise through values, so the ordering check
/// ignores them.
fn write(
    call: &mut Call,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    width: usize,
    flags: c_uint,
) -> Outcome {
    let id = call.stream(stream)?;
    if width == 8 && !call.config.wide_values {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if flags != 0 || address % width as u64 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let dst = place(call, address, width)?;
    let work = Work::WriteValue { dst, value, width };
    call.submit(Submission::new(id, NodeKind::Values, work))?;
    Ok(())
}

fn wait(
    call: &mut Call,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    width: usize,
    flags: c_uint,
) -> Outcome {
    let id = call.stream(stream)?;
    // A flush does not affect the comparison.
    let compare = match CUstreamWaitValue_flags(flags & !CU_STREAM_WAIT_VALUE_FLUSH.0) {
        CU_STREAM_WAIT_VALUE_GEQ => Compare::Geq,
        CU_STREAM_WAIT_VALUE_EQ => Compare::Eq,
        CU_STREAM_WAIT_VALUE_AND => Compare::And,
        CU_STREAM_WAIT_VALUE_NOR => Compare::Nor,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let beyond = width == 8 || matches!(compare, Compare::Nor);
    if beyond && !call.config.wide_values {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if address % width as u64 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let src = place(call, address, width)?;
    let work = Work::WaitValue { src, value, width, compare };
    call.submit(Submission::new(id, NodeKind::Values, work))?;
    Ok(())
}
