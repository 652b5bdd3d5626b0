//! Executable graphs and their launches.

use std::sync::Arc;
use std::{mem, ptr};

use cuda_sys::{CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, CUgraphExec, symbol as cu};

use super::executables::{KeptByExec, RawExec, destroy_behind};
use super::update::ChangedNode;
use super::{Graph, SharedGraph};
use crate::context::{Context, Moment, of_context};
use crate::error::{Error, Rejected, Result, check};
use crate::process::{DeferForeignCode, Handle, Owned, driver};
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::{Access, Fences, LastLaunch};
use crate::timeline::recording::{
    GraphOwners, GraphTraits, KeptAlive, KeptUses, KnownNodes, UsedMemory,
};
use crate::timeline::{Bound, Mark, Timeline};
use crate::types::Resource;
use crate::util::{Tree, debug_by};

/// A [`Graph`] that can be launched.
///
/// An executable has the graph's operations as of [`Graph::instantiate`], and no longer needs the
/// graph. Its launches run one after the other, whatever streams they are on. For two launches that
/// run at the same time, instantiate the graph twice.
///
/// Dropping an executable does not wait: pending launches complete. The executable of a graph with
/// [conditions](crate::Condition), or of a graph that was [taken over](Graph::from_raw), is
/// destroyed after them.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let stream = context.create_stream()?;
/// let mut x = stream.alloc::<u32>(1000)?;
/// let graph = cuda_core::Graph::capture(&context, |stream| stream.fill(&mut x, 7))?;
/// let mut exec = graph.instantiate()?;
/// exec.launch(&stream)?;
/// assert_eq!(stream.download_vec(&x)?, [7; 1000]);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct GraphExec {
    // The first field, so that it is dropped before what it uses. If its release is deferred,
    // `RawExec` keeps that alive itself.
    raw: Owned<RawExec>,
    /// The graph it was made from: the driver identifies its operations by this graph's nodes.
    pub(super) graph: SharedGraph,
    /// The id of `graph`.
    pub(super) id: u64,
    context: Context,
    pub(super) uses: KeptUses,
    /// What the nodes of `graph` refer to.
    origin: Arc<GraphOwners>,
    /// What is known of the nodes of `graph`.
    pub(super) nodes: KnownNodes,
    /// When the executable was instantiated.
    pub(super) made: Moment,
    /// The id of the graph whose conditions the kernels may set: the graph of the last update, or
    /// else the original one. [`None`] if that is unknown.
    pub(super) conditions_of: Option<u64>,
    /// The graphs with conditions that the executable was updated to.
    pub(super) updated: Vec<SharedGraph>,
    /// The nodes changed since then, by address.
    pub(super) changed: Tree<usize, ChangedNode>,
    /// Whether a node was ever left out.
    pub(super) has_left_out: bool,
    /// The point of the last launch; the memory's ledgers refer to it while this value exists.
    pub(super) last: Arc<LastLaunch>,
    /// The id of the stream of the last launch.
    last_stream: u64,
    /// Uploads, and launches that preceded a failed launch on another stream, if the next launch
    /// [must](Self::add_earlier) follow them: CUDA orders it after them, too.
    earlier: Fences,
    /// Whether some of the memory may have to be lent to each launch.
    pub(super) is_lent: bool,
}

/// The driver call of a launch, as errors name it.
const OP: &str = "cuGraphLaunch";

