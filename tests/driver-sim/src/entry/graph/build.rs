//! Builds graphs node by node.

use cuda_sys::*;

use super::{any, only_default, refuse_memory, task};
use crate::call::{Call, Outcome, list, put};
use crate::engine::kernel::LaunchAttributes;
use crate::graph::GraphOwner;
use crate::graph::node::{NodeKind, Task};
use crate::handle::{Id, pointer};
use crate::report::ViolationKind;

entries! {
    cuGraphCreate(graph, flags) |call| {
        if graph.is_null() || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let name = call.name;
        let id = call.new_graph(GraphOwner::Program, name);
        // SAFETY: not null, so the caller passes a place for the graph.
        unsafe { put(graph, pointer(call.graphs.graphs[&id].handle)) }
    }

    cuGraphAddEmptyNode(node, graph, dependencies, count) |call| {
        // SAFETY: the caller passes a place, and `count` nodes.
        let to = unsafe { New::read(call, node, graph, dependencies, count) }?;
        to.add(call, Task::nothing())
    }

    cuGraphAddKernelNode_v2(node, graph, dependencies, count, params) |call| {
        // SAFETY: the caller passes a place, and `count` nodes.
        let to = unsafe { New::read(call, node, graph, dependencies, count) }?;
        needs_context(call)?;
        // SAFETY: the caller passes a kernel with its parameters.
        let task = unsafe { task::kernel(call, params, LaunchAttributes::default()) }?;
        to.add(call, task)
    }

    cuGraphAddKernelNode(node, graph, dependencies, count, params) |call| {
        // SAFETY: the caller passes a place, and `count` nodes.
        let to = unsafe { New::read(call, node, graph, dependencies, count) }?;
        needs_context(call)?;
        // SAFETY: the caller passes parameters.
        let params = unsafe { task::widen(params) }?;
        // SAFETY: the parameters name a kernel with its parameters.
        let task = unsafe { task::kernel(call, &params, LaunchAttributes::default()) }?;
        to.add(call, task)
    }

    cuGraphAddMemcpyNode(node, graph, dependencies, count, params, context) |call| {
        // SAFETY: the caller passes a place, and `count` nodes.
        let to = unsafe { New::read(call, node, graph, dependencies, count) }?;
        // SAFETY: the caller passes a description of memory that stays for each launch.
        let task = unsafe { task::copy(call, params, Some(context)) }?;
        to.add(call, task)
    }

    cuGraphAddMemsetNode(node, graph, dependencies, count, params, context) |call| {
        // SAFETY: the caller passes a place, and `count` nodes.
        let to = unsafe { New::read(call, node, graph, dependencies, count) }?;
        // SAFETY: the caller passes parameters.
        let task = unsafe { task::fill(call, params, Some(context)) }?;
        to.add(call, task)
    }

    cuGraphAddHostNode(node, graph, dependencies, count, params) |call| {
        // SAFETY: the caller passes a place, and `count` nodes.
        let to = unsafe { New::read(call, node, graph, dependencies, count) }?;
        // SAFETY: the caller passes a function that can be called at each launch.
        let task = unsafe { task::host(call, params) }?;
        to.add(call, task)
    }

    cuGraphAddChildGraphNode(node, graph, dependencies, count, child) |call| {
        // SAFETY: the caller passes a place, and `count` nodes.
        let to = unsafe { New::read(call, node, graph, dependencies, count) }?;
        let task = task::child(call, to.graph, child)?;
        to.add(call, task)
    }

    cuGraphChildGraphNodeGetGraph(node, graph) |call| {
        let id = call.node(node)?;
        let NodeKind::Child(child) = call.graphs.nodes[&id].task.kind else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        // SAFETY: the caller passes a place for the graph.
        unsafe { put(graph, pointer(call.graphs.graphs[&child].handle)) }
    }

    cuGraphAddEventRecordNode(node, graph, dependencies, count, event) |call| {
        // SAFETY: the caller passes a place, and `count` nodes.
        let to = unsafe { New::read(call, node, graph, dependencies, count) }?;
        let task = task::record(call, event)?;
        to.add(call, task)
    }

    cuGraphAddEventWaitNode(node, graph, dependencies, count, event) |call| {
        // SAFETY: the caller passes a place, and `count` nodes.
        let to = unsafe { New::read(call, node, graph, dependencies, count) }?;
        let task = task::wait(call, event)?;
        to.add(call, task)
    }

    cuGraphConditionalHandleCreate(handle, graph, context, initial, flags) |call| {
        let graph = call.graph(graph)?;
        let context = call.context_or_current(context)?;
        if handle.is_null() || flags & !CU_GRAPH_COND_ASSIGN_DEFAULT != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let initial = (flags == CU_GRAPH_COND_ASSIGN_DEFAULT).then_some(initial);
        let new = call.new_condition(graph, context, initial);
        // SAFETY: not null, so the caller passes a place for the handle.
        unsafe { put(handle, new) }
    }

    cuGraphAddNode(node, graph, dependencies, count, params) |call| {
        // SAFETY: the caller passes a place, and `count` nodes.
        let to = unsafe { New::read(call, node, graph, dependencies, count) }?;
        // SAFETY: the caller passes parameters.
        unsafe { any::add(call, to, params) }
    }

    cuGraphAddNode_v2(node, graph, dependencies, data, count, params) |call| {
        // SAFETY: the caller passes a place, and `count` nodes.
        let to = unsafe { New::read(call, node, graph, dependencies, count) }?;
        // SAFETY: the caller passes as many edge data, or null.
        unsafe { only_default(data, count) }?;
        // SAFETY: the caller passes parameters.
        unsafe { any::add(call, to, params) }
    }

    cuGraphAddDependencies(graph, from, to, count) |call| {
        // SAFETY: the caller passes `count` pairs.
        let (graph, edges) = unsafe { edges(call, graph, from, to, count) }?;
        accepted(call.add_edges(graph, &edges))
    }

    cuGraphRemoveDependencies(graph, from, to, count) |call| {
        // SAFETY: the caller passes `count` pairs.
        let (graph, edges) = unsafe { edges(call, graph, from, to, count) }?;
        refuse_memory(call, graph)?;
        accepted(call.remove_edges(graph, &edges))
    }

    cuGraphDestroyNode(node) |call| {
        let id = call.node(node)?;
        let graph = call.graphs.nodes[&id].graph;
        // While a capture adds to a graph, no node of it can be destroyed.
        if call.captures.values().any(|capture| capture.graph == graph) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        refuse_memory(call, graph)?;
        call.destroy_node(id);
        Ok(())
    }
}

