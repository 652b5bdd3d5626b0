//! Executable graphs that are changed.

use std::mem;
use std::sync::Arc;

use cuda_sys::{CUgraphExec, CUgraphExecUpdateResultInfo, symbol as cu};

use super::{Graph, GraphExec, NodeId};
use crate::error::{Error, Result, check};
use crate::module::Function;
use crate::module::launch::Launch;
use crate::process::effect::{Failed, attempt};
use crate::stream::StreamKind;
use crate::timeline::recording::{Node, UsedMemory};
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
        match attempt(OP, code) {
            Ok(()) => self.adopt(graph.uses.clone()),
            Err(Failed::Refused(error)) => return Err(error),
            // It may be the executable of either.
            Err(Failed::Unknown(error)) => {
                self.adopt(self.uses.with(&graph.uses));
                return Err(error);
            }
        }
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
            let memory = memory.ok_or_else(|| Error::NotCapturable { op })?;
            // An H200 with driver 580 crashes in this call if no context is current.
            let _entered = function.context().enter_briefly()?;
            let turn = lock(&self.graph);
            // SAFETY: a context is current; the executable is live and only this thread uses it, by
            // the exclusive borrow; the node is of the graph that it was made of, which it keeps and
            // whose lock this thread holds; the description and the arguments live during the call,
            // which copies them.
            let code = unsafe { cu::cuGraphExecKernelNodeSetParams_v2(exec, node.raw.0, kernel) };
            drop(turn);
            let set = attempt(op, code);
            if let Err(Failed::Refused(error)) = set {
                return Err(error);
            }
            self.is_lent |= memory.iter().any(|memory| memory.lent);
            let new = ChangedNode { node: node.raw, memory, function: function.clone() };
            match set {
                Ok(()) => self.replace(new),
                // The node may have either arguments.
                Err(_) => self.change(new),
            }
            set.map_err(Error::from)
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
        // SAFETY: the executable is live and only this thread uses it, by the exclusive borrow; the
        // node is of the graph that it was made of, which it keeps and whose lock this thread holds.
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

    /// Uses what `new` says for its node from now on, instead of what the node was given before.
    fn replace(&mut self, new: ChangedNode) {
        let node = new.node;
        let known = self.changed.iter().find(|changed| changed.node == node);
        if known.is_some_and(|known| known.is_same(&new)) {
            return;
        }
        let (before, others): (Vec<_>, Vec<_>) =
            mem::take(&mut self.changed).into_iter().partition(|changed| changed.node == node);
        self.changed = others;
        for left in before.iter().flat_map(|before| &before.memory) {
            left.kept.ledger().leave(&self.last);
            // Others may use it, too.
            let same = |used: &&UsedMemory| Arc::ptr_eq(used.kept.ledger(), left.kept.ledger());
            self.used().filter(same).for_each(|used| used.enter(&self.last));
        }
        self.change(new);
        // Code is not unloaded before the last launch has completed.
        let code = before.into_iter().map(|before| Arc::new(before.function) as _);
        self.keep_until_completed(code.collect());
    }

    /// Uses what `new` says, too.
    fn change(&mut self, new: ChangedNode) {
        new.memory.iter().for_each(|memory| memory.enter(&self.last));
        self.changed.push(new);
    }
}

/// What a node uses that was changed, besides what the graph uses.
pub(super) struct ChangedNode {
    node: Node,
    pub(super) memory: Vec<UsedMemory>,
    pub(super) function: Function,
}

impl ChangedNode {
    /// Whether both are launches of one function that use nothing but what the graph uses.
    fn is_same(&self, other: &Self) -> bool {
        let function = self.function.as_raw() == other.function.as_raw();
        function && self.memory.is_empty() && other.memory.is_empty()
    }
}
