//! Parts of a graph that run if, or as long as, a kernel says so.

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
    /// A condition for the capture of the stream, which has the value `initial` at the start of each launch:
    /// `cuGraphConditionalHandleCreate`, from CUDA 12.4 on. An operation must depend on it; otherwise the
    /// capture fails.
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
            // SAFETY: the graph that is being captured, which may be added to meanwhile; the context is
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
/// Each of these captures one operation on a stream of a capture, or of a body: `cuGraphAddNode`. The
/// operation uses all memory that its bodies use. `body` gets a stream of its own, in the context of
/// `stream`, on which it enqueues kernels, copies, fills, graphs, and operations that depend on
/// conditions. Functions of the host, events, signals and values, memory of the graph and operations of
/// NCCL cannot be part of it, and CUDA permits kernels of one context. A
/// body is ordered as the capture is: as a chain, or by
/// [what its operations do to memory](crate::Graph::capture_by_access). If a body fails or panics, the
/// capture fails. Until all bodies are captured, the capture's other streams refuse operations with
/// [`Error::Invalid`].
impl Condition {
    /// Runs `body` as long as the condition is not zero, which is checked before each round.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a stream that is not captured, for a condition of another graph, and for
    /// one that an operation depends on; those of the body; the driver's.
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
    /// Those of [`while_loop`](Self::while_loop).
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

    /// Runs `body(true, ..)` if the condition is not zero, and `body(false, ..)` if it is; both are
    /// captured now, in this order. From CUDA 12.8 on.
    ///
    /// # Errors
    /// Those of [`while_loop`](Self::while_loop).
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

    /// Runs `body(n, ..)` if the condition is `n`, and nothing if it is `cases` or more; each is
    /// captured now. From CUDA 12.8 on.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no body; those of [`while_loop`](Self::while_loop).
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
        // `begin` holds the lock of the list of conditions, which a drop hook may need: hooks run after it. Ends
        // before `body` is called, which is the caller's code.
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
            // SAFETY: the graph of the new node, which lives as long as that, and which no other code
            // knows.
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
        // Counted after the calls: an event that is recorded meanwhile need not cover them.
        let join = || {
            let joined = join(bound.raw(), node);
            (bound.count(), joined.map_err(Failed::Unknown))
        };
        match is_broken {
            // The capture has an operation that is not finished.
            true => Ok(()),
            false => recording.finish(ADD, open, &bound, &all, join),
        }
    }

    /// A node that depends on no other, and the graphs of its bodies, which are empty.
    fn add(
        &self,
        stream: CUstream,
        kind: CUgraphConditionalNodeType,
        size: u32,
    ) -> Result<(Node, Vec<CUgraph>), Failed> {
        let graph = captured_graph(stream).map_err(Failed::Refused)?;
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
        // The driver refuses parameters whose other bytes are not zero.
        params.__bindgen_anon_1.conditional = conditional;
        let (mut node, none, data) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
        let _entered = context.enter_briefly().map_err(Failed::Refused)?;
        // SAFETY: the graph that is being captured, which may be added to meanwhile, and a handle of it
        // or of one around it; no dependencies. The call writes a handle and the parameters, to locals
        // that outlive it.
        let code = unsafe { cu::cuGraphAddNode_v2(&mut node, graph, none, data, 0, &mut params) };
        attempt(ADD, code)?;
        // SAFETY: the member that was set above, of which the call wrote the list's address.
        let first = unsafe { params.__bindgen_anon_1.conditional.phGraph_out };
        // SAFETY: the driver's list of the node's bodies, `size` of them, "valid for the lifetime of
        // the conditional node".
        let bodies = unsafe { slice::from_raw_parts(first, size as usize) };
        Ok((Handle(node), bodies.to_vec()))
    }
}

/// For operations with several bodies, which older drivers refuse as they refuse bad arguments.
fn since_12_8() -> Result<()> {
    match driver_version()? < Version::new(12, 8) {
        true => check(ADD, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER),
        false => Ok(()),
    }
}
