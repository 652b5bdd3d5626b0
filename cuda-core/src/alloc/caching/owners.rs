//! Free ranges by owner: the stream whose work a range comes after.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use super::class::SegmentKind;
use crate::timeline::{Mark, Timeline};
use crate::util::{Tree, Turns};

/// The owner id of idle ranges, which no work uses.
pub(crate) const NO_OWNER: u64 = 0;

/// Owners of free ranges. All streams may use the ranges of [`NO_OWNER`].
#[derive(Default)]
pub(super) struct Owners {
    owners: Turns<RangeOwner>,
    /// The owners other than [`NO_OWNER`], ordered by their largest free range, for each
    /// [`SegmentKind`].
    // INVARIANT: contains what `RangeOwner::largest` returns, for each owner that has one.
    largest: [Tree<(usize, u64), ()>; 2],
    /// The entry that `other_than` returned last.
    asked: (usize, u64),
}

#[derive(Default)]
pub(super) struct RangeOwner {
    pub(super) timeline: Option<Arc<Timeline>>,
    /// Sizes and addresses of its free ranges, by [`SegmentKind`].
    free: [Tree<(usize, CUdeviceptr), ()>; 2],
    /// The points after which other streams may use the ranges, with the ranges' addresses.
    points: Tree<(u64, CUdeviceptr), ()>,
}

/// A free range.
#[derive(Clone, Copy)]
pub(super) struct Free {
    pub(super) address: CUdeviceptr,
    pub(super) bytes: usize,
    pub(super) kind: SegmentKind,
    pub(super) seq: u64,
}

impl RangeOwner {
    fn largest(&self, kind: SegmentKind) -> Option<usize> {
        self.free[kind as usize].last().map(|((bytes, _), ())| bytes)
    }

    /// Iterates over the ranges on which the owner's work is not known to be complete.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = CUdeviceptr> {
        let points = self.points.iter().map(|(point, ())| point);
        let unfinished = points.filter(|(seq, _)| {
            let timeline = self.timeline.as_ref();
            timeline.is_some_and(|timeline| !timeline.has_completed(*seq))
        });
        unfinished.map(|(_, address)| address)
    }

    /// Returns a range on which the owner's work is known to be complete.
    pub(super) fn finished(&self) -> Option<CUdeviceptr> {
        let ((seq, address), ()) = self.points.first()?;
        let timeline = self.timeline.as_ref()?;
        timeline.has_completed(seq).then_some(address)
    }

    /// Returns the point after which other streams may use all the owner's ranges.
    fn last(&self) -> Option<Mark> {
        Some(Mark { timeline: self.timeline.clone()?, seq: self.points.last()?.0.0 })
    }
}

impl Owners {
    pub(super) fn get(&self, owner: u64) -> Option<&RangeOwner> {
        self.owners.get(owner)
    }

    /// Returns the next owners in round-robin order, at most `most`.
    pub(super) fn in_turn(&mut self, most: usize) -> Vec<u64> {
        self.owners.in_turn(most)
    }

    /// Adds a free range. Drop the returned timeline where no lock is held.
    pub(super) fn insert(
        &mut self,
        owner: u64,
        timeline: Option<Arc<Timeline>>,
        free: Free,
    ) -> Option<Arc<Timeline>> {
        let entry = self.owners.get_or_insert_with(owner, RangeOwner::default);
        let before = entry.largest(free.kind);
        entry.free[free.kind as usize].insert((free.bytes, free.address), ());
        entry.points.insert((free.seq, free.address), ());
        let spent = match entry.timeline {
            None => std::mem::replace(&mut entry.timeline, timeline),
            Some(_) => timeline,
        };
        self.note_largest(owner, free.kind, before);
        spent
    }

    /// Removes a free range. Drop the returned timeline where no lock is held.
    pub(super) fn remove(&mut self, owner: u64, free: Free) -> Option<Arc<Timeline>> {
        let entry = self.owners.get_mut(owner)?;
        let before = entry.largest(free.kind);
        entry.free[free.kind as usize].remove((free.bytes, free.address));
        entry.points.remove((free.seq, free.address));
        let spent = match entry.points.is_empty() {
            true => self.owners.remove(owner).and_then(|owner| owner.timeline),
            false => None,
        };
        self.note_largest(owner, free.kind, before);
        spent
    }

    /// Updates `largest` for an owner whose largest range had `before` bytes.
    fn note_largest(&mut self, owner: u64, kind: SegmentKind, before: Option<usize>) {
        let after = self.get(owner).and_then(|owner| owner.largest(kind));
        if owner == NO_OWNER || before == after {
            return;
        }
        let largest = &mut self.largest[kind as usize];
        if let Some(before) = before {
            largest.remove((before, owner));
        }
        if let Some(after) = after {
            largest.insert((after, owner), ());
        }
    }

    /// Returns the owner's smallest range with room for `bytes`.
    pub(super) fn best_of(
        &self,
        owner: u64,
        kind: SegmentKind,
        bytes: usize,
    ) -> Option<(usize, CUdeviceptr)> {
        let set = &self.owners.get(owner)?.free[kind as usize];
        set.first_from((bytes, 0)).map(|(found, ())| found)
    }

    /// Returns a stream outside `tried` that has room for `bytes`. Successive calls go round all such
    /// streams, since one stream's progress says nothing about another's.
    pub(super) fn other_than(
        &mut self,
        tried: &[u64],
        kind: SegmentKind,
        bytes: usize,
    ) -> Option<u64> {
        let others = &self.largest[kind as usize];
        let least = (bytes, NO_OWNER);
        let last = self.asked.max(least);
        let later = others.range(Excluded(last), Unbounded);
        let mut others = later.chain(others.range(Included(least), Included(last)));
        (self.asked, _) = others.find(|((_, id), ())| !tried.contains(id))?;
        Some(self.asked.1)
    }

    /// Returns the marks that free ranges wait for, one for each stream.
    pub(super) fn marks(&self) -> Vec<Mark> {
        self.owners.values().filter_map(RangeOwner::last).collect()
    }

    /// Returns the size of the largest range of any owner.
    pub(super) fn largest(&self) -> usize {
        let kinds = [SegmentKind::Small, SegmentKind::Large].into_iter();
        let largest = kinds.flat_map(|kind| {
            let unowned = self.get(NO_OWNER).and_then(|owner| owner.largest(kind));
            let others = self.largest[kind as usize].last();
            [unowned, others.map(|((bytes, _), ())| bytes)]
        });
        largest.flatten().max().unwrap_or(0)
    }
}
