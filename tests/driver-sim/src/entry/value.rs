//! Values in memory that streams write and wait for.

use std::ffi::c_uint;

use cuda_sys::*;

use crate::call::{Call, Outcome};
use crate::engine::enqueue::Submission;
use crate::engine::work::{Compare, Work};

/// Flags of a wait that say nothing about the comparison.
const FLUSH: c_uint = 1 << 30;
/// `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`.
const NO_MEMORY_BARRIER: c_uint = 1;

entries! {
    floor cuStreamWriteValue32_v2(
        stream: CUstream,
        address: CUdeviceptr,
        value: cuuint32_t,
        flags: c_uint,
    ) |call| {
        write(call, stream, address, value.into(), 4, flags)
    }

    floor cuStreamWriteValue64_v2(
        stream: CUstream,
        address: CUdeviceptr,
        value: cuuint64_t,
        flags: c_uint,
    ) |call| {
        write(call, stream, address, value, 8, flags)
    }

    floor cuStreamWaitValue32_v2(
        stream: CUstream,
        address: CUdeviceptr,
        value: cuuint32_t,
        flags: c_uint,
    ) |call| {
        wait(call, stream, address, value.into(), 4, flags)
    }

    floor cuStreamWaitValue64_v2(
        stream: CUstream,
        address: CUdeviceptr,
        value: cuuint64_t,
        flags: c_uint,
    ) |call| {
        wait(call, stream, address, value, 8, flags)
    }
}

/// Values are what streams synchronise with, so they take no part in the ordering check.
fn write(
    call: &mut Call,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    width: usize,
    flags: c_uint,
) -> Outcome {
    let id = call.stream(stream)?;
    if flags & !NO_MEMORY_BARRIER != 0 || address % width as u64 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let name = call.name;
    let dst = call.device_place(name, address, width)?;
    call.enqueue(
        name,
        Submission::new(id, Work::WriteValue { dst, value, width }),
    )?;
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
    let compare = match flags & !FLUSH {
        0 => Compare::Geq,
        1 => Compare::Eq,
        2 => Compare::And,
        3 => Compare::Nor,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    if address % width as u64 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let name = call.name;
    let src = call.device_place(name, address, width)?;
    call.enqueue(
        name,
        Submission::new(
            id,
            Work::WaitValue {
                src,
                value,
                width,
                compare,
            },
        ),
    )?;
    Ok(())
}
