//! Bookkeeping of all slabs and chunks, under one lock that is never held over a driver call.

use std::collections::VecDeque;
use std::mem;

use cuda_sys::CUdeviceptr;

use super::class::{self, CLASSES};
use super::prune;
use super::source::Slab;
use super::{NumaNode, PinnedChunk};
use crate::alloc::caching::class::SegmentKind;
use crate::alloc::caching::owners::NO_OWNER;
use crate::alloc::caching::space::Space;
use crate::context::kept;
use crate::timeline::ledger::Fences;
use crate::types::PoolUsage;

/// Pending chunks of a bin to look at when a chunk is wanted.
const MANY: usize = 64;

/// Pending chunks of a bin to look at when another becomes pending: so that they, and the streams
/// and contexts that their fences refer to, are released without waiting for an allocation.
const FEW: usize = 2;

/// See the module.
pub(super) struct Cache {
    /// By [`NumaNode::index`], as far as slabs exist.
    shelves: Vec<Shelf>,
    slabs: Vec<Slab>,
    /// The number of slabs that were given up; chunks of them may still be given back.
    retired: usize,
    /// What is used and reserved; [`Cache::usage`] adds the rest.
    pub(super) counts: PoolUsage,
    /// Fences that are needed no more. Dropping the last reference to a timeline calls the driver,
    /// so [`Slabs::with`](super::Slabs::with) drops them after unlocking.
    pub(super) spent: Vec<Fences>,
}

/// Chunks and slabs near one NUMA node.
struct Shelf {
    /// By [`class::bin`]; the last bin holds all large chunks.
    bins: Vec<Bin>,
    /// The slabs, and the ranges they are cut into, by their addresses. A chunk is a taken range.
    space: Space,
}

/// Chunks of one class.
#[derive(Default)]
struct Bin {
    /// The last one was used last, and is the most likely to be in the processor's caches. Idle
    /// large chunks are free ranges instead.
    idle: Vec<PinnedChunk>,
    /// Chunks that devices may still use.
    pending: VecDeque<(PinnedChunk, Fences)>,
}

impl Cache {
    pub(super) const NEW: Self = Self {
        shelves: Vec::new(),
        slabs: Vec::new(),
        retired: 0,
        counts: PoolUsage::NONE,
        spent: Vec::new(),
    };

    /// Takes over what another cache has, of which no chunk is in use.
    pub(super) fn append(&mut self, other: Self) {
        for (node, shelf) in other.shelves.into_iter().enumerate() {
            let own = self.shelf(node);
            own.space.append(shelf.space);
            for (own, bin) in own.bins.iter_mut().zip(shelf.bins) {
                own.idle.extend(bin.idle);
                own.pending.extend(bin.pending);
            }
        }
        self.slabs.extend(other.slabs);
        self.reserve(other.counts.reserved);
        self.spent.extend(other.spent);
    }

    /// An idle chunk of exactly this class.
    #[inline]
    pub(super) fn pop(&mut self, node: NumaNode, bin: usize) -> Option<PinnedChunk> {
        let shelf = self.shelves.get_mut(node.index())?;
        let chunk = shelf.bins[bin].idle.pop()?;
        self.counts.hand_out(chunk.bytes);
        Some(chunk)
    }

    /// Takes back a chunk that no work uses any more.
    #[inline]
    pub(super) fn put(&mut self, chunk: PinnedChunk) {
        self.counts.used -= chunk.bytes;
        self.keep(chunk);
    }

    /// Takes back a chunk that devices may use until the fences are reached.
    pub(super) fn put_pending(&mut self, chunk: PinnedChunk, fences: Fences) {
        self.settle(chunk.node.index(), class::bin(chunk.bytes), FEW);
        self.put_back(chunk, fences);
    }

    /// [`put_pending`](Self::put_pending) for a chunk of [`take_pending`](Self::take_pending). It comes
    /// behind all others, whose order stays: each is queried once in a round.
    pub(super) fn put_back(&mut self, chunk: PinnedChunk, fences: Fences) {
        self.counts.used -= chunk.bytes;
        if self.is_retired(&chunk) {
            return self.spent.push(fences);
        }
        let (node, bin) = (chunk.node.index(), class::bin(chunk.bytes));
        if let Some(shelf) = self.shelves.get_mut(node) {
            shelf.bins[bin].pending.push_back((chunk, fences));
        }
    }

