//! Nodes of a graph.

use std::fmt;

use cuda_sys::{CUDA_KERNEL_NODE_PARAMS, CUfunction, CUgraphNode, CUgraphNodeType, symbol as cu};

use super::{Graph, transfers};
use crate::error::{Result, asked, check};
use crate::module::function;
use crate::module::launch::Dimensions;
use crate::timeline::recording::Node;
use crate::util::{compare_by, debug_by};

/// The kind of a node, by CUDA's own name: `sys::CU_GRAPH_NODE_TYPE_KERNEL`.
pub type NodeKind = CUgraphNodeType;

/// Identifies a node of a graph; from [`GraphBuilder::add`](crate::GraphBuilder::add) or
/// [`GraphNode::id`].
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// let mut step = None;
/// let graph = cuda_core::Graph::build(&context, |builder| {
///     step = Some(builder.add(|stream| stream.launch_host_func_each(|| println!("step")))?);
///     Ok(())
/// })?;
/// assert_eq!(step, Some(graph.nodes()?[0].id()));
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId {
    pub(super) graph: u64,
    // INVARIANT: a node of the graph with the id `graph`; if no graph has that id, a node of a
    // graph inside another.
    pub(super) raw: Node,
}

/// A node of a [`Graph`], that is, an operation; from [`Graph::nodes`].
///
/// `Display` shows what the node does: `scale <<<4, 256>>>`, `copy of 4096 bytes`.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let graph = cuda_core::Graph::capture(&context, |_stream| Ok(()))?;
/// use cuda_core::sys;
///
/// for node in graph.nodes()? {
///     println!("{node}, a kernel: {}", node.kind() == sys::CU_GRAPH_NODE_TYPE_KERNEL);
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct GraphNode<'g> {
    graph: &'g Graph,
    // INVARIANT: a node of the graph or of one inside it; a graph keeps all its nodes while it
    // lives.
    id: NodeId,
    kind: NodeKind,
}

impl<'g> GraphNode<'g> {
    /// # Safety
    /// `id` names a node of that graph or of one inside it; the caller holds the graph's lock.
    pub(super) unsafe fn new(graph: &'g Graph, id: NodeId) -> Result<Self> {
        let mut kind = cuda_sys::CU_GRAPH_NODE_TYPE_EMPTY;
        // SAFETY: by the caller's promise a node of the live graph; the call writes one number, to
        // a local that outlives it.
        check("cuGraphNodeGetType", unsafe { cu::cuGraphNodeGetType(id.raw.0, &mut kind) })?;
        Ok(Self { graph, id, kind })
    }

    /// The kind of operation, which [`Graph::nodes`] has queried: `cuGraphNodeGetType`.
    #[doc(alias("cuGraphNodeGetType", "cudaGraphNodeGetType"))]
    pub fn kind(&self) -> NodeKind {
        self.kind
    }

    /// The id by which an executable of the graph changes the node.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The driver's handle, valid while the graph lives.
    pub fn as_raw(&self) -> CUgraphNode {
        self.id.raw.0
    }

    pub(super) fn graph(&self) -> &'g Graph {
        self.graph
    }

    /// Returns the name of the node's kernel: `cuFuncGetName`, from CUDA 12.3 on. [`None`] for
    /// another kind of node, and if the driver does not know the name.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let graph = cuda_core::Graph::capture(&context, |_stream| Ok(()))?;
    /// let nodes = graph.nodes()?;
    /// let scale = nodes.iter().find(|node| node.kernel_name().as_deref() == Some("scale"));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuFuncGetName"))]
    pub fn kernel_name(&self) -> Option<String> {
        let is_kernel = self.kind == cuda_sys::CU_GRAPH_NODE_TYPE_KERNEL;
        is_kernel.then(|| self.name_of(self.kernel().ok()?.func).ok())?
    }

    /// Describes what the node does, as `Display` shows it.
    fn describe(&self) -> Result<String> {
        Ok(match self.kind {
            cuda_sys::CU_GRAPH_NODE_TYPE_KERNEL => {
                let kernel = self.kernel()?;
                let grid = Dimensions::from([kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ]);
                let block =
                    Dimensions::from([kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ]);
                let name = self.name_of(kernel.func).unwrap_or_else(|_| "kernel".to_owned());
                format!("{name} <<<{grid}, {block}>>>")
            }
            cuda_sys::CU_GRAPH_NODE_TYPE_MEMCPY => {
                let copy = self.graph.with_raw(|_graph| transfers::copied(self.id.raw))?;
                let rows = copy.Height.max(1) * copy.Depth.max(1);
                format!("copy of {} bytes", copy.WidthInBytes * rows)
            }
            cuda_sys::CU_GRAPH_NODE_TYPE_MEMSET => {
                let fill = self.graph.with_raw(|_graph| transfers::filled(self.id.raw))?;
                let bytes = fill.elementSize as usize * fill.width * fill.height.max(1);
                format!("fill of {bytes} bytes")
            }
            other => kind_name(other).to_owned(),
        })
    }

    /// Returns the driver's parameters of a kernel node.
    fn kernel(&self) -> Result<CUDA_KERNEL_NODE_PARAMS> {
        self.graph.with_raw(|_graph| {
            asked("cuGraphKernelNodeGetParams", CUDA_KERNEL_NODE_PARAMS::default(), |to| {
                // SAFETY: a kernel node of the live graph, which no other thread uses; the call writes one
                // structure, to an exclusive borrow.
                unsafe { cu::cuGraphKernelNodeGetParams_v2(self.as_raw(), to) }
            })
        })
    }

    /// Returns the name of the kernel of a node of the graph.
    fn name_of(&self, function: CUfunction) -> Result<String> {
        // SAFETY: the function of a kernel node, whose module stays loaded while the graph exists:
        // the graph keeps it, or the caller of `StreamWork::enqueue`, `note_use` or
        // `Graph::from_raw` promised it.
        unsafe { function::name_of(self.graph.context(), function) }
    }
}

/// Returns the name of a kind of node.
pub(super) fn kind_name(kind: NodeKind) -> &'static str {
    match kind {
        cuda_sys::CU_GRAPH_NODE_TYPE_KERNEL => "kernel",
        cuda_sys::CU_GRAPH_NODE_TYPE_MEMCPY => "copy",
        cuda_sys::CU_GRAPH_NODE_TYPE_MEMSET => "fill",
        cuda_sys::CU_GRAPH_NODE_TYPE_HOST => "host function",
        cuda_sys::CU_GRAPH_NODE_TYPE_GRAPH => "graph",
        cuda_sys::CU_GRAPH_NODE_TYPE_EMPTY => "empty node",
        cuda_sys::CU_GRAPH_NODE_TYPE_WAIT_EVENT => "wait for an event",
        cuda_sys::CU_GRAPH_NODE_TYPE_EVENT_RECORD => "record of an event",
        cuda_sys::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => "write of a value, or wait for one",
        cuda_sys::CU_GRAPH_NODE_TYPE_MEM_ALLOC => "allocation",
        cuda_sys::CU_GRAPH_NODE_TYPE_MEM_FREE => "free",
        cuda_sys::CU_GRAPH_NODE_TYPE_CONDITIONAL => "conditional node",
        _ => "other node",
    }
}

impl fmt::Display for GraphNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.describe() {
            Ok(text) => f.write_str(&text),
            Err(_) => f.write_str(kind_name(self.kind)),
        }
    }
}

compare_by! { GraphNode<'_>: |it| it.id() }

debug_by! { [] GraphNode<'_>: |it| "GraphNode({it})" }
