//! Events recorded on a stream, and the points that they cover.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::event::RawEvent;
use super::{Flavor, Timeline};
use crate::context::Entered;
use crate::error::{Error, Result};
use crate::util::lock;

/// Events recorded on a stream, oldest first.
#[derive(Default)]
pub(super) struct RecordedEvents {
    pub(super) recorded: Vec<Recorded>,
    /// Events that cover no pending point, to be recorded again.
    pub(super) spare: Vec<Arc<RawEvent>>,
    /// The length of the list, at least [`RING`], from which on the driver is queried about its events.
    asked_from: usize,
}

#[derive(Clone)]
pub(crate) struct Recorded {
    pub(crate) event: Arc<RawEvent>,
    /// Everything up to here was issued before the record.
    pub(crate) seq: u64,
    /// A host function or a wait on a value follows: the next event may come much later.
    barrier: bool,
}

/// The number of listed events from which on the oldest one is recorded again, unless barriers prevent it.
const RING: usize = 8;

impl Timeline {
    /// Returns an event that completes when everything up to `seq` has; [`None`] if all of that has completed
    /// already.
    ///
    /// Records one if no recorded event covers the point: one driver call if the stream has a spare event.
    pub(super) fn covering(&self, seq: u64) -> Result<Option<Recorded>> {
        if self.has_completed(seq) {
            return Ok(None);
        }
        let mut recorded = self.recorded(seq);
        // Only its own thread can record on a per-thread stream, and does so after every operation.
        if recorded.is_none() && self.flavor != Flavor::PerThread {
            let own = self.record(false, None)?;
            // Another thread may have held up the stream meanwhile: after a checkpoint, which is listed, or
            // without one if the point had completed. There is no own event if the stream was destroyed
            // meanwhile, after its last event.
            recorded = self.recorded(seq).or(own);
        }
        match recorded {
            _ if self.has_completed(seq) => Ok(None),
            None => Err(Error::LostStream),
            recorded => Ok(recorded),
        }
    }

    /// Returns the earliest recorded event that covers the point; a later one could wait for more than
    /// necessary. The event is not recorded again while the caller holds it.
    pub(crate) fn recorded(&self, seq: u64) -> Option<Recorded> {
        let recorded = &lock(&self.events).recorded;
        recorded.get(recorded.partition_point(|r| r.seq < seq)).cloned()
    }

    /// Whether work that may take any time follows the point, behind an event that covers the point.
    pub(crate) fn checkpointed(&self, seq: u64) -> bool {
        lock(&self.events).recorded.iter().any(|r| r.barrier && r.seq >= seq)
    }

    /// Records an event after everything issued so far. Returns [`None`] if the stream is gone.
    pub(super) fn record(
        &self,
        barrier: bool,
        entered: Option<&Entered>,
    ) -> Result<Option<Recorded>> {
        let mut spare = self.spare_event();
        if spare.is_none() && self.ask_which_completed() {
            spare = self.spare_event();
        }
        let event = match spare {
            Some(event) => event,
            None => Arc::new(RawEvent::for_ordering(&self.context)?),
        };
        let seq = match self.record_on(&event, entered) {
            Ok(Some(seq)) => seq,
            Ok(None) => return Ok(None),
            Err(error) => {
                lock(&self.events).spare.push(event);
                return Err(error);
            }
        };
        let recorded = Recorded { event, seq, barrier };
        let mut events = lock(&self.events);
        let later = events.recorded.iter().rev().take_while(|r| r.seq >= seq).count();
        let at = events.recorded.len() - later;
        // Another thread has made a checkpoint since the point was read, so this event may come after work
        // that may take any time.
        if let Some(checkpoint) = events.recorded[at..].iter().find(|r| r.barrier).cloned() {
            events.spare.push(recorded.event);
            return Ok(Some(checkpoint));
        }
        let at = at + events.recorded[at..].partition_point(|r| r.seq <= seq);
        events.recorded.insert(at, recorded.clone());
        Ok(Some(recorded))
    }

    /// Queries three of the listed events, the last, the middle and the first, and returns whether one of
    /// them has completed. Between barriers no event is replaced, so the list grows. Does nothing until the
    /// list is twice as long as the number of events that the last query left.
    fn ask_which_completed(&self) -> bool {
        let listed = {
            let events = lock(&self.events);
            let len = events.recorded.len();
            if len < events.asked_from.max(RING) {
                return false;
            }
            [len - 1, len / 2, 0].map(|at| events.recorded[at].clone())
        };
        let completed = |r: &Recorded| self.ask(r).unwrap_or(false);
        let any = listed.iter().any(completed);
        let mut events = lock(&self.events);
        let left = events.recorded.iter().filter(|r| !self.has_completed(r.seq)).count();
        events.asked_from = 2 * left;
        any
    }

    /// Takes an event that is not needed any more.
    fn spare_event(&self) -> Option<Arc<RawEvent>> {
        let completed = self.completed.load(Ordering::Acquire);
        let mut guard = lock(&self.events);
        let events = &mut *guard;
        let done = events.recorded.iter().take_while(|r| r.seq <= completed).count();
        events.recorded.drain(..done).for_each(|r| events.spare.push(r.event));
        if events.spare.is_empty() && events.recorded.len() >= RING {
            // The points of the oldest event are covered by the next one as well. With a barrier between the
            // two events, the next one would cover them too late: then the list grows instead.
            let old = events
                .recorded
                .iter_mut()
                .position(|r| !r.barrier && Arc::get_mut(&mut r.event).is_some())
                .filter(|at| at + 1 < events.recorded.len());
            if let Some(at) = old {
                return Some(events.recorded.remove(at).event);
            }
        }
        // Skips an event that is still polled: recorded again, it would complete later than promised.
        let free = events.spare.iter_mut().position(|event| Arc::get_mut(event).is_some())?;
        Some(events.spare.swap_remove(free))
    }

    /// Records an event now, so that a wait for earlier work does not include later work. No driver call if
    /// an event covers the earlier work already. `barrier`: the next work may take any time, so this event
    /// must not be replaced by a later one.
    pub(crate) fn checkpoint(&self, barrier: bool, entered: Option<&Entered>) -> Result<()> {
        let issued = self.issued();
        if self.has_completed(issued) {
            return Ok(());
        }
        {
            let mut events = lock(&self.events);
            if let Some(last) = events.recorded.last_mut().filter(|r| r.seq >= issued) {
                last.barrier |= barrier;
                return Ok(());
            }
        }
        self.record(barrier, entered).map(|_| ())
    }
}
