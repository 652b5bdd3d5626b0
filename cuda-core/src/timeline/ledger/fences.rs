//! Marks that an access has to wait for.

use std::cmp::Reverse;
use std::slice;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::timeline::core::Bound;
use crate::timeline::{Mark, Timeline};

/// Whether work on `stream` may run before `timeline` has reached that point.
pub(super) fn is_unordered(stream: Option<&Timeline>, timeline: &Timeline, seq: u64) -> bool {
    stream.is_none_or(|stream| stream.id() != timeline.id()) && !timeline.has_completed(seq)
}

/// The reason for refusing memory that a graph allocates outside of that graph.
pub(crate) const ONLY_IN_ITS_GRAPH: &str = "the memory exists only while its graph runs: use it in the capture that allocates it, before it is \
     freed there";

/// Marks of other streams that an access has to wait for.
#[derive(Clone)]
pub(crate) struct Fences {
    /// The only mark, inline: waiting for one stream takes no heap memory.
    // INVARIANT: `None` unless `several` is empty.
    one: Option<Mark>,
    // INVARIANT: sorted by the timelines' ids, at most one mark for each timeline.
    several: Vec<Mark>,
    /// Some of the memory exists only while a graph runs, so no stream may use it.
    is_refused: bool,
}

pub(crate) static NO_FENCES: Fences = Fences::none();

impl Fences {
    pub(crate) const fn none() -> Self {
        Self { one: None, several: Vec::new(), is_refused: false }
    }

    #[inline]
    pub(crate) fn add(&mut self, timeline: &Arc<Timeline>, seq: u64) {
        match &mut self.one {
            None if self.several.is_empty() => self.one = Some(timeline.at(seq)),
            Some(one) if one.timeline.id() == timeline.id() => one.seq = one.seq.max(seq),
            _ => self.add_to_several(timeline.at(seq)),
        }
    }

    fn add_to_several(&mut self, mark: Mark) {
        self.several.extend(self.one.take());
        match self.place(mark.timeline.id()) {
            Ok(at) => self.several[at].seq = self.several[at].seq.max(mark.seq),
            Err(at) => self.several.insert(at, mark),
        }
    }

    /// Adds a point of `timeline`, unless work on `stream` is ordered after it anyway.
    pub(super) fn add_unless_ordered(
        &mut self,
        stream: Option<&Timeline>,
        timeline: &Arc<Timeline>,
        seq: u64,
    ) {
        if is_unordered(stream, timeline, seq) {
            self.add(timeline, seq);
        }
    }

    /// [`Fences::add`] for many marks, at no more than logarithmic cost for each.
    pub(super) fn extend<'a>(&mut self, marks: impl Iterator<Item = &'a Mark>) {
        self.several.extend(self.one.take().into_iter().chain(marks.cloned()));
        // The later point of a timeline comes first, so `dedup` keeps it.
        self.several.sort_unstable_by_key(|mark| (mark.timeline.id(), Reverse(mark.seq)));
        self.several.dedup_by_key(|mark| mark.timeline.id());
    }

    /// The index of this timeline's mark, or where it would be inserted.
    fn place(&self, id: u64) -> std::result::Result<usize, usize> {
        self.marks().binary_search_by_key(&id, |known| known.timeline.id())
    }

    /// Removes the mark of this timeline if it is no later than that point.
    pub(crate) fn forget(&mut self, (timeline, seq): (u64, u64)) {
        let lies_later = |mark: &Mark| mark.timeline.id() != timeline || mark.seq > seq;
        self.one.take_if(|mark| !lies_later(mark));
        self.several.retain(lies_later);
    }

    /// Notes that no stream may use the memory.
    pub(super) fn refuse(&mut self) {
        self.is_refused = true;
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.marks().is_empty() && !self.is_refused
    }

    pub(crate) fn marks(&self) -> &[Mark] {
        self.one.as_ref().map_or(&self.several, slice::from_ref)
    }

    /// Makes the stream wait for all marks.
    pub(crate) fn wait_on(&self, stream: &Bound<'_>) -> Result<()> {
        Error::unless(!self.is_refused, "alloc_in_graph", ONLY_IN_ITS_GRAPH)?;
        self.marks().iter().try_for_each(|mark| stream.wait_for(mark))
    }

    /// [`wait_on`](Self::wait_on); if the stream cannot be made to wait, the calling thread waits.
    pub(crate) fn wait_on_or_host(&self, stream: &Bound<'_>) -> Result<()> {
        self.wait_on(stream).or_else(|_| self.wait_host())
    }

    /// Blocks the calling thread until all marks have been reached.
    pub(crate) fn wait_host(&self) -> Result<()> {
        let wait = |mark: &Mark| mark.timeline.wait_host(mark.seq);
        self.marks().iter().try_for_each(wait)
    }

    /// Whether all marks have been reached.
    pub(crate) fn query(&self) -> Result<bool> {
        for mark in self.marks() {
            if !mark.timeline.query(mark.seq)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the first mark that is not known to have been reached. No driver call.
    pub(crate) fn first_unknown(&self) -> Option<&Mark> {
        let unknown = |mark: &&Mark| !mark.timeline.has_completed(mark.seq);
        self.marks().iter().find(unknown)
    }

    /// Whether all marks are known to have been reached. No driver call.
    pub(crate) fn are_known_reached(&self) -> bool {
        self.first_unknown().is_none()
    }

    /// Whether any mark comes after work that may take arbitrarily long. No driver call.
    pub(crate) fn are_held_up(&self) -> bool {
        let held_up = |mark: &Mark| mark.timeline.is_held_up(mark.seq);
        self.marks().iter().any(held_up)
    }

    /// Whether this timeline's mark is no earlier than that point.
    pub(super) fn covers(&self, timeline: u64, seq: u64) -> bool {
        self.place(timeline).is_ok_and(|at| self.marks()[at].seq >= seq)
    }
}
