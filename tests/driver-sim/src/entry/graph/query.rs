//! Lists the nodes of a graph and their dependencies.

use cuda_sys::*;

use crate::call::{Call, Outcome};
use crate::handle::{Id, pointer};

entries! {
    cuGraphGetNodes(graph, nodes, count) |call| {
        let id = call.graph(graph)?;
        let found = handles(call, &call.graphs.graphs[&id].nodes);
        // SAFETY: the caller passes a count, and places for as many nodes or null.
        unsafe { fill(&found, nodes, count, true) }
    }

    cuGraphGetRootNodes(graph, nodes, count) |call| {
        let id = call.graph(graph)?;
        let roots = call.graphs.graphs[&id].nodes.iter().copied();
        let roots = roots.filter(|node| call.graphs.nodes[node].dependencies.is_empty());
        let found = handles(call, &roots.collect::<Vec<_>>());
        // SAFETY: the caller passes a count, and places for as many nodes or null.
        unsafe { fill(&found, nodes, count, true) }
    }

    cuGraphGetEdges(graph, from, to, count) |call| {
        let id = call.graph(graph)?;
        // SAFETY: the caller passes a count, and places for as many edges or null.
        unsafe { edges(call, id, (from, to), std::ptr::null_mut(), count) }
    }

    cuGraphGetEdges_v2(graph, from, to, data, count) |call| {
        let id = call.graph(graph)?;
        // SAFETY: the caller passes a count, and places for as many edges or null.
        unsafe { edges(call, id, (from, to), data, count) }
    }

    cuGraphNodeGetDependencies(node, nodes, count) |call| {
        let found = dependencies(call, node)?;
        // SAFETY: the caller passes a count, and places for as many nodes or null.
        unsafe { fill(&found, nodes, count, true) }
    }

    cuGraphNodeGetDependencies_v2(node, nodes, data, count) |call| {
        let found = dependencies(call, node)?;
        // SAFETY: the caller passes a count, and places for as many edge data or null.
        unsafe { fill_data(found.len(), data, count) }?;
        // SAFETY: the caller passes a count, and places for as many nodes or null.
        unsafe { fill(&found, nodes, count, true) }
    }

    cuGraphNodeGetDependentNodes(node, nodes, count) |call| {
        let found = dependents(call, node)?;
        // SAFETY: the caller passes a count, and places for as many nodes or null.
        unsafe { fill(&found, nodes, count, true) }
    }

    cuGraphNodeGetDependentNodes_v2(node, nodes, data, count) |call| {
        let found = dependents(call, node)?;
        // SAFETY: the caller passes a count, and places for as many edge data or null.
        unsafe { fill_data(found.len(), data, count) }?;
        // SAFETY: the caller passes a count, and places for as many nodes or null.
        unsafe { fill(&found, nodes, count, true) }
    }
}

fn handles(call: &Call, nodes: &[Id]) -> Vec<CUgraphNode> {
    nodes.iter().map(|id| pointer(call.graphs.nodes[id].handle)).collect()
}

fn dependencies(call: &mut Call, node: CUgraphNode) -> Outcome<Vec<CUgraphNode>> {
    let id = call.node(node)?;
    Ok(handles(call, &call.graphs.nodes[&id].dependencies))
}

fn dependents(call: &mut Call, node: CUgraphNode) -> Outcome<Vec<CUgraphNode>> {
    let id = call.node(node)?;
    let graph = call.graphs.nodes[&id].graph;
    let edges = call.edges(graph);
    let found: Vec<Id> = edges.into_iter().filter(|edge| edge.0 == id).map(|edge| edge.1).collect();
    Ok(handles(call, &found))
}

/// # Safety
/// `count` is null or valid, and each other pointer is null or has room for as many values.
unsafe fn edges(
    call: &Call,
    graph: Id,
    (from, to): (*mut CUgraphNode, *mut CUgraphNode),
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Outcome {
    if from.is_null() != to.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (before, after): (Vec<Id>, Vec<Id>) = call.edges(graph).into_iter().unzip();
    // SAFETY: this function's contract.
    unsafe { fill_data(before.len(), data, count) }?;
    // SAFETY: this function's contract.
    unsafe { fill(&handles(call, &before), from, count, false) }?;
    // SAFETY: this function's contract.
    unsafe { fill(&handles(call, &after), to, count, true) }
}

/// Writes the data of edges: the simulator has only the default, zero.
///
/// # Safety
/// As for [`fill`].
unsafe fn fill_data(len: usize, to: *mut CUgraphEdgeData, count: *mut usize) -> Outcome {
    if to.is_null() {
        return Ok(());
    }
    // SAFETY: this function's contract.
    unsafe { fill(&vec![CUgraphEdgeData::default(); len], to, count, false) }
}

/// A value for places beyond the last result.
trait Blank: Copy {
    fn blank() -> Self;
}

impl Blank for CUgraphNode {
    fn blank() -> Self {
        std::ptr::null_mut()
    }
}

impl Blank for CUgraphEdgeData {
    fn blank() -> Self {
        Self::default()
    }
}

/// Answers a query. If `to` is null, it asks for the number of values, and otherwise for up to `count`
/// values; the places beyond the last are cleared. `count` is set if `counts`. A list without room is
/// refused, even if there is nothing to list: seen on an H200.
///
/// # Safety
/// `count` is null or valid, and `to` is null or has room for as many values.
unsafe fn fill<T: Blank>(values: &[T], to: *mut T, count: *mut usize, counts: bool) -> Outcome {
    if count.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so valid by this function's contract. The count is only read if `to` has room for as
    // many values.
    let room = if to.is_null() { 0 } else { unsafe { count.read() } };
    if room == 0 && !to.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    for at in 0..room {
        let value = values.get(at).copied().unwrap_or(T::blank());
        // SAFETY: `to` has room for `room` values.
        let place = unsafe { to.add(at) };
        // SAFETY: the place belongs to the caller.
        unsafe { place.write(value) };
    }
    if counts && (to.is_null() || room > values.len()) {
        // SAFETY: not null, so valid by this function's contract.
        unsafe { count.write(values.len()) };
    }
    Ok(())
}
