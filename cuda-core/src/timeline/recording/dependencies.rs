//! The driver's state of a capture: the graph so far, and the dependencies of the next node.

use std::{ptr, slice};

use cuda_sys::{
    CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_SET_CAPTURE_DEPENDENCIES, CUgraph, CUgraphNode,
    CUresult, CUstream, symbol as cu,
};

use crate::error::{Result, asked, check};
use crate::process::{Failed, Handle, attempt};

/// A node of a graph; valid while the graph exists.
pub(crate) type Node = Handle<CUgraphNode>;

/// A set of nodes.
// INVARIANT: sorted; each node once.
pub(super) type Nodes = Vec<Node>;

/// Returns the set of these nodes.
pub(super) fn set(mut nodes: Vec<Node>) -> Nodes {
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Adds nodes to a set.
pub(super) fn add(to: &mut Nodes, nodes: &[Node]) {
    for node in nodes {
        if let Err(at) = to.binary_search(node) {
            to.insert(at, *node);
        }
    }
}

pub(super) const EMPTY: &str = "cuGraphAddEmptyNode";
const CHILD: &str = "cuGraphAddChildGraphNode";

/// Makes these nodes the dependencies of the next captured node: `cuStreamUpdateCaptureDependencies`.
pub(super) fn set_dependencies(stream: CUstream, nodes: &[Node]) -> Result<()> {
    let mut nodes = handles(nodes);
    let (first, count) = (nodes.as_mut_ptr(), nodes.len());
    let flags = CU_STREAM_SET_CAPTURE_DEPENDENCIES.0;
    // SAFETY: the stream is being captured, which the caller's lock keeps so; the list holds `count`
    // nodes of that capture, and is read during the call only.
    let code = unsafe { cu::cuStreamUpdateCaptureDependencies(stream, first, count, flags) };
    check("cuStreamUpdateCaptureDependencies", code)
}

/// Returns the graph that is being captured, and the dependencies of the next captured node:
/// `cuStreamGetCaptureInfo_v2`.
pub(super) fn state(stream: CUstream) -> Result<(CUgraph, Nodes)> {
    with_state(stream, |graph, nodes| (graph, set(nodes.iter().copied().map(Handle).collect())))
}

fn with_state<R>(stream: CUstream, f: impl FnOnce(CUgraph, &[CUgraphNode]) -> R) -> Result<R> {
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut graph, mut first, mut count) = (ptr::null_mut(), ptr::null(), 0);
    let id = ptr::null_mut();
    // SAFETY: the stream is live; the call writes a status, two addresses and a number, to locals
    // that outlive it, and nothing through the null pointer.
    let code = unsafe {
        cu::cuStreamGetCaptureInfo_v2(stream, &mut status, id, &mut graph, &mut first, &mut count)
    };
    check("cuStreamGetCaptureInfo", code)?;
    if count == 0 {
        return Ok(f(graph, &[]));
    }
    // SAFETY: the driver's list of `count` nodes is valid "until the next API call which operates on the
    // stream or until the capture is terminated". The calls that change the list, captured operations and the
    // end of the capture, take the recording's lock, which the caller holds; calls without it
    // (`cuStreamIsCapturing`, `cuStreamGetPriority`) only ask, and leave the list as it is. The exception is
    // work of another library: it is captured alone, or noted by hand by a caller who promises that no other
    // thread enqueues meanwhile.
    let nodes = unsafe { slice::from_raw_parts(first, count) };
    Ok(f(graph, nodes))
}

/// The dependency of the next captured node, if there is exactly one.
pub(super) fn last_node(stream: CUstream) -> Option<Node> {
    with_state(stream, |_, nodes| (nodes.len() == 1).then(|| Handle(nodes[0]))).ok()?
}

/// The nodes that a node depends on: `cuGraphNodeGetDependencies`. The caller's lock excludes other
/// uses of the node's graph.
pub(crate) fn dependencies(node: Node) -> Result<Vec<Node>> {
    listed("cuGraphNodeGetDependencies", |list, count| {
        // SAFETY: the node is live; `listed` passes a count, and room for as many nodes or null.
        unsafe { cu::cuGraphNodeGetDependencies(node.0, list, count) }
    })
}

