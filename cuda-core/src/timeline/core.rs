//! The driver's stream, shared by all its handles, and the one place where work is enqueued.

use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_sys::{CUresult, CUstream, symbol as cu};

use crate::context::{Context, Entered};
use crate::device::Device;
use crate::error::{Error, Rejected, Result, check};
use crate::process::{
    Failed, ForeignOwner, Handle, RelaxedCaptureMode, deferred, driver, drop_hook, foreign_code,
    held,
};
use crate::timeline::event::RawEvent;
use crate::timeline::recording::{Recording, streams};
use crate::timeline::{Flavor, ImplicitOrder, Mark, RawStream, Recorded, Timeline, registry};
use crate::types::Resource;
use crate::util::{Pocket, lock};

/// A stream of the driver with its timeline. Destroyed when its last handle and the last buffer whose home it
/// is are gone.
pub(crate) struct StreamCore {
    // INVARIANT: until it is retired, a live stream of the timeline's context, or a default stream.
    raw: RawStream,
    device: Device,
    // INVARIANT: taken only by `Drop`.
    timeline: ManuallyDrop<Arc<Timeline>>,
    /// The stream has been destroyed or given up.
    retired: bool,
    /// Keeps a stream of other code alive.
    owner: Option<ForeignOwner>,
    /// Cached blocks that were freed on this stream, for later allocations.
    pub(crate) stream_cache: <FreeBlocks as Pocket>::Content,
    /// Number of user handles: while one exists, the user may allocate on this stream.
    handles: AtomicUsize,
    /// The chunk that small uploads are staged in.
    pub(crate) staging: <StagingSlot as Pocket>::Content,
}

/// The key of the allocators' slot in a stream.
pub(crate) enum FreeBlocks {}

/// The key of the slot in a stream for copies of borrowed slices.
pub(crate) enum StagingSlot {}

const GIVEN_UP: Error = Error::GivenUp { what: Resource::Stream };

/// A stream that is ready for calls: its context is current if they need that.
pub(crate) struct Bound<'a> {
    core: &'a StreamCore,
    entered: Option<Entered>,
}

impl StreamCore {
    /// Returns the placeholder for a stream that may have been destroyed.
    pub(crate) fn given_up(context: &Context) -> Arc<Self> {
        let order = ImplicitOrder::NonBlocking;
        Self::new(context, Flavor::GivenUp, order, ptr::null_mut(), None, None)
    }

    /// Creates a stream of `context`. `owner` keeps a stream of other code alive; `recording` describes the
    /// capture that the stream was created for.
    pub(crate) fn new(
        context: &Context,
        flavor: Flavor,
        order: ImplicitOrder,
        raw: CUstream,
        owner: Option<ForeignOwner>,
        recording: Option<Arc<Recording>>,
    ) -> Arc<Self> {
        let raw = Handle(raw);
        let timeline = Timeline::new(context.clone(), flavor, order, raw, recording);
        Arc::new(Self {
            raw,
            device: context.device(),
            timeline: ManuallyDrop::new(timeline),
            retired: flavor == Flavor::GivenUp,
            owner,
            stream_cache: Default::default(),
            handles: AtomicUsize::new(0),
            staging: Default::default(),
        })
    }

    #[inline]
    pub(crate) fn raw(&self) -> CUstream {
        self.raw.0
    }

    #[inline]
    pub(crate) fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    #[inline]
    pub(crate) fn context(&self) -> &Context {
        self.timeline.context()
    }

