//! An address space: segments, the ranges they are cut into, and the stream and point that each free range
//! comes after.
//!
//! Nothing here calls the driver.

use std::collections::HashMap;
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use super::class::SegmentKind;
use super::owners::{Free, NO_OWNER, Owners, RangeOwner};
use super::segments::{CacheBlock, CacheBlockState, CacheSegment};
use crate::device::Device;
use crate::timeline::{Mark, StreamCore, Timeline};
use crate::util::Tree;

/// Segments, and the ranges that tile them.
#[derive(Default)]
pub(crate) struct Space {
    pub(super) segments: Tree<CUdeviceptr, Segment>,
    ranges: Tree<CUdeviceptr, Range>,
    /// The free ranges by the stream that may use them at once.
    pub(super) owners: Owners,
    pub(super) reserved: usize,
    pub(crate) free: usize,
    /// Bytes of segments that are not [kept](Fate::Kept), without the bytes still allocated to a user.
    pub(super) lost: usize,
    /// Timelines that are no longer needed. Dropping the last reference to one calls the driver, so
    /// the thread that locks the space drops them after unlocking.
    pub(super) spent: Vec<Arc<Timeline>>,
}

/// One allocation of the upstream allocator.
pub(crate) struct Segment {
    pub(crate) base: CUdeviceptr,
    pub(crate) bytes: usize,
    pub(crate) kind: SegmentKind,
    /// The stream in whose order the segment is given back, if the upstream allocator is stream-ordered.
    pub(crate) home: Option<Arc<StreamCore>>,
    pub(crate) fate: Fate,
}

/// How a segment is used from now on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Blocks are cut from the segment; when none of them is in use, it may be given back.
    Kept,
    /// The upstream allocator refused to free the segment; the next trim asks it once more.
    Refused,
    /// Work that cannot be proven complete may use the segment: it was reported, and stays allocated
    /// permanently.
    GivenUp,
}

struct Range {
    bytes: usize,
    segment: CUdeviceptr,
    state: RangeState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RangeState {
    Taken,
    /// The owner may use the range at once, others after the owner's work up to `seq`.
    Free {
        owner: u64,
        seq: u64,
    },
    /// Unusable: the range's segment was given up, or refused by the upstream allocator.
    Lost,
}

/// How idle ranges next to a freed one are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// They join the freed range, so that its stream finds them in one piece.
    Joins,
    /// They stay apart, usable by all streams. For freed ranges of a stream without handles, which allocates
    /// no more: if such a range joined an idle one, other streams could not use either before this stream's
    /// pending work is done.
    Stays,
}

/// A range that was taken.
pub(crate) struct TakenRange {
    pub(crate) address: CUdeviceptr,
    pub(crate) bytes: usize,
    /// The point of the stream's timeline after which others may use the range.
    pub(super) seq: u64,
}

impl Space {
    /// Lists all segments with the ranges they are cut into. `kept` gives, by address, the state of ranges
    /// that are taken here but are not buffers.
    pub(super) fn list(
        &self,
        device: Device,
        kept: &HashMap<CUdeviceptr, CacheBlockState>,
    ) -> Vec<CacheSegment> {
        let block = |(address, range): (CUdeviceptr, &Range)| CacheBlock {
            address,
            bytes: range.bytes,
            state: match range.state {
                RangeState::Taken => kept.get(&address).copied().unwrap_or(CacheBlockState::Used),
                RangeState::Free { .. } => CacheBlockState::Free,
                RangeState::Lost => CacheBlockState::Pending,
            },
        };
        let blocks = |segment: &Segment| {
            let end = segment.base + segment.bytes as CUdeviceptr;
            self.ranges.range(Included(segment.base), Excluded(end)).map(block).collect()
        };
        let listed = self.segments.values().map(|segment| CacheSegment {
            device,
            address: segment.base,
            bytes: segment.bytes,
            blocks: blocks(segment),
        });
        listed.collect()
    }

    /// Adds a new segment as one taken range.
    pub(crate) fn add(&mut self, segment: Segment) {
        let (base, bytes) = (segment.base, segment.bytes);
        self.reserved += bytes;
        self.segments.insert(base, segment);
        let range = Range { bytes, segment: base, state: RangeState::Taken };
        self.ranges.insert(base, range);
    }

