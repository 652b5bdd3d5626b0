//! Records of events into captures by this crate.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::timeline::recording::{Order, Recording};
use crate::timeline::{Bound, RawEvent};
use crate::util::lock;

/// The record of an event into a capture, if the event's last record was one.
///
/// A stream that waits for an event of the driver joins the capture that the event was last recorded into. So
/// a capture records an event of its own in place of the caller's. The caller's event therefore never makes a
/// stream join a capture, whatever other threads do at the same time.
#[derive(Default)]
pub(super) struct EventCapture {
    /// Whether the last record was into a capture. Only decides about errors, so it needs no ordering.
    is_last: AtomicBool,
    /// Boxed, so that an event is small enough to be returned without a call of `memcpy`.
    record: Mutex<Option<Box<CapturedRecord>>>,
}

struct CapturedRecord {
    /// [`Recording::id`].
    capture: u64,
    event: RawEvent,
}

impl EventCapture {
    #[inline]
    pub(super) fn is_last(&self) -> bool {
        self.is_last.load(Relaxed)
    }

    /// Called before the event is recorded outside of captures.
    #[inline]
    pub(super) fn leave(&self) {
        if self.is_last() {
            self.is_last.store(false, Relaxed);
        }
    }

    /// Records an event of `context`, in place of the caller's, on a stream of the capture.
    pub(super) fn record(
        &self,
        recording: &Recording,
        context: &Context,
        record: impl FnOnce(&RawEvent) -> Result<()>,
    ) -> Result<()> {
        recording.during("cuEventRecord", |_order| {
            let mut last = lock(&self.record);
            let event = match last.take() {
                Some(last) => last.event,
                None => RawEvent::for_ordering(context)?,
            };
            record(&event)?;
            *last = Some(Box::new(CapturedRecord { capture: recording.id(), event }));
            self.is_last.store(true, Relaxed);
            Ok(())
        })
    }

    /// Makes a stream of the capture wait for the event's last record, which must be in that capture.
    pub(super) fn wait(&self, recording: &Recording, bound: &Bound<'_>) -> Result<()> {
        let op = "cuStreamWaitEvent";
        recording.during(op, |order| match &*lock(&self.record) {
            Some(last) if self.is_last() && last.capture == recording.id() => match order {
                Order::Chain | Order::Streams => bound.wait_for_event(&last.event, false),
                // By access, operations are ordered only after what they conflict with.
                Order::Access => Ok(()),
            },
            _ => Err(Error::NotCapturable { op }),
        })
    }
}