/// The nodes that depend on a node: `cuGraphNodeGetDependentNodes`. The caller's lock excludes other uses
/// of the node's graph.
pub(crate) fn dependents(node: Node) -> Result<Vec<Node>> {
    listed("cuGraphNodeGetDependentNodes", |list, count| {
        // SAFETY: the node is live; `listed` passes a count, and room for as many nodes or null.
        unsafe { cu::cuGraphNodeGetDependentNodes(node.0, list, count) }
    })
}

/// Returns the nodes that `call` lists. With null, `call` writes their number; then it writes the nodes to a
/// list of that length. There is no second call for zero nodes: the driver refuses an empty list.
pub(crate) fn listed(
    op: &'static str,
    call: impl Fn(*mut CUgraphNode, &mut usize) -> CUresult,
) -> Result<Vec<Node>> {
    let mut count = asked(op, 0, |count| call(ptr::null_mut(), count))?;
    let mut list = vec![ptr::null_mut(); count];
    if count > 0 {
        check(op, call(list.as_mut_ptr(), &mut count))?;
    }
    Ok(list.into_iter().take(count).map(Handle).collect())
}

/// Adds a node that does nothing, after the nodes `before`: `cuGraphAddEmptyNode`. The caller's lock excludes
/// other uses of the stream.
pub(super) fn add_empty(stream: CUstream, before: &[Node]) -> Result<Node> {
    let (graph, _) = state(stream)?;
    let list = handles(before);
    // SAFETY: the graph that is being captured, and nodes of it; adding to it is permitted meanwhile.
    // The call writes one handle, to an exclusive borrow.
    let node = asked(EMPTY, ptr::null_mut(), |node| unsafe {
        cu::cuGraphAddEmptyNode(node, graph, list.as_ptr(), list.len())
    })?;
    Ok(Handle(node))
}

/// Captures a graph on the stream, as one node: `cuGraphAddChildGraphNode`. The caller's locks
/// exclude other uses of the stream and of the child.
pub(crate) fn add_child(stream: CUstream, child: CUgraph) -> Result<(), Failed> {
    let (graph, before) = state(stream)?;
    let (list, mut node) = (handles(&before), ptr::null_mut());
    // SAFETY: the graph that is being captured, and nodes of it; adding to it is permitted meanwhile.
    // The child is live, and copied. The call writes one handle, to a local that outlives it.
    attempt(CHILD, unsafe {
        cu::cuGraphAddChildGraphNode(&mut node, graph, list.as_ptr(), list.len(), child)
    })?;
    // If this fails, the graph has the node, but later nodes do not depend on it.
    set_dependencies(stream, &[Handle(node)]).map_err(Failed::Unknown)
}

/// The graph that is being captured. The caller's lock excludes other uses of the stream.
pub(crate) fn captured_graph(stream: CUstream) -> Result<CUgraph> {
    Ok(state(stream)?.0)
}

/// Captures an existing node of the graph, which no other node depends on, on the stream: makes it depend on
/// the stream's dependencies by `cuGraphAddDependencies`. The caller's lock excludes other uses of the
/// stream.
pub(crate) fn join(stream: CUstream, node: Node) -> Result<()> {
    let (graph, before) = state(stream)?;
    let (from, to) = (handles(&before), vec![node.0; before.len()]);
    let (first, second, count) = (from.as_ptr(), to.as_ptr(), from.len());
    if count > 0 {
        // SAFETY: the graph that is being captured, and lists of `count` nodes of it; adding to it is
        // permitted meanwhile.
        let code = unsafe { cu::cuGraphAddDependencies(graph, first, second, count) };
        check("cuGraphAddDependencies", code)?;
    }
    set_dependencies(stream, &[node])
}

fn handles(nodes: &[Node]) -> Vec<CUgraphNode> {
    nodes.iter().map(|node| node.0).collect()
}
