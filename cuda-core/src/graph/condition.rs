//! Parts of a graph that run if, or as long as, a value that kernels set says so.

use std::slice;

use cuda_sys::{
    CU_GRAPH_COND_ASSIGN_DEFAULT, CU_GRAPH_COND_TYPE_IF, CU_GRAPH_COND_TYPE_SWITCH,
    CU_GRAPH_COND_TYPE_WHILE, CU_GRAPH_NODE_TYPE_CONDITIONAL, CUDA_CONDITIONAL_NODE_PARAMS,
    CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, CUgraph, CUgraphConditionalNodeType, CUgraphNodeParams,
    CUstream, symbol as cu,
};

use super::capture::{Capture, bind_captured};
use crate::error::{Error, Result, check};
use crate::process::driver::driver_version;
use crate::process::{DeferForeignCode, Failed, Handle, attempt};
use crate::stream::Stream;
use crate::timeline::recording::{
    Body, Condition, GraphTraits, GraphUses, KeptUses, Node, Recording, UsedMemory, captured_graph,
    join,
};
use crate::types::Version;

const CREATE: &str = "cuGraphConditionalHandleCreate";
const ADD: &str = "cuGraphAddNode";
const NOT_CAPTURED: &str = "the stream is not captured: use the one that `Graph::capture` passes";

/// # Making one
impl Condition {
    /// Makes a condition for the capture of the stream: `cuGraphConditionalHandleCreate`, from CUDA 12.4
    /// on. It has the value `initial` at the start of each launch. An operation must depend on it;
    /// otherwise the capture fails.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a stream that is not captured by [`Graph::capture`](crate::Graph::capture);
    /// the driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # let mut x = stream.alloc::<u32>(100)?;
    /// use cuda_core::{Condition, Graph};
    ///
    /// let graph = Graph::capture(&context, |stream| {
    ///     let once = Condition::new(stream, 1)?;
    ///     once.if_then(stream, |body| body.fill(&mut x, 1))
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphConditionalHandleCreate", "cudaGraphConditionalHandleCreate"))]
    pub fn new(stream: &Stream, initial: u32) -> Result<Self> {
        let (recording, bound) = bind_captured(stream, CREATE, NOT_CAPTURED)?;
        let context = stream.context();
        Self::create(recording, context, CREATE, || {
            let graph = captured_graph(bound.raw())?;
            let (mut raw, flags) = (0, CU_GRAPH_COND_ASSIGN_DEFAULT);
            let _entered = context.enter_briefly()?;
            let context = context.as_raw();
            // SAFETY: the graph is being captured, during which it may be added to; the context is
            // live. The call writes one number, to a local that outlives it.
            let code = unsafe {
                cu::cuGraphConditionalHandleCreate(&mut raw, graph, context, initial, flags)
            };
            check(CREATE, code)?;
            Ok(raw)
        })
    }
}

