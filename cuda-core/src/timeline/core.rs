//! The driver's stream behind all its handles, and the one place where work is enqueued.

use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_sys::{CUresult, CUstream, symbol as cu};

use crate::context::Context;
use crate::context::guard::Entered;
use crate::device::Device;
use crate::error::{Error, Result, check};
use crate::process::capture_mode::Relaxed;
use crate::process::release::{Unreleased, released};
use crate::process::{deferred, driver, drop_hook, foreign_code, held};
use crate::timeline::event::RawEvent;
use crate::timeline::{Flavor, ImplicitOrder, Mark, RawStream, Timeline, registry};
use crate::types::resource::Resource;
use crate::util::panic::Owner;
use crate::util::pocket::Pocket;
use crate::util::sync::lock;

/// The driver's stream with its timeline; destroyed with the last handle and the last buffer that
/// calls it home.
pub(crate) struct StreamCore {
    // INVARIANT: until it is retired, a live stream of the timeline's context, or a default stream.
    raw: RawStream,
    device: Device,
    // INVARIANT: taken by `Drop` alone.
    timeline: ManuallyDrop<Arc<Timeline>>,
    /// The stream is destroyed already, or given up.
    retired: bool,
    /// What keeps the stream of somebody else alive.
    owner: Option<Owner>,
    /// Blocks that were freed here, for allocations to come.
    pub(crate) arena: <FreeBlocks as Pocket>::Content,
    /// Handles of the user's: while there are any, somebody may allocate here.
    handles: AtomicUsize,
    /// The chunk that small uploads are staged in.
    pub(crate) staging: <StagingChunk as Pocket>::Content,
}

/// What the allocators keep with a stream.
pub(crate) enum FreeBlocks {}

/// What copies of borrowed slices keep with it.
pub(crate) enum StagingChunk {}

const GIVEN_UP: Error = Error::GivenUp {
    what: Resource::Stream,
};

/// A stream whose calls can be made: its context is current, if they need that.
pub(crate) struct Bound<'a> {
    core: &'a StreamCore,
    entered: Option<Entered>,
}

impl StreamCore {
    pub(crate) fn new(
        context: &Context,
        flavor: Flavor,
        order: ImplicitOrder,
        raw: CUstream,
    ) -> Arc<Self> {
        Self::with_owner(context, flavor, order, raw, None)
    }

    /// A stream of `context` that lives for as long as `owner` does.
    pub(crate) fn foreign(
        context: &Context,
        order: ImplicitOrder,
        raw: CUstream,
        owner: Owner,
    ) -> Arc<Self> {
        Self::with_owner(context, Flavor::Foreign, order, raw, Some(owner))
    }

    /// What is left of a stream of which nobody knows whether it was destroyed.
    pub(crate) fn given_up(context: &Context) -> Arc<Self> {
        let order = ImplicitOrder::NonBlocking;
        Self::new(context, Flavor::GivenUp, order, ptr::null_mut())
    }

