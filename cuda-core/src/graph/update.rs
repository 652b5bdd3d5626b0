//! Executable graphs that are changed.

use std::sync::Arc;

use cuda_sys::{CUgraphExec, CUgraphExecUpdateResultInfo, symbol as cu};

use super::{Graph, GraphExec, NodeId};
use crate::error::{Error, Result, check};
use crate::module::Function;
use crate::module::launch::Launch;
use crate::stream::StreamKind;
use crate::timeline::ledger::LastLaunch;
use crate::timeline::recording::{KeptAlive, Node, UsedMemory};
use crate::util::sync::lock;

const OP: &str = "cuGraphExecUpdate";

/// # Changing it
impl GraphExec {
    /// Makes this the executable of another graph of the same shape: the same kinds of operations,
    /// with the same dependencies. Much faster than to instantiate that graph. Launches that are
    /// pending are not affected; memory that only the former graph used is kept until they have completed:
    /// `cuGraphExecUpdate_v2`, from CUDA 12.0 on.
    ///
    /// # Errors
    /// [`Error::GraphUpdate`], with the reason, if the graphs differ in more than what operations
    /// act on: this executable is then unchanged, and can be launched; the driver's.
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
    ///     Err(Error::GraphUpdate { .. }) => exec = second.instantiate()?,
    ///     updated => updated?,
    /// }
    /// exec.launch(&stream)?; // fills `y`
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphExecUpdate", "cudaGraphExecUpdate"))]
    pub fn update(&mut self, graph: &Graph) -> Result<()> {
        let exec = self.raw()?;
        let mut info = CUgraphExecUpdateResultInfo::default();
        let code = graph.with_raw(|graph| {
            // SAFETY: the executable is live and only this thread uses it, by the exclusive borrow;
            // so is the graph, by its lock. The call writes one structure, to a local that outlives
            // it.
            Ok(unsafe { cu::cuGraphExecUpdate_v2(exec, graph, &mut info) })
        })?;
        if code == cuda_sys::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE {
            return Err(Error::GraphUpdate { why: info.result });
        }
        check(OP, code)?;
        self.adopt(&graph.uses);
        Ok(())
    }

    /// Replaces a kernel's arguments, grid, block, dynamic shared memory and, within limits of the
    /// driver, function, by those of a launch, which is not made: in launches from now on. Those
    /// that are pending are not affected: `cuGraphExecKernelNodeSetParams_v2`, from CUDA 12.0 on.
    /// Attributes of the launch, such as a cluster, do not count.
    ///
    /// # Errors
    /// Those of [`Launch::launch`] that are found before the driver is called;
    /// [`Error::Invalid`] for a node of another graph than this was
    /// [instantiated](Graph::instantiate) from; [`Error::NotCapturable`] for arguments that a graph
    /// cannot keep; the driver's, with the executable unchanged.
    ///
    /// # Safety
    /// That of [`Launch::launch`], for every launch of the graph. The graph's dependencies order the
    /// kernel with the operations that the new arguments conflict with.
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
    /// let (mut exec, scale) = (graph.instantiate()?, graph.nodes()?[0].id());
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
        launch.as_node(op, |function, kernel, touches| {
            // Kept before the driver knows of it.
            let new = touches.iter().filter(|touch| !self.uses.cover(touch));
            let memory: Option<Vec<_>> = new.map(UsedMemory::keep).collect();
            let memory = memory.ok_or(Error::NotCapturable { op })?;
            // An H200 with driver 580 crashes in this call if no context is current.
            let _entered = function.context().enter_briefly()?;
            let turn = lock(&self.graph);
            // SAFETY: a context is current; the executable is live and only this thread uses it, by
            // the exclusive borrow; the node is of the graph that it was made of, which it keeps and whose lock this
            // thread holds; the description and the arguments live during the call, which copies
            // them.
            let code = unsafe { cu::cuGraphExecKernelNodeSetParams_v2(exec, node.raw.0, kernel) };
            drop(turn);
            check(op, code)?;
            self.is_lent |= memory.iter().any(|memory| memory.lent);
            self.replace(node.raw, memory, function);
            Ok(())
        })
    }

    /// Whether launches from now on run a node, a kernel, a copy or a fill; without it, they do as
    /// if it were an empty one: `cuGraphNodeSetEnabled`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a node of another graph than this was
    /// [instantiated](Graph::instantiate) from; the driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # let mut x = stream.alloc::<u32>(100)?;
    /// let graph = cuda_core::Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
    /// let (mut exec, fill) = (graph.instantiate()?, graph.nodes()?[0].id());
    /// exec.set_enabled(fill, false)?;
    /// exec.launch(&stream)?; // does nothing
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphNodeSetEnabled", "cudaGraphNodeSetEnabled"))]
    pub fn set_enabled(&mut self, node: NodeId, enabled: bool) -> Result<()> {
        let exec = self.node(node)?;
        let turn = lock(&self.graph);
        // SAFETY: as in `set_kernel`.
        let code = unsafe { cu::cuGraphNodeSetEnabled(exec, node.raw.0, enabled.into()) };
        drop(turn);
        check("cuGraphNodeSetEnabled", code)
    }

    /// The driver's handle, for a call about that node.
    fn node(&self, node: NodeId) -> Result<CUgraphExec> {
        let own = node.graph == self.id;
        let why = "the node is of another graph than the executable was instantiated from";
        Error::unless(own, "GraphExec", why)?;
        self.raw()
    }

    /// Uses `memory` and `function` for the node from now on, instead of those it was given before.
    fn replace(&mut self, node: Node, memory: Vec<UsedMemory>, function: &Function) {
        let at = self.changed.iter().position(|changed| changed.node == node);
        let known = at.map(|at| &self.changed[at]);
        let same = |known: &ChangedNode| {
            known.memory.is_empty() && known.function.as_raw() == function.as_raw()
        };
        if memory.is_empty() && known.is_some_and(same) {
            return;
        }
        let before = at.map(|at| self.changed.swap_remove(at));
        let left = before.iter().flat_map(|before| &before.memory);
        left.for_each(|left| left.kept.ledger().leave(&self.last));
        memory.iter().for_each(|new| new.enter(&self.last));
        self.changed.push(ChangedNode { node, memory, function: function.clone() });
        let Some(before) = before else {
            return;
        };
        // What the node used before may be used by others, too.
        for left in &before.memory {
            let same = |used: &&UsedMemory| Arc::ptr_eq(used.kept.ledger(), left.kept.ledger());
            let others = self.changed.iter().filter(|changed| changed.node != node);
            let others = others.flat_map(|changed| &changed.memory);
            self.uses
                .memory
                .iter()
                .chain(others)
                .filter(same)
                .for_each(|used| used.enter(&self.last));
        }
        before.retire(&self.last);
    }
}

/// What a node uses that was changed, besides what the graph uses.
pub(super) struct ChangedNode {
    node: Node,
    pub(super) memory: Vec<UsedMemory>,
    function: Function,
}

impl ChangedNode {
    /// Its code is not unloaded before the last launch has completed.
    pub(super) fn retire(self, last: &LastLaunch) {
        if let Some(mark) = last.mark() {
            self.function.note_last_launch(&mark);
        }
    }
}