/// A node to be added to a graph.
pub(super) struct New {
    pub(super) graph: Id,
    dependencies: Vec<Id>,
    // INVARIANT: valid for a write, by the contract of `read`.
    place: *mut CUgraphNode,
}

impl New {
    /// # Safety
    /// `place` is null or valid for writes during the call, `dependencies` is null or points to
    /// `count` nodes.
    unsafe fn read(
        call: &mut Call,
        place: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
    ) -> Outcome<Self> {
        let graph = call.graph(graph)?;
        // SAFETY: this function's contract.
        let dependencies = unsafe { list(dependencies, count) }?;
        let dependencies = call.nodes_of(graph, dependencies)?;
        if place.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Self { graph, dependencies, place })
    }

    pub(super) fn add(self, call: &mut Call, task: Task) -> Outcome {
        let id = call.add_node(self.graph, task, self.dependencies);
        // SAFETY: the field's invariant.
        unsafe { put(self.place, pointer(call.graphs.nodes[&id].handle)) }
    }
}

/// Requires a current context to add a kernel node, or to change one in an exec: without one a driver
/// crashes, even if the parameters name a context.
pub(super) fn needs_context(call: &mut Call) -> Outcome {
    call.current().map(drop).inspect_err(|_| {
        let message = "without a current context the driver crashes";
        eprintln!("cuda-driver-sim: {}: {message}", call.name);
        call.violation(ViolationKind::Crash, message);
    })
}

fn accepted(is: bool) -> Outcome {
    if is { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// Reads pairs of nodes of a graph.
///
/// # Safety
/// `from` and `to` are null or point to `count` nodes.
unsafe fn edges(
    call: &mut Call,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Outcome<(Id, Vec<(Id, Id)>)> {
    let graph = call.graph(graph)?;
    // SAFETY: this function's contract.
    let from = unsafe { list(from, count) }?;
    // SAFETY: this function's contract.
    let to = unsafe { list(to, count) }?;
    let mut edges = Vec::new();
    for (&from, &to) in from.iter().zip(to) {
        let pair = call.nodes_of(graph, &[from, to])?;
        edges.push((pair[0], pair[1]));
    }
    Ok((graph, edges))
}
