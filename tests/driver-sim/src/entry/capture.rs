//! Stream capture.

use std::ffi::c_uint;

use cuda_sys::*;

use super::graph::only_default;
use crate::call::{Call, Outcome, list, put, put_if};
use crate::capture::CaptureMode;
use crate::engine::stream::StreamKind;
use crate::handle::{Id, pointer};
use crate::thread;

entries! {
    cuStreamBeginCapture_v2(stream, mode) |call| {
        let id = call.stream(stream)?;
        let mode = CaptureMode::from_raw(mode)?;
        call.begin_capture(id, mode, None)
    }

    cuThreadExchangeStreamCaptureMode(mode) |_call| {
        if mode.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so the caller passes a mode.
        let new = CaptureMode::from_raw(unsafe { mode.read() })?;
        let old = thread::replace_capture_mode(new);
        // SAFETY: the caller passes a place that holds a mode; the old one replaces it.
        unsafe { put(mode, old.to_raw()) }
    }

    cuStreamEndCapture(stream, graph) |call| {
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

    cuStreamIsCapturing(stream, status) |call| {
        let id = call.stream(stream)?;
        let (found, _) = status_of(call, id)?;
        // SAFETY: the caller passes a place for the status.
        unsafe { put(status, found) }
    }

    cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count) |call| {
        let edges = std::ptr::null_mut();
        let to = Info { status, id, graph, dependencies, edges, count };
        // SAFETY: the caller passes places, or null.
        unsafe { info(call, stream, &to) }
    }

    cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count) |call| {
        let to = Info { status, id, graph, dependencies, edges, count };
        // SAFETY: the caller passes places, or null.
        unsafe { info(call, stream, &to) }
    }

    cuStreamUpdateCaptureDependencies(stream, dependencies, count, flags) |call| {
        // SAFETY: the caller passes `count` nodes.
        let nodes = unsafe { list(dependencies.cast_const(), count) }?;
        update(call, stream, nodes, flags)
    }

    cuStreamUpdateCaptureDependencies_v2(stream, dependencies, data, count, flags) |call| {
        // SAFETY: the caller passes `count` nodes.
        let nodes = unsafe { list(dependencies.cast_const(), count) }?;
        // SAFETY: the caller passes as many edge data, or null.
        unsafe { only_default(data, count) }?;
        update(call, stream, nodes, flags)
    }

    cuStreamBeginCaptureToGraph(stream, graph, dependencies, data, count, mode) |call| {
        let stream = call.stream(stream)?;
        let graph = call.graph(graph)?;
        let mode = CaptureMode::from_raw(mode)?;
        // SAFETY: the caller passes `count` nodes.
        let nodes = unsafe { list(dependencies, count) }?;
        // SAFETY: the caller passes as many edge data, or null.
        unsafe { only_default(data, count) }?;
        let nodes = call.nodes_of(graph, nodes)?;
        call.begin_capture(stream, mode, Some((graph, nodes)))
    }
}

/// Places for the results of `cuStreamGetCaptureInfo`; all but `status` may be null.
struct Info {
    status: *mut CUstreamCaptureStatus,
    id: *mut cuuint64_t,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    edges: *mut *const CUgraphEdgeData,
    count: *mut usize,
}

/// # Safety
/// Every pointer is null or valid for a write.
unsafe fn info(call: &mut Call, stream: CUstream, to: &Info) -> Outcome {
    let id = call.stream(stream)?;
    let (found, capture) = status_of(call, id)?;
    // SAFETY: this function's contract.
    unsafe { put(to.status, found) }?;
    let active = capture.filter(|_| found == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    let graph = active.map(|capture| call.captures[&capture].graph);
    let graph = graph.map_or(0, |graph| call.graphs.graphs[&graph].handle);
    let (nodes, edges, count) = match active {
        Some(capture) => call.show_ends(capture, id),
        None => (std::ptr::null(), std::ptr::null(), 0),
    };
    // SAFETY: this function's contract.
    unsafe { put_if(to.id, capture.unwrap_or(0)) };
    // SAFETY: this function's contract.
    unsafe { put_if(to.graph, pointer(graph)) };
    // SAFETY: this function's contract.
    unsafe { put_if(to.dependencies, nodes) };
    // SAFETY: this function's contract.
    unsafe { put_if(to.edges, edges) };
    // SAFETY: this function's contract.
    unsafe { put_if(to.count, count) };
    Ok(())
}

fn update(call: &mut Call, stream: CUstream, nodes: &[CUgraphNode], flags: c_uint) -> Outcome {
    let id = call.stream(stream)?;
    let capture = call.streams[&id].capture.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    if !call.captures_still(capture) {
        return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    let replaces = match CUstreamUpdateCaptureDependencies_flags(flags) {
        CU_STREAM_ADD_CAPTURE_DEPENDENCIES => false,
        CU_STREAM_SET_CAPTURE_DEPENDENCIES => true,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let nodes = call.nodes_of(call.captures[&capture].graph, nodes)?;
    call.change_ends(capture, id, &nodes, replaces);
    Ok(())
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
