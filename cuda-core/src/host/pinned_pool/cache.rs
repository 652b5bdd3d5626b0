//! Bookkeeping of all slabs and chunks, under one lock that is never held during a driver call.

use cuda_sys::CUdeviceptr;

use super::class::{self, CLASSES};
use super::prune;
use super::source::Slab;
use super::{NumaNode, PinnedChunk};
use crate::alloc::caching::awaiting::Awaiting;
use crate::alloc::caching::class::SegmentKind;
use crate::alloc::caching::owners::NO_OWNER;
use crate::alloc::caching::space::Space;
use crate::context::kept;
use crate::timeline::Mark;
use crate::timeline::ledger::Fences;
use crate::types::PoolUsage;

/// The number of streams whose pending chunks are checked when a chunk is needed.
pub(super) const MANY: usize = 16;

/// The number of streams whose pending chunks are checked when another chunk becomes pending. So the
/// chunks, and the streams and contexts that their fences refer to, are released without waiting for an
/// allocation.
const FEW: usize = 2;

/// All streams.
pub(super) const ALL: usize = usize::MAX;

/// The bookkeeping of slabs and chunks.
pub(super) struct Cache {
    /// The shelves by [`NumaNode::index`], up to the last node with slabs.
    shelves: Vec<Shelf>,
    slabs: Vec<Slab>,
    /// The number of slabs that were given up; chunks of them may still be given back.
    retired: usize,
    /// Chunks that devices may still use.
    pub(super) pending: Awaiting<PinnedChunk>,
    /// The used and reserved bytes; [`Cache::usage`] adds the rest.
    pub(super) counts: PoolUsage,
    /// Fences that are no longer needed. Dropping the last reference to a timeline calls the driver, so
    /// [`Slabs::with`](super::Slabs::with) drops them after unlocking.
    pub(super) spent: Vec<Fences>,
}

/// Chunks and slabs near one NUMA node.
struct Shelf {
    /// Idle chunks by [`class::bin`]. The last chunk of a bin was used last, and is the most likely to
    /// be in the processor's caches. Idle large chunks are free ranges instead.
    bins: Vec<Vec<PinnedChunk>>,
    /// The slabs, and the ranges they are cut into, by address. A chunk is a taken range.
    space: Space,
}

impl Cache {
    pub(super) const NEW: Self = Self {
        shelves: Vec::new(),
        slabs: Vec::new(),
        retired: 0,
        pending: Awaiting::new(),
        counts: PoolUsage::NONE,
        spent: Vec::new(),
    };

    /// Takes over the contents of another cache, none of whose chunks is in use.
    pub(super) fn append(&mut self, mut other: Self) {
        for (node, shelf) in other.shelves.into_iter().enumerate() {
            let own = self.shelf(node);
            own.space.append(shelf.space);
            own.bins.iter_mut().zip(shelf.bins).for_each(|(own, bin)| own.extend(bin));
        }
        for (chunk, fences) in other.pending.take_if(|_, _| true) {
            self.pending.enter(chunk, fences);
        }
        self.slabs.extend(other.slabs);
        self.reserve(other.counts.reserved);
        self.spent.extend(other.spent);
    }

    /// Takes an idle chunk of exactly this class.
    #[inline]
    pub(super) fn pop(&mut self, node: NumaNode, bin: usize) -> Option<PinnedChunk> {
        let shelf = self.shelves.get_mut(node.index())?;
        let chunk = shelf.bins[bin].pop()?;
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
        self.settle(FEW);
        self.counts.used -= chunk.bytes;
        match self.is_retired(&chunk) {
            true => self.spent.push(fences),
            false => self.pending.enter(chunk, fences),
        }
    }

    /// Takes an idle chunk of `bytes` (already rounded to its class): from its bin, or cut from a free
    /// range.
    pub(super) fn find(&mut self, node: NumaNode, bytes: usize) -> Option<PinnedChunk> {
        self.pop(node, class::bin(bytes)).or_else(|| self.carve(node, bytes))
    }

    /// Cuts a chunk from the smallest range with room for it.
    fn carve(&mut self, node: NumaNode, bytes: usize) -> Option<PinnedChunk> {
        let shelf = self.shelves.get_mut(node.index())?;
        let range = shelf.space.take(NO_OWNER, class::kind(bytes), bytes)?;
        let slab = self.slabs.iter().find(|slab| slab.has(range.address))?;
        self.counts.hand_out(bytes);
        Some(slab.chunk(&range))
    }

