//! Clones graphs, and prints them.

use std::ffi::CStr;
use std::path::Path;

use cuda_sys::*;

use super::refuse_memory;
use crate::call::put;
use crate::graph::GraphOwner;
use crate::handle::pointer;

entries! {
    cuGraphClone(clone, graph) |call| {
        let id = call.graph(graph)?;
        if clone.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        refuse_memory(call, id)?;
        call.refuse_conditions(id)?;
        let name = call.name;
        let copy = call.clone_graph(id, GraphOwner::Program, name);
        // SAFETY: not null, so the caller passes a place for the graph.
        unsafe { put(clone, pointer(call.graphs.graphs[&copy].handle)) }
    }

    cuGraphNodeFindInClone(node, original, clone) |call| {
        let original = call.node(original)?;
        let clone = call.graph(clone)?;
        let mut nodes = call.graphs.graphs[&clone].nodes.iter();
        let found = nodes.find(|id| call.graphs.nodes[id].original == Some(original));
        let found = call.graphs.nodes[found.ok_or(CUDA_ERROR_INVALID_VALUE)?].handle;
        // SAFETY: the caller passes a place for the node.
        unsafe { put(node, pointer(found)) }
    }

    cuGraphDebugDotPrint(graph, path, _flags) |call| {
        let id = call.graph(graph)?;
        if path.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so the caller passes a NUL-terminated text.
        let path = unsafe { CStr::from_ptr(path) };
        let path = path_of(path).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let text = call.dot(id);
        std::fs::write(path, text).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)
    }
}

/// Accepts any bytes on Unix, like the driver.
#[cfg(unix)]
fn path_of(text: &CStr) -> Option<&Path> {
    use std::os::unix::ffi::OsStrExt;
    Some(Path::new(std::ffi::OsStr::from_bytes(text.to_bytes())))
}

#[cfg(not(unix))]
fn path_of(text: &CStr) -> Option<&Path> {
    text.to_str().ok().map(Path::new)
}
