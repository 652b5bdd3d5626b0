//! Operations that one call of another library captures on several streams.

use super::{Notes, Recording};
use crate::error::Result;
use crate::timeline::core::Bound;
use crate::timeline::ledger::Touch;

/// The operations of the call on one of the streams.
pub(crate) struct CapturedPart<'a> {
    pub(crate) bound: Bound<'a>,
    pub(crate) touches: Vec<Touch<'a>>,
}

impl Recording {
    /// [`Recording::record`] for operations on streams of the capture, each of which is listed once:
    /// `enqueue` enqueues them together, so each comes after the earlier captured operations that it
    /// conflicts with, but not after another one of this call.
    pub(crate) fn record_together(
        &self,
        op: &'static str,
        parts: &[CapturedPart<'_>],
        notes: Vec<Notes>,
        enqueue: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut guard = self.lock();
        for part in parts {
            self.open_for(op, &part.touches, &mut guard.recorded)?;
        }
        let recorded = self.open(op, &mut guard.recorded)?;
        // Kept even if the call fails: the other library may have captured some of the operations.
        notes.into_iter().for_each(|notes| recorded.keep(notes));
        let (mut preceded, mut result) = (Vec::with_capacity(parts.len()), Ok(()));
        for CapturedPart { bound, touches } in parts {
            let (uses, is_barrier) = (recorded.place_all(touches), touches.is_empty());
            recorded.enter(uses.as_slice(), is_barrier);
            match recorded.order.precede(bound, uses.as_slice(), is_barrier) {
                Ok(before) => preceded.push((bound, uses, before)),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let mut result = result.and_then(|()| enqueue());
        // Also after an error: the streams already wait for other operations.
        for (bound, uses, before) in preceded {
            let noted = recorded.order.captured(bound, uses.as_slice(), before, bound.count());
            recorded.uses.is_broken |= noted.is_err();
            match (&result, noted) {
                (Ok(()), Ok(node)) => recorded.note_node(bound, node, uses.as_slice()),
                (Ok(()), Err(error)) => result = Err(error),
                _ => {}
            }
        }
        result
    }
}