    fn with_owner(
        context: &Context,
        flavor: Flavor,
        order: ImplicitOrder,
        raw: CUstream,
        owner: Option<Owner>,
    ) -> Arc<Self> {
        let raw = RawStream(raw);
        Arc::new(Self {
            raw,
            device: context.device(),
            timeline: ManuallyDrop::new(Timeline::new(context.clone(), flavor, order, raw)),
            retired: flavor == Flavor::GivenUp,
            owner,
            arena: Default::default(),
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

    /// Prepares for `op`, which enqueues something on the stream or waits for it. Costs no driver call
    /// for a created stream, those of [`Entered`] for a default one.
    ///
    /// # Errors
    /// [`Error::Capturing`] for a stream that other code captures. The driver is asked about those that
    /// [other code can capture](crate::timeline::capture), by one call.
    // Through memory, what it returns would cost as much as all else.
    #[inline(always)]
    pub(crate) fn bind(&self, op: &'static str) -> Result<Bound<'_>> {
        let bound = self.reach()?;
        self.timeline.refuse_captured(self.raw, op)?;
        Ok(bound)
    }

    /// [`StreamCore::bind`] for calls that neither enqueue anything nor wait: a captured stream has
    /// attributes, too.
    #[inline(always)]
    pub(crate) fn reach(&self) -> Result<Bound<'_>> {
        driver::ensure()?;
        let entered = match self.timeline.flavor() {
            Flavor::Created | Flavor::Foreign => None,
            Flavor::Legacy | Flavor::PerThread => Some(self.context().enter_briefly()?),
            Flavor::GivenUp => return Err(GIVEN_UP),
        };
        Ok(Bound {
            core: self,
            entered,
        })
    }

    /// Refuses what [`StreamCore::bind`] refuses.
    pub(crate) fn ensure(&self) -> Result<()> {
        driver::ensure()?;
        match self.timeline.flavor() {
            Flavor::GivenUp => Err(GIVEN_UP),
            _ => Ok(()),
        }
    }

    /// A handle of the user's was made.
    pub(crate) fn handle_made(&self) {
        if self.handles.fetch_add(1, Ordering::AcqRel) == 0 {
            self.arena.follow(|| self.has_handles());
        }
    }

    /// A handle of the user's was dropped. The last one takes the stream's cached blocks with it.
    pub(crate) fn handle_dropped(&self) {
        // In a forked child our locks may be held by threads that no longer exist.
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 && !driver::is_gone() {
            self.arena.follow(|| self.has_handles());
        }
    }

    fn has_handles(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 0
    }

    /// Destroys the stream now. On failure what is left of it: all, if it is captured.
    pub(crate) fn close(mut self) -> Result<(), (Error, Arc<Self>)> {
        drop(lock(&self.staging).take());
        registry::forget(self.raw());
        self.retired = true;
        let handle = self.raw().addr() as u64;
        retire(&self.timeline, self.raw).map_err(|why| match why {
            Unreleased::Kept(error) => {
                self.retired = false;
                (error, registry::note(Arc::new(self)))
            }
            Unreleased::Unknown(_) => {
                let nothing = Self::given_up(self.context());
                (why.into_told(Resource::Stream, handle, 0), nothing)
            }
        })
    }

    /// Waits with the host for everything enqueued so far: `cuStreamSynchronize`.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.synchronize_bound(&self.bind("cuStreamSynchronize")?)
    }

    /// Waits with the host for everything enqueued so far, whoever enqueued it, by an event.
    pub(crate) fn wait_for_all(&self) -> Result<()> {
        // A number of its own: events that were recorded before, and what is known to have completed,
        // do not cover work that is not counted.
        let seq = self.bind("cuEventRecord")?.count();
        self.timeline.wait_host(seq)
    }

    /// [`StreamCore::synchronize`] of a stream that is bound.
    pub(crate) fn synchronize_bound(&self, bound: &Bound<'_>) -> Result<()> {
        let _relaxed = Relaxed::enter()?;
        bound.ensure_current()?;
        let issued = self.timeline.issued();
        // SAFETY: `bound` keeps the stream, with its context current where it needs that.
        check("cuStreamSynchronize", unsafe {
            cu::cuStreamSynchronize(bound.raw())
        })?;
        self.timeline.complete(issued);
        Ok(())
    }
}

impl Bound<'_> {
    #[inline]
    pub(crate) fn raw(&self) -> CUstream {
        self.core.raw.0
    }

    /// Makes the stream wait for a point of another. No driver call if it has waited, or need not;
    /// otherwise two, and one more to [hold it up](Timeline::hold_up) with the other.
    pub(crate) fn wait_for(&self, mark: &Mark) -> Result<()> {
        let (timeline, other) = (self.timeline(), &mark.timeline);
        let Some((event, covered)) = timeline.to_wait_for(mark)? else {
            return Ok(());
        };
        self.wait_for_event(&event, other.is_held_up(covered))
            .map_err(|error| other.forget_captured(&event, error))?;
        timeline.note_waited(other, covered);
        Ok(())
    }

    /// Makes the stream wait for an event. `held_up`: that may come at any time.
    pub(crate) fn wait_for_event(&self, event: &RawEvent, held_up: bool) -> Result<()> {
        if held_up {
            self.timeline().hold_up(self.entered())?;
        }
        let (seq, waits) = self.enqueue("cuStreamWaitEvent", |stream| {
            // SAFETY: `self` keeps the stream, the caller the event; flags must be zero. The event
            // may be of another device or context.
            unsafe { cu::cuStreamWaitEvent(stream, event.as_raw(), 0) }
        });
        if held_up {
            self.timeline().held_up_at(seq);
        }
        waits
    }

    /// Makes the call that enqueues something and counts it, even if it failed: whoever marks the
    /// point then waits for more than needed, never for less.
    // What `call` captures dissolves in it.
    #[inline(always)]
    pub(crate) fn enqueue(
        &self,
        op: &'static str,
        call: impl FnOnce(CUstream) -> CUresult,
    ) -> (u64, Result<()>) {
        if let Err(error) = self.prepare() {
            return (self.count(), Err(error));
        }
        let code = call(self.raw());
        (self.count(), check(op, code))
    }

    /// [`Bound::enqueue`] of what is the same whether it is done once or twice: a copy, a fill.
    ///
    /// A created stream's calls are made with whatever is current. That is right but for copies of
    /// pool memory while a context is current whose device has no access to the pool, and,
    /// with none current, for copies that cross from one mapping of virtual memory into the next:
    /// those the driver refuses, and they are made once more with the stream's own
    /// context current. Finding out before each call would cost every call. The first may have taken
    /// effect all the same, where the error was that of earlier work.
    #[inline(always)]
    pub(crate) fn enqueue_copy(
        &self,
        op: &'static str,
        mut call: impl FnMut(CUstream) -> CUresult,
    ) -> (u64, Result<()>) {
        if let Err(error) = self.prepare() {
            return (self.count(), Err(error));
        }
        let mut code = call(self.raw());
        if code == cuda_sys::CUDA_ERROR_INVALID_VALUE && self.entered.is_none() {
            if let Some(_entered) = self.enter_if_that_changes_anything() {
                code = call(self.raw());
            }
        }
        (self.count(), check(op, code))
    }

    /// Right before something is enqueued, by this crate or behind its back: passes on
    /// [what holds the stream up](Timeline::pass_on_hold_ups), and makes sure of what is current.
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

    /// Counts one enqueue that has been made, and names it.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        let seq = self.core.timeline.issue();
        if self.core.timeline.flavor() == Flavor::PerThread {
            self.record_each();
        }
        seq
    }

