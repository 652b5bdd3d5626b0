//! Changes nodes of a graph, for execs that are made later.

use cuda_sys::*;

use super::task;
use crate::call::{Call, Outcome};
use crate::graph::node::Task;
use crate::handle::Id;

entries! {
    cuGraphMemcpyNodeSetParams(node, params) |call| {
        let id = call.node(node)?;
        // SAFETY: the caller passes a description of memory that stays for each launch.
        let task = unsafe { task::copy(call, params, None) }?;
        change(call, id, task)
    }

    cuGraphMemsetNodeSetParams(node, params) |call| {
        let id = call.node(node)?;
        // SAFETY: the caller passes parameters.
        let task = unsafe { task::fill(call, params, None) }?;
        change(call, id, task)
    }
}

fn change(call: &mut Call, node: Id, task: Task) -> Outcome {
    let node = call.graphs.nodes.get_mut(&node).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if node.task.kind.to_raw() != task.kind.to_raw() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    node.task = task;
    Ok(())
}
