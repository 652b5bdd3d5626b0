//! Graphs that are built step by step.

use std::marker::PhantomData;
use std::sync::Arc;

use super::capture::{Capture, bind_captured};
use super::contexts::GraphContexts;
use super::{Graph, NodeId};
use crate::error::{Error, Result};
use crate::process::Failed;
use crate::stream::Stream;
use crate::timeline::recording::{Condition, GraphTraits, Node, Order, Recording, add_child};
use crate::util::debug_by;

/// The builder of a graph, which [`Graph::build`] passes to its closure.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let stream = context.create_stream()?;
/// # let (mut x, mut y) = (stream.alloc::<u32>(100)?, stream.alloc::<u32>(100)?);
/// let graph = cuda_core::Graph::build(&context, |builder| {
///     builder.add(|stream| stream.fill(&mut x, 1))?;
///     builder.add(|stream| stream.copy(&x, &mut y))?; // after the fill, which writes `x`
///     Ok(())
/// })?;
/// graph.instantiate()?.launch(&stream)?;
/// assert_eq!(stream.download_vec(&y)?, [1; 100]);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct GraphBuilder<'a> {
    stream: &'a Stream,
    recording: &'a Arc<Recording>,
    /// Not `Send`: steps are added one after the other.
    _one_thread: PhantomData<*const ()>,
}

/// # Building
impl Graph {
    /// Builds a graph step by step. Each step has a [`NodeId`]: later steps can be ordered after
    /// it, and an executable can change it. A step is anything that [`Graph::capture_by_access`]
    /// captures: a kernel, copies and fills of every shape, a host function, another graph.
    ///
    /// With an [array or a list](GraphContexts) of contexts, `work` is given a builder for each.
    /// A builder's steps run on its device, and may come after nodes of other builders.
    ///
    /// # Errors
    /// As [`Graph::capture`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::Graph;
    ///
    /// let mut x = stream.alloc::<u32>(100)?;
    /// let graph = Graph::build(&context, |builder| {
    ///     let fill = builder.add(|stream| stream.fill(&mut x, 1))?;
    ///     let print = || println!("filled");
    ///     builder.add_after(&[fill], |stream| stream.launch_host_func_each(print))?;
    ///     Ok(())
    /// })?;
    /// graph.instantiate()?.launch(&stream)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphCreate", "cudaGraphCreate"))]
    pub fn build<'c, C: GraphContexts<'c>>(
        contexts: C,
        work: impl FnOnce(C::Each<&GraphBuilder<'_>>) -> Result<()>,
    ) -> Result<Self> {
        let capture = Capture::begin(&contexts.list(), Order::Access)?;
        let recording = &capture.recording;
        let builder = |stream| GraphBuilder { stream, recording, _one_thread: PhantomData };
        let builders: Vec<_> = capture.streams.iter().map(builder).collect();
        work(C::each(builders.len(), |at| &builders[at]))?;
        drop(builders);
        capture.into_graph()
    }
}

/// # Adding operations
impl GraphBuilder<'_> {
    /// Adds what `work` enqueues on the given stream, after the earlier steps that it conflicts
    /// with, as [`Graph::capture_by_access`] does. The step's node is an empty node after all its
    /// operations, if `work` enqueues no operation, several, or one that has several nodes, such as
    /// a fill with values of eight bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] within another step; errors of `work`; the driver's.
    #[doc(alias("cuGraphAddKernelNode", "cuGraphAddMemcpyNode", "cuGraphAddMemsetNode"))]
    #[doc(alias("cuGraphAddHostNode", "cudaGraphAddNode", "cudaGraphAddKernelNode"))]
    #[doc(alias("cudaGraphAddMemcpyNode", "cudaGraphAddMemsetNode", "cudaGraphAddHostNode"))]
    pub fn add(&self, work: impl FnOnce(&Stream) -> Result<()>) -> Result<NodeId> {
        self.step(None, work)
    }

