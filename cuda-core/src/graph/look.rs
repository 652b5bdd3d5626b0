//! What a graph consists of.

use std::fmt;
use std::path::Path;

use cuda_sys::{CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE, symbol as cu};

use super::inner::InnerGraph;
use super::node::kind_name;
use super::{Graph, GraphNode};
use crate::error::{Error, Result, c_string, check, counted};

/// # Looking at it
impl Graph {
    /// The number of nodes: `cuGraphGetNodes`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuGraphGetNodes", "cudaGraphGetNodes"))]
    pub fn node_count(&self) -> Result<usize> {
        InnerGraph::whole(self).node_count()
    }

    /// The nodes: `cuGraphGetNodes`. Captured operations come in the order of the capture. An
    /// [included](Graph::include) graph is one node, and so is an operation that depends on a
    /// [`Condition`](crate::Condition): [`GraphNode::graphs`] looks into them.
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

    /// The number of dependencies between nodes: `cuGraphGetEdges`.
    ///
    /// # Errors
    /// The driver's, `LOSSY_QUERY` among them for dependencies of
    /// [programmatic](crate::Launch::programmatic) launches.
    #[doc(alias("cuGraphGetEdges", "cudaGraphGetEdges"))]
    pub fn edge_count(&self) -> Result<usize> {
        InnerGraph::whole(self).edge_count()
    }

    /// The dependencies between nodes, as pairs of indices into [`Graph::nodes`]: the second node
    /// comes after the first: `cuGraphGetEdges`.
    ///
    /// # Errors
    /// Those of [`Graph::edge_count`].
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

    /// Writes a description in the language of Graphviz, with all that the driver knows:
    /// `cuGraphDebugDotPrint`. [`Graph::to_svg`] needs no other program.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path with a NUL byte, or to which the driver cannot write; the
    /// driver's.
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

    /// How many nodes of which kind it has, and what memory it uses.
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

/// A summary: `3 nodes (copy x 2, kernel x 1), 2 dependencies, memory of 3 allocations`.
impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.summary() {
            Ok(summary) => f.write_str(&summary),
            Err(error) => write!(f, "graph ({error})"),
        }
    }
}
