//! What a timeline has to do with captures of its stream by other code: [`crate::timeline::capture`].

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

    /// Refuses `op` on the stream, whose handle is `raw`, while other code captures it: one driver call,
    /// none where other code cannot. A default stream has its context current.
    #[inline(always)]
    pub(crate) fn refuse_captured(&self, raw: RawStream, op: &'static str) -> Result<()> {
        match self.exposure.is_exposed() {
            true => capture::refuse_captured(raw, op),
            false => Ok(()),
        }
    }

    /// What an event of this stream said when it was asked or waited for. One that was recorded into a
    /// capture which ended before that could be seen stands for nothing: it is taken off the list, so
    /// that another is recorded for whoever waits next.
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
        Error::Capturing {
            op: "cuEventRecord",
        }
    }
}
