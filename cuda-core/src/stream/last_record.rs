//! What a wait for an event shows: how far the stream is that it was recorded on.

use std::sync::{Arc, Mutex, Weak};

use crate::error::Result;
use crate::process::driver;
use crate::timeline::Timeline;
use crate::util::lock;

/// The point of a stream at which an event was last recorded, as far as this crate knows. After a wait for the event,
/// no event of the crate's own has to show that the stream has come so far.
///
/// Not locked during calls of the driver, which may wait for the device.
pub(super) struct LastRecord(Mutex<RecordedPoint>);

#[derive(Default)]
struct RecordedPoint {
    /// How many records have begun, and how many of them have not ended.
    begun: u64,
    under_way: usize,
    stream: Weak<Timeline>,
    // INVARIANT: the point of the driver's last record, or zero if that is not known; so also while one is under way.
    seq: u64,
    /// Other code may record the event, too.
    is_shared: bool,
}

impl LastRecord {
    pub(super) fn new(is_shared: bool) -> Self {
        Self(Mutex::new(RecordedPoint { is_shared, ..RecordedPoint::default() }))
    }

    /// To be called before other code, or a graph, can record the event.
    pub(super) fn share(&self) {
        // A thread that does not exist in a fork's child may hold the lock.
        if !driver::is_gone() {
            lock(&self.0).is_shared = true;
        }
    }

    /// Makes the call that records the event on a stream.
    pub(super) fn record(
        &self,
        stream: &Arc<Timeline>,
        record: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut last = lock(&self.0);
        last.begun += 1;
        last.under_way += 1;
        last.seq = 0;
        let (number, alone) = (last.begun, last.under_way == 1);
        drop(last);
        // Read before the record: what is counted later need not have been enqueued before it.
        let seq = stream.issued();
        let recorded = record();
        let mut last = lock(&self.0);
        last.under_way -= 1;
        // Of records that overlap, the last call is not known. A record may have gone into a capture of other code
        // that has the stream's handle.
        let is_last = alone && last.begun == number;
        if recorded.is_ok() && is_last && !last.is_shared && !stream.is_exposed() {
            if last.stream.as_ptr() != Arc::as_ptr(stream) {
                last.stream = Arc::downgrade(stream);
            }
            last.seq = seq;
        }
        recorded
    }

    /// Makes a call that waits for the event. If that returns true, `note` is called with the point that the wait was
    /// for, where it is known.
    pub(super) fn wait(
        &self,
        wait: impl FnOnce() -> Result<bool>,
        note: impl FnOnce(&Arc<Timeline>, u64),
    ) -> Result<bool> {
        driver::ensure()?;
        let before = lock(&self.0).known();
        let waited = wait()?;
        let last = lock(&self.0);
        let is_same = waited && before == last.known();
        let point =
            before.filter(|_| is_same).and_then(|(_, seq)| Some((last.stream.upgrade()?, seq)));
        // The last reference to a timeline is not dropped under the lock.
        drop(last);
        if let Some((stream, seq)) = point {
            note(&stream, seq);
        }
        Ok(waited)
    }
}

impl RecordedPoint {
    /// The number of the last record, and the stream's point.
    fn known(&self) -> Option<(u64, u64)> {
        (self.seq > 0 && !self.is_shared).then_some((self.begun, self.seq))
    }
}