    /// Works as [`add`](Self::add), for a step that also comes after the nodes `after`. An
    /// operation that uses no memory, such as a host function, comes after `after` alone, and is no
    /// barrier; [work of another library](crate::StreamWork::enqueue) also comes after the last such
    /// work on the stream. If `work` enqueues nothing, the step's node is an empty node after `after`:
    /// `cuGraphAddEmptyNode`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a node of another graph, and within another step; errors of `work`;
    /// the driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let graph = cuda_core::Graph::build(&context, |builder| {
    ///     let one = builder.add(|stream| stream.launch_host_func_each(|| println!("one")))?;
    ///     let two = builder.add_after(&[], |stream| {
    ///         stream.launch_host_func_each(|| println!("at any time"))
    ///     })?;
    ///     let both = builder.add_after(&[one, two], |_stream| Ok(()))?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphAddDependencies", "cuGraphAddEmptyNode", "cudaGraphAddDependencies"))]
    #[doc(alias("cudaGraphAddEmptyNode"))]
    pub fn add_after(
        &self,
        after: &[NodeId],
        work: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<NodeId> {
        let graph = self.recording.id();
        let own = after.iter().all(|node| node.graph == graph);
        Error::unless(own, "GraphBuilder::add_after", "a node of another graph")?;
        let after: Vec<_> = after.iter().map(|node| node.raw).collect();
        self.step(Some(&after), work)
    }

    /// Makes a condition for operations of the graph, as [`Condition::new`] does in a capture.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(&context, "")?.function("judge")?;
    /// # let (x, mut y) = (stream.alloc_zeroed::<f32>(256)?, stream.alloc_zeroed::<f32>(256)?);
    /// let graph = cuda_core::Graph::build(&context, |builder| {
    ///     let is_large = builder.condition(0)?;
    ///     builder.add(|stream| {
    ///         // SAFETY: judge(const float *x, cudaGraphConditionalHandle is_large) reads 256 elements.
    ///         unsafe { stream.kernel(&function).block(256).arg(&x).arg(&is_large).launch() }
    ///     })?;
    ///     builder.add(|stream| is_large.if_then(stream, |body| body.copy(&x, &mut y)))?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphConditionalHandleCreate", "cudaGraphConditionalHandleCreate"))]
    pub fn condition(&self, initial: u32) -> Result<Condition> {
        Condition::new(self.stream, initial)
    }

    fn step(
        &self,
        after: Option<&[Node]>,
        work: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<NodeId> {
        let (stream, recording) = (self.stream, self.recording);
        let bound = stream.core().bind_work("GraphBuilder::add")?;
        let raw = recording.step(&bound, after, || work(stream))?;
        Ok(NodeId { graph: recording.id(), raw })
    }
}

/// # Graphs in graphs
impl Graph {
    /// Makes this graph an operation of another one. On a captured stream, adds this graph as a
    /// child; the other graph then uses all that this one uses: `cuGraphAddChildGraphNode`. The
    /// child is copied, so this graph may be dropped afterwards.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a stream that is not captured by [`Graph::capture`] (launch an
    /// [executable](Graph::instantiate) there instead), and for a graph that
    /// [allocates](Stream::alloc_in_graph) memory; [`Error::NotCapturable`] for a graph with host
    /// functions or events in a body of a [`Condition`]; the driver's: `NOT_SUPPORTED` (801) for a
    /// graph in which operations depend on conditions.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # let mut x = stream.alloc::<u32>(100)?;
    /// use cuda_core::Graph;
    ///
    /// let step = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
    /// let twice = Graph::capture(&context, |stream| {
    ///     step.include(stream)?;
    ///     step.include(stream)
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphAddChildGraphNode", "cudaGraphAddChildGraphNode"))]
    pub fn include(&self, stream: &Stream) -> Result<()> {
        let op = "cuGraphAddChildGraphNode";
        let why = "the stream is not captured: launch an executable of the graph on it";
        let (recording, bound) = bind_captured(stream, op, why)?;
        let add = || {
            // Counted after the call: an event recorded during the call need not cover it.
            let added = self.with_raw(|child| Ok(add_child(bound.raw(), child)));
            (bound.count(), added.map_err(Failed::Refused).and_then(|added| added))
        };
        let why = "the graph allocates memory, so it can be no part of another";
        Error::unless(!self.uses.traits.has(GraphTraits::MEMORY), op, why)?;
        recording.include(op, &bound, &self.uses, add)
    }
}

debug_by! { [] GraphBuilder<'_>: |it| "GraphBuilder of {:?}", it.stream }