    #[inline]
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Prepares for `op`, which enqueues something on the stream or waits for it. Makes no driver call for a
    /// created stream, and those of [`Entered`] for a default stream.
    ///
    /// # Errors
    /// [`Error::Capturing`] for a stream that other code captures. For streams that [other code can
    /// capture](crate::timeline::capture), this takes one driver call. [`Error::NotCapturable`] for a stream
    /// that this crate captures.
    // Inlined, since returning the result through memory would double the cost.
    #[inline(always)]
    pub(crate) fn bind(&self, op: &'static str) -> Result<Bound<'_>> {
        let bound = self.reach()?;
        self.timeline.refuse_captured(self.raw, op)?;
        Ok(bound)
    }

    /// [`StreamCore::bind`] for work that a capture by this crate can record, through
    /// [`Bound::submit`].
    #[inline(always)]
    pub(crate) fn bind_work(&self, op: &'static str) -> Result<Bound<'_>> {
        let bound = self.reach()?;
        self.timeline.refuse_foreign_capture(self.raw, op)?;
        Ok(bound)
    }

    /// [`StreamCore::bind`] for calls that neither enqueue anything nor wait, and so are allowed on a
    /// captured stream, too.
    #[inline(always)]
    pub(crate) fn reach(&self) -> Result<Bound<'_>> {
        driver::ensure()?;
        let entered = match self.timeline.flavor() {
            Flavor::Created | Flavor::Foreign | Flavor::Captured => None,
            Flavor::Legacy | Flavor::PerThread => Some(self.context().enter_briefly()?),
            Flavor::GivenUp => return Err(GIVEN_UP),
        };
        Ok(Bound { core: self, entered })
    }

    /// Returns the errors of [`StreamCore::bind`] that need no driver call.
    pub(crate) fn ensure(&self) -> Result<()> {
        driver::ensure()?;
        match self.timeline.flavor() {
            Flavor::GivenUp => Err(GIVEN_UP),
            _ => Ok(()),
        }
    }

    /// Called when a user handle is created.
    pub(crate) fn handle_made(&self) {
        // Not in a fork's child: see `handle_dropped`.
        if self.handles.fetch_add(1, Ordering::AcqRel) == 0 && !driver::is_gone() {
            self.stream_cache.follow(|| self.has_handles());
        }
    }

    /// Called when a user handle is dropped. Without handles the stream gives up its cached blocks.
    pub(crate) fn handle_dropped(&self) {
        // In a fork's child, this crate's locks may be held by threads that do not exist there.
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 && !driver::is_gone() {
            self.stream_cache.follow(|| self.has_handles());
        }
    }

    fn has_handles(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 0
    }

    /// Destroys the stream now. On failure returns what is left: the unchanged stream if it is being
    /// captured, else one that is given up.
    pub(crate) fn close(mut self) -> Result<(), Rejected<Arc<Self>>> {
        drop(lock(&self.staging).take());
        registry::forget(self.raw());
        self.retired = true;
        let handle = self.raw().addr() as u64;
        retire(&self.timeline, self.raw).map_err(|why| match why {
            Failed::Refused(error) => {
                self.retired = false;
                // The pools refer to a stream that is gone; they add this one when it allocates.
                self.stream_cache = Default::default();
                Rejected::new(error, registry::note(Arc::new(self)))
            }
            Failed::Unknown(_) => {
                let nothing = Self::given_up(self.context());
                Rejected::new(why.into_reported(Resource::Stream, handle, 0), nothing)
            }
        })
    }

    /// Blocks the calling thread until everything enqueued so far has completed:
    /// `cuStreamSynchronize`.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.synchronize_bound(&self.bind("cuStreamSynchronize")?)
    }

    /// Blocks the calling thread, by an event, until everything enqueued so far has completed, work
    /// of other libraries included.
    pub(crate) fn wait_for_all(&self) -> Result<()> {
        // Counts a new point: neither earlier events nor points known to have completed cover work that this
        // crate has not counted.
        let seq = self.bind("cuEventRecord")?.count();
        self.timeline.wait_host(seq)
    }

    /// [`StreamCore::synchronize`] for a bound stream.
    pub(crate) fn synchronize_bound(&self, bound: &Bound<'_>) -> Result<()> {
        let _relaxed = RelaxedCaptureMode::enter()?;
        bound.ensure_current()?;
        let issued = self.timeline.issued();
        // SAFETY: `bound` keeps the stream alive, with its context current if it needs that.
        check("cuStreamSynchronize", unsafe { cu::cuStreamSynchronize(bound.raw()) })?;
        self.timeline.complete(issued);
        Ok(())
    }
}

impl<'a> Bound<'a> {
    #[inline]
    pub(crate) fn raw(&self) -> CUstream {
        self.core.raw.0
    }

