//! Freed blocks that wait for work of other streams.

use crate::timeline::Mark;
use crate::timeline::ledger::Fences;
use crate::util::{Tree, Turns};

/// Blocks that wait for marks. Each block is filed under the stream of its first mark that is not known to be
/// reached, and is not checked before that stream has reached that mark.
pub(crate) struct Awaiting<B> {
    lines: Turns<Line<B>>,
    /// Position from which `next_asked` continues.
    asked: u64,
    entered: u64,
}

/// The blocks that wait for one stream, ordered by the point that they wait for, then by arrival.
type Line<B> = Tree<(u64, u64), (B, Fences)>;

/// Where a block is filed.
pub(super) type AwaitingKey = (u64, (u64, u64));

impl<B> Awaiting<B> {
    pub(crate) const fn new() -> Self {
        Self { lines: Turns::new(), asked: 0, entered: 0 }
    }

    pub(crate) fn enter(&mut self, block: B, fences: Fences) {
        let mark = fences.first_unknown();
        let (stream, seq) = mark.map_or((0, 0), |mark| (mark.timeline.id(), mark.seq));
        self.entered += 1;
        let line = self.lines.get_or_insert_with(stream, Tree::new);
        line.insert((seq, self.entered), (block, fences));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (AwaitingKey, &B, &Fences)> {
        let lines = self.lines.iter();
        lines.flat_map(|(stream, line)| {
            let blocks = line.iter();
            blocks.map(move |(at, (block, fences))| ((stream, at), block, fences))
        })
    }

    /// Removes and returns the blocks that `which` selects.
    pub(crate) fn take_if(&mut self, which: impl Fn(&B, &Fences) -> bool) -> Vec<(B, Fences)> {
        let wanted = self.iter().filter(|(_, block, fences)| which(block, fences));
        let wanted: Vec<_> = wanted.map(|(place, ..)| place).collect();
        wanted.into_iter().filter_map(|place| self.remove(place)).collect()
    }

    pub(super) fn remove(&mut self, (stream, at): AwaitingKey) -> Option<(B, Fences)> {
        let line = self.lines.get_mut(stream)?;
        let block = line.remove(at);
        if line.is_empty() {
            self.lines.remove(stream);
        }
        block
    }

    /// Removes and returns the blocks whose marks are all known to be reached, among those filed
    /// under `streams`.
    pub(crate) fn take_reached(&mut self, streams: &[u64]) -> Vec<(B, Fences)> {
        let mut reached = Vec::new();
        for stream in streams {
            while let Some((block, fences)) = self.pop_reached(*stream) {
                if fences.are_known_reached() {
                    reached.push((block, fences));
                } else {
                    self.enter(block, fences);
                }
            }
        }
        reached
    }

    /// Returns the next streams in round-robin order, at most `most`.
    pub(crate) fn in_turn(&mut self, most: usize) -> Vec<u64> {
        self.lines.in_turn(most)
    }

    /// Removes and returns the first block filed under `stream`, if that stream is known to have reached its
    /// point.
    fn pop_reached(&mut self, stream: u64) -> Option<(B, Fences)> {
        let (at, (_, fences)) = self.lines.get(stream)?.first()?;
        let waits = |mark: &Mark| mark.timeline.id() == stream;
        if fences.first_unknown().is_some_and(waits) { None } else { self.remove((stream, at)) }
    }

    /// Returns the marks to query: the earliest awaited mark of each of the next `most` streams, in
    /// round-robin order.
    pub(crate) fn next_asked(&mut self, most: usize) -> Vec<Mark> {
        let streams = self.lines.following(self.asked, most);
        self.asked = streams.last().map_or(0, |last| last + 1);
        let first = |stream: &u64| {
            let (_, (_, fences)) = self.lines.get(*stream)?.first()?;
            fences.first_unknown().cloned()
        };
        streams.iter().filter_map(first).collect()
    }
}

impl<B> Default for Awaiting<B> {
    fn default() -> Self {
        Self::new()
    }
}
