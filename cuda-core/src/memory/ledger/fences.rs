//! Points that an access has to come after.

use crate::error::Result;
use crate::stream_core::Bound;
use crate::timeline::Mark;

/// Points of other streams that an access has to come after.
pub(crate) struct Fences(Vec<Mark>);

impl Fences {
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn add(&mut self, mark: &Mark) {
        let same = |known: &&mut Mark| known.timeline.id() == mark.timeline.id();
        match self.0.iter_mut().find(same) {
            Some(known) => known.seq = known.seq.max(mark.seq),
            None => self.0.push(mark.clone()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn marks(&self) -> &[Mark] {
        &self.0
    }

    /// Makes the stream wait for all of them.
    pub(crate) fn wait_on(&self, stream: &Bound<'_>) -> Result<()> {
        self.0.iter().try_for_each(|mark| stream.wait_for(mark))
    }

    /// Blocks the thread until all of them have been reached.
    pub(crate) fn wait_host(&self) -> Result<()> {
        let wait = |mark: &Mark| mark.timeline.wait_host(mark.seq);
        self.0.iter().try_for_each(wait)
    }

    /// Whether all of them have been reached.
    pub(crate) fn query(&self) -> Result<bool> {
        for mark in &self.0 {
            if !mark.timeline.query(mark.seq)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether all of them are known to have been reached. No driver call.
    pub(crate) fn are_known_reached(&self) -> bool {
        let reached = |mark: &Mark| mark.timeline.has_completed(mark.seq);
        self.0.iter().all(reached)
    }

    /// Whether any of them lies behind something that may take arbitrarily long. No driver call.
    pub(crate) fn are_held_up(&self) -> bool {
        let held_up = |mark: &Mark| mark.timeline.is_held_up(mark.seq);
        self.0.iter().any(held_up)
    }

    pub(super) fn covers(&self, mark: &Mark) -> bool {
        let waited =
            |known: &Mark| known.timeline.id() == mark.timeline.id() && known.seq >= mark.seq;
        self.0.iter().any(waited)
    }
}
