//! Destroys graphs; instantiates, launches and destroys execs.

use std::ffi::c_ulonglong;

use cuda_sys::*;

use super::refuse_memory;
use crate::call::{Call, Outcome, put};
use crate::graph::GraphOwner;
use crate::graph::exec::ExecNode;
use crate::graph::node::NodeKind;
use crate::handle::pointer;

/// The accepted flags: `AUTO_FREE_ON_LAUNCH`, `UPLOAD`, `DEVICE_LAUNCH` and `USE_NODE_PRIORITY`.
const INSTANTIATE_FLAGS: c_ulonglong = 15;
const AUTO_FREE: c_ulonglong = 1;

entries! {
    cuGraphDestroy(graph) |call| {
        let id = call.graph(graph)?;
        // A graph that belongs to a capture or to a node is destroyed with its owner, and a capture needs the
        // graph that it adds to.
        let captured = call.captures.values().any(|capture| capture.graph == id);
        if captured || call.graphs.graphs[&id].owner != GraphOwner::Program {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.destroy_graph(id);
        Ok(())
    }

    cuGraphInstantiateWithFlags(exec, graph, flags) |call| {
        // SAFETY: the caller passes a place for the exec.
        unsafe { instantiate(call, exec, graph, flags) }
    }

    // The oldest version; what it writes to the log is not specified.
    cuGraphInstantiate_v2(exec, graph, _error_node, _log, _log_size) |call| {
        // SAFETY: the caller passes a place for the exec.
        unsafe { instantiate(call, exec, graph, 0) }
    }

    cuGraphExecDestroy(exec) |call| {
        let id = call.exec(exec)?;
        let exec = &call.graphs.execs[&id];
        // With conditions it waits, as an H100 with driver 580 does.
        let waits = !ExecNode::conditions(&exec.steps).is_empty();
        let mut points = exec.uploads.clone();
        points.extend(exec.last.as_ref().map(|(point, _)| *point));
        points.into_iter().filter(|_| waits).for_each(|point| call.drive(point));
        call.destroy_exec(id);
        Ok(())
    }

    cuGraphExecGetFlags(exec, flags) |call| {
        let id = call.exec(exec)?;
        // SAFETY: the caller passes a place for the flags.
        unsafe { put(flags, call.graphs.execs[&id].flags) }
    }

    cuGraphUpload(exec, stream) |call| {
        wait_elsewhere(call, exec, stream)?;
        let (exec, stream, name) = (call.exec(exec)?, call.stream(stream)?, call.name);
        match call.streams[&stream].capture {
            Some(_) => call.forbid_capturing(stream),
            None => call.upload(name, exec, stream),
        }
    }

    cuGraphLaunch(exec, stream) |call| {
        wait_elsewhere(call, exec, stream)?;
        let exec = call.exec(exec)?;
        let stream = call.stream(stream)?;
        if call.streams[&stream].capture.is_some() {
            return call.forbid_capturing(stream);
        }
        let name = call.name;
        call.launch(name, exec, stream)
    }
}

/// Waits for the last launch of an exec that allocates memory, if it was on another stream, as an H100 with
/// driver 580 does.
fn wait_elsewhere(call: &mut Call, exec: CUgraphExec, stream: CUstream) -> Outcome {
    let (exec, stream) = (call.exec(exec)?, call.stream(stream)?);
    let exec = &call.graphs.execs[&exec];
    let allocates = exec.steps.iter().any(|step| matches!(step.task.kind, NodeKind::Alloc(_)));
    let elsewhere = exec.last.as_ref().filter(|(point, _)| allocates && point.stream != stream);
    if let Some(&(point, _)) = elsewhere {
        call.drive(point);
    }
    Ok(())
}

/// # Safety
/// `exec` is null or valid for a write.
unsafe fn instantiate(
    call: &mut Call,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> Outcome {
    let graph = call.graph(graph)?;
    call.current()?;
    if exec.is_null() || flags & !INSTANTIATE_FLAGS != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // A graph with memory or conditions has at most one exec at a time.
    if call.graphs.execs.values().any(|exec| exec.graph == graph) {
        refuse_memory(call, graph)?;
        call.refuse_conditions(graph)?;
    }
    call.check_conditions(graph)?;
    if call.graphs.graphs[&graph].unusable {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let id = call.instantiate(graph, flags, flags & AUTO_FREE != 0);
    // SAFETY: the caller's contract.
    unsafe { put(exec, pointer(call.graphs.execs[&id].handle)) }
}