    /// A chunk of `bytes` (already rounded to its class) from what is known to be idle: from its
    /// bin, or cut from a free range.
    pub(super) fn find(&mut self, node: NumaNode, bytes: usize) -> Option<PinnedChunk> {
        let bin = class::bin(bytes);
        self.settle(node.index(), bin, MANY);
        self.pop(node, bin).or_else(|| self.carve(node, bytes))
    }

    /// Cuts a chunk from the smallest range with room for it.
    fn carve(&mut self, node: NumaNode, bytes: usize) -> Option<PinnedChunk> {
        let shelf = self.shelves.get_mut(node.index())?;
        let range = shelf.space.take(NO_OWNER, class::kind(bytes), bytes)?;
        let slab = self.slabs.iter().find(|slab| slab.has(range.address))?;
        self.counts.hand_out(bytes);
        Some(slab.chunk(&range))
    }

    /// Makes pending chunks of a bin idle whose fences are known to be reached; looks at `most` of
    /// them. No driver call.
    fn settle(&mut self, node: usize, bin: usize, most: usize) {
        // Round-robin: a chunk that waits for a stream that is held up does not hide the others.
        for _ in 0..self.pending_in(node, bin).min(most) {
            let pending = &mut self.shelves[node].bins[bin].pending;
            let Some((chunk, fences)) = pending.pop_front() else { return };
            if !fences.are_known_reached() {
                pending.push_back((chunk, fences));
                continue;
            }
            self.spent.push(fences);
            self.keep(chunk);
        }
    }

    /// Removes the longest pending chunk, to be queried without the lock. Give it back with
    /// [`Cache::put`] or [`Cache::put_back`].
    pub(super) fn take_pending(
        &mut self,
        node: usize,
        bin: usize,
    ) -> Option<(PinnedChunk, Fences)> {
        let shelf = self.shelves.get_mut(node)?;
        let taken = shelf.bins[bin].pending.pop_front()?;
        self.counts.used += taken.0.bytes;
        Some(taken)
    }

    /// The number of pending chunks of a bin.
    pub(super) fn pending_in(&self, node: usize, bin: usize) -> usize {
        self.shelves.get(node).map_or(0, |shelf| shelf.bins[bin].pending.len())
    }

    /// The node, the bin and the number of pending chunks, for each bin.
    pub(super) fn pending(&self) -> Vec<(usize, usize, usize)> {
        let bins = |(node, shelf): (usize, &Shelf)| {
            let counts = shelf.bins.iter().map(|bin| bin.pending.len()).enumerate();
            counts.map(move |(bin, count)| (node, bin, count)).collect::<Vec<_>>()
        };
        self.shelves.iter().enumerate().flat_map(bins).collect()
    }

    /// Puts an idle chunk into its bin, or among the free ranges if it is large.
    #[inline]
    fn keep(&mut self, chunk: PinnedChunk) {
        if self.is_retired(&chunk) {
            return;
        }
        let Some(shelf) = self.shelves.get_mut(chunk.node.index()) else { return };
        match class::kind(chunk.bytes) {
            SegmentKind::Small => shelf.bins[class::bin(chunk.bytes)].idle.push(chunk),
            SegmentKind::Large => shelf.space.give(chunk.address(), None),
        }
    }

    #[inline]
    fn is_retired(&self, chunk: &PinnedChunk) -> bool {
        let given_up = |shelf: &Shelf| shelf.space.is_given_up(chunk.address());
        self.retired > 0 && self.shelves.get(chunk.node.index()).is_some_and(given_up)
    }

    /// Makes all pending chunks idle whose fences are known to be reached. No driver call.
    pub(super) fn settle_all(&mut self) {
        for node in 0..self.shelves.len() {
            for bin in 0..=CLASSES {
                self.settle(node, bin, usize::MAX);
            }
        }
    }

    /// Turns all idle chunks into free ranges, so that they can be cut to other sizes.
    pub(super) fn merge(&mut self) {
        self.settle_all();
        for shelf in &mut self.shelves {
            for chunk in shelf.bins.iter_mut().flat_map(|bin| bin.idle.drain(..)) {
                shelf.space.give(chunk.address(), None);
            }
        }
    }