    /// Adds the segments and ranges of a space whose free ranges wait for no stream.
    pub(crate) fn append(&mut self, other: Self) {
        self.reserved += other.reserved;
        self.lost += other.lost;
        for segment in other.segments.into_values() {
            self.segments.insert(segment.base, segment);
        }
        for (address, range) in other.ranges.iter() {
            self.ranges.insert(address, Range { ..*range });
            if let RangeState::Free { owner, seq } = range.state {
                self.insert(address, owner, seq, None);
            }
        }
    }

    /// Takes the smallest free range with room for `bytes` that the stream may use at once, and cuts it to
    /// size.
    pub(crate) fn take(
        &mut self,
        stream: u64,
        kind: SegmentKind,
        bytes: usize,
    ) -> Option<TakenRange> {
        let best = [stream, NO_OWNER].into_iter();
        let best = best.filter_map(|owner| self.owners.best_of(owner, kind, bytes));
        let (_, address) = best.min()?;
        Some(self.cut(address, bytes))
    }

    /// Returns the smallest free range with room for `bytes` of one stream outside `tried`, and the point
    /// after which others may use it. The range is not taken, so that other threads find it, too.
    pub(super) fn of_others(
        &mut self,
        tried: &[u64],
        kind: SegmentKind,
        bytes: usize,
    ) -> Option<(CUdeviceptr, Mark)> {
        let owner = self.owners.other_than(tried, kind, bytes)?;
        let (_, address) = self.owners.best_of(owner, kind, bytes)?;
        let (_, seq) = self.owner_of(address)?;
        let timeline = self.owners.get(owner)?.timeline.clone()?;
        Some((address, Mark { timeline, seq }))
    }

    /// Gives a range that [`of_others`](Self::of_others) found to a stream that waits for `after` before its
    /// own point `to`. Does nothing if another thread has taken the range since.
    pub(super) fn hand_over(&mut self, address: CUdeviceptr, after: &Mark, to: Mark) {
        match self.owner_of(address) {
            Some((owner, seq)) if owner == after.timeline.id() && seq <= after.seq => {
                self.remove(address);
                self.give(address, Some(to));
            }
            _ => self.spent.push(to.timeline),
        }
    }

    fn owner_of(&self, address: CUdeviceptr) -> Option<(u64, u64)> {
        match self.ranges.get(address)?.state {
            RangeState::Free { owner, seq } => Some((owner, seq)),
            RangeState::Taken | RangeState::Lost => None,
        }
    }

    /// Takes a free range; a remainder that is not needed stays with the owner.
    pub(crate) fn cut(&mut self, address: CUdeviceptr, needed: usize) -> TakenRange {
        let (owner, seq) = self.owner_of(address).unwrap_or((NO_OWNER, 0));
        let timeline = self.owners.get(owner).and_then(|o| o.timeline.clone());
        let (segment, bytes) = self.remove(address);
        let room = bytes.saturating_sub(needed);
        let cut = room >= self.kind_of(segment).spare();
        if cut {
            self.resize(address, |_| needed);
            let rest = address + needed as CUdeviceptr;
            self.ranges.insert(rest, Range { bytes: room, segment, state: RangeState::Taken });
            self.insert(rest, owner, seq, timeline);
        } else {
            self.spent.extend(timeline);
        }
        TakenRange { address, bytes: if cut { needed } else { bytes }, seq }
    }

    fn kind_of(&self, segment: CUdeviceptr) -> SegmentKind {
        self.segments.get(segment).map_or(SegmentKind::Large, |s| s.kind)
    }

    /// Returns the size of the taken range at `address`, if there is one.
    pub(super) fn taken(&self, address: CUdeviceptr) -> Option<usize> {
        let range = self.ranges.get(address)?;
        (range.state == RangeState::Taken).then_some(range.bytes)
    }

    /// Frees a taken range: the mark's stream may use it at once, others after the mark; without a mark all
    /// may use it at once. Joins the range with its neighbours, unless they wait for other streams.
    pub(crate) fn give(&mut self, address: CUdeviceptr, mark: Option<Mark>) {
        self.give_beside(address, mark, Rest::Joins);
    }

