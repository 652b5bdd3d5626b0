//! Captures of a timeline's stream by other code: [`crate::timeline::capture`].

use std::sync::Arc;

use super::{Flavor, RawStream, Recorded, Timeline};
use crate::error::{Error, Result};
use crate::timeline::capture::{self, Exposure};
use crate::timeline::event::RawEvent;
use crate::util::sync::lock;

impl Timeline {
    /// Whether other code can capture the stream.
    #[inline]
    pub(crate) fn exposure(&self) -> &Exposure {
        &self.exposure
    }

    /// Refuses `op` on the stream, whose handle is `raw`, while other code captures it. One driver
    /// call, or none if other code cannot capture it. A default stream must have its context
    /// current.
    #[inline(always)]
    pub(crate) fn refuse_captured(&self, raw: RawStream, op: &'static str) -> Result<()> {
        match self.exposure.is_exposed() {
            true => capture::refuse_captured(raw, op),
            false => Ok(()),
        }
    }

    /// Passes on the `error` of querying or waiting for an event of this stream. If the event was
    /// recorded into a capture that ended before this crate noticed, it covers nothing: it is
    /// removed from the list, so that the next wait records another.
    pub(crate) fn forget_captured(&self, event: &Arc<RawEvent>, error: Error) -> Error {
        let captured = matches!(
            error.code(),
            Some(cuda_sys::CUDA_ERROR_CAPTURED_EVENT | cuda_sys::CUDA_ERROR_INVALID_VALUE)
        );
        let can_be_captured = matches!(self.flavor, Flavor::Created | Flavor::Foreign);
        if !captured || !can_be_captured || !self.exposure.is_exposed() {
            return error;
        }
        let mut events = lock(&self.events);
        let same = |recorded: &Recorded| Arc::ptr_eq(&recorded.event, event);
        if let Some(at) = events.recorded.iter().position(same) {
            let recorded = events.recorded.remove(at);
            events.spare.push(recorded.event);
        }
        Error::Capturing { op: "cuEventRecord" }
    }
}
