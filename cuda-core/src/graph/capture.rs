//! Graphs captured from ordinary code.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::Arc;

use cuda_sys::{CU_STREAM_CAPTURE_MODE_RELAXED, CUgraph, CUgraphNode, symbol as cu};

use super::contexts::GraphContexts;
use super::{Graph, RawGraph};
use crate::context::Context;
use crate::error::{Error, Result, check};
use crate::process::{Failed, Handle, Owned, attempt, driver};
use crate::stream::Stream;
use crate::timeline::Bound;
use crate::timeline::recording::{GraphTraits, GraphUses, Order, Recording};

const BEGIN: &str = "cuStreamBeginCapture";

/// # Capturing
impl Graph {
    /// Returns the operations that `work` enqueues on the given stream, as a graph. They do not run
    /// now: `cuStreamBeginCapture_v2`, `cuStreamEndCapture`.
    ///
    /// `work` can be any code that takes a [`Stream`]: copies, fills, launches, host functions by
    /// [`Stream::launch_host_func_each`], work of other libraries that is
    /// [noted](crate::Buffer::note_use). Memory that it allocates is allocated now, once, and
    /// belongs to the graph as soon as an operation uses it. So a graph has the temporaries of all
    /// its operations at once, unless they share buffers that are allocated before.
    /// [`Stream::alloc_in_graph`] makes each launch allocate.
    ///
    /// A call that cannot be part of a graph returns [`Error::NotCapturable`], and the capture
    /// continues. Such calls are waits and queries, such as [`Stream::synchronize`] and
    /// [`Event::query`](crate::Event::query); copies of slices, for which use
    /// [`PinnedBuffer`](crate::PinnedBuffer); waits for streams and events outside of the capture,
    /// since each launch is ordered by the memory that it uses. For events that each launch records
    /// or waits for, use [`Event::record_each`](crate::Event::record_each) and [`Stream::wait_event_each`].
    ///
    /// During the capture [`Context::synchronize`] is refused with [`Error::Capturing`], since CUDA
    /// would end the capture; a capture that begins while another thread makes that call may be
    /// lost. The stream is private: no other code's work gets into the graph. `work` can use other
    /// streams as always, including streams that it creates: that work begins at once and is no
    /// part of the graph. Those other streams cannot wait for captured work. If a value keeps a
    /// stream of its own, as in `self.stream`, replace that by this one during the capture:
    /// `let own = mem::replace(&mut model.stream, stream.clone())`.
    ///
    /// The stream and its clones are of no use afterwards. The driver's stream serves later
    /// captures until [`staging::trim`](crate::staging::trim), if its context is a primary one and
    /// [`Stream::as_raw`] was not called. If `work` fails or panics, the capture ends without a
    /// graph.
    ///
    /// To return a buffer or another result from `work`, assign it to a variable outside:
    /// `let mut norm = None;`, and in `work` `norm = Some(stream.alloc_zeroed(1)?);`. Pass errors
    /// of other crates as [`Error::other`], and get them back by [`Error::downcast_ref`].
    ///
    /// The capture ends when `work` has returned and no other thread is capturing [work of a
    /// library](Stream::work) or a body of a [`Condition`](crate::Condition). Until then `capture`
    /// waits, and other operations are refused with [`Error::Invalid`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::{Graph, Result, Stream};
    ///
    /// // Knows nothing of graphs.
    /// fn step(stream: &Stream, x: &mut cuda_core::DeviceBuffer<f32>) -> Result<()> {
    ///     stream.fill(x, 1.0)
    /// }
    /// let mut x = stream.alloc::<f32>(1 << 20)?;
    /// let graph = Graph::capture(&context, |stream| step(stream, &mut x))?;
    /// graph.instantiate()?.launch(&stream)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    ///
    /// # Several streams
    /// With an [array or a list](GraphContexts) of contexts, which may belong to different
    /// devices, `work` is given a stream in each. A stream waits for another where they use the
    /// same memory, and by [`Stream::wait_stream`] and events of the capture. To capture a copy
    /// between devices of memory of a [driver's pool](crate::MemoryPool), the stream's device needs
    /// access to that memory.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let (mut x, mut y) = (stream.alloc::<f32>(1000)?, stream.alloc::<f32>(1000)?);
    /// let graph = cuda_core::Graph::capture([&context, &context], |[one, two]| {
    ///     one.fill(&mut x, 1.0)?;
    ///     two.fill(&mut y, 2.0)?; // beside the other fill
    ///     one.copy(&x, &mut y) // after both
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    ///
    /// With as many devices as there are:
    ///
    /// ```no_run
    /// use cuda_core::{DeviceGroup, Graph};
    ///
    /// let group = DeviceGroup::all()?;
    /// let mut parts = group.alloc_zeroed::<f32>(1000)?;
    /// let graph = Graph::capture(group.contexts().collect::<Vec<_>>(), |streams| {
    ///     for (stream, part) in streams.into_iter().zip(&mut parts) {
    ///         stream.fill(part, 1.0)?;
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of `work`; [`Error::Invalid`] for no context, and if no operation depends on a
    /// [`Condition`](crate::Condition) that was made; the driver's, among them `STREAM_CAPTURE_INVALIDATED` after a call that
    /// failed in a way that ended the capture.
    #[doc(alias("cuStreamBeginCapture", "cuStreamEndCapture"))]
    #[doc(alias("cudaStreamBeginCapture", "cudaStreamEndCapture"))]
    #[doc(alias("begin_capture", "end_capture"))]
    pub fn capture<'c, C: GraphContexts<'c>>(
        contexts: C,
        work: impl FnOnce(C::Each<&Stream>) -> Result<()>,
    ) -> Result<Self> {
        let contexts = contexts.list();
        let order = if contexts.len() == 1 { Order::Chain } else { Order::Streams };
        Capture::run::<C>(&contexts, order, work)
    }