    /// Makes the stream wait for a point of another. Makes no driver call if it has waited already or need
    /// not. Otherwise makes one for the wait, one more unless an event covers the point already, and those of
    /// [`Timeline::hold_up`] if the other stream is held up.
    pub(crate) fn wait_for(&self, mark: &Mark) -> Result<()> {
        let (timeline, other) = (self.timeline(), &mark.timeline);
        let own = other.id() == timeline.id();
        if own || other.has_completed(mark.seq) || timeline.has_waited(mark) {
            return Ok(());
        }
        let Some(Recorded { event, seq: covered, .. }) = other.covering(mark.seq)? else {
            return Ok(());
        };
        self.wait_for_event(&event, other.is_held_up(covered))
            .map_err(|error| other.forget_captured(&event, error))?;
        timeline.note_waited(other, covered);
        Ok(())
    }

    /// Makes the stream wait for an event. `held_up`: the event may take any time to complete.
    pub(crate) fn wait_for_event(&self, event: &RawEvent, held_up: bool) -> Result<()> {
        let call = |stream| {
            // SAFETY: `self` keeps the stream alive, the caller the event; flags must be zero. The
            // event may be of another device or context.
            unsafe { cu::cuStreamWaitEvent(stream, event.as_raw(), 0) }
        };
        self.late_if(held_up, || self.enqueue("cuStreamWaitEvent", call))?.1
    }

    /// Calls `enqueue`, which enqueues work that may take any time to complete and returns its point.
    #[inline]
    pub(crate) fn late<R>(&self, enqueue: impl FnOnce() -> (u64, R)) -> Result<(u64, R)> {
        self.timeline().hold_up(self.entered())?;
        let enqueued = enqueue();
        self.timeline().held_up_at(enqueued.0);
        Ok(enqueued)
    }

    /// Calls [`late`](Self::late) if `late`, else only `enqueue`.
    #[inline]
    pub(crate) fn late_if<R>(
        &self,
        late: bool,
        enqueue: impl FnOnce() -> (u64, R),
    ) -> Result<(u64, R)> {
        if late { self.late(enqueue) } else { Ok(enqueue()) }
    }

    /// Makes the call that enqueues something, and counts it even if it failed: a wait for the returned point
    /// then covers more than needed, never less.
    // Inlined, so that the captures of `call` need no memory.
    #[inline(always)]
    pub(crate) fn enqueue(
        &self,
        op: &'static str,
        call: impl FnOnce(CUstream) -> CUresult,
    ) -> (u64, Result<()>) {
        self.enqueue_by(|stream| check(op, call(stream)))
    }

    /// [`Bound::enqueue`] for calls of another library.
    #[inline(always)]
    pub(crate) fn enqueue_by(
        &self,
        call: impl FnOnce(CUstream) -> Result<()>,
    ) -> (u64, Result<()>) {
        if let Err(error) = self.prepare() {
            return (self.count(), Err(error));
        }
        let result = call(self.raw());
        (self.count(), result)
    }

    /// [`Bound::enqueue`] for operations that may run twice with the same result: a copy or a fill.
    ///
    /// A created stream's calls are made whatever context is current. The driver refuses two kinds of them:
    /// copies of pool memory while the device of the current context has no access to the pool, and, with no
    /// current context, copies that cross from one mapping of virtual memory into the next. This repeats them
    /// with the stream's own context current; a check before each call would slow down every call. The first
    /// call may have taken effect if its error was one of earlier work.
    #[inline(always)]
    pub(crate) fn enqueue_copy(
        &self,
        op: &'static str,
        mut call: impl FnMut(CUstream) -> CUresult,
    ) -> (u64, Result<()>) {
        self.enqueue_by(|stream| {
            let mut code = call(stream);
            let may_help = self.entered.is_none() && self.timeline().recording().is_none();
            if code == cuda_sys::CUDA_ERROR_INVALID_VALUE && may_help {
                if let Some(_entered) = self.enter_if_that_changes_anything() {
                    code = call(stream);
                }
            }
            check(op, code)
        })
    }

