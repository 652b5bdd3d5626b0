//! Parts that are captured alone: code captures them without holding the recording's lock. Until such a part
//! has ended, other operations are refused and the capture does not end.

use std::mem;

use super::{KeptUses, LockedRecording, OpenRecording, Order, Recording};
use crate::error::Result;
use crate::process::{Failed, driver};
use crate::timeline::core::Bound;
use crate::timeline::ledger::Touch;
use crate::util::wait_while;

/// The error for other operations while the body of a condition is captured.
const BODY: &str = "what runs on a condition is being captured: use the stream that it was passed";

/// The error for other operations while another library enqueues its work.
const LIBRARY: &str = "work of another library is being captured: `StreamWork::enqueue`";

/// While this exists, nothing else is captured and the capture does not end.
pub(crate) struct CapturedAlone<'a>(&'a Recording);

impl CapturedAlone<'_> {
    /// Ends it under the recording's lock, which the caller holds.
    fn release(self, recorded: &mut Option<OpenRecording>) {
        self.0.resume(recorded);
        mem::forget(self);
    }
}

impl Drop for CapturedAlone<'_> {
    fn drop(&mut self) {
        // In a fork's child, the lock may be held by a thread that does not exist there.
        if driver::is_gone() {
            return;
        }
        self.0.resume(&mut self.0.lock().recorded);
    }
}

impl Recording {
    fn resume(&self, recorded: &mut Option<OpenRecording>) {
        if let Some(recorded) = recorded {
            recorded.alone = None;
        }
        self.resumed.notify_all();
    }

    /// Waits until no other thread [captures something alone](CapturedAlone).
    pub(super) fn wait_until_resumed(&self) -> LockedRecording<'_> {
        let LockedRecording { recorded, _quiet } = self.lock();
        let is_alone = |recorded: &mut Option<OpenRecording>| {
            recorded.as_ref().is_some_and(|recorded| recorded.alone.is_some())
        };
        LockedRecording { recorded: wait_while(&self.resumed, recorded, is_alone), _quiet }
    }

    /// Waits for everything that other threads began to [capture alone](CapturedAlone) before the capture was
    /// to end.
    pub(crate) fn wait_for_others(&self) {
        drop(self.wait_until_resumed());
    }

    /// Begins an operation that is captured in parts, by the returned order; `begin` makes the driver's
    /// calls. The capture yields no graph unless the operation is [finished](Self::finish).
    pub(super) fn begin<R>(
        &self,
        op: &'static str,
        begin: impl FnOnce() -> Result<R, Failed>,
    ) -> Result<(R, Order, CapturedAlone<'_>)> {
        let mut guard = self.lock();
        let recorded = self.open(op, &mut guard.recorded)?;
        let begun = begin();
        // Counted also if the graph may have the operation without this crate's knowledge.
        recorded.unfinished += usize::from(!matches!(begun, Err(Failed::Refused(_))));
        let begun = begun?;
        recorded.alone = Some(BODY);
        // A body has one stream.
        let order = match recorded.order.kind() {
            Order::Chain | Order::Streams => Order::Chain,
            Order::Access => Order::Access,
        };
        Ok((begun, order, CapturedAlone(self)))
    }

    /// [`Self::include`] of a condition's bodies, for the operation that has [begun](Self::begin). The
    /// capture yields no graph if this fails or is not called.
    pub(crate) fn finish(
        &self,
        op: &'static str,
        body: CapturedAlone<'_>,
        bound: &Bound<'_>,
        child: &KeptUses,
        enqueue: impl FnOnce() -> (u64, Result<(), Failed>),
    ) -> Result<()> {
        let mut guard = self.lock();
        body.release(&mut guard.recorded);
        let recorded = self.open(op, &mut guard.recorded)?;
        recorded.include(bound, child, enqueue)?;
        // Noted only here: another included graph is copied, and its copy has other bodies.
        recorded.uses.bodies.extend(&child.bodies);
        recorded.unfinished -= 1;
        Ok(())
    }

    /// [`Self::note`] before library work, which may be enqueued while the returned value exists.
    pub(crate) fn begin_library(
        &self,
        op: &'static str,
        bound: &Bound<'_>,
        touches: &[Touch<'_>],
    ) -> Result<CapturedAlone<'_>> {
        let mut guard = self.lock();
        let recorded = self.open_for(op, touches, &mut guard.recorded)?;
        recorded.note(bound, touches, false)?;
        recorded.alone = Some(LIBRARY);
        Ok(CapturedAlone(self))
    }

    /// [`Self::note`] after that work; the graph is broken if this fails.
    pub(crate) fn end_library(
        &self,
        bound: Result<Bound<'_>>,
        touches: &[Touch<'_>],
    ) -> Result<()> {
        if driver::is_gone() {
            return bound.map(drop);
        }
        let mut guard = self.lock();
        let Some(recorded) = guard.recorded.as_mut() else {
            return Ok(());
        };
        let noted = bound.and_then(|bound| recorded.note(&bound, touches, true));
        recorded.uses.is_broken |= noted.is_err();
        noted
    }
}
