//! The nodes and edges of a graph, and the graphs inside its nodes.

use std::collections::HashMap;
use std::path::Path;
use std::{fmt, ptr};

use cuda_sys::{
    CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE, CU_GRAPH_NODE_TYPE_CONDITIONAL, CU_GRAPH_NODE_TYPE_GRAPH,
    CUgraph, CUgraphNode, symbol as cu,
};

use super::node::kind_name;
use super::{Graph, GraphNode, NodeId};
use crate::error::{Error, Result, asked, c_string, check, counted};
use crate::process::Handle;
use crate::timeline::recording::{Node, listed};
use crate::util::debug_by;

const NODES: &str = "cuGraphGetNodes";
const EDGES: &str = "cuGraphGetEdges";

/// An id that no graph of the process has, so no executable changes a node with it.
pub(super) const NONE: u64 = 0;

/// # Looking at it
impl Graph {
    /// Returns the number of nodes: `cuGraphGetNodes`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuGraphGetNodes", "cudaGraphGetNodes"))]
    pub fn node_count(&self) -> Result<usize> {
        InnerGraph::whole(self).node_count()
    }

    /// Returns the nodes: `cuGraphGetNodes`. Captured operations come in the order of the capture.
    /// An [included](Graph::include) graph is one node, and so is an operation that depends on a
    /// [`Condition`](crate::Condition): [`GraphNode::graphs`] returns the graphs inside.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let graph = cuda_core::Graph::capture(&context, |_stream| Ok(()))?;
    /// for node in graph.nodes()? {
    ///     println!("{node}");
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphGetNodes", "cudaGraphGetNodes"))]
    pub fn nodes(&self) -> Result<Vec<GraphNode<'_>>> {
        InnerGraph::whole(self).nodes()
    }

    /// Returns the number of dependencies between nodes: `cuGraphGetEdges`.
    ///
    /// # Errors
    /// The driver's, among them `LOSSY_QUERY` for dependencies of
    /// [programmatic](crate::Launch::programmatic) launches.
    #[doc(alias("cuGraphGetEdges", "cudaGraphGetEdges"))]
    pub fn edge_count(&self) -> Result<usize> {
        InnerGraph::whole(self).edge_count()
    }

    /// Returns the dependencies between nodes, as pairs of indices into [`Graph::nodes`]:
    /// `cuGraphGetEdges`. The second node of a pair comes after the first.
    ///
    /// # Errors
    /// As [`Graph::edge_count`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let graph = cuda_core::Graph::capture(&context, |_stream| Ok(()))?;
    /// let nodes = graph.nodes()?;
    /// for (before, after) in graph.edges()? {
    ///     println!("{} -> {}", nodes[before], nodes[after]);
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphGetEdges", "cudaGraphGetEdges"))]
    pub fn edges(&self) -> Result<Vec<(usize, usize)>> {
        InnerGraph::whole(self).edges()
    }

    /// Writes a description of the graph for Graphviz, with all that the driver knows:
    /// `cuGraphDebugDotPrint`. [`Graph::to_svg`] needs no other program.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path with a NUL byte, or a path to which the driver cannot write;
    /// the driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let graph = cuda_core::Graph::capture(&context, |_stream| Ok(()))?;
    /// graph.debug_dot("graph.dot")?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphDebugDotPrint", "cudaGraphDebugDotPrint"))]
    pub fn debug_dot(&self, path: impl AsRef<Path>) -> Result<()> {
        let op = "cuGraphDebugDotPrint";
        let name = path.as_ref();
        let path = c_string(op, name)?;
        let written = self.with_raw(|graph| {
            let flags = CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE.0;
            // SAFETY: the graph is live, and no other thread uses it; the path is NUL-terminated and
            // read during the call only.
            check(op, unsafe { cu::cuGraphDebugDotPrint(graph, path.as_ptr(), flags) })
        });
        written.map_err(|error| match error.code() {
            Some(cuda_sys::CUDA_ERROR_OPERATING_SYSTEM) => {
                Error::invalid(op, format!("the driver could not write {name:?}"))
            }
            _ => error,
        })
    }

    /// Returns the number of nodes of each kind, of dependencies, and of allocations used.
    fn summary(&self) -> Result<String> {
        let nodes = self.nodes()?;
        let mut kinds: Vec<(&str, usize)> = Vec::new();
        for name in nodes.iter().map(|node| kind_name(node.kind())) {
            match kinds.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => kinds.push((name, 1)),
            }
        }
        let kinds: Vec<_> = kinds.iter().map(|(name, count)| format!("{name} x {count}")).collect();
        Ok(format!(
            "{} ({}), {}, memory of {}",
            counted(nodes.len(), "node", "nodes"),
            kinds.join(", "),
            counted(self.edge_count()?, "dependency", "dependencies"),
            counted(self.uses.memory.len(), "allocation", "allocations")
        ))
    }
}

/// Writes a summary: `3 nodes (copy x 2, kernel x 1), 2 dependencies, memory of 3 allocations`.
impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.summary() {
            Ok(summary) => f.write_str(&summary),
            Err(error) => write!(f, "graph ({error})"),
        }
    }
}

/// A graph inside a node of a [`Graph`]: one that was [included](Graph::include), or a body of a
/// [`Condition`](crate::Condition); from [`GraphNode::graphs`].
#[derive(Clone, Copy)]
pub struct InnerGraph<'g> {
    graph: &'g Graph,
    // INVARIANT: a graph inside a node of `graph`, which keeps all its nodes while it lives. None:
    // `graph` itself.
    raw: Option<Handle<CUgraph>>,
}

impl<'g> InnerGraph<'g> {
    pub(super) fn whole(graph: &'g Graph) -> Self {
        Self { graph, raw: None }
    }

