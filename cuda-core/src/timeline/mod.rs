//! Streams as timelines: points are numbered, and an event is recorded only when something must
//! wait.
//!
//! Every stream has an id that is never reused and a counter, `issued`, which is raised after each enqueue. A
//! [`Mark`] names a point of a stream. Ordering two streams costs nothing until one of them must wait; then
//! an event is recorded *late* on the stream waited for, and covers everything issued before it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use cuda_sys::{CUstream, symbol as cu};

use crate::context::{Context, Entered};
use crate::error::{Result, check};
use crate::process::{Handle, deferred, driver, held};
use crate::util::{Turns, lock};

pub(crate) mod capture;
mod core;
pub(crate) mod event;
mod held_up;
pub(crate) mod ledger;
mod recorded;
pub(crate) mod recording;
pub(crate) mod registry;
pub(crate) mod submit;
mod timelines;

pub(crate) use core::{Bound, FreeBlocks, StagingSlot, StreamCore};
pub(crate) use event::{EventFlags, RawEvent, ready};
pub(crate) use submit::{LibraryUse, note_use};

use held_up::HeldUp;
pub(crate) use recorded::Recorded;
use recorded::RecordedEvents;
use recording::Recording;

/// A stream's handle. The handle of the per-thread default stream means a different stream on each thread:
/// the `PerThreadStream` with that handle is not `Send`, and no other thread records on a timeline of
/// [`Flavor::PerThread`].
pub(crate) type RawStream = Handle<CUstream>;

/// The kind of CUDA stream that a timeline stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flavor {
    /// Created by this crate (`cuStreamCreateWithPriority`, in a green context `cuGreenCtxStreamCreate`); its
    /// calls need no current context.
    Created,
    /// Created by other code, which also destroys it; otherwise like [`Flavor::Created`].
    Foreign,
    /// Created for a capture by this crate, which its [recording](Timeline::recording) describes. Work
    /// enqueued there becomes part of a graph.
    Captured,
    /// The context's legacy default stream; its calls need the context to be current.
    Legacy,
    /// The per-thread default stream of one thread; its calls need the context to be current.
    PerThread,
    /// No stream: `close` returns it for a stream that may be gone. Nothing is ever issued on it.
    GivenUp,
}

/// Whether CUDA implicitly orders a stream with its context's legacy stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ImplicitOrder {
    /// The legacy stream itself, per-thread ones, and those created without
    /// `CU_STREAM_NON_BLOCKING`.
    Blocking,
    NonBlocking,
}

/// The crate's knowledge of a stream, shared by the stream's handles and by every mark that refers to it.
// This order puts the fields that every enqueue touches into the cache line of the `Arc`'s counts.
#[repr(C)]
pub(crate) struct Timeline {
    issued: AtomicU64,
    /// Everything up to this point has completed.
    completed: AtomicU64,
    /// Never reused, unlike the driver's handle.
    id: u64,
    flavor: Flavor,
    /// Code outside of this crate has the handle.
    exposed: AtomicBool,
    context: Context,
    /// The handle for late records; removed before the stream is destroyed. Locked for reading
    /// during a record, for writing only to remove the handle.
    // INVARIANT: while `Some`, the stream has not been destroyed.
    recorder: RwLock<Option<RawStream>>,
    events: Mutex<RecordedEvents>,
    /// How far this stream was made to wait for others.
    waited: Mutex<Turns<Waited>>,
    held_up: HeldUp,
    /// The capture that the stream was created for.
    recording: Option<Arc<Recording>>,
    order: ImplicitOrder,
}

/// A point of a timeline: everything up to `seq`.
#[derive(Clone)]
pub(crate) struct Mark {
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) seq: u64,
}