    /// Captures as [`Graph::capture`] does, but orders operations by their use of memory, not by
    /// the sequence of the calls: each operation depends only on the earlier ones that it conflicts
    /// with. So a sequence of calls becomes the widest graph that gives the same result:
    /// `cuStreamUpdateCaptureDependencies`.
    ///
    /// An operation whose use of memory this crate does not know, such as a host function, or a
    /// kernel without buffers among its arguments, is a barrier: it runs after all earlier
    /// operations, and all later ones run after it. Events have no effect, unless each launch
    /// records or awaits them. Work that other code enqueues on the stream runs after the last such
    /// work and after what it conflicts with, if the memory that it uses is
    /// [named](crate::Stream::work), or [noted](crate::Buffer::note_use) before and after.
    ///
    /// With several streams, a stream decides only on which device an operation runs, not when:
    /// waits for [streams](Stream::wait_stream) and events of the capture have no effect.
    ///
    /// # Errors
    /// As [`Graph::capture`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let mut parts = [stream.alloc::<f32>(1000)?, stream.alloc::<f32>(1000)?];
    /// let mut whole = stream.alloc::<f32>(2000)?;
    /// let graph = cuda_core::Graph::capture_by_access(&context, |stream| {
    ///     for (number, part) in parts.iter_mut().enumerate() {
    ///         stream.fill(part, number as f32)?; // beside each other
    ///     }
    ///     for (part, to) in parts.iter().zip(whole.chunks_mut(1000)?) {
    ///         stream.copy(part, to)?; // each after one fill
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamUpdateCaptureDependencies", "cudaStreamUpdateCaptureDependencies"))]
    pub fn capture_by_access<'c, C: GraphContexts<'c>>(
        contexts: C,
        work: impl FnOnce(C::Each<&Stream>) -> Result<()>,
    ) -> Result<Self> {
        Capture::run::<C>(&contexts.list(), Order::Access, work)
    }
}

/// Error text for a capture that gives no graph although no call failed, or an error was ignored.
pub(super) const INCOMPLETE: &str =
    "an operation is not complete, or the driver did not say where in the graph it is";

/// A capture, ended when dropped.
pub(super) struct Capture {
    /// Not empty; the capture began on the first one.
    pub(super) streams: Vec<Stream>,
    pub(super) recording: Arc<Recording>,
    /// Set if the capture has ended, or not begun.
    ended: bool,
}

impl Capture {
    fn run<'c, C: GraphContexts<'c>>(
        contexts: &[&Context],
        order: Order,
        work: impl FnOnce(C::Each<&Stream>) -> Result<()>,
    ) -> Result<Graph> {
        let capture = Self::begin(contexts, order)?;
        work(C::each(contexts.len(), |at| &capture.streams[at]))?;
        capture.into_graph()
    }

    /// Creates the streams of a capture that has not begun.
    fn prepare(contexts: &[&Context], recording: Arc<Recording>) -> Result<Self> {
        let streams = contexts.iter().map(|context| context.create_captured(&recording));
        let streams = streams.collect::<Result<Vec<Stream>>>()?;
        for stream in &streams {
            recording.number(stream.core().timeline());
            let context = stream.context();
            // A primary context lives as long as the process.
            if !context.is_primary() {
                recording.keep_once(context.as_raw().addr(), || Arc::new(context.clone()));
            }
        }
        Ok(Self { streams, recording, ended: true })
    }

    pub(super) fn begin(contexts: &[&Context], order: Order) -> Result<Self> {
        Error::unless(!contexts.is_empty(), BEGIN, "a capture needs at least one stream")?;
        let mut capture = Self::prepare(contexts, Recording::within(None, order))?;
        let bound = capture.streams[0].core().bind_work(BEGIN)?;
        let mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is live, and new. In this mode the capture forbids no call to any
        // thread, and any thread may end it.
        let begun = attempt(BEGIN, unsafe { cu::cuStreamBeginCapture_v2(bound.raw(), mode) });
        capture.ended = matches!(begun, Err(Failed::Refused(_)));
        begun?;
        // The other streams join the capture by waiting for this point.
        let begun = bound.timeline().at(bound.count());
        for other in &capture.streams[1..] {
            other.core().bind_work(BEGIN)?.wait_for(&begun)?;
        }
        Ok(capture)
    }