    /// Returns the number of nodes: `cuGraphGetNodes`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuGraphGetNodes", "cudaGraphGetNodes"))]
    pub fn node_count(&self) -> Result<usize> {
        self.with_raw(|graph| {
            asked(NODES, 0, |count| {
                // SAFETY: the graph is live, and no other thread uses it; without a list, the call
                // writes one number, to an exclusive borrow.
                unsafe { cu::cuGraphGetNodes(graph, ptr::null_mut(), count) }
            })
        })
    }

    /// Returns the nodes: `cuGraphGetNodes`. Executables cannot change them: their
    /// [ids](GraphNode::id) belong to no graph.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuGraphGetNodes", "cudaGraphGetNodes"))]
    pub fn nodes(&self) -> Result<Vec<GraphNode<'g>>> {
        let id = if self.raw.is_some() { NONE } else { self.graph.id };
        let named = self.handles()?.into_iter().map(|raw| NodeId { graph: id, raw });
        self.with_raw(|_graph| {
            // SAFETY: nodes of this graph; this thread holds the graph's lock.
            named.map(|node| unsafe { GraphNode::new(self.graph, node) }).collect()
        })
    }

    /// Returns the handles of [`InnerGraph::nodes`], without asking the driver anything else.
    pub(super) fn handles(&self) -> Result<Vec<Node>> {
        self.with_raw(|graph| {
            listed(NODES, |list, count| {
                // SAFETY: the graph is live, and no other thread uses it; `listed` passes a count, and
                // room for as many nodes or null.
                unsafe { cu::cuGraphGetNodes(graph, list, count) }
            })
        })
    }

    /// Returns the number of dependencies between nodes: `cuGraphGetEdges`.
    ///
    /// # Errors
    /// As [`Graph::edge_count`].
    #[doc(alias("cuGraphGetEdges", "cudaGraphGetEdges"))]
    pub fn edge_count(&self) -> Result<usize> {
        self.with_raw(|graph| {
            asked(EDGES, 0, |count| {
                // SAFETY: the graph is live, and no other thread uses it; without lists, the call
                // writes one number, to an exclusive borrow.
                unsafe { cu::cuGraphGetEdges(graph, ptr::null_mut(), ptr::null_mut(), count) }
            })
        })
    }

    /// Returns the dependencies between nodes, as pairs of indices into [`InnerGraph::nodes`]:
    /// `cuGraphGetEdges`. The second node of a pair comes after the first.
    ///
    /// # Errors
    /// As [`Graph::edge_count`].
    #[doc(alias("cuGraphGetEdges", "cudaGraphGetEdges"))]
    pub fn edges(&self) -> Result<Vec<(usize, usize)>> {
        let mut count = self.edge_count()?;
        if count == 0 {
            // The driver refuses empty lists.
            return Ok(Vec::new());
        }
        let index: HashMap<CUgraphNode, usize> =
            self.handles()?.into_iter().map(|node| node.0).zip(0..).collect();
        let mut from: Vec<CUgraphNode> = vec![ptr::null_mut(); count];
        let mut to = from.clone();
        self.with_raw(|graph| {
            let (first, second) = (from.as_mut_ptr(), to.as_mut_ptr());
            // SAFETY: the graph is live, and no other thread uses it; both lists have room for
            // `count` nodes, one for each dependency; no dependency is added in between.
            check(EDGES, unsafe { cu::cuGraphGetEdges(graph, first, second, &mut count) })
        })?;
        let pairs = from.iter().zip(&to).take(count);
        Ok(pairs.filter_map(|(from, to)| Some((*index.get(from)?, *index.get(to)?))).collect())
    }

    /// Makes driver calls about the graph, under its lock.
    fn with_raw<R>(&self, calls: impl FnOnce(CUgraph) -> Result<R>) -> Result<R> {
        self.graph.with_raw(|whole| calls(self.raw.map_or(whole, |inner| inner.0)))
    }
}

/// # What is inside
impl<'g> GraphNode<'g> {
    /// Returns the graphs that the node runs: the one that was [included](Graph::include)
    /// (`cuGraphChildGraphNodeGetGraph`), or the bodies of a [`Condition`](crate::Condition), in
    /// the order of their capture. Empty for nodes of other kinds, and for conditional nodes of
    /// [`Graph::from_raw`], whose bodies the driver does not report.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let graph = cuda_core::Graph::capture(&context, |_stream| Ok(()))?;
    /// for node in graph.nodes()? {
    ///     for inner in node.graphs()? {
    ///         println!("{node} of {} nodes", inner.node_count()?);
    ///     }
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphChildGraphNodeGetGraph", "cudaGraphChildGraphNodeGetGraph"))]
    pub fn graphs(&self) -> Result<Vec<InnerGraph<'g>>> {
        let graph = self.graph();
        let raw = match self.kind() {
            CU_GRAPH_NODE_TYPE_GRAPH => vec![graph.with_raw(|_graph| {
                let op = "cuGraphChildGraphNodeGetGraph";
                asked(op, Handle(ptr::null_mut()), |child: &mut Handle<CUgraph>| {
                    // SAFETY: the node is of this kind and belongs to the live graph, which no
                    // other thread uses; the call writes one handle, to an exclusive borrow.
                    unsafe { cu::cuGraphChildGraphNodeGetGraph(self.as_raw(), &mut child.0) }
                })
            })?],
            CU_GRAPH_NODE_TYPE_CONDITIONAL => graph.uses.bodies_of(self.id().raw).collect(),
            _ => Vec::new(),
        };
        Ok(raw.into_iter().map(|inner| InnerGraph { graph, raw: Some(inner) }).collect())
    }
}

debug_by! { [] InnerGraph<'_>: |it| "InnerGraph" { raw: it.raw, of: it.graph } }
