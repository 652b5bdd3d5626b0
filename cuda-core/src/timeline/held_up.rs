//! Work that may take any time, and all work after it: a host function, a wait for a value, a wait
//! for what is after one of these.
//!
//! What was enqueued before such work must not be covered only by an event after it: the thread
//! that waits for that event could be the one that the host function waits for. So the stream
//! checkpoints first.
//!
//! CUDA implicitly orders the legacy stream and the blocking streams of a context: work on the
//! legacy stream comes after all earlier work of the blocking streams, and their work after all
//! earlier work of the legacy stream. So an event that is recorded late on one of them may come
//! after work of another, and the rule applies to the whole set:
//!
//! * Before one of them is held up, all of them checkpoint.
//! * While a blocking stream is held up, later work of the legacy stream waits for it, and so does
//!   all later work of the other streams of the set. So all of them checkpoint once more before the
//!   first such work.
//! * From there on each of them counts as held up, until its first later work has completed.
//!
//! Non-blocking streams are outside the set. This crate does not see work that other libraries
//! enqueue on the legacy stream: before such work the program itself has to call
//! [`Stream::checkpoint`](crate::Stream::checkpoint), to cover what was enqueued on a blocking
//! stream since another one was held up.
//!
//! No lock is held between a checkpoint and the call that it precedes: what another thread enqueues
//! in that moment may be covered late.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Weak};

use super::{Flavor, ImplicitOrder, Timeline};
use crate::context::Entered;
use crate::error::{Error, Result};
use crate::util::lock;

/// Points that may take any time, with all after them.
#[derive(Default)]
pub(super) struct HeldUp {
    /// A lower bound of the first such point that is not known to be complete.
    first: AtomicU64,
    last: AtomicU64,
}

/// Work that may take any time on the context's legacy and blocking streams.
#[derive(Default)]
pub(super) struct HoldUps {
    /// How often a blocking stream was held up.
    blocking: AtomicU64,
    /// How many of these hold-ups the legacy stream's work has come after.
    passed_on: AtomicU64,
    /// The legacy stream's timeline that was held up last, unless that hold-up is known to be over.
    legacy: Mutex<Option<Weak<Timeline>>>,
}

impl HoldUps {
    /// Whether new streams of the set may come after a hold-up of the legacy stream. If that
    /// timeline is gone, the end of its hold-up cannot be observed.
    fn is_legacy_held_up(&self) -> bool {
        let Some(legacy) = lock(&self.legacy).clone() else {
            return false;
        };
        legacy.upgrade().is_none_or(|legacy| legacy.may_be_held_up())
    }

    /// A timeline of the legacy stream that was held up and is gone.
    pub(super) fn orphan(&self) -> Option<Weak<Timeline>> {
        let legacy = lock(&self.legacy);
        legacy.clone().filter(|legacy| legacy.strong_count() == 0)
    }

    /// Notes that all work of the orphan has completed.
    pub(super) fn forget(&self, orphan: &Weak<Timeline>) {
        let mut legacy = lock(&self.legacy);
        if legacy.as_ref().is_some_and(|held| held.ptr_eq(orphan)) {
            *legacy = None;
        }
    }
}

impl Timeline {
    /// [`Timeline::checkpoint`] of this stream and of all that CUDA orders with it, before work
    /// that may take any time is enqueued.
    pub(crate) fn hold_up(&self, entered: Option<&Entered>) -> Result<()> {
        self.checkpoint(true, entered)?;
        match (self.order(), self.flavor) {
            (ImplicitOrder::NonBlocking, _) => {}
            (ImplicitOrder::Blocking, Flavor::Legacy) => self.hold_up_the_set(entered)?,
            (ImplicitOrder::Blocking, _) => self.checkpoint_the_set(entered)?,
        }
        self.held_up_at(self.issued() + 1);
        Ok(())
    }