/// # Instantiating
impl Graph {
    /// Makes the graph executable, with all setup that launches can share:
    /// `cuGraphInstantiateWithFlags`. If any kernel was captured with a
    /// [priority](crate::Launch::priority), each kernel has the priority that it was captured with,
    /// or else the default priority. If none was, all kernels have the priority of the launch's
    /// stream.
    ///
    /// # Errors
    /// [`Error::Invalid`] if
    /// * host memory that the graph uses was dropped, so that it cannot be [lent](GraphExec::lend);
    /// * the graph needs access to another device's memory, and the access was not
    ///   [given](Context::enable_peer_access), or was revoked;
    /// * that access was revoked after the capture, even if it was given again, and the graph
    ///   copies memory of the [driver's pools](crate::MemoryPool) between devices, or has kernels
    ///   that use such memory of another device;
    /// * the graph [allocates](Stream::alloc_in_graph) memory, and has an executable.
    ///
    /// [`Error::Nccl`] if a communicator that the graph uses was aborted. The driver's: `NOT_SUPPORTED`
    /// (801) if operations depend on [conditions](crate::Condition), and the graph has an executable.
    ///
    /// If such an executable was dropped while launches of it were pending, the call waits for
    /// them.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let streams = [context.create_stream()?, context.create_stream()?];
    /// # let graph = cuda_core::Graph::capture(&context, |_stream| Ok(()))?;
    /// // Two executables may run at the same time, if they do not write the same memory.
    /// for stream in &streams {
    ///     graph.instantiate()?.launch(stream)?;
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphInstantiateWithFlags", "cuGraphInstantiate"))]
    #[doc(alias("cudaGraphInstantiate", "cudaGraphInstantiateWithFlags"))]
    pub fn instantiate(&self) -> Result<GraphExec> {
        let op = "cuGraphInstantiate";
        super::lent::require_lendable(self.uses.memory.iter(), op)?;
        let mut exec: CUgraphExec = ptr::null_mut();
        let flags = match self.uses.traits.has(GraphTraits::PRIORITIES) {
            true => CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0.into(),
            false => 0,
        };
        let unsupported = Some(cuda_sys::CUDA_ERROR_NOT_SUPPORTED);
        let has_another =
            |error: &Error| matches!(error, Error::Invalid(_)) || error.code() == unsupported;
        let mut call = |graph| {
            // Checked under the graph's lock, so that only one of several threads finds it free.
            let allocates = self.uses.traits.has(GraphTraits::MEMORY);
            let is_free = !allocates || self.executables.is_empty();
            let why = "the graph allocates memory, so there is one executable of it at a time";
            Error::unless(is_free, op, why)?;
            // SAFETY: the graph is live, and no other thread uses it; its context is current; the
            // call writes one handle, to a local that outlives it.
            check(op, unsafe { cu::cuGraphInstantiateWithFlags(&mut exec, graph, flags) })?;
            Ok(RawExec::new(Handle(exec), self.executables.clone()))
        };
        let mut instantiate = || -> Result<(Moment, Result<RawExec>)> {
            let _held = self.uses.admit(op, None)?;
            let made = Moment::now();
            Ok((made, self.context.relaxed(|| self.with_raw(&mut call))?))
        };
        let (mut made, mut raw) = instantiate()?;
        // Access may be revoked meanwhile, by what the executables kept: a destructor of the program.
        if raw.as_ref().is_err_and(has_another) && self.executables.wait()? {
            (made, raw) = instantiate()?;
        }
        Ok(GraphExec {
            raw: Owned::new(raw?),
            graph: self.raw.clone(),
            id: self.id,
            context: self.context.clone(),
            is_lent: self.uses.is_lent(),
            uses: self.uses.clone(),
            origin: self.uses.owners.clone(),
            nodes: self.uses.by_node.clone(),
            made,
            conditions_of: Some(self.id),
            updated: Vec::new(),
            changed: Tree::new(),
            has_left_out: false,
            last: self.uses.enter(None),
            last_stream: 0,
            earlier: Fences::none(),
        })
    }
}

/// # Launching
impl GraphExec {
    /// Launches the graph on a stream, asynchronously: `cuGraphLaunch`, one driver call unless the
    /// stream has to wait for another. The launch runs after all earlier work on the stream, after
    /// the previous launch of this executable, and after other streams' work on the memory that the
    /// graph uses.
    ///
    /// If the graph [allocates](Stream::alloc_in_graph) memory, and the previous launch was on
    /// another stream, the call waits for that launch.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the graph uses memory that the host can see, which must be
    /// [lent](Self::lend_mut), or if access that the executable needs was
    /// [revoked](Context::disable_peer_access); [`Error::NotCapturable`] on a stream of
    /// [`Graph::capture`]; [`Error::Nccl`] if a communicator that the graph uses was aborted; the
    /// driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # let graph = cuda_core::Graph::capture(&context, |_stream| Ok(()))?;
    /// let mut exec = graph.instantiate()?;
    /// for _ in 0..1000 {
    ///     exec.launch(&stream)?;
    /// }
    /// stream.synchronize()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphLaunch", "cudaGraphLaunch"))]
    pub fn launch<K: StreamKind>(&mut self, stream: &Stream<K>) -> Result<()> {
        if self.is_lent {
            super::lent::check(self, &[])?;
        }
        self.launch_lent(stream)
    }