struct Waited {
    timeline: Weak<Timeline>,
    seq: u64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Timeline {
    pub(crate) fn new(
        context: Context,
        flavor: Flavor,
        order: ImplicitOrder,
        raw: RawStream,
        recording: Option<Arc<Recording>>,
    ) -> Arc<Self> {
        let new = Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            order,
            context,
            flavor,
            // All code knows the default streams, and the code that created a stream has its handle.
            exposed: AtomicBool::new(matches!(
                flavor,
                Flavor::Foreign | Flavor::Legacy | Flavor::PerThread
            )),
            issued: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            recorder: RwLock::new((flavor != Flavor::GivenUp).then_some(raw)),
            events: Mutex::default(),
            waited: Mutex::default(),
            held_up: HeldUp::default(),
            recording,
        });
        new.context.timelines().enter(new.id, Arc::downgrade(&new), order);
        new.begin_held_up();
        new
    }

    /// The point of this timeline after `seq` operations.
    #[inline]
    pub(crate) fn at(self: &Arc<Self>, seq: u64) -> Mark {
        Mark { timeline: self.clone(), seq }
    }

    /// The point after everything that was enqueued so far.
    pub(crate) fn here(self: &Arc<Self>) -> Mark {
        self.at(self.issued())
    }

    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    #[inline]
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    #[inline]
    pub(crate) fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// The capture that the stream was created for; only [`Flavor::Captured`] has one.
    #[inline]
    pub(crate) fn recording(&self) -> Option<&Arc<Recording>> {
        // The flavor shares a cache line with what every enqueue touches.
        match self.flavor {
            Flavor::Captured => self.recording.as_ref(),
            _ => None,
        }
    }

    /// Whether CUDA orders the stream with its context's legacy stream.
    pub(crate) fn order(&self) -> ImplicitOrder {
        self.order
    }

    /// Counts one enqueue that has returned, and returns its point.
    #[inline]
    pub(crate) fn issue(&self) -> u64 {
        self.issued.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The point after everything enqueued so far.
    #[inline]
    pub(crate) fn issued(&self) -> u64 {
        self.issued.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn has_completed(&self, seq: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= seq
    }

    /// Notes that everything up to `seq` has completed, as the driver reported.
    pub(crate) fn complete(&self, seq: u64) {
        // No store if it is known already.
        let later = |known| (known < seq).then_some(seq);
        let _ = self.completed.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }

    /// Records `event`, which is of the stream's context, after everything issued so far, and returns that
    /// point. Returns [`None`] if the stream is gone.
    ///
    /// A default stream needs its context current: `entered` ensures that, or a guard made here.
    pub(crate) fn record_on(
        &self,
        event: &RawEvent,
        entered: Option<&Entered>,
    ) -> Result<Option<u64>> {
        self.pass_on_hold_ups(entered)?;
        // Dropped after the lock is released: a drop hook may be deferred to the guard's end.
        let _brief = match (self.flavor, entered) {
            (Flavor::Created | Flavor::Foreign | Flavor::Captured | Flavor::GivenUp, _) => None,
            (_, Some(entered)) => {
                entered.ensure_current()?;
                None
            }
            (Flavor::Legacy | Flavor::PerThread, None) => Some(self.context.enter_briefly()?),
        };
        let recorder = self.recorder.read().unwrap_or_else(PoisonError::into_inner);
        let Some(raw) = *recorder else {
            return Ok(None);
        };
        let op = "cuEventRecord";
        // Only its own thread, which has just checked, can capture a per-thread default stream. An event of a
        // capture by this crate belongs into that capture.
        if !matches!(self.flavor, Flavor::PerThread | Flavor::Captured) {
            self.refuse_captured(raw, op)?;
        }
        // Read before the record: work that is counted later may be enqueued after it.
        let seq = self.issued();
        // SAFETY: the event is live and of the stream's context; the stream is live while the read
        // lock is held, by the recorder's invariant.
        check(op, unsafe { cu::cuEventRecord(event.as_raw(), raw.0) })?;
        // The record may have gone into a capture that another thread began meanwhile.
        if let Flavor::Created | Flavor::Foreign = self.flavor {
            self.refuse_captured(raw, op)?;
        }
        Ok(Some(seq))
    }

    /// Whether this stream has been made to wait for the point.
    pub(crate) fn has_waited(&self, mark: &Mark) -> bool {
        let waited = lock(&self.waited);
        let other = waited.get(mark.timeline.id);
        other.is_some_and(|w| w.seq >= mark.seq)
    }

    /// Notes that this stream has been made to wait for point `seq` of `other`. Called after the wait was
    /// counted: events recorded before the wait do not cover it.
    pub(crate) fn note_waited(&self, other: &Arc<Timeline>, seq: u64) {
        // Dropping the last reference to a timeline destroys its events, so it must not happen under the
        // lock.
        let mut looked_at = Vec::new();
        let mut waited = lock(&self.waited);
        if let Some(entry) = waited.get_mut(other.id) {
            entry.seq = entry.seq.max(seq);
            return;
        }
        let entry = Waited { timeline: Arc::downgrade(other), seq };
        // Looks at two entries, and removes those that have completed or whose timelines are gone.
        waited.enter(other.id, entry, |w| {
            let timeline = w.timeline.upgrade();
            let pending = timeline.as_ref().is_some_and(|t| !t.has_completed(w.seq));
            looked_at.extend(timeline);
            !pending
        });
        drop(waited);
        drop(looked_at);
    }

    /// [`note_waited`](Self::note_waited) by the other timeline's id; returns false if this stream has no
    /// entry for it.
    pub(crate) fn note_waited_again(&self, id: u64, seq: u64) -> bool {
        let mut waited = lock(&self.waited);
        let entry = waited.get_mut(id);
        entry.map(|entry| entry.seq = entry.seq.max(seq)).is_some()
    }

    /// Blocks the thread until everything up to `seq` has completed.
    pub(crate) fn wait_host(&self, seq: u64) -> Result<()> {
        let Some(Recorded { event, seq: covered, .. }) = self.covering(seq)? else {
            return Ok(());
        };
        deferred::while_waiting(|| event.synchronize())
            .map_err(|error| self.forget_captured(&event, error))?;
        self.complete(covered);
        Ok(())
    }

    /// Whether everything up to `seq` has completed; asks the driver if that is not known.
    pub(crate) fn query(&self, seq: u64) -> Result<bool> {
        self.covering(seq)?.map_or(Ok(true), |recorded| self.ask(&recorded))
    }

    fn ask(&self, Recorded { event, seq, .. }: &Recorded) -> Result<bool> {
        // The driver ends a capture when an event of that capture is queried.
        if self.flavor == Flavor::Captured {
            return Ok(false);
        }
        let done = event.query().map_err(|error| self.forget_captured(event, error))?;
        if done {
            self.complete(*seq);
        }
        Ok(done)
    }

    /// Whether everything up to `seq` is known to have completed, or an already recorded event shows it.
    /// Makes at most one driver call and never records.
    pub(crate) fn peek(&self, seq: u64) -> bool {
        let ask = |recorded| self.ask(&recorded).unwrap_or(false);
        self.has_completed(seq) || self.recorded(seq).is_some_and(ask)
    }

    /// Whether the completion of the point can never be proven: the stream is gone and no event covers the
    /// point.
    pub(crate) fn is_lost(&self, seq: u64) -> bool {
        let gone = self.recorder.read().unwrap_or_else(PoisonError::into_inner).is_none();
        // In this order: an event leaves the list only after its points are known to be complete.
        gone && self.recorded(seq).is_none() && !self.has_completed(seq)
    }

    /// Called before the stream is destroyed: records a last event for the marks that outlive the stream,
    /// then removes the handle, so that no thread can reach it.
    ///
    /// `marked`: whether any mark still refers to this timeline. On failure the points not covered can never
    /// be proven complete, unless the stream is being captured: then its handle stays.
    pub(crate) fn close(&self, marked: bool) -> Result<()> {
        let issued = self.issued();
        let covered = self.has_completed(issued) || self.recorded(issued).is_some();
        let result = match (marked && !covered, self.flavor) {
            // A second try: the owner of a mark that cannot be proven complete must leak its memory.
            (true, Flavor::Created | Flavor::Foreign | Flavor::Legacy) => self
                .record(false, None)
                .or_else(|first| self.record(false, None).map_err(|_| first)),
            _ => Ok(None),
        };
        if !matches!(&result, Err(error) if held::is_held(error)) {
            *self.recorder.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        result.map(|_| ())
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        // In a fork's child the lock may be held by a thread that does not exist there.
        if !driver::is_gone() {
            self.context.timelines().leave(self.id, self.order);
        }
    }
}
