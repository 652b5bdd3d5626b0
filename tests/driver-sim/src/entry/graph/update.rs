//! Changes execs.

use cuda_sys::*;

use super::build::needs_context;
use super::task;
use crate::call::{Call, Outcome, put};
use crate::engine::work::Work;
use crate::graph::exec::ExecNode;
use crate::graph::node::{NodeKind, Task};
use crate::graph::update::Mismatch;
use crate::handle::{Id, pointer};

entries! {
    cuGraphExecUpdate_v2(exec, graph, info) |call| {
        let found = update(call, exec, graph)?;
        // SAFETY: the caller passes a place for the result.
        unsafe { put(info, found) }?;
        verdict(found.result)
    }

    cuGraphExecUpdate(exec, graph, node, result) |call| {
        let found = update(call, exec, graph)?;
        // SAFETY: the caller passes a place for the node.
        unsafe { put(node, found.errorNode) }?;
        // SAFETY: the caller passes a place for the result.
        unsafe { put(result, found.result) }?;
        verdict(found.result)
    }

    cuGraphExecKernelNodeSetParams_v2(exec, node, params) |call| {
        needs_context(call)?;
        let (exec, at) = place(call, exec, node)?;
        let attributes = task::attributes(&step(call, exec, at).task)?;
        // SAFETY: the caller passes a kernel with its parameters.
        let task = unsafe { task::kernel(call, params, attributes) }?;
        change(call, exec, at, task)
    }

    cuGraphExecKernelNodeSetParams(exec, node, params) |call| {
        needs_context(call)?;
        let (exec, at) = place(call, exec, node)?;
        let attributes = task::attributes(&step(call, exec, at).task)?;
        // SAFETY: the caller passes parameters.
        let params = unsafe { task::widen(params) }?;
        // SAFETY: the parameters name a kernel with its parameters.
        let task = unsafe { task::kernel(call, &params, attributes) }?;
        change(call, exec, at, task)
    }

    cuGraphExecMemcpyNodeSetParams(exec, node, params, context) |call| {
        let (exec, at) = place(call, exec, node)?;
        // SAFETY: the caller passes null or a description.
        let rows = unsafe { params.as_ref() }.map_or(0, |params| params.Height.saturating_mul(params.Depth));
        // An H200 with driver 580 changes no copies of rows, not even to equal ones.
        if rows > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller passes a description of memory that stays for each launch.
        let task = unsafe { task::copy(call, params, Some(context)) }?;
        // On driver 580 the source must stay on its device.
        let source = |work: &Work| match work.parts().first() {
            Some(Work::Copy { src, .. }) => call.device_block(src).map(|block| block.device),
            _ => None,
        };
        let old = &step(call, exec, at).task;
        // Nor does a copy that was captured without a context get one.
        let without_context = matches!(&old.kind, NodeKind::Memcpy(copy) if copy.without_context);
        if source(&task.work) != source(&old.work) || without_context {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        change(call, exec, at, task)
    }

    cuGraphExecMemsetNodeSetParams(exec, node, params, context) |call| {
        let (exec, at) = place(call, exec, node)?;
        // SAFETY: the caller passes parameters.
        let task = unsafe { task::fill(call, params, Some(context)) }?;
        change(call, exec, at, task)
    }

    cuGraphExecHostNodeSetParams(exec, node, params) |call| {
        let (exec, at) = place(call, exec, node)?;
        // SAFETY: the caller passes a function that can be called at each launch.
        let task = unsafe { task::host(call, params) }?;
        change(call, exec, at, task)
    }

    cuGraphNodeSetEnabled(exec, node, enabled) |call| {
        let (exec, at) = switchable(call, exec, node)?;
        if let Some(exec) = call.graphs.execs.get_mut(&exec) {
            exec.steps[at].enabled = enabled != 0;
        }
        Ok(())
    }

    cuGraphNodeGetEnabled(exec, node, enabled) |call| {
        let (exec, at) = switchable(call, exec, node)?;
        // SAFETY: the caller passes a place for the result.
        unsafe { put(enabled, step(call, exec, at).enabled.into()) }
    }
}

fn update(
    call: &mut Call,
    exec: CUgraphExec,
    graph: CUgraph,
) -> Outcome<CUgraphExecUpdateResultInfo> {
    let exec = call.exec(exec)?;
    let graph = call.graph(graph)?;
    let mut from = None;
    let (result, node) = match call.update_exec(exec, graph) {
        Ok(()) => (CU_GRAPH_EXEC_UPDATE_SUCCESS, None),
        Err(Mismatch::Topology(node, dependency)) => {
            from = dependency;
            (CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node)
        }
        Err(Mismatch::Kind(node)) => (CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, Some(node)),
        Err(Mismatch::Unsupported(node)) => (CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, Some(node)),
        Err(Mismatch::Parameters(node)) => {
            (CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, Some(node))
        }
    };
    let named = |node: Option<Id>| pointer(node.map_or(0, |node| call.graphs.nodes[&node].handle));
    let (node, from) = (named(node), named(from));
    Ok(CUgraphExecUpdateResultInfo { result, errorNode: node, errorFromNode: from })
}

fn verdict(result: CUgraphExecUpdateResult) -> Outcome {
    match result {
        CU_GRAPH_EXEC_UPDATE_SUCCESS => Ok(()),
        _ => Err(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE),
    }
}

/// Returns the exec, and the position in it of the node made from `node`.
fn place(call: &mut Call, exec: CUgraphExec, node: CUgraphNode) -> Outcome<(Id, usize)> {
    let exec = call.exec(exec)?;
    let node = call.node(node)?;
    let mut steps = call.graphs.execs[&exec].steps.iter();
    let at = steps.position(|step| step.source == node).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok((exec, at))
}

/// Like [`place`], for a node that can be disabled.
fn switchable(call: &mut Call, exec: CUgraphExec, node: CUgraphNode) -> Outcome<(Id, usize)> {
    let (exec, at) = place(call, exec, node)?;
    match step(call, exec, at).task.kind {
        NodeKind::Kernel(_) | NodeKind::Memcpy(_) | NodeKind::Memset(_) => Ok((exec, at)),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn step(call: &Call, exec: Id, at: usize) -> &ExecNode {
    &call.graphs.execs[&exec].steps[at]
}

/// Replaces the task of a node of an exec, from the next launch on.
fn change(call: &mut Call, exec: Id, at: usize, task: Task) -> Outcome {
    if !step(call, exec, at).task.can_become(&task) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let changed = ExecNode { task, ..step(call, exec, at).clone() };
    let ways = call.ways_of(std::slice::from_ref(&changed));
    if let Some(exec) = call.graphs.execs.get_mut(&exec) {
        exec.steps[at] = changed;
        exec.ways.extend(ways);
    }
    Ok(())
}
