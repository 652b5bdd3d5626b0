//! Streams and host functions.

use std::ffi::{c_int, c_uint};

use cuda_sys::*;

use crate::call::{Call, Outcome, put};
use crate::context::ContextKind;
use crate::engine::clock::Point;
use crate::engine::enqueue::Submission;
use crate::engine::stream::{Stream, StreamKind};
use crate::engine::work::{HostPtr, Work};
use crate::graph::node::NodeKind;
use crate::handle::{Id, pointer};

pub(super) const LEAST_PRIORITY: c_int = 0;
pub(super) const GREATEST_PRIORITY: c_int = -5;

entries! {
    cuStreamCreate(stream, flags) |call| {
        // SAFETY: the caller passes a place for the stream.
        unsafe { create(call, stream, flags, 0) }
    }

    cuStreamCreateWithPriority(stream, flags, priority) |call| {
        // SAFETY: the caller passes a place for the stream.
        unsafe { create(call, stream, flags, priority) }
    }

    cuStreamDestroy_v2(stream) |call| {
        if stream.addr() <= 2 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let id = call.stream(stream)?;
        call.abandon_capture(id);
        call.streams.retire(&id);
        let Some(stream) = call.streams.get_mut(&id) else { return Ok(()) };
        stream.destroyed = true;
        // Its work continues. From here on the handle may be reused for another stream.
        if stream.is_idle() {
            call.bury(id);
        }
        Ok(())
    }

    cuStreamQuery(stream) |call| {
        let id = call.stream(stream)?;
        call.forbid_capturing(id)?;
        call.forbid_in_capture()?;
        let Some(stream) = call.streams.get_mut(&id) else { return Ok(()) };
        stream.polls += 1;
        let (point, polls) = (Point { stream: id, seq: stream.issued }, stream.polls);
        let clock = stream.clock.clone();
        if call.query(point, &clock, polls) { Ok(()) } else { Err(CUDA_ERROR_NOT_READY) }
    }

    cuStreamSynchronize(stream) |call| {
        let id = call.stream(stream)?;
        call.forbid_capturing(id)?;
        call.forbid_in_capture()?;
        if call.streams[&id].kind == StreamKind::Legacy {
            // The wait covers the blocking streams: the legacy stream's next work is ordered after them.
            call.submit(Submission::new(id, NodeKind::Empty, Work::Nothing))?;
        }
        call.synchronize(&[id]);
        Ok(())
    }

    cuStreamGetCtx(stream, context) |call| {
        let id = call.stream(stream)?;
        let owner = call.streams[&id].context;
        let handle = call.contexts.get(&owner).map_or(0, |context| context.handle);
        // SAFETY: the caller passes a place for the context.
        unsafe { put(context, pointer(handle)) }
    }

    cuStreamGetFlags(stream, flags) |call| {
        let id = call.stream(stream)?;
        call.forbid_capturing(id)?;
        let non_blocking = call.streams[&id].kind == StreamKind::NonBlocking;
        // SAFETY: the caller passes a place for the flags.
        unsafe { put(flags, if non_blocking { CU_STREAM_NON_BLOCKING.0 } else { 0 }) }
    }

    cuStreamGetPriority(stream, priority) |call| {
        let id = call.stream(stream)?;
        // SAFETY: the caller passes a place for the priority.
        unsafe { put(priority, call.streams[&id].priority) }
    }

    cuStreamGetId(stream, id) |call| {
        let found = call.stream(stream)?;
        call.forbid_capturing(found)?;
        // SAFETY: the caller passes a place for the id.
        unsafe { put(id, found) }
    }

    cuLaunchHostFunc(stream, function, data) |call| {
        let id = call.stream(stream)?;
        let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let work = Work::Call { function, data: HostPtr(data.cast()) };
        call.submit(Submission::new(id, NodeKind::Host, work))?;
        Ok(())
    }
}

/// # Safety
/// `stream` is null or valid for a write.
unsafe fn create(
    call: &mut Call,
    stream: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> Outcome {
    let context = call.current()?;
    // SAFETY: this function's contract.
    unsafe { create_in(call, context, stream, flags, priority) }
}

/// # Safety
/// `stream` is null or valid for a write.
pub(super) unsafe fn create_in(
    call: &mut Call,
    context: Id,
    stream: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> Outcome {
    if stream.is_null() || flags & !CU_STREAM_NON_BLOCKING.0 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // Streams of a green context never block, whatever the flags.
    let green = call.contexts[&context].kind == ContextKind::Green;
    let kind = if flags == 0 && !green { StreamKind::Blocking } else { StreamKind::NonBlocking };
    let device = call.contexts[&context].device;
    let priority = priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY);
    let id = call.new_stream(Stream::new(context, device, kind, priority));
    let handle = call.streams.issue(id);
    // SAFETY: the caller's contract.
    unsafe { put(stream, pointer(handle)) }
}
