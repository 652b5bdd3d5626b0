//! Points that an access has to come after.

use std::cmp::Reverse;

use crate::error::Result;
use crate::timeline::Mark;
use crate::timeline::core::Bound;

/// Points of other streams that an access has to come after.
// INVARIANT: one of each timeline, by its id.
pub(crate) struct Fences(Vec<Mark>);

impl Fences {
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn add(&mut self, mark: &Mark) {
        match self.place(mark) {
            Ok(at) => self.0[at].seq = self.0[at].seq.max(mark.seq),
            Err(at) => self.0.insert(at, mark.clone()),
        }
    }

    /// [`Fences::add`] of many, at no more than a logarithm for each.
    pub(super) fn extend<'a>(&mut self, marks: impl Iterator<Item = &'a Mark>) {
        self.0.extend(marks.cloned());
        // The later point of a timeline comes first, and stays.
        self.0
            .sort_by_key(|mark| (mark.timeline.id(), Reverse(mark.seq)));
        self.0.dedup_by_key(|mark| mark.timeline.id());
    }

    /// Where the point of that timeline is, or would be.
    fn place(&self, mark: &Mark) -> std::result::Result<usize, usize> {
        let id = mark.timeline.id();
        self.0
            .binary_search_by_key(&id, |known| known.timeline.id())
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

    /// The first of them that is not known to have been reached. No driver call.
    pub(crate) fn first_unknown(&self) -> Option<&Mark> {
        let unknown = |mark: &&Mark| !mark.timeline.has_completed(mark.seq);
        self.0.iter().find(unknown)
    }

    /// Whether all of them are known to have been reached. No driver call.
    pub(crate) fn are_known_reached(&self) -> bool {
        self.first_unknown().is_none()
    }

    /// Whether any of them lies behind something that may take arbitrarily long. No driver call.
    pub(crate) fn are_held_up(&self) -> bool {
        let held_up = |mark: &Mark| mark.timeline.is_held_up(mark.seq);
        self.0.iter().any(held_up)
    }

    pub(super) fn covers(&self, mark: &Mark) -> bool {
        let known = self.place(mark).ok();
        known.is_some_and(|at| self.0[at].seq >= mark.seq)
    }
}