    /// [`GraphExec::launch`] after the check that all required memory is lent.
    #[inline]
    pub(super) fn launch_lent<K: StreamKind>(&mut self, stream: &Stream<K>) -> Result<()> {
        let core = stream.core();
        let bound = core.bind(OP)?;
        let what = Resource::GraphExec;
        let Some(&RawExec { handle: Handle(raw), .. }) = self.raw.get() else {
            return Err(Error::GivenUp { what });
        };
        let timeline = core.timeline();
        let (traits, is_again) = (self.uses.traits, self.last_stream == timeline.id());
        // A graph with operations of NCCL may also be refused.
        let is_special =
            traits.has(GraphTraits::MAY_BE_REFUSED) || traits.has(GraphTraits::MAY_TAKE_LONG);
        if is_special || !is_again || !self.earlier.is_empty() {
            return self.launch_in_turn(&bound, raw);
        }
        let (seq, launched) = self.enqueue(&bound, raw, false)?;
        self.last.again(seq);
        launched
    }

    /// The slow path of [`GraphExec::launch`]: after launches and uploads on other streams, and for
    /// graphs whose launches may be refused, or take long.
    #[cold]
    fn launch_in_turn(&mut self, bound: &Bound<'_>, raw: CUgraphExec) -> Result<()> {
        let timeline = bound.core().timeline();
        self.wait_elsewhere(timeline)?;
        // A hook that comes up may use the ranks whose turn this thread has, or revoke access.
        let _quiet = DeferForeignCode::begin();
        let _held = self.uses.admit(OP, Some(self.made))?;
        // Taken before the launch is ordered, so that the launch waits for whatever took its turn
        // first, and kept until the launch is noted, so that whatever is next waits for the launch.
        let ranks = self.uses.has_collectives().then(|| self.uses.owners.clone());
        let turn = ranks.as_ref().map(|owners| owners.take_turn());
        let late =
            self.uses.traits.has(GraphTraits::MAY_TAKE_LONG) || self.is_behind_a_hold_up(timeline);
        let (seq, launched) = self.enqueue(bound, raw, late)?;
        if launched.is_ok() {
            // This launch comes after all earlier ones.
            self.earlier = Fences::none();
        }
        match self.last_stream == timeline.id() {
            true => self.last.again(seq),
            false => self.launched_elsewhere(timeline, seq, launched.is_ok()),
        }
        drop(turn);
        launched
    }

    /// Enqueues a launch after the work that it conflicts with. `late` says that it may take any
    /// time.
    #[inline(always)]
    fn enqueue(
        &self,
        bound: &Bound<'_>,
        raw: CUgraphExec,
        late: bool,
    ) -> Result<(u64, Result<()>)> {
        let stream = bound.timeline();
        let quiet = |memory: &UsedMemory| memory.kept.ledger().is_quiet(stream, Access::Write);
        if !self.used().all(quiet) {
            self.order(bound)?;
        }
        let call = |stream| {
            // SAFETY: the executable is live and only this thread uses it, by the caller's
            // exclusive borrow; `bound` keeps the stream alive, with its context current if that is
            // required. What the operations use is kept until the launch has completed.
            unsafe { cu::cuGraphLaunch(raw, stream) }
        };
        bound.late_if(late, || bound.enqueue(OP, call))
    }

    /// Returns whether CUDA orders a launch on this stream after one on another stream that may
    /// take any time.
    #[inline]
    fn is_behind_a_hold_up(&self, timeline: &Timeline) -> bool {
        let is_held_up = |last: &Mark| last.timeline.is_held_up(last.seq);
        let last = || self.last.mark().as_ref().is_some_and(is_held_up);
        self.last_stream != timeline.id() && last() || self.earlier.are_held_up()
    }