    /// Another thread cannot record on this one's default stream, so an event follows every
    /// operation.
    fn record_each(&self) {
        let timeline = &self.core.timeline;
        if timeline.checkpoint(false, self.entered.as_ref()).is_ok() {
            return;
        }
        // If this fails too, whoever waits for the point is told that it cannot be proven.
        let _ = self.core.synchronize_bound(self);
    }

    pub(crate) fn timeline(&self) -> &Arc<Timeline> {
        self.core.timeline()
    }

    pub(crate) fn entered(&self) -> Option<&Entered> {
        self.entered.as_ref()
    }
}

/// Refuses memory of another device than the stream's.
pub(crate) fn same_device(op: &'static str, core: &StreamCore, memory: Device) -> Result<()> {
    if core.device() == memory {
        return Ok(());
    }
    Err(Error::WrongDevice {
        op,
        memory: memory.ordinal(),
        stream: core.device().ordinal(),
    })
}

/// Records a last event for the marks that outlive the stream, then destroys it, if that is ours to
/// do. Keeps a stream that other code captures and that marks still name.
fn retire(timeline: &Arc<Timeline>, raw: RawStream) -> Result<(), Unreleased> {
    // Other references than the caller's are marks: handles and buffers are gone.
    let marked = Arc::strong_count(timeline) > 1;
    match timeline.close(marked) {
        Err(error) if held::is_held(&error) => return Err(Unreleased::Kept(error)),
        // Where it fails otherwise, whoever waits for the stream's last work is told so.
        _ => {}
    }
    if timeline.flavor() != Flavor::Created {
        return Ok(());
    }
    // SAFETY: nobody else can reach the handle any more, since the timeline was closed. Pending
    // work completes: cuStreamDestroy returns at once and "the resources associated with hStream
    // will be released automatically once the device has completed all work".
    released("cuStreamDestroy", unsafe { cu::cuStreamDestroy_v2(raw.0) })
}

/// What is left to do when nobody refers to a stream any more; later, for one that is captured.
fn let_go(timeline: Arc<Timeline>, raw: RawStream, owner: Option<Owner>) {
    match retire(&timeline, raw) {
        Err(Unreleased::Kept(_)) => return held::keep(move || let_go(timeline, raw, owner)),
        Err(why) => drop_hook::report(Resource::Stream, raw.0.addr() as u64, 0, Some(why.into())),
        Ok(()) => {}
    }
    // The handle is of no use to anybody here any more. Its owner goes before its context's.
    let context = owner.is_some().then(|| timeline.context().clone());
    drop(timeline);
    foreign_code::after(|| drop((owner, context)));
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        // SAFETY: the field is not touched after this, the only taking.
        let timeline = unsafe { ManuallyDrop::take(&mut self.timeline) };
        let owner = self.owner.take();
        // In a forked child our locks may be held by threads that no longer exist, and what an owner
        // would do there is anybody's guess.
        if driver::is_gone() {
            mem::forget(owner);
            return;
        }
        if self.retired {
            return;
        }
        let raw = self.raw;
        registry::forget(raw.0);
        // Its chunk goes back first, so that the mark it leaves is seen.
        let staging = lock(&self.staging).take();
        deferred::run_or_defer(move || {
            drop(staging);
            let_go(timeline, raw, owner);
            held::retry();
        });
    }
}