/// # What depends on it
///
/// Each method captures one operation on a stream of a capture, or of a body: `cuGraphAddNode`. The
/// operation uses all memory that its bodies use. `body` gets a stream of its own, in the context
/// of `stream`, on which it enqueues kernels, copies, fills, graphs, and operations that depend on
/// conditions. It cannot contain host functions, events, signals and values, memory of the graph
/// or operations of NCCL, and CUDA permits kernels of only one context. A body is ordered as the
/// capture is: as a chain, or by [what its operations do to
/// memory](crate::Graph::capture_by_access). If a body fails or panics, the capture fails. Until
/// all bodies are captured, the capture's other streams refuse operations with [`Error::Invalid`].
impl Condition {
    /// Runs `body` while the condition is not zero. The condition is checked before each round.
    ///
    /// Only kernels change a condition. Without one that does, a loop that begins does not end, and neither does
    /// anything that waits for the launch, such as drops of memory that the graph uses.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a stream that is not captured, for a condition of another graph, and
    /// for one that an operation already depends on; errors of the body; the driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # let module = cuda_core::Module::from_ptx(&context, "")?;
    /// # let mut x = stream.alloc::<f32>(100)?;
    /// use cuda_core::{Condition, Graph, kernel};
    ///
    /// kernel! {
    ///     /// `step(float *x, cudaGraphConditionalHandle go_on)` writes an element for each thread.
    ///     fn step(x: &mut [f32], go_on: &Condition);
    /// }
    /// let step = step::load(&module)?;
    /// let graph = Graph::capture(&context, |stream| {
    ///     let go_on = Condition::new(stream, 1)?;
    ///     go_on.while_loop(stream, |body| {
    ///         // SAFETY: as many threads as `x` has elements.
    ///         unsafe { step.on(body, &mut x, &go_on).block(100).launch() }
    ///     })
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphAddNode", "cudaGraphAddNode"))]
    pub fn while_loop(
        &self,
        stream: &Stream,
        body: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<()> {
        self.once(CU_GRAPH_COND_TYPE_WHILE, stream, body)
    }

    /// Runs `body` if the condition is not zero.
    ///
    /// # Errors
    /// As [`while_loop`](Self::while_loop).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(&context, "")?.function("judge")?;
    /// # let mut x = stream.alloc::<f32>(100)?;
    /// use cuda_core::{Condition, Graph};
    ///
    /// let graph = Graph::capture(&context, |stream| {
    ///     let is_large = Condition::new(stream, 0)?;
    ///     // SAFETY: judge(const float *x, cudaGraphConditionalHandle is_large) reads 100 elements.
    ///     unsafe { stream.kernel(&function).block(100).arg(&x).arg(&is_large).launch() }?;
    ///     is_large.if_then(stream, |body| body.fill(&mut x, 0.0))
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphAddNode", "cudaGraphAddNode"))]
    pub fn if_then(&self, stream: &Stream, body: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
        self.once(CU_GRAPH_COND_TYPE_IF, stream, body)
    }

    /// Runs `body(true, ..)` if the condition is not zero, and `body(false, ..)` if it is zero.
    /// Both are captured now, in this order. From CUDA 12.8 on.
    ///
    /// # Errors
    /// As [`while_loop`](Self::while_loop).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # let mut x = stream.alloc::<u32>(100)?;
    /// # use cuda_core::{Condition, Graph};
    /// let graph = Graph::capture(&context, |stream| {
    ///     let is_large = Condition::new(stream, 0)?;
    ///     is_large.if_else(stream, |is_large, body| match is_large {
    ///         true => body.fill(&mut x, 100),
    ///         false => body.fill(&mut x, 1),
    ///     })
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphAddNode", "cudaGraphAddNode"))]
    pub fn if_else(
        &self,
        stream: &Stream,
        mut body: impl FnMut(bool, &Stream) -> Result<()>,
    ) -> Result<()> {
        since_12_8()?;
        self.capture(CU_GRAPH_COND_TYPE_IF, stream, 2, |case, stream| body(case == 0, stream))
    }

    /// Runs `body(n, ..)` if the condition is `n`, and nothing if the condition is `cases` or more.
    /// Each case is captured now. From CUDA 12.8 on.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `cases` is zero; otherwise as [`while_loop`](Self::while_loop).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # let mut x = stream.alloc::<u32>(100)?;
    /// # use cuda_core::{Condition, Graph};
    /// let graph = Graph::capture(&context, |stream| {
    ///     let kind = Condition::new(stream, 0)?;
    ///     kind.switch(stream, 3, |kind, body| body.fill(&mut x, 10 * kind))
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphAddNode", "cudaGraphAddNode"))]
    pub fn switch(
        &self,
        stream: &Stream,
        cases: u32,
        body: impl FnMut(u32, &Stream) -> Result<()>,
    ) -> Result<()> {
        Error::unless(cases > 0, ADD, "a switch needs at least one case")?;
        since_12_8()?;
        self.capture(CU_GRAPH_COND_TYPE_SWITCH, stream, cases, body)
    }

    fn once(
        &self,
        kind: CUgraphConditionalNodeType,
        stream: &Stream,
        body: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<()> {
        let mut body = Some(body);
        self.capture(kind, stream, 1, |_, stream| body.take().map_or(Ok(()), |body| body(stream)))
    }

    fn capture(
        &self,
        kind: CUgraphConditionalNodeType,
        stream: &Stream,
        count: u32,
        mut body: impl FnMut(u32, &Stream) -> Result<()>,
    ) -> Result<()> {
        let (recording, bound) = bind_captured(stream, ADD, NOT_CAPTURED)?;
        let context = stream.context();
        let add = || self.add(bound.raw(), kind, count);
        // `begin` holds the lock of the list of conditions, which a drop hook may need, so hooks
        // run after it. Ends before the call of `body`, which is the caller's code.
        let quiet = DeferForeignCode::begin();
        let begun = self.begin(recording, ADD, add);
        drop(quiet);
        let ((node, bodies), order, open) = begun?;
        let mut parts: Vec<GraphUses> = Vec::new();
        for (&graph, case) in bodies.iter().zip(0..) {
            let (inner, work) =
                (Recording::within(Some(recording.clone()), order), |stream: &_| {
                    body(case, stream)
                });
            // SAFETY: the graph belongs to the new node and lives as long as it, and no other code
            // knows the graph.
            unsafe {
                Capture::extend(context, inner, (graph, &[]), work, |part| parts.push(part))
            }?;
        }
        let is_broken = parts.iter().any(|part| part.is_broken);
        let own = vec![UsedMemory::keep(&self.touch())];
        let bodies = bodies.into_iter().map(|graph| Body { node, graph: Handle(graph) }).collect();
        let traits = GraphTraits::CONDITIONS;
        let own = KeptUses::from(GraphUses { memory: own, bodies, traits, ..GraphUses::default() });
        let all = parts.into_iter().fold(own, |all, part| all.with(&part.into()));
        // Counted after the calls: an event recorded during them need not cover them.
        let join = || {
            let joined = join(bound.raw(), node);
            (bound.count(), joined.map_err(Failed::Unknown))
        };
        match is_broken {
            // The capture then has an unfinished operation.
            true => Ok(()),
            false => recording.finish(ADD, open, &bound, &all, join),
        }
    }

    /// Adds a node that depends on no other. Returns it with the empty graphs of its bodies.
    fn add(
        &self,
        stream: CUstream,
        kind: CUgraphConditionalNodeType,
        size: u32,
    ) -> Result<(Node, Vec<CUgraph>), Failed> {
        let graph = captured_graph(stream)?;
        let (handle, context) = (self.as_raw(), self.context());
        let conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle,
            type_: kind,
            size,
            ctx: context.as_raw(),
            ..Default::default()
        };
        let mut params =
            CUgraphNodeParams { type_: CU_GRAPH_NODE_TYPE_CONDITIONAL, ..Default::default() };
        // The driver refuses parameters with other nonzero bytes.
        params.__bindgen_anon_1.conditional = conditional;
        let (mut node, none, data) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
        let _entered = context.enter_briefly()?;
        // SAFETY: the graph is being captured, during which it may be added to; the handle belongs
        // to it or to a graph around it; there are no dependencies. The call writes a handle and
        // the parameters, to locals that outlive it.
        let code = unsafe { cu::cuGraphAddNode_v2(&mut node, graph, none, data, 0, &mut params) };
        attempt(ADD, code)?;
        // SAFETY: this union member was set above; the call wrote the list's address to it.
        let first = unsafe { params.__bindgen_anon_1.conditional.phGraph_out };
        // SAFETY: the driver's list of the node's `size` bodies, "valid for the lifetime of the
        // conditional node".
        let bodies = unsafe { slice::from_raw_parts(first, size as usize) };
        Ok((Handle(node), bodies.to_vec()))
    }
}

/// Refuses operations with several bodies before CUDA 12.8; those drivers report them as bad
/// arguments.
fn since_12_8() -> Result<()> {
    match driver_version()? < Version::new(12, 8) {
        true => check(ADD, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER),
        false => Ok(()),
    }
}
