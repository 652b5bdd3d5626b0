//! What may come at any time, with all that is behind it: a host function, a wait for a value, a wait
//! for what is behind one of these.
//!
//! What was enqueued before must not be covered only by an event behind it: the thread that waits
//! for that event could be the one that the host function waits for. So the stream checkpoints first.
//!
//! CUDA orders the legacy stream and the blocking streams of a context without being told: work of
//! the legacy stream comes behind all that blocking streams have, and their work behind all that it
//! has. So an event that is recorded late on one of them may come behind what another was given, and
//! the rule is that of the whole set:
//!
//! * Before one of them is held up, all of them checkpoint.
//! * Work of the legacy stream behind a blocking stream that is held up is held up too, and all the
//!   set's work behind that. So all of them checkpoint once more before the first such work.
//! * From there on each of them counts as held up, until its first work behind that has completed.
//!
//! Streams outside the set, the non-blocking ones, take no part in this. Nor does work that other
//! libraries give the legacy stream, which this crate does not see: for what was enqueued on a
//! blocking stream since another one was held up, [`Stream::checkpoint`](crate::Stream::checkpoint)
//! has to be called by hand before.
//!
//! Between a checkpoint and the call that it precedes no lock is held: what another thread enqueues
//! in that moment may be covered late.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Flavor, ImplicitOrder, Timeline};
use crate::context::guard::Entered;
use crate::error::{Error, Result};

/// Points that may come at any time, with all behind them.
#[derive(Default)]
pub(super) struct HeldUp {
    /// A lower bound of the first such point that is not known to be complete.
    first: AtomicU64,
    last: AtomicU64,
}

impl Timeline {
    /// [`Timeline::checkpoint`] before something that may take any time is enqueued, with all
    /// streams that CUDA orders with this one.
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

    /// What may take any time has this point.
    pub(crate) fn held_up_at(&self, seq: u64) {
        self.may_come_late(seq);
        if self.order() == ImplicitOrder::Blocking && self.flavor != Flavor::Legacy {
            self.context.timelines().hold_ups.add();
        }
    }

    /// Before work of the legacy stream: where that comes behind a blocking stream that is held up,
    /// it is held up with all behind it, so the set checkpoints first. No driver call where it was
    /// done since, and none on other streams.
    #[inline]
    pub(crate) fn pass_on_hold_ups(&self, entered: Option<&Entered>) -> Result<()> {
        match self.flavor {
            Flavor::Legacy => self.pass_on(entered),
            _ => Ok(()),
        }
    }

    fn pass_on(&self, entered: Option<&Entered>) -> Result<()> {
        let hold_ups = &self.context.timelines().hold_ups;
        let Some(blocking) = hold_ups.to_pass_on() else {
            return Ok(());
        };
        self.hold_up_the_set(entered)?;
        self.may_come_late(self.issued() + 1);
        hold_ups.passed_on(blocking);
        Ok(())
    }

    /// The legacy stream is held up next, and with it whatever the set is given from then on.
    fn hold_up_the_set(&self, entered: Option<&Entered>) -> Result<()> {
        // First of all, so that streams made meanwhile know.
        let timelines = self.context.timelines();
        timelines
            .hold_ups
            .hold_up_legacy(timelines.entry(&self.slot));
        self.checkpoint_the_set(entered)?;
        for other in timelines.blocking() {
            if other.id != self.id {
                other.may_come_late(other.issued() + 1);
            }
        }
        Ok(())
    }

    /// [`Timeline::checkpoint`] of all others that CUDA orders with this stream.
    fn checkpoint_the_set(&self, entered: Option<&Entered>) -> Result<()> {
        let others = self.context.timelines().blocking();
        let mut others = others.iter().filter(|other| match other.flavor {
            // They record by themselves, on their own threads.
            Flavor::PerThread => false,
            // Another timeline of the legacy stream is this one's past, or its future.
            Flavor::Legacy => self.flavor != Flavor::Legacy,
            _ => other.id != self.id,
        });
        others.try_for_each(|other| match other.checkpoint(true, entered) {
            // No event can be recorded there before the capture ends, and then it comes behind this.
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

    /// Whether what covers the points up to `seq` may come at any time.
    pub(crate) fn is_held_up(&self, seq: u64) -> bool {
        self.may_be_held_up() && self.held_up.first.load(Ordering::Acquire) <= seq
    }

    /// Whether an event that is recorded now may come at any time.
    pub(crate) fn is_held_up_now(&self) -> bool {
        // One of the set may be behind the legacy stream's work with none of its own.
        self.is_held_up(self.issued() + 1)
    }

    /// Whether any point of it is not known to be complete that may come at any time.
    pub(crate) fn may_be_held_up(&self) -> bool {
        !self.has_completed(self.held_up.last.load(Ordering::Acquire))
    }

    /// A new timeline of a set whose legacy stream is held up is behind that.
    pub(super) fn begin_held_up(&self) {
        if self.order() == ImplicitOrder::Blocking
            && self.context.timelines().hold_ups.is_legacy_held_up()
        {
            self.may_come_late(1);
        }
    }
}