    /// Adds a new slab, and cuts its first chunk.
    pub(super) fn adopt(&mut self, slab: Slab, bytes: usize) -> PinnedChunk {
        let _ = kept::PINNED.set(prune);
        let first = self.shelve(&slab).cut(slab.address(), bytes);
        let chunk = slab.chunk(&first);
        self.slabs.push(slab);
        self.counts.hand_out(bytes);
        chunk
    }

    /// Adds a slab again that is wholly unused.
    pub(super) fn readopt(&mut self, slab: Slab) {
        self.shelve(&slab);
        self.slabs.push(slab);
    }

    /// Makes a slab one free range of its node's space, which is returned.
    fn shelve(&mut self, slab: &Slab) -> &mut Space {
        self.reserve(slab.bytes);
        let space = &mut self.shelf(slab.node.index()).space;
        space.add(slab.segment());
        space.give(slab.address(), None);
        space
    }

    fn reserve(&mut self, bytes: usize) {
        self.counts.reserved += bytes;
        self.counts.reserved_peak = self.counts.reserved_peak.max(self.counts.reserved);
    }

    fn shelf(&mut self, node: usize) -> &mut Shelf {
        while self.shelves.len() <= node {
            self.shelves.push(Shelf::new());
        }
        &mut self.shelves[node]
    }

    /// Removes and returns a wholly unused slab, if there is one. To be called after
    /// [`Cache::merge`].
    pub(super) fn disown(&mut self) -> Option<Slab> {
        let unused = self.shelves.iter_mut().find_map(|shelf| shelf.space.take_segment())?;
        self.remove(unused.base)
    }

    /// Removes and returns the slab that has this address.
    fn remove(&mut self, address: CUdeviceptr) -> Option<Slab> {
        let at = self.slabs.iter().position(|slab| slab.has(address))?;
        let slab = self.slabs.swap_remove(at);
        self.counts.reserved -= slab.bytes;
        Some(slab)
    }

    /// Gives up a chunk's slab permanently: nothing of it is handed out again.
    pub(super) fn retire(&mut self, chunk: &PinnedChunk) -> Option<Slab> {
        let slab = self.remove(chunk.address())?;
        self.retired += 1;
        if let Some(shelf) = self.shelves.get_mut(slab.node.index()) {
            shelf.space.give_up_around(chunk.address());
            for bin in &mut shelf.bins {
                bin.idle.retain(|chunk| !slab.has(chunk.address()));
                let (gone, kept) = mem::take(&mut bin.pending)
                    .into_iter()
                    .partition::<Vec<_>, _>(|(chunk, _)| slab.has(chunk.address()));
                bin.pending = kept.into();
                self.spent.extend(gone.into_iter().map(|(_, fences)| fences));
            }
        }
        Some(slab)
    }

    /// The usage of all slabs. What is free or pending is summed on demand, so that no allocation
    /// pays for a counter.
    pub(super) fn usage(&self) -> PoolUsage {
        let (mut free, mut pending) = (0, 0);
        for shelf in &self.shelves {
            free += shelf.space.free;
            for bin in &shelf.bins {
                free += bin.idle.iter().map(|chunk| chunk.bytes).sum::<usize>();
                pending += bin.pending.iter().map(|(chunk, _)| chunk.bytes).sum::<usize>();
            }
        }
        PoolUsage { free, pending, ..self.counts }
    }

    /// Bytes of the slabs for chunks that have a class.
    pub(super) fn reserved_for_classes(&self) -> usize {
        let small = self.slabs.iter().filter(|slab| slab.kind == SegmentKind::Small);
        small.map(|slab| slab.bytes).sum()
    }

    /// Sets the peaks to the present values.
    pub(super) fn reset_peaks(&mut self) {
        self.counts.used_peak = self.counts.used;
        self.counts.reserved_peak = self.counts.reserved;
    }
}

impl Shelf {
    fn new() -> Self {
        Self { bins: (0..=CLASSES).map(|_| Bin::default()).collect(), space: Space::default() }
    }
}