    /// Makes the stream wait for what conflicts with a launch.
    #[cold]
    fn order(&self, bound: &Bound<'_>) -> Result<()> {
        let mut fences = Fences::none();
        let (stream, own) = (bound.timeline(), Some(&self.last));
        for UsedMemory { kept, uses, .. } in self.used() {
            if uses.iter().any(|used| !kept.ledger().is_quiet(stream, used.1)) {
                kept.ledger().add_conflicts(uses, Some(stream), own, &mut fences);
            }
        }
        fences.wait_on(bound)
    }

    /// Notes a launch on another stream than the previous launch's. If the launch was made, it comes
    /// after the previous one.
    #[cold]
    fn launched_elsewhere(&mut self, timeline: &Arc<Timeline>, seq: u64, made: bool) {
        if !made {
            self.used().for_each(|memory| memory.kept.ledger().fix_last(&self.last));
            if let Some(Mark { timeline, seq }) = self.last.mark() {
                self.add_earlier(&timeline, seq);
            }
            let code = self.changed.values().flat_map(|changed| changed.code.iter().cloned());
            self.keep_until_completed(code.map(|code| Arc::new(code) as _).collect());
        }
        self.last.on(timeline, seq);
        self.last_stream = timeline.id();
        self.used().for_each(|memory| memory.kept.ledger().launched_elsewhere());
    }

    /// Notes an upload, or a launch other than the last, that later launches come after, if it may
    /// take any time, or if the driver waits for it when it destroys the executable.
    #[cold]
    fn add_earlier(&mut self, stream: &Arc<Timeline>, seq: u64) {
        if self.earlier.are_known_reached() {
            self.earlier = Fences::none();
        }
        if stream.is_held_up(seq) || self.uses.traits.has(GraphTraits::CONDITIONS) {
            self.earlier.add(stream, seq);
        }
    }

    /// Waits for the last launch, if it was on another stream and the graph allocates memory:
    /// otherwise the driver would wait within its call.
    #[inline]
    fn wait_elsewhere(&self, stream: &Timeline) -> Result<()> {
        if self.last_stream == stream.id() || !self.uses.traits.has(GraphTraits::MEMORY) {
            return Ok(());
        }
        self.last.mark().map_or(Ok(()), |last| last.timeline.wait_host(last.seq))
    }

    /// Returns the launches and uploads that may be pending, if the driver waits for them when it
    /// destroys the executable.
    fn awaited_by_destroy(&self) -> Fences {
        let mut pending = Fences::none();
        if self.uses.traits.has(GraphTraits::CONDITIONS) {
            let last = self.last.mark();
            let all = self.earlier.marks().iter().chain(&last);
            let unknown = all.filter(|mark| !mark.timeline.has_completed(mark.seq));
            unknown.for_each(|mark| pending.add(&mark.timeline, mark.seq));
        }
        pending
    }

    /// Does the setup of the first launch now, so that the first launch takes no longer than later
    /// ones: `cuGraphUpload`. Waits where [`launch`](Self::launch) does.
    ///
    /// # Errors
    /// The errors of [`launch`](Self::launch) that do not concern memory.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # let graph = cuda_core::Graph::capture(&context, |_stream| Ok(()))?;
    /// let mut exec = graph.instantiate()?;
    /// exec.upload(&stream)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphUpload", "cudaGraphUpload"))]
    pub fn upload<K: StreamKind>(&mut self, stream: &Stream<K>) -> Result<()> {
        let op = "cuGraphUpload";
        let bound = stream.core().bind(op)?;
        let raw = self.raw.live()?.handle.0;
        self.wait_elsewhere(bound.timeline())?;
        let _held = self.uses.admit(op, Some(self.made))?;
        let late = self.is_behind_a_hold_up(bound.timeline());
        let call = |stream| {
            // SAFETY: the executable is live and only this thread uses it, by the exclusive borrow;
            // `bound` keeps the stream alive, with its context current if that is required.
            unsafe { cu::cuGraphUpload(raw, stream) }
        };
        let (seq, uploaded) = bound.late_if(late, || bound.enqueue(op, call))?;
        self.add_earlier(bound.timeline(), seq);
        uploaded
    }

