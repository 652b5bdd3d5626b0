//! Stream capture.

use cuda_sys::*;

use crate::call::{Call, Outcome, put};
use crate::capture::CaptureMode;
use crate::engine::stream::StreamKind;
use crate::handle::{Id, pointer};
use crate::thread;

entries! {
    floor cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) |call| {
        let id = call.stream(stream)?;
        let mode = CaptureMode::from_raw(mode)?;
        call.begin_capture(id, mode)
    }

    floor cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) |_call| {
        if mode.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so the caller passes a mode.
        let new = CaptureMode::from_raw(unsafe { mode.read() })?;
        let old = thread::replace_capture_mode(new);
        // SAFETY: the caller passes a place that holds a mode; the old one replaces it.
        unsafe { put(mode, old.to_raw()) }
    }

    floor cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) |call| {
        if graph.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let id = call.stream(stream)?;
        // SAFETY: not null, so the caller passes a place for the graph.
        unsafe { put(graph, std::ptr::null_mut()) }?;
        let id = call.end_capture(id)?;
        // SAFETY: not null, so the caller passes a place for the graph.
        unsafe { put(graph, pointer(call.graphs.graphs[&id].handle)) }
    }

    floor cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) |call| {
        let id = call.stream(stream)?;
        let (found, _) = status_of(call, id)?;
        // SAFETY: the caller passes a place for the status.
        unsafe { put(status, found) }
    }

    floor cuStreamGetCaptureInfo_v2(
        stream: CUstream,
        status: *mut CUstreamCaptureStatus,
        id_out: *mut cuuint64_t,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        count: *mut usize,
    ) |call| {
        let id = call.stream(stream)?;
        let (found, capture) = status_of(call, id)?;
        // SAFETY: the caller passes a place for the status.
        unsafe { put(status, found) }?;
        if !id_out.is_null() {
            // SAFETY: not null, so a place for the id.
            unsafe { put(id_out, capture.unwrap_or(0)) }?;
        }
        if !graph.is_null() {
            // SAFETY: not null, so a place for the graph.
            unsafe { put(graph, std::ptr::null_mut()) }?;
        }
        if !dependencies.is_null() {
            // SAFETY: not null, so a place for the pointer.
            unsafe { put(dependencies, std::ptr::null()) }?;
        }
        if !count.is_null() {
            // SAFETY: not null, so a place for the count.
            unsafe { put(count, 0) }?;
        }
        Ok(())
    }
}

fn status_of(call: &mut Call, stream: Id) -> Outcome<(CUstreamCaptureStatus, Option<Id>)> {
    let Some(id) = call.streams[&stream].capture else {
        // A status query invalidates no capture, unlike every other use of the legacy stream.
        let stream = &call.streams[&stream];
        let is_legacy = stream.kind == StreamKind::Legacy;
        if is_legacy && !call.implicit_captures(stream.context).is_empty() {
            return Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
        return Ok((CU_STREAM_CAPTURE_STATUS_NONE, None));
    };
    let valid = call.captures.get(&id).is_some_and(|capture| capture.valid);
    let status =
        if valid { CU_STREAM_CAPTURE_STATUS_ACTIVE } else { CU_STREAM_CAPTURE_STATUS_INVALIDATED };
    Ok((status, Some(id)))
}
