//! The nodes of a graph: their operations and dependencies.

use cuda_sys::*;

use crate::call::Call;
use crate::engine::kernel::Arguments;
use crate::engine::work::{Access, HostPtr, Work};
use crate::graph::condition::ConditionalNode;
use crate::handle::Id;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) graph: Id,
    pub(crate) task: Task,
    /// The nodes of the same graph that it runs after.
    pub(crate) dependencies: Vec<Id>,
    /// The node that it was cloned from.
    pub(crate) original: Option<Id>,
}

/// An operation that runs at each launch.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// The call that made it, for reports.
    pub(crate) call: &'static str,
    pub(crate) kind: NodeKind,
    pub(crate) work: Work,
    pub(crate) accesses: Vec<Access>,
}

impl Task {
    /// Returns the task of an empty node.
    pub(crate) fn nothing() -> Self {
        let (kind, work, accesses) = (NodeKind::Empty, Work::Nothing, Vec::new());
        Self { call: "cuGraphAddEmptyNode", kind, work, accesses }
    }
}

/// The kind of an operation, with the parameters that the driver's getters return.
#[derive(Debug, Clone)]
pub(crate) enum NodeKind {
    Empty,
    Kernel(KernelLaunch),
    Memcpy(CopyParams),
    Memset(CUDA_MEMSET_NODE_PARAMS),
    /// Several copies in no order.
    Copies,
    Host,
    /// An operation of a communicator of NCCL, which consists of kernels.
    Communicate,
    /// Writes or awaits values in memory.
    Values,
    /// Signals an external semaphore.
    Signal,
    /// Waits for an external semaphore.
    Await,
    /// Records this event.
    Record(Id),
    /// Waits for the record of this event that is the latest at the launch.
    Wait(Id),
    /// Allocates this block.
    Alloc(Id),
    /// Frees this block.
    Free(Id),
    /// Runs the nodes of this graph, which the node owns.
    Child(Id),
    /// Runs the nodes of one of the node's graphs, or of none.
    Conditional(ConditionalNode),
}

impl NodeKind {
    pub(crate) fn to_raw(&self) -> CUgraphNodeType {
        match self {
            Self::Empty => CU_GRAPH_NODE_TYPE_EMPTY,
            Self::Kernel(_) | Self::Communicate => CU_GRAPH_NODE_TYPE_KERNEL,
            Self::Memcpy(_) => CU_GRAPH_NODE_TYPE_MEMCPY,
            Self::Copies => CU_GRAPH_NODE_TYPE_MEMCPY_BATCH,
            Self::Memset(_) => CU_GRAPH_NODE_TYPE_MEMSET,
            Self::Host => CU_GRAPH_NODE_TYPE_HOST,
            Self::Values => CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
            Self::Signal => CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
            Self::Await => CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
            Self::Record(_) => CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Self::Wait(_) => CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Self::Child(_) => CU_GRAPH_NODE_TYPE_GRAPH,
            Self::Conditional(_) => CU_GRAPH_NODE_TYPE_CONDITIONAL,
            Self::Alloc(_) => CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Self::Free(_) => CU_GRAPH_NODE_TYPE_MEM_FREE,
        }
    }

    /// Returns the graphs that the node owns.
    pub(crate) fn inner(&self) -> &[Id] {
        match self {
            Self::Child(graph) => std::slice::from_ref(graph),
            Self::Conditional(node) => &node.bodies,
            _ => &[],
        }
    }

    /// Returns the kind's name in the text of a graph.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Empty => "EMPTY",
            Self::Kernel(_) | Self::Communicate => "KERNEL",
            Self::Memcpy(_) => "MEMCPY",
            Self::Copies => "MEMCPY_BATCH",
            Self::Memset(_) => "MEMSET",
            Self::Host => "HOST",
            Self::Values => "BATCH_MEM_OP",
            Self::Signal => "EXT_SEMAS_SIGNAL",
            Self::Await => "EXT_SEMAS_WAIT",
            Self::Record(_) => "EVENT_RECORD",
            Self::Wait(_) => "WAIT_EVENT",
            Self::Child(_) => "GRAPH",
            Self::Conditional(_) => "CONDITIONAL",
            Self::Alloc(_) => "MEM_ALLOC",
            Self::Free(_) => "MEM_FREE",
        }
    }
}

/// A kernel with everything that it is launched with.
#[derive(Debug, Clone)]
pub(crate) struct KernelLaunch {
    pub(crate) module: Id,
    pub(crate) function: Id,
    pub(crate) arguments: Arguments,
    /// The array that `cuGraphKernelNodeGetParams` returned: a pointer to each parameter.
    pub(crate) pointers: Vec<HostPtr>,
}

/// The description of a copy, as the program passed it or would have passed it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyParams {
    pub(crate) copy: CUDA_MEMCPY3D,
    /// Whether source and destination are memory of a pool, which belongs to no context.
    pub(crate) pooled: [bool; 2],
    /// Captured from or to such memory while no context was current.
    pub(crate) without_context: bool,
}

// SAFETY: the simulator returns the pointers to the program, and dereferences none: a node has places of its
// own for what it copies.
unsafe impl Send for CopyParams {}

impl CopyParams {
    /// Describes a copy of `bytes` in one row.
    pub(crate) fn linear(call: &Call, dst: End, src: End, bytes: usize) -> Self {
        let mut copy =
            CUDA_MEMCPY3D { WidthInBytes: bytes, Height: 1, Depth: 1, ..Default::default() };
        match src {
            End::Host(pointer) => {
                copy.srcMemoryType = CU_MEMORYTYPE_HOST;
                copy.srcHost = pointer.cast_const().cast();
            }
            End::Device(address) => {
                copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
                copy.srcDevice = address;
            }
            End::Unified(address) => {
                copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
                copy.srcDevice = address;
            }
        }
        match dst {
            End::Host(pointer) => {
                copy.dstMemoryType = CU_MEMORYTYPE_HOST;
                copy.dstHost = pointer.cast();
            }
            End::Device(address) => {
                copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
                copy.dstDevice = address;
            }
            End::Unified(address) => {
                copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
                copy.dstDevice = address;
            }
        }
        (copy.srcPitch, copy.srcHeight) = (bytes, 1);
        (copy.dstPitch, copy.dstHeight) = (bytes, 1);
        Self::new(call, copy)
    }

    /// Describes a copy that the thread enqueues.
    pub(crate) fn new(call: &Call, copy: CUDA_MEMCPY3D) -> Self {
        let is_pooled = |kind, address| {
            let is_named = [CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED].contains(&kind);
            let block = is_named.then(|| call.space.find(address)).flatten();
            block.is_some_and(|block| call.space.blocks[&block].pool.is_some())
        };
        let pooled = [(copy.srcMemoryType, copy.srcDevice), (copy.dstMemoryType, copy.dstDevice)]
            .map(|(kind, address)| is_pooled(kind, address));
        let without_context = call.current().is_err() && pooled.contains(&true);
        Self { copy, pooled, without_context }
    }
}

/// One end of a one-row copy, as the program names it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Host(*mut u8),
    Device(u64),
    /// An address of any memory.
    Unified(u64),
}