    /// Called right before this crate or other code enqueues something: [passes on
    /// hold-ups](Timeline::pass_on_hold_ups), and makes sure that the right context is current.
    #[inline]
    pub(crate) fn prepare(&self) -> Result<()> {
        self.timeline().pass_on_hold_ups(self.entered())?;
        self.ensure_current()
    }

    /// [`Entered::ensure_current`].
    #[inline]
    fn ensure_current(&self) -> Result<()> {
        self.entered().map_or(Ok(()), Entered::ensure_current)
    }

    #[cold]
    fn enter_if_that_changes_anything(&self) -> Option<Entered> {
        let entered = self.core.context().enter_briefly().ok()?;
        entered.changed_what_is_current().then_some(entered)
    }

    /// Counts one enqueue that was made, and returns its point.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        let seq = self.core.timeline.issue();
        if self.core.timeline.flavor() == Flavor::PerThread {
            self.record_each();
        }
        seq
    }

    /// Records an event after every operation on a per-thread default stream: other threads cannot record on
    /// it.
    fn record_each(&self) {
        let timeline = &self.core.timeline;
        if timeline.checkpoint(false, self.entered.as_ref()).is_ok() {
            return;
        }
        // If this fails too, a wait for the point returns an error, since its completion cannot be proven.
        let _ = self.core.synchronize_bound(self);
    }

    pub(crate) fn core(&self) -> &'a StreamCore {
        self.core
    }

    pub(crate) fn timeline(&self) -> &Arc<Timeline> {
        self.core.timeline()
    }

    pub(crate) fn entered(&self) -> Option<&Entered> {
        self.entered.as_ref()
    }
}

/// Records a last event for the marks that outlive the stream, then destroys the stream if this crate created
/// it, or keeps it for later captures. Does not retire a stream that other code captures while marks still
/// refer to it.
fn retire(timeline: &Arc<Timeline>, raw: RawStream) -> Result<(), Failed> {
    // The caller holds one reference and marks hold the others: handles and buffers are gone.
    let marked = Arc::strong_count(timeline) > 1;
    match timeline.close(marked) {
        Err(error) if held::is_held(&error) => return Err(Failed::Refused(error)),
        // After another failure, a wait for the stream's last work returns an error, since its completion
        // cannot be proven.
        _ => {}
    }
    // No other code can reach the handle any more, since the timeline was closed.
    match timeline.flavor() {
        Flavor::Created => streams::destroy(raw),
        Flavor::Captured => streams::keep_or_destroy(timeline, raw),
        _ => Ok(()),
    }
}

/// Releases a stream that nothing refers to any more. If it is being captured, this keeps it for a later try
/// and returns false.
fn let_go(timeline: Arc<Timeline>, raw: RawStream, owner: Option<ForeignOwner>) -> bool {
    match retire(&timeline, raw) {
        Err(Failed::Refused(_)) => {
            held::keep(move || _ = let_go(timeline, raw, owner));
            return false;
        }
        Err(why) => drop_hook::report(Resource::Stream, raw.number(), 0, Some(why.into())),
        Ok(()) => {}
    }
    // This crate does not use the handle any more. The stream's owner is dropped before its
    // context.
    let context = owner.is_some().then(|| timeline.context().clone());
    drop(timeline);
    foreign_code::after(|| drop((owner, context)));
    true
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        // SAFETY: the field is not touched after this, the only place that takes it.
        let timeline = unsafe { ManuallyDrop::take(&mut self.timeline) };
        let owner = self.owner.take();
        // In a fork's child, this crate's locks may be held by threads that do not exist there, and
        // the owner's destructor is foreign code.
        if driver::is_gone() {
            mem::forget(owner);
            return;
        }
        if self.retired {
            return;
        }
        let raw = self.raw;
        registry::forget(raw.0);
        // The staging chunk is returned first, so that `retire` sees the mark that it leaves.
        let staging = lock(&self.staging).take();
        deferred::run_or_defer(move || {
            drop(staging);
            if let_go(timeline, raw, owner) {
                held::retry();
            }
        });
    }
}