    /// [`give`](Self::give) with a choice for the idle ranges next to the freed one.
    pub(super) fn give_beside(&mut self, address: CUdeviceptr, mark: Option<Mark>, rest: Rest) {
        if self.is_given_up(address) {
            self.lose(address);
            self.spent.extend(mark.map(|mark| mark.timeline));
            return;
        }
        let (owner, seq, timeline) = match mark {
            Some(mark) => (mark.timeline.id(), mark.seq, Some(mark.timeline)),
            None => (NO_OWNER, 0, None),
        };
        self.insert(address, owner, seq, timeline);
        // An idle range may merge with any stream's range.
        let idle = |one: u64, other: u64| one == NO_OWNER || other == NO_OWNER;
        let idle = |one, other| rest == Rest::Joins && idle(one, other);
        self.join(address, |one, other| one == other || idle(one, other));
    }

    pub(crate) fn is_given_up(&self, address: CUdeviceptr) -> bool {
        let range = self.ranges.get(address);
        let segment = range.and_then(|range| self.segments.get(range.segment));
        segment.is_some_and(|segment| segment.fate == Fate::GivenUp)
    }

    /// Makes ranges of the next `owners` owners idle, if the owner's work on them is known to be complete.
    pub(super) fn settle(&mut self, owners: usize) {
        for owner in self.owners.in_turn(owners) {
            self.settle_of(owner);
        }
    }

    /// [`settle`](Self::settle) for one owner.
    pub(super) fn settle_of(&mut self, owner: u64) {
        while let Some(address) = self.owners.get(owner).and_then(RangeOwner::finished) {
            self.remove(address);
            self.insert(address, NO_OWNER, 0, None);
            self.join(address, |one, other| one == NO_OWNER && other == NO_OWNER);
        }
    }

    /// Removes and returns the largest segment that is idle as a whole.
    pub(crate) fn take_segment(&mut self) -> Option<Segment> {
        let unused = |segment: &&Segment| {
            let whole = self.ranges.get(segment.base);
            whole.is_some_and(|r| r.bytes == segment.bytes)
                && self.owner_of(segment.base) == Some((NO_OWNER, 0))
        };
        let unused = self.segments.values().filter(unused);
        let base = unused.max_by_key(|segment| segment.bytes)?.base;
        self.remove(base);
        self.forget(base)
    }

    /// Removes a segment that is one range.
    fn forget(&mut self, base: CUdeviceptr) -> Option<Segment> {
        self.ranges.remove(base);
        let segment = self.segments.remove(base)?;
        self.reserved -= segment.bytes;
        Some(segment)
    }

    /// Adds a segment again because the upstream allocator did not take it back; nothing is allocated from
    /// it.
    pub(super) fn keep_refused(&mut self, segment: Segment) {
        let base = segment.base;
        self.add(Segment { fate: Fate::Refused, ..segment });
        self.lose(base);
    }

    /// Removes and returns the segments that the upstream allocator refused.
    pub(super) fn take_refused(&mut self) -> Vec<Segment> {
        let refused = self.segments.values();
        let refused = refused.filter(|segment| segment.fate == Fate::Refused);
        let bases: Vec<_> = refused.map(|segment| segment.base).collect();
        let taken = bases.into_iter().filter_map(|base| {
            self.lost -= self.ranges.get(base)?.bytes;
            self.forget(base)
        });
        taken.collect()
    }

    /// Gives up permanently the segments with free ranges of `owners` on which the owner's work is not known
    /// to be complete. Returns the segments given up.
    pub(super) fn give_up(&mut self, owners: &[u64]) -> Vec<(CUdeviceptr, usize)> {
        let owners = owners.iter().filter_map(|id| self.owners.get(*id));
        let lost: Vec<_> = owners.flat_map(RangeOwner::unfinished).collect();
        let given_up = lost.into_iter();
        given_up.filter_map(|address| self.give_up_around(address)).collect()
    }

