//! Work that may take any time, and all work after it. Such work is a host function, a wait for a value, or a
//! wait for a point after one of these.
//!
//! Earlier work on the stream must not be covered only by an event after such work: a thread that waits for
//! that event could be the one that the host function waits for. So the stream makes a checkpoint first.
//!
//! CUDA implicitly orders the legacy stream and the blocking streams of a context: work on the legacy stream
//! comes after all earlier work of the blocking streams, and their work after all earlier work of the legacy
//! stream. So an event that is recorded late on one of them may come after work of another. The rule
//! therefore applies to all of them, the set:
//!
//! * Before one of them is held up, all of them make a checkpoint.
//! * While a blocking stream is held up, later work of the legacy stream waits for it, and so does all later
//!   work of the other streams of the set. So all of them make another checkpoint before the first such work.
//! * From then on each of them counts as held up, until its first later work has completed.
//!
//! Non-blocking streams are outside the set. This crate does not see work that other libraries enqueue on the
//! legacy stream: before such work the program itself has to call
//! [`Stream::checkpoint`](crate::Stream::checkpoint) on a blocking stream, to cover the work enqueued there
//! since another one was held up.
//!
//! No lock is held between a checkpoint and the call that it precedes: work that another thread enqueues in
//! between may be covered late.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Weak};

use super::{Flavor, ImplicitOrder, Timeline};
use crate::context::Entered;
use crate::error::{Error, Result};
use crate::util::lock;

/// The points of a stream that may take any time, with everything after them.
#[derive(Default)]
pub(super) struct HeldUp {
    /// A lower bound of the first such point that is not known to have completed.
    first: AtomicU64,
    last: AtomicU64,
}

/// Work that may take any time on the context's legacy and blocking streams.
#[derive(Default)]
pub(super) struct HoldUps {
    /// How often a blocking stream was held up.
    blocking: AtomicU64,
    /// How many of these hold-ups precede work of the legacy stream.
    passed_on: AtomicU64,
    /// The legacy stream's timeline that was held up last, unless that hold-up is known to have ended.
    legacy: Mutex<Option<Weak<Timeline>>>,
}

impl HoldUps {
    /// Whether new streams of the set may come after a hold-up of the legacy stream. If the held-up timeline
    /// is gone, the end of its hold-up cannot be observed.
    fn is_legacy_held_up(&self) -> bool {
        let Some(legacy) = lock(&self.legacy).clone() else {
            return false;
        };
        legacy.upgrade().is_none_or(|legacy| legacy.may_be_held_up())
    }

    /// Returns the held-up timeline of the legacy stream if that timeline is gone.
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
            (ImplicitOrder::Blocking, Flavor::Legacy) => {
                // A handle that another thread is dropping has a timeline of its own for the same stream.
                let timelines = self.context.timelines().blocking();
                let mut older =
                    timelines.iter().filter(|it| it.flavor == self.flavor && it.id != self.id);
                older.try_for_each(|older| older.checkpoint(true, entered))?;
                self.hold_up_the_set(self.issued() + 1, entered)?;
            }
            (ImplicitOrder::Blocking, _) => self.checkpoint_the_set(entered)?,
        }
        self.held_up_at(self.issued() + 1);
        Ok(())
    }

    /// Notes that the work at this point may take any time; zero is no point.
    pub(crate) fn held_up_at(&self, seq: u64) {
        if seq == 0 {
            return;
        }
        self.may_come_late(seq);
        if self.order() == ImplicitOrder::Blocking && self.flavor != Flavor::Legacy {
            self.context.timelines().hold_ups.blocking.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Called before work of the legacy stream. Such work after a blocking stream that is held up is held up
    /// too, with all later work, so all streams of the set make a checkpoint first. No driver call if they
    /// have done so since the last hold-up, or if this is not the legacy stream.
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
        // Earlier points have events that were recorded before the hold-up. Later ones may have been counted
        // since without work, for which nothing was passed on: an event for them comes behind the hold-up.
        let recorded = lock(&self.events).recorded.last().map_or(0, |last| last.seq);
        let first = recorded.max(self.completed.load(Ordering::Acquire)) + 1;
        self.hold_up_the_set(first, entered)?;
        hold_ups.passed_on.fetch_max(blocking, Ordering::AcqRel);
        Ok(())
    }

    /// Makes the checkpoints before the legacy stream is held up from its point `first` on, and with it all
    /// later work of the set.
    fn hold_up_the_set(&self, first: u64, entered: Option<&Entered>) -> Result<()> {
        // Both set first, so that streams that are created meanwhile see that they may be behind it.
        self.may_come_late(first);
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

    /// Calls [`Timeline::checkpoint`] for all other streams that CUDA orders with this one.
    fn checkpoint_the_set(&self, entered: Option<&Entered>) -> Result<()> {
        let others = self.context.timelines().blocking();
        let mut others = others.iter().filter(|other| match other.flavor {
            // Its own thread records an event after every operation.
            Flavor::PerThread => false,
            // Other timelines of the legacy stream stand for the same stream.
            Flavor::Legacy => self.flavor != Flavor::Legacy,
            _ => other.id != self.id,
        });
        others.try_for_each(|other| match other.checkpoint(true, entered) {
            // No event can be recorded on that stream before its capture ends; a later one comes after this
            // stream's work.
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
        // A stream of the set may come after the legacy stream's work without any work of its own.
        self.is_held_up(self.issued() + 1)
    }

    /// Whether the stream has a point that may take any time and is not known to have completed.
    pub(crate) fn may_be_held_up(&self) -> bool {
        !self.has_completed(self.held_up.last.load(Ordering::Acquire))
    }

    /// Marks a new timeline of a set whose legacy stream is held up as held up.
    pub(super) fn begin_held_up(&self) {
        if self.order() == ImplicitOrder::Blocking
            && self.context.timelines().hold_ups.is_legacy_held_up()
        {
            self.may_come_late(1);
        }
    }
}
