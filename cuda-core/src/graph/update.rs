//! Changing executable graphs.

use std::mem;
use std::sync::Arc;

use cuda_sys::{
    CUDA_ERROR_INVALID_VALUE, CUgraphExec, CUgraphExecUpdateResultInfo, CUresult, symbol as cu,
};

use super::node::kind_name;
use super::transfers::{COPY, FILL, copied, filled};
use super::{Graph, GraphExec, NodeId};
use crate::error::{Error, GraphUpdate, Result, asked, check};
use crate::module::Function;
use crate::module::launch::Launch;
use crate::process::{DeferForeignCode, Failed, attempt};
use crate::stream::StreamKind;
use crate::timeline::ledger::{Touch, key};
use crate::timeline::recording::{GraphTraits, Node, NodeUses, UsedMemory, dependencies};
use crate::util::lock;

const OP: &str = "cuGraphExecUpdate";

/// # Changing it
/// The executable drops its reference to the former memory of a changed operation when the pending
/// launches have completed, unless another operation uses that memory. The functions, textures and
/// closures that the graph was made with stay as long as the executable. Uses that are not known
/// for each operation last until [`update`](Self::update): those of other libraries' work, of child
/// graphs, of bodies of a [`Condition`](crate::Condition), of access to other devices' memory, of
/// an operation of several nodes, such as a fill with values of eight bytes, and of the operations
/// of the last update's graph. If an executable uses more than 32 ranges of an allocation, the
/// bytes between those that it reads, and between those that it writes, also count as used from
/// then on, for the order of launches and for what must be lent.
impl GraphExec {
    /// Makes this the executable of another graph of the same shape, with the same kinds of
    /// operations and the same dependencies: `cuGraphExecUpdate_v2`, from CUDA 12.0 on. Much faster
    /// than instantiating that graph. Pending launches are not affected: memory that only the
    /// former graph used is kept until they have completed.
    ///
    /// # Errors
    /// [`Error::GraphUpdate`], with the reason and the node, if the graphs differ in more than what
    /// their operations act on, or a copy has memory of the driver's pools where it had other
    /// memory, or the other way round. This executable is then unchanged, and can be launched.
    ///
    /// [`Error::Invalid`] if the other graph
    /// * [allocates](crate::Stream::alloc_in_graph) memory, unless this was instantiated from it;
    /// * has operations of [NCCL](crate::nccl), and the former graph has none;
    /// * has [work of another library](crate::Stream::work), and this executable has
    ///   [left out](Self::set_enabled) a node;
    /// * copies between devices between which access was [revoked](crate::Context::disable_peer_access);
    /// * copies from a context to another device, if the graph that this was instantiated from has no copies
    ///   from that context, or has one to a third context or between other kinds of memory (of contexts, of
    ///   pools).
    ///
    /// The errors of [`Graph::instantiate`] about what the graph needs. The driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::{Error, Graph};
    ///
    /// let (mut x, mut y) = (stream.alloc::<u32>(100)?, stream.alloc::<u32>(100)?);
    /// let first = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
    /// let second = Graph::capture(&context, |stream| stream.fill(&mut y, 2))?;
    /// let mut exec = first.instantiate()?;
    /// match exec.update(&second) {
    ///     Err(Error::GraphUpdate(_)) => exec = second.instantiate()?,
    ///     updated => updated?,
    /// }
    /// exec.launch(&stream)?; // fills `y`
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphExecUpdate", "cudaGraphExecUpdate"))]
    pub fn update(&mut self, graph: &Graph) -> Result<()> {
        let exec = self.raw()?;
        let why = "the graph allocates memory, so only its own executable can: instantiate it";
        Error::unless(!graph.uses.traits.has(GraphTraits::MEMORY) || graph.id == self.id, OP, why)?;
        let why = "the graph has operations of NCCL, which this executable could leave out: instantiate it";
        let leaves_none_out = self.uses.has_collectives() || !graph.uses.has_collectives();
        Error::unless(leaves_none_out, OP, why)?;
        let why = "the graph has work of another library, and the executable leaves out, or left out, an \
                   operation: instantiate it";
        let is_foreign = graph.uses.traits.has(GraphTraits::FOREIGN);
        Error::unless(!is_foreign || !self.has_left_out, OP, why)?;
        super::lent::require_lendable(graph.uses.memory.iter(), OP)?;
        let mut copies = graph.uses.copies.iter();
        copies.try_for_each(|copies| copies.require_as_made(OP, &self.uses.copies))?;
        let held = graph.uses.admit(OP, Some(self.made))?;
        let mut info = CUgraphExecUpdateResultInfo::default();
        let code = graph.with_raw(|graph| {
            // SAFETY: the executable is live and only this thread uses it, by the exclusive borrow;
            // the same holds for the graph, by its lock. The call writes one structure, to a local
            // that outlives it.
            Ok(unsafe { cu::cuGraphExecUpdate_v2(exec, graph, &mut info) })
        })?;
        // What is dropped below may run code of the program, which may revoke access.
        drop(held);
        if code == cuda_sys::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE {
            return Err(differs(graph, &info));
        }
        let conditional = (!graph.uses.bodies.is_empty()).then(|| graph.raw.clone());
        match attempt(OP, code) {
            Ok(()) => {
                self.adopt(graph.uses.clone());
                self.updated = conditional.into_iter().collect();
                self.conditions_of = Some(graph.id);
            }
            Err(Failed::Refused(error)) => return Err(error),
            // The executable may be unchanged, or updated.
            Err(Failed::Unknown(error)) => {
                let changed = mem::take(&mut self.changed);
                self.adopt(self.uses.with(&graph.uses));
                self.changed = changed;
                self.updated.extend(conditional);
                self.conditions_of = None;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Replaces a kernel's arguments, grid, block, dynamic shared memory and, within limits of the
    /// driver, function by those of `launch`, for later launches of the graph:
    /// `cuGraphExecKernelNodeSetParams_v2`, from CUDA 12.0 on. `launch` itself does not run, and
    /// pending launches of the graph are not affected. Attributes of `launch`, such as a cluster,
    /// are ignored. Host memory is lent as after [`set_copy`](Self::set_copy).
    ///
    /// Find the node by its place among [`Graph::nodes`] or by
    /// [`GraphNode::kernel_name`](crate::GraphNode::kernel_name), or keep the one that
    /// [`GraphBuilder::add`](crate::GraphBuilder::add) returned.
    ///
    /// # Errors
    /// The errors of [`Launch::launch`] that are found before the driver is called;
    /// [`Error::Invalid`] for a launch of no elements, for a node that is not a kernel or that
    /// belongs to another graph than this was [instantiated](Graph::instantiate) from, and for a
    /// [`Condition`](crate::Condition) of another graph than that one and the last update's, and for
    /// memory of another device or of a [graph](crate::Stream::alloc_in_graph); the driver's. The executable is then unchanged, unless earlier work may have caused the error:
    /// it then keeps what both forms of the operation use.
    ///
    /// # Safety
    /// That of [`Launch::launch`], for every launch of the graph. The graph's dependencies
    /// order the kernel with the operations that the new arguments conflict with. If the node is part of
    /// another library's work, the rest of that work does not rely on it.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(&context, "")?.function("scale")?;
    /// let mut x = stream.alloc_zeroed::<f32>(256)?;
    /// let graph = cuda_core::Graph::capture(&context, |stream| {
    ///     // SAFETY: scale(float *x, float by) reads and writes an element for each thread.
    ///     unsafe { stream.kernel(&function).block(256).arg(&mut x).arg(2.0f32).launch() }
    /// })?;
    /// let nodes = graph.nodes()?;
    /// let scale = nodes.iter().find(|node| node.kernel_name().as_deref() == Some("scale"));
    /// let (mut exec, scale) = (graph.instantiate()?, scale.expect("captured above").id());
    /// for step in 0..10 {
    ///     let mut launch = stream.kernel(&function).block(256).arg(&mut x).arg(step as f32);
    ///     // SAFETY: as above; the graph has no other operation.
    ///     unsafe { exec.set_kernel(scale, &mut launch) }?;
    ///     exec.launch(&stream)?;
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphExecKernelNodeSetParams", "cudaGraphExecKernelNodeSetParams"))]
    pub unsafe fn set_kernel<K: StreamKind>(
        &mut self,
        node: NodeId,
        launch: &mut Launch<'_, K>,
    ) -> Result<()> {
        let (op, exec) = ("cuGraphExecKernelNodeSetParams", self.node(node)?);
        launch.as_node(op, self.conditions_of, |function, kernel, touches| {
            // An H200 with driver 580 crashes in this call if no context is current.
            let _entered = function.context().enter_unless_current()?;
            self.set(op, node.raw, touches, Some(function), || {
                // SAFETY: a context is current; the executable is live and only this thread uses
                // it, by the exclusive borrow; the node belongs to the graph that it was made from,
                // which it keeps and whose lock this thread holds; the description and the
                // arguments live during the call, which copies them.
                unsafe { cu::cuGraphExecKernelNodeSetParams_v2(exec, node.raw.0, kernel) }
            })
        })
    }

    /// Changes what a node does, by `call`. Keeps what the node uses from then on before the driver
    /// learns of it.
    pub(super) fn set(
        &mut self,
        op: &'static str,
        node: Node,
        touches: &[Touch<'_>],
        function: Option<&Function>,
        call: impl FnOnce() -> CUresult,
    ) -> Result<()> {
        // What the call drops may report to a hook, and the hook may use the graph.
        let quiet = DeferForeignCode::begin();
        if self.is_set(node, touches, function) {
            let _turn = lock(&self.graph);
            return Ok(attempt(op, call()).map_err(|failed| explained(op, node, failed))?);
        }
        let mut shared = touches.iter().filter_map(|touch| touch.ledger.get().shared());
        let why = "memory that a graph allocates does not replace what an operation uses";
        Error::unless(!shared.any(|ledger| ledger.is_of_a_graph()), op, why)?;
        let memory: Vec<_> = touches.iter().map(UsedMemory::keep).collect();
        let turn = lock(&self.graph);
        let set = attempt(op, call()).map_err(|failed| explained(op, node, failed));
        if let Err(Failed::Refused(error)) = set {
            return Err(error);
        }
        let before = self.used_before(node);
        drop(turn);
        drop(quiet);
        let was_left_out = self.put_back(node);
        let keys = memory.iter().map(UsedMemory::key).collect();
        let code = function.cloned().into_iter().collect();
        let mut now = ChangedNode { keys, code, left_out: Vec::new() };
        match set {
            // Done first, so that memory that stays in use is entered for its new use.
            Ok(()) => self.let_go(before),
            // The node may do either, so the former uses stay.
            Err(_) => now.extend(before),
        }
        self.changed.insert(node.0.addr(), now);
        for (new, touch) in memory.iter().zip(touches) {
            if !self.uses.covers(new.key(), touch) {
                new.enter(&self.last);
            }
            self.uses.add(new);
            let known = self.uses.memory.iter_mut().find(|known| known.key() == new.key());
            known.into_iter().for_each(|known| known.merge(&self.last));
        }
        self.is_lent = self.uses.is_lent();
        if was_left_out {
            let now = self.changed.get(node.0.addr()).cloned();
            self.leave_out(node, now.unwrap_or_default());
        }
        set.map_err(Error::from)
    }

    /// Returns whether the node was changed to the same uses before.
    fn is_set(&self, node: Node, touches: &[Touch<'_>], function: Option<&Function>) -> bool {
        let Some(known) = self.changed.get(node.0.addr()) else {
            return false;
        };
        let same = |(touch, known): (&Touch<'_>, &usize)| {
            let shared = touch.ledger.get().shared();
            shared.map(key) == Some(*known) && self.uses.covers(*known, touch)
        };
        touches.len() == known.keys.len()
            && known.left_out.is_empty()
            && touches.iter().zip(&known.keys).all(same)
            && known.code.iter().map(Function::as_raw).eq(function.map(Function::as_raw))
    }

    /// Returns what the node has used so far; nothing if that is unknown, or if the operation may
    /// have other nodes that continue to use it: those come before its last node, and are not known
    /// by themselves. The caller holds the graph's lock.
    fn used_before(&self, node: Node) -> ChangedNode {
        if let Some(changed) = self.changed.get(node.0.addr()) {
            return changed.clone();
        }
        let known = |node| self.uses.by_node.get(&node);
        match (known(node), dependencies(node)) {
            (Some(NodeUses { keys, .. }), Ok(before))
                if before.iter().all(|node| known(*node).is_some()) =>
            {
                ChangedNode { keys: keys.to_vec(), ..ChangedNode::default() }
            }
            _ => ChangedNode::default(),
        }
    }

    /// Ends these uses of a node, and returns them. If no other node uses the memory, launches from
    /// now on are not ordered with its other uses.
    fn end_uses(&mut self, keys: &[usize]) -> Vec<UsedMemory> {
        let memory = &mut self.uses.memory;
        let end = |key: &usize| {
            let at = memory.iter().position(|used| used.key() == *key)?;
            memory[at].count -= 1;
            if memory[at].count > 0 {
                return Some(UsedMemory { count: 1, ..memory[at].clone() });
            }
            let ended = memory.remove(at);
            ended.kept.ledger().leave(&self.last);
            Some(UsedMemory { count: 1, ..ended })
        };
        keys.iter().filter_map(end).collect()
    }

    /// Notes that launches from now on leave out a node with these `uses`. The memory is kept, since
    /// later launches may run the node again.
    fn leave_out(&mut self, node: Node, uses: ChangedNode) {
        if uses.keys.is_empty() || !uses.left_out.is_empty() {
            return;
        }
        let left_out = self.end_uses(&uses.keys);
        self.changed.insert(node.0.addr(), ChangedNode { left_out, ..uses });
        self.is_lent = self.uses.is_lent();
    }

    /// Notes that launches from now on may run a node. Returns whether they left it out.
    fn put_back(&mut self, node: Node) -> bool {
        let known = self.changed.get_mut(node.0.addr());
        let left_out = known.map(|known| mem::take(&mut known.left_out)).unwrap_or_default();
        for used in &left_out {
            used.enter(&self.last);
            self.uses.add(used);
            self.is_lent |= used.must_be_lent();
        }
        !left_out.is_empty()
    }

    /// Lets go of what a node no longer uses, once the pending launches have completed.
    fn let_go(&mut self, before: ChangedNode) {
        self.end_uses(&before.keys);
        if !before.code.is_empty() {
            let code = before.code.into_iter().map(|code| Arc::new(code) as _);
            self.keep_until_completed(code.collect());
        }
    }

    /// Sets whether launches from now on run a node: a kernel, a copy or a fill. A node that is
    /// left out acts as an empty node: `cuGraphNodeSetEnabled`.
    ///
    /// Launches that leave a node out are not ordered with other uses of its memory, and need not
    /// be [lent](Self::lend) it. The executable keeps the memory, since it may run the node again.
    /// To let go of the memory, change the node, as by [`set_copy`](Self::set_copy).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a node of another graph than this was
    /// [instantiated](Graph::instantiate) from; for leaving out a node of a graph with operations of
    /// [NCCL](crate::nccl), since other ranks would wait for it forever, and one that may belong to
    /// [work of another library](crate::Stream::work), which may rely on it. In a graph with such work,
    /// that is any node but the last one of an operation of this crate, and after an
    /// [update](Self::update) to one, any node. The driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # let mut x = stream.alloc::<u32>(100)?;
    /// let graph = cuda_core::Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
    /// let (mut exec, fill) = (graph.instantiate()?, graph.nodes()?[0].id());
    /// exec.set_enabled(fill, false)?;
    /// assert!(!exec.is_enabled(fill)?);
    /// exec.launch(&stream)?; // does nothing
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphNodeSetEnabled", "cudaGraphNodeSetEnabled"))]
    pub fn set_enabled(&mut self, node: NodeId, enabled: bool) -> Result<()> {
        let op = "cuGraphNodeSetEnabled";
        let exec = if enabled { self.node(node) } else { self.own_node(node) }?;
        let why = "the graph has operations of NCCL, whose other ranks wait for each: no node is left out";
        Error::unless(enabled || !self.uses.has_collectives(), op, why)?;
        self.has_left_out |= !enabled;
        if enabled {
            self.put_back(node.raw);
        }
        let turn = lock(&self.graph);
        // SAFETY: the executable is live and only this thread uses it, by the exclusive borrow; the
        // node belongs to the graph that it was made from, which it keeps and whose lock this
        // thread holds.
        check(op, unsafe { cu::cuGraphNodeSetEnabled(exec, node.raw.0, enabled.into()) })?;
        if !enabled {
            let uses = self.used_before(node.raw);
            drop(turn);
            self.leave_out(node.raw, uses);
        }
        Ok(())
    }

    /// Returns whether launches run a node, a kernel, a copy or a fill: `cuGraphNodeGetEnabled`.
    /// They do until [`set_enabled`](Self::set_enabled) leaves it out.
    ///
    /// # Errors
    /// As [`set_enabled`](Self::set_enabled).
    #[doc(alias("cuGraphNodeGetEnabled", "cudaGraphNodeGetEnabled"))]
    pub fn is_enabled(&self, node: NodeId) -> Result<bool> {
        let exec = self.node(node)?;
        let _turn = lock(&self.graph);
        // SAFETY: the executable is live, and not changed during the call: that takes an exclusive
        // borrow. The node belongs to the graph that it was made from, which it keeps and whose
        // lock this thread holds. The call writes one number, to an exclusive borrow.
        let enabled = asked("cuGraphNodeGetEnabled", 0, |enabled| unsafe {
            cu::cuGraphNodeGetEnabled(exec, node.raw.0, enabled)
        })?;
        Ok(enabled != 0)
    }

    /// Returns the driver's handle, for a call about that node.
    pub(super) fn node(&self, node: NodeId) -> Result<CUgraphExec> {
        let why = match node.graph {
            super::look::NONE => {
                "a node of an included graph, or of a condition's body, cannot be changed by itself; \
                 `GraphExec::update` changes it by that of another graph"
            }
            _ => "the node is of another graph than the executable was instantiated from",
        };
        Error::unless(node.graph == self.id, "GraphExec", why)?;
        self.raw()
    }

    /// [`Self::node`] for a call that changes or leaves out the node: refuses nodes that may belong to work
    /// of another library, which may rely on each of its operations.
    pub(super) fn own_node(&self, node: NodeId) -> Result<CUgraphExec> {
        let exec = self.node(node)?;
        let is_updated = !Arc::ptr_eq(&self.nodes, &self.uses.by_node);
        let is_own = self.nodes.get(&node.raw).is_some_and(|known| !known.is_foreign);
        let may_be_foreign = self.uses.traits.has(GraphTraits::FOREIGN) && (is_updated || !is_own);
        let why = "the node may belong to work of another library, which may rely on it";
        Error::unless(!may_be_foreign, "GraphExec", why)?;
        Ok(exec)
    }
}

/// Names the node of the graph that the driver found to differ from the executable's.
#[cold]
fn differs(graph: &Graph, info: &CUgraphExecUpdateResultInfo) -> Error {
    let nodes = graph.nodes().unwrap_or_default();
    let place = |raw| nodes.iter().position(|node| node.as_raw() == raw);
    let (node, dependency) = (place(info.errorNode), place(info.errorFromNode));
    let operation = node.map(|at| nodes[at].to_string());
    Error::from(GraphUpdate { why: info.result, node, dependency, operation })
}

/// Explains why the driver refused the parameters, if they are for another kind of node, or the
/// node has rows. The caller holds the graph's lock.
#[cold]
fn explained(op: &'static str, node: Node, failed: Failed) -> Failed {
    let Failed::Refused(error) = failed else {
        return failed;
    };
    let (own, setter) = match op {
        COPY => (cuda_sys::CU_GRAPH_NODE_TYPE_MEMCPY, "set_copy"),
        FILL => (cuda_sys::CU_GRAPH_NODE_TYPE_MEMSET, "set_fill"),
        _ => (cuda_sys::CU_GRAPH_NODE_TYPE_KERNEL, "set_kernel"),
    };
    let kind = asked("cuGraphNodeGetType", own, |kind| {
        // SAFETY: the node belongs to a live graph; the call writes one number, to an exclusive
        // borrow.
        unsafe { cu::cuGraphNodeGetType(node.0, kind) }
    });
    let has_rows = || match op {
        COPY => copied(node).is_ok_and(|copy| copy.Height * copy.Depth > 1),
        FILL => filled(node).is_ok_and(|fill| fill.height > 1),
        _ => false,
    };
    Failed::Refused(match kind {
        Ok(kind) if kind != own => {
            let (found, own) = (kind_name(kind), kind_name(own));
            let why =
                format!("`{setter}` changes a {own}, and the node is of another kind: {found}");
            Error::invalid(op, why)
        }
        _ if error.code() == Some(CUDA_ERROR_INVALID_VALUE) && has_rows() => {
            let why = "the driver changes neither copies of rows nor how many rows a fill has, and how long: \
                       `set_fill_pitched` changes the rest of a fill, `update` the whole graph";
            Error::invalid(op, why)
        }
        _ => error,
    })
}

/// What a changed or left-out node uses.
#[derive(Clone, Default)]
pub(super) struct ChangedNode {
    /// The [keys](UsedMemory::key) of the memory, one for each use.
    keys: Vec<usize>,
    /// The functions of a kernel.
    pub(super) code: Vec<Function>,
    /// The uses of a node that is left out; the executable's uses do not include them.
    left_out: Vec<UsedMemory>,
}

impl ChangedNode {
    fn extend(&mut self, other: Self) {
        self.keys.extend(other.keys);
        self.code.extend(other.code);
    }
}