    of_context! { "The context that the graph was captured in.": |it| &it.context }

    /// The driver's handle, valid while `self` lives; null for an executable that was [given
    /// up](Error::GivenUp). One thread at a time may use it. Buffers do not know of other code's
    /// launches.
    pub fn as_raw(&self) -> CUgraphExec {
        self.raw.get().map_or(ptr::null_mut(), |raw| raw.handle.0)
    }

    /// The memory that launches use.
    #[inline]
    pub(super) fn used(&self) -> impl Iterator<Item = &UsedMemory> {
        self.uses.memory.iter()
    }

    /// Returns the driver's handle; an error if the executable was given up.
    pub(super) fn raw(&self) -> Result<CUgraphExec> {
        Ok(self.raw.live()?.handle.0)
    }

    /// Makes the executable use what another graph uses, from now on.
    pub(super) fn adopt(&mut self, uses: KeptUses) {
        self.retire_uses().end();
        // Later launches still come after the last one, which has none of the uses entered now.
        self.last = uses.enter(self.last.mark());
        self.is_lent = uses.is_lent();
        // Keeps the list of the copies from instantiation, since the driver may keep their routes.
        let copies = mem::take(&mut self.uses.copies);
        self.uses = KeptUses { copies, ..uses };
        if !self.uses.copies.is_empty() {
            self.uses.traits.add(GraphTraits::MAY_BE_REFUSED);
        }
    }

    /// Destroys the executable: `cuGraphExecDestroy`. Pending launches complete; those with
    /// [conditions](crate::Condition) are waited for. A drop reports a failure to the hook of
    /// [`drops::set_hook`](crate::drops::set_hook) instead.
    ///
    /// # Errors
    /// The driver's; the returned executable is [given up](Error::GivenUp), unless the wait failed.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let graph = cuda_core::Graph::capture(&context, |_stream| Ok(()))?;
    /// graph.instantiate()?.close()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphExecDestroy", "cudaGraphExecDestroy"))]
    pub fn close(mut self) -> Result<(), Rejected<Self>> {
        // Checked before the wait: a host function must not wait.
        let live = self.raw.live().map(drop);
        let waited = live.and_then(|()| self.awaited_by_destroy().wait_host());
        waited.and_then(|()| self.raw.release()).map_err(|error| Rejected::new(error, self))
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        // In a forked child, threads that do not exist there may hold this crate's locks.
        if driver::is_gone() {
            return;
        }
        let pending = self.awaited_by_destroy();
        self.raw.kept = Some(self.retire_uses());
        if !pending.is_empty() {
            destroy_behind(&mut self.raw, pending);
        }
    }
}

impl GraphExec {
    /// Leaves the ledgers of the memory. Returns what the executable keeps alive besides memory.
    fn retire_uses(&mut self) -> KeptByExec {
        self.used().for_each(|memory| memory.kept.ledger().leave(&self.last));
        let code = mem::take(&mut self.changed).into_values().flat_map(|changed| changed.code);
        self.kept(code.map(|code| Arc::new(code) as _).collect())
    }

    /// Keeps `code`, and what the graph keeps alive besides memory, until the last launch has
    /// completed.
    pub(super) fn keep_until_completed(&self, code: Vec<Arc<dyn KeptAlive>>) {
        self.kept(code).end();
    }

    fn kept(&self, code: Vec<Arc<dyn KeptAlive>>) -> KeptByExec {
        let uses_none = self.uses.owners.0.is_empty() && self.updated.is_empty();
        let used = !(uses_none && code.is_empty());
        let pending = |mark: &Mark| used && !mark.timeline.has_completed(mark.seq);
        KeptByExec {
            last: self.last.mark().filter(pending),
            graphs: self.updated.iter().chain([&self.graph]).cloned().collect(),
            owners: self.uses.owners.clone(),
            code,
            _origin: self.origin.clone(),
            _context: self.context.clone(),
        }
    }
}

debug_by! { [] GraphExec: |it| "GraphExec" { raw: it.as_raw(), context: it.context; .. } }
