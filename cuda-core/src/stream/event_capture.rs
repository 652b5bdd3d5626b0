//! Which capture of this crate's an event was last recorded into.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::timeline::Timeline;

/// The id of the capture that an event's last record is part of.
///
/// A stream that waits for an event of a capture joins that capture, so the id must never say too
/// little. It is set before the event is recorded into a capture, and reset after it was recorded
/// elsewhere, both under the lock, which a stream that waits for the event shares; a record elsewhere that
/// finds nothing to reset takes no lock. So if two threads record the event at the same time, it may keep the id of a capture that it is no
/// more part of.
#[derive(Default)]
pub(super) struct EventCapture {
    id: AtomicU64,
    turn: RwLock<()>,
}

/// A record of the event, until it is dropped.
pub(super) struct EventRecord<'a> {
    turn: Option<RwLockWriteGuard<'a, ()>>,
    reset: Option<&'a AtomicU64>,
}

impl EventCapture {
    /// The id of an event that is part of no capture.
    pub(super) const NONE: u64 = 0;

    #[inline]
    pub(super) fn id(&self) -> u64 {
        self.id.load(Ordering::Acquire)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ()> {
        self.turn.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// While this exists, the event is not recorded into a capture.
    #[inline]
    pub(super) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.turn.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called before the event is recorded on that stream.
    #[inline]
    pub(super) fn begin(&self, stream: &Timeline) -> EventRecord<'_> {
        match stream.recording() {
            None if self.id() == Self::NONE => EventRecord { turn: None, reset: None },
            None => EventRecord { turn: Some(self.write()), reset: Some(&self.id) },
            Some(recording) => {
                let turn = self.write();
                self.id.store(recording.id(), Ordering::Release);
                EventRecord { turn: Some(turn), reset: None }
            }
        }
    }
}

impl Drop for EventRecord<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.reset {
            id.store(EventCapture::NONE, Ordering::Release);
        }
        drop(self.turn.take());
    }
}