    pub(super) fn origin(&self) -> &Stream {
        &self.streams[0]
    }

    pub(super) fn into_graph(mut self) -> Result<Graph> {
        let op = "cuStreamEndCapture";
        // The captured code may have forked, and this may be the child.
        driver::ensure()?;
        self.recording.wait_for_others();
        let origin = self.origin().core();
        let bound = origin.bind_work(op)?;
        let mut others = self.streams[1..].iter().map(|other| other.core().timeline());
        self.recording
            .during(op, |_order| others.try_for_each(|other| bound.wait_for(&other.here())))?;
        self.recording.free_all(&bound)?;
        drop(bound);
        let (raw, uses) = self.end();
        let raw = Owned::new(raw?);
        Error::unless(!uses.is_broken, op, INCOMPLETE)?;
        self.recording.require_used_conditions("Graph::capture")?;
        Ok(Graph::own(raw, self.recording.id(), self.origin().context(), uses))
    }

    /// Ends the capture. Returns the graph, and what it uses. Code that had a stream's handle may have
    /// captured work that it did not note.
    fn end(&mut self) -> (Result<RawGraph>, GraphUses) {
        self.ended = true;
        let stream = self.origin().core().raw();
        let mut graph: CUgraph = ptr::null_mut();
        let (ended, mut uses) = self.recording.end(|| {
            // SAFETY: the stream is live, and the capture began on it; the call writes one handle,
            // to a local that outlives it.
            check("cuStreamEndCapture", unsafe { cu::cuStreamEndCapture(stream, &mut graph) })
        });
        if self.streams.iter().any(|stream| stream.core().timeline().is_known_elsewhere()) {
            uses.traits.add(GraphTraits::FOREIGN);
        }
        (ended.map(|()| RawGraph(Handle(graph))), uses)
    }

    /// Adds what `work` enqueues to a graph, after the nodes `after`:
    /// `cuStreamBeginCaptureToGraph`. Passes what that uses to `note`, also if `work` fails or
    /// panics.
    ///
    /// # Safety
    /// The graph is live and has those nodes, and no other code uses it until this returns.
    pub(super) unsafe fn extend(
        context: &Context,
        recording: Arc<Recording>,
        (graph, after): (CUgraph, &[CUgraphNode]),
        work: impl FnOnce(&Stream) -> Result<()>,
        note: impl FnOnce(GraphUses),
    ) -> Result<()> {
        let mut capture = Self::prepare(&[context], recording)?;
        let stream = capture.origin().core().raw();
        let (first, count, mode) = (after.as_ptr(), after.len(), CU_STREAM_CAPTURE_MODE_RELAXED);
        let data = ptr::null();
        // SAFETY: the stream is live and new; by the caller's promise the graph is live, and the
        // list holds `count` nodes of it; no edge data is passed.
        let code =
            unsafe { cu::cuStreamBeginCaptureToGraph(stream, graph, first, data, count, mode) };
        let begun = attempt("cuStreamBeginCaptureToGraph", code);
        if let Err(failed) = begun {
            if let Failed::Unknown(_) = failed {
                // If the capture has begun, the graph is of no use until it ends.
                let (_ended, uses) = capture.end();
                note(GraphUses { is_broken: true, ..uses });
            }
            return Err(failed.into());
        }
        capture.ended = false;
        let worked = catch_unwind(AssertUnwindSafe(|| work(capture.origin())));
        driver::ensure()?;
        capture.recording.wait_for_others();
        // The captured operations stay in the graph, also if `work` failed. Without the frees the
        // graph is broken.
        let bound = capture.origin().core().bind_work("cuStreamEndCapture");
        let freed = bound.and_then(|bound| capture.recording.free_all(&bound));
        let (ended, uses) = capture.end();
        note(uses);
        let ended = freed.and(ended);
        let worked = worked.unwrap_or_else(|payload| resume_unwind(payload));
        // The driver returns the graph that was passed.
        worked.and(ended.map(|_same| ()))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // The driver is not called in a forked child, or when the process ends.
        if !self.ended && !driver::is_gone() {
            let (graph, uses) = self.end();
            drop(graph.map(Owned::new));
            drop(uses);
        }
    }
}

/// Returns the capture of a stream, and the stream to add operations on; refuses a stream that is
/// not captured, for the reason `why`.
pub(super) fn bind_captured<'s>(
    stream: &'s Stream,
    op: &'static str,
    why: &'static str,
) -> Result<(&'s Arc<Recording>, Bound<'s>)> {
    let core = stream.core();
    let recording = core.timeline().recording().ok_or_else(|| Error::invalid(op, why))?;
    Ok((recording, core.bind_work(op)?))
}