    /// Gives up the segment around the address, unless it already was given up or refused: nothing is
    /// allocated from it any more.
    pub(crate) fn give_up_around(&mut self, address: CUdeviceptr) -> Option<(CUdeviceptr, usize)> {
        let base = self.ranges.get(address)?.segment;
        let segment = self.segments.get_mut(base)?;
        if segment.fate != Fate::Kept {
            return None;
        }
        segment.fate = Fate::GivenUp;
        let bytes = segment.bytes;
        let within = self.ranges.range(Included(base), Excluded(base + bytes as CUdeviceptr));
        let free = within.filter(|(_, range)| range.state != RangeState::Taken);
        let free: Vec<_> = free.map(|(address, _)| address).collect();
        for address in free {
            self.remove(address);
            self.lose(address);
        }
        Some((base, bytes))
    }

    /// Makes a taken range of a segment that is given up or refused unusable.
    fn lose(&mut self, address: CUdeviceptr) {
        let range = self.ranges.get_mut(address);
        if let Some(range) = range.filter(|range| range.state == RangeState::Taken) {
            range.state = RangeState::Lost;
            self.lost += range.bytes;
        }
    }

    /// Gives up all segments.
    pub(super) fn give_up_all(&mut self) -> Vec<(CUdeviceptr, usize)> {
        let bases: Vec<_> = self.segments.keys().collect();
        bases.into_iter().filter_map(|base| self.give_up_around(base)).collect()
    }

    /// Turns a taken range into a free one.
    fn insert(
        &mut self,
        address: CUdeviceptr,
        owner: u64,
        seq: u64,
        timeline: Option<Arc<Timeline>>,
    ) {
        let Some(range) = self.ranges.get_mut(address) else { return };
        range.state = RangeState::Free { owner, seq };
        let (bytes, segment) = (range.bytes, range.segment);
        let kind = self.kind_of(segment);
        self.free += bytes;
        let free = Free { address, bytes, kind, seq };
        self.spent.extend(self.owners.insert(owner, timeline, free));
    }

    /// Turns a free range into a taken one; returns its segment and size.
    fn remove(&mut self, address: CUdeviceptr) -> (CUdeviceptr, usize) {
        let Some(range) = self.ranges.get_mut(address) else { return (address, 0) };
        let (segment, bytes) = (range.segment, range.bytes);
        let RangeState::Free { owner, seq } = range.state else { return (segment, bytes) };
        range.state = RangeState::Taken;
        let kind = self.kind_of(segment);
        self.free -= bytes;
        let free = Free { address, bytes, kind, seq };
        self.spent.extend(self.owners.remove(owner, free));
        (segment, bytes)
    }

    /// Joins a free range with the neighbouring free ranges of its segment whose owners `goes`
    /// accepts.
    fn join(&mut self, address: CUdeviceptr, goes: impl Fn(u64, u64) -> bool) {
        let mut first = address;
        while let Some((before, _)) = self.ranges.last_before(first) {
            if !self.absorb(before, first, &goes) {
                break;
            }
            first = before;
        }
        while let Some((after, _)) = self.ranges.first_from(first + 1) {
            if !self.absorb(first, after, &goes) {
                break;
            }
        }
    }

    /// Changes the size of a range.
    fn resize(&mut self, address: CUdeviceptr, size: impl FnOnce(usize) -> usize) {
        if let Some(range) = self.ranges.get_mut(address) {
            range.bytes = size(range.bytes);
        }
    }

    /// Merges two neighbours, if both are free, of one segment and accepted by `goes`.
    fn absorb(
        &mut self,
        first: CUdeviceptr,
        second: CUdeviceptr,
        goes: &impl Fn(u64, u64) -> bool,
    ) -> bool {
        let of = |address| self.ranges.get(address).map(|range| (range.segment, range.state));
        let (
            Some((one, RangeState::Free { owner: a, seq: s })),
            Some((other, RangeState::Free { owner: b, seq: t })),
        ) = (of(first), of(second))
        else {
            return false;
        };
        if one != other || !goes(a, b) {
            return false;
        }
        let (owner, seq) = (a.max(b), s.max(t));
        let timeline = self.owners.get(owner).and_then(|o| o.timeline.clone());
        self.remove(first);
        let (_, more) = self.remove(second);
        self.ranges.remove(second);
        self.resize(first, |bytes| bytes + more);
        self.insert(first, owner, seq, timeline);
        true
    }
}

#[cfg(test)]
mod tests;