    /// Notes that the work at this point may take any time; the point zero is that of no work.
    pub(crate) fn held_up_at(&self, seq: u64) {
        if seq == 0 {
            return;
        }
        self.may_come_late(seq);
        if self.order() == ImplicitOrder::Blocking && self.flavor != Flavor::Legacy {
            self.context.timelines().hold_ups.blocking.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// To be called before work of the legacy stream. Such work after a blocking stream that is
    /// held up is held up too, with all later work: so all streams of the set checkpoint first. No
    /// driver call if they have done so since the last hold-up, and none if this is another stream.
    #[inline]
    pub(crate) fn pass_on_hold_ups(&self, entered: Option<&Entered>) -> Result<()> {
        match self.flavor {
            Flavor::Legacy => self.pass_on(entered),
            _ => Ok(()),
        }
    }

    fn pass_on(&self, entered: Option<&Entered>) -> Result<()> {
        let hold_ups = &self.context.timelines().hold_ups;
        let blocking = hold_ups.blocking.load(Ordering::Acquire);
        if blocking <= hold_ups.passed_on.load(Ordering::Acquire) {
            return Ok(());
        }
        self.hold_up_the_set(entered)?;
        self.may_come_late(self.issued() + 1);
        hold_ups.passed_on.fetch_max(blocking, Ordering::AcqRel);
        Ok(())
    }

    /// Called before the legacy stream is held up, and with it all later work of the set.
    fn hold_up_the_set(&self, entered: Option<&Entered>) -> Result<()> {
        // Before all else, so that streams created meanwhile know.
        let timelines = self.context.timelines();
        *lock(&timelines.hold_ups.legacy) = Some(timelines.legacy(self.id));
        self.checkpoint_the_set(entered)?;
        for other in timelines.blocking() {
            if other.id != self.id {
                other.may_come_late(other.issued() + 1);
            }
        }
        Ok(())
    }

    /// [`Timeline::checkpoint`] of all other streams that CUDA orders with this one.
    fn checkpoint_the_set(&self, entered: Option<&Entered>) -> Result<()> {
        let others = self.context.timelines().blocking();
        let mut others = others.iter().filter(|other| match other.flavor {
            // Its own thread records after every operation.
            Flavor::PerThread => false,
            // Other timelines of the legacy stream are the same stream at an earlier or a later
            // time.
            Flavor::Legacy => self.flavor != Flavor::Legacy,
            _ => other.id != self.id,
        });
        others.try_for_each(|other| match other.checkpoint(true, entered) {
            // No event can be recorded on that stream before the capture ends; a later one comes
            // after this stream's work.
            Err(Error::Capturing { .. }) => {
                other.may_come_late(1);
                Ok(())
            }
            checkpointed => checkpointed,
        })
    }

    fn may_come_late(&self, seq: u64) {
        let HeldUp { first, last } = &self.held_up;
        let anew = self.has_completed(last.load(Ordering::Acquire));
        let earliest = |first| {
            let anew = anew && self.has_completed(first);
            Some(if anew { seq } else { seq.min(first) })
        };
        let _ = first.fetch_update(Ordering::AcqRel, Ordering::Acquire, earliest);
        last.fetch_max(seq, Ordering::AcqRel);
    }

    /// Whether an event that covers the points up to `seq` may take any time.
    pub(crate) fn is_held_up(&self, seq: u64) -> bool {
        self.may_be_held_up() && self.held_up.first.load(Ordering::Acquire) <= seq
    }

    /// Whether an event that is recorded now may take any time.
    pub(crate) fn is_held_up_now(&self) -> bool {
        // A stream of the set may come after the legacy stream's work without having any of its own.
        self.is_held_up(self.issued() + 1)
    }

    /// Whether it has a point that may take any time and is not known to be complete.
    pub(crate) fn may_be_held_up(&self) -> bool {
        !self.has_completed(self.held_up.last.load(Ordering::Acquire))
    }

    /// A new timeline of a set whose legacy stream is held up counts as held up, too.
    pub(super) fn begin_held_up(&self) {
        if self.order() == ImplicitOrder::Blocking
            && self.context.timelines().hold_ups.is_legacy_held_up()
        {
            self.may_come_late(1);
        }
    }
}
