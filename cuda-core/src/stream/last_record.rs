//! The last record of an event: a wait for the event proves how far the recorded stream has come.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::error::Result;
use crate::timeline::Timeline;
use crate::util::lock;

/// The point of a stream at which an event was last recorded, as far as this crate knows. After a wait for
/// the event, the crate needs no event of its own to know that the stream has come so far.
///
/// No lock is held during driver calls, which may wait for the device. Records and waits on the same streams
/// as before take no lock.
#[derive(Default)]
pub(super) struct LastRecord {
    /// The number of records begun, in units of [`BEGUN`], plus the number of records in progress, plus
    /// [`SHARED`] if it was added. The fields below are written only by a record that no other one overlaps,
    /// before it ends.
    records: AtomicU64,
    /// The number of the record whose point is known. That is the last record's point if no other record has
    /// begun.
    known: AtomicU64,
    seq: AtomicU64,
    stream_id: AtomicU64,
    stream: Mutex<Weak<Timeline>>,
}

const BEGUN: u64 = 1 << 16;

/// Added if other code may record the event, which counts as a record that never ends. Fewer threads than
/// this record one event at a time.
const SHARED: u64 = BEGUN / 2;

/// The point of a record: after `seq` operations of the stream with this id.
#[derive(Clone, Copy)]
pub(super) struct RecordedPoint {
    records: u64,
    pub(super) stream_id: u64,
    pub(super) seq: u64,
}

impl LastRecord {
    pub(super) fn new(is_shared: bool) -> Self {
        let records = if is_shared { SHARED } else { 0 };
        Self { records: records.into(), ..Self::default() }
    }

    /// Called before other code, or a graph, can record the event.
    pub(super) fn share(&self) {
        self.records.fetch_or(SHARED, Ordering::AcqRel);
    }

    /// Makes the call that records the event on a stream.
    #[inline]
    pub(super) fn record(
        &self,
        stream: &Arc<Timeline>,
        record: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let before = self.records.fetch_add(BEGUN + 1, Ordering::AcqRel);
        // Read before the record: what is counted later need not have been enqueued before it.
        let seq = stream.issued();
        let recorded = record();
        // If records overlap, it is unknown which call came last. If the stream is exposed, the record may
        // have gone into a capture of other code.
        // A thread that reads the values stored here also sees that the record has begun.
        if recorded.is_ok() && before % BEGUN == 0 && !stream.is_exposed() {
            if self.stream_id.load(Ordering::Relaxed) != stream.id() {
                *lock(&self.stream) = Arc::downgrade(stream);
                self.stream_id.store(stream.id(), Ordering::Release);
            }
            self.seq.store(seq, Ordering::Release);
            self.known.store(before / BEGUN + 1, Ordering::Release);
        }
        self.records.fetch_sub(1, Ordering::AcqRel);
        recorded
    }

    /// Makes a call that waits for the event. If it returns true, calls `note` with the point that was waited
    /// for, if that is known.
    #[inline]
    pub(super) fn wait(
        &self,
        wait: impl FnOnce() -> Result<bool>,
        note: impl FnOnce(RecordedPoint),
    ) -> Result<bool> {
        let before = self.known();
        let waited = wait()?;
        if let Some(point) = before.filter(|point| waited && self.is_last(*point)) {
            note(point);
        }
        Ok(waited)
    }

    #[inline]
    fn known(&self) -> Option<RecordedPoint> {
        let records = self.records.load(Ordering::Acquire);
        // Acquire loads: ordered before the later check that this is still the last record.
        let [known, seq, stream_id] =
            [&self.known, &self.seq, &self.stream_id].map(|it| it.load(Ordering::Acquire));
        let is_known = records % BEGUN == 0 && records / BEGUN == known && seq > 0;
        is_known.then_some(RecordedPoint { records, stream_id, seq })
    }

    /// Whether no record has begun since `point` was read, and other code cannot have made one.
    #[inline]
    fn is_last(&self, point: RecordedPoint) -> bool {
        self.records.load(Ordering::Acquire) == point.records
    }

    /// Returns the point's stream, if it exists and the record is still the last one.
    pub(super) fn stream_of(&self, point: RecordedPoint) -> Option<Arc<Timeline>> {
        // The last reference to a timeline is not dropped under the lock.
        let stream = lock(&self.stream).upgrade();
        stream.filter(|_| self.is_last(point))
    }
}