    /// Makes pending chunks idle whose fences are known to be reached. Checks the chunks of the next
    /// streams, at most `most`. No driver call.
    pub(super) fn settle(&mut self, most: usize) {
        let streams = self.pending.in_turn(most);
        for (chunk, fences) in self.pending.take_reached(&streams) {
            self.spent.push(fences);
            self.keep(chunk);
        }
    }

    /// Puts an idle chunk into its bin, or among the free ranges if it is large.
    #[inline]
    fn keep(&mut self, chunk: PinnedChunk) {
        if self.is_retired(&chunk) {
            return;
        }
        let Some(shelf) = self.shelves.get_mut(chunk.node.index()) else { return };
        match class::kind(chunk.bytes) {
            SegmentKind::Small => shelf.bins[class::bin(chunk.bytes)].push(chunk),
            SegmentKind::Large => shelf.space.give(chunk.address(), None),
        }
    }

    #[inline]
    fn is_retired(&self, chunk: &PinnedChunk) -> bool {
        let given_up = |shelf: &Shelf| shelf.space.is_given_up(chunk.address());
        self.retired > 0 && self.shelves.get(chunk.node.index()).is_some_and(given_up)
    }

    /// Turns all idle chunks into free ranges, so that they can be cut to other sizes.
    pub(super) fn merge(&mut self) {
        self.settle(ALL);
        for shelf in &mut self.shelves {
            for chunk in shelf.bins.iter_mut().flat_map(|bin| bin.drain(..)) {
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

    /// Adds a wholly unused slab again.
    pub(super) fn readopt(&mut self, slab: Slab) {
        self.shelve(&slab);
        self.slabs.push(slab);
    }

    /// Makes a slab one free range of its node's space, and returns the space.
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

    /// Removes and returns a wholly unused slab, if there is one. Called after [`Cache::merge`].
    pub(super) fn disown(&mut self) -> Option<Slab> {
        let unused = self.shelves.iter_mut().find_map(|shelf| shelf.space.take_segment())?;
        self.remove(unused.base)
    }

    /// Removes and returns the slab that contains this address.
    fn remove(&mut self, address: CUdeviceptr) -> Option<Slab> {
        let at = self.slabs.iter().position(|slab| slab.has(address))?;
        let slab = self.slabs.swap_remove(at);
        self.counts.reserved -= slab.bytes;
        Some(slab)
    }

    /// Gives up the slabs of chunks that devices may use forever, since this mark is lost.
    pub(super) fn retire_behind(&mut self, lost: &Mark) -> Vec<Slab> {
        let is_behind =
            |mark: &Mark| mark.timeline.id() == lost.timeline.id() && mark.seq >= lost.seq;
        let used = self.pending.take_if(|_, fences| fences.marks().iter().any(is_behind));
        let slabs = used.iter().filter_map(|(chunk, _)| self.retire(chunk)).collect();
        self.spent.extend(used.into_iter().map(|(_, fences)| fences));
        slabs
    }

    /// Gives up a chunk's slab permanently: no part of it is handed out again.
    fn retire(&mut self, chunk: &PinnedChunk) -> Option<Slab> {
        let slab = self.remove(chunk.address())?;
        self.retired += 1;
        if let Some(shelf) = self.shelves.get_mut(slab.node.index()) {
            shelf.space.give_up_around(chunk.address());
            shelf.bins.iter_mut().for_each(|bin| bin.retain(|chunk| !slab.has(chunk.address())));
        }
        let gone = self.pending.take_if(|chunk, _| slab.has(chunk.address()));
        self.spent.extend(gone.into_iter().map(|(_, fences)| fences));
        Some(slab)
    }

    /// Returns the usage of all slabs. Free and pending bytes are summed on demand, so that no
    /// allocation pays for a counter.
    pub(super) fn usage(&self) -> PoolUsage {
        let idle =
            |shelf: &Shelf| shelf.bins.iter().flatten().map(|chunk| chunk.bytes).sum::<usize>();
        let free = self.shelves.iter().map(|shelf| shelf.space.free + idle(shelf)).sum();
        let pending = self.pending.iter().map(|(_, chunk, _)| chunk.bytes).sum();
        PoolUsage { free, pending, ..self.counts }
    }

    /// Returns the bytes of the slabs for chunks that have a class.
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
        Self { bins: vec![Vec::new(); CLASSES + 1], space: Space::default() }
    }
}
