//! What is in the slabs, under one lock that is never held over a driver call.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::Chunk;
use super::class::{CLASSES, Class};
use super::node::Node;
use super::prune;
use super::source::Slab;
use super::spans::{SlabId, Span, Spans};
use crate::context::kept;
use crate::timeline::Mark;
use crate::timeline::ledger::Fences;

/// Pending chunks of a bin that are looked at when one is wanted.
const MANY: usize = 64;

/// Those that are looked at when one more comes: so that they do not wait for somebody who wants
/// them, and with them the streams and contexts that they name.
const FEW: usize = 2;

/// See the module.
pub(super) struct Cache {
    /// By [`Node::index`], as far as there are slabs.
    shelves: Vec<Shelf>,
    slabs: Vec<Slab>,
    /// Slabs that were given up, of which chunks may still come back.
    retired: Vec<SlabId>,
    counts: Counts,
}

pub(super) static CACHE: Mutex<Cache> = Mutex::new(Cache {
    shelves: Vec::new(),
    slabs: Vec::new(),
    retired: Vec::new(),
    counts: Counts {
        used: 0,
        used_peak: 0,
        cached: 0,
        pending: 0,
        reserved: 0,
        reserved_peak: 0,
    },
});

/// Bytes of chunks, and of slabs.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    pub(super) used: usize,
    pub(super) used_peak: usize,
    pub(super) cached: usize,
    pub(super) pending: usize,
    pub(super) reserved: usize,
    pub(super) reserved_peak: usize,
}

/// What there is near one node.
struct Shelf {
    /// By [`Class::index`]; the last is of all large chunks.
    bins: Vec<Bin>,
    /// Stretches of slabs for chunks that have a class.
    small: Spans,
    /// Stretches of slabs for large chunks: a small one in the middle would spoil them.
    large: Spans,
}

/// Chunks of one class.
#[derive(Default)]
struct Bin {
    /// The last one was used last, and is the likeliest to be in the processor's caches. Large
    /// chunks are among the spans instead.
    idle: Vec<Chunk>,
    /// Devices may still use these.
    pending: VecDeque<(Chunk, Fences)>,
}

/// Fences that nobody needs any more. Dropping the last reference to a timeline calls the driver:
/// not under the lock.
pub(super) type Spent = Vec<Fences>;

impl Cache {
    /// An idle chunk of just this class.
    #[inline]
    pub(super) fn pop(&mut self, node: Node, class: Class) -> Option<Chunk> {
        let shelf = self.shelves.get_mut(node.index())?;
        let chunk = shelf.bins[class.index()].idle.pop()?;
        self.counts.cached -= chunk.bytes;
        self.counts.hand_out(chunk.bytes);
        Some(chunk)
    }

    /// Takes a chunk back that nobody uses any more.
    #[inline]
    pub(super) fn put(&mut self, chunk: Chunk, slab: SlabId) {
        self.counts.used -= chunk.bytes;
        self.keep(chunk, slab);
    }

    /// Takes a chunk back that devices may use until the fences are reached.
    pub(super) fn put_pending(&mut self, chunk: Chunk, slab: SlabId, fences: Fences) -> Spent {
        self.counts.used -= chunk.bytes;
        if self.is_retired(slab) {
            return vec![fences];
        }
        let (node, bin) = (chunk.node.index(), Class::of(chunk.bytes).index());
        let mut spent = Spent::new();
        self.settle(node, bin, FEW, &mut spent);
        self.counts.pending += chunk.bytes;
        if let Some(shelf) = self.shelves.get_mut(node) {
            shelf.bins[bin].pending.push_back((chunk, fences));
        }
        spent
    }

    /// A chunk of `bytes`, all of its class, from what is known to be idle: of its own kind, or
    /// cut from a free stretch.
    pub(super) fn find(&mut self, node: Node, bytes: usize, spent: &mut Spent) -> Option<Chunk> {
        let class = Class::of(bytes);
        self.settle(node.index(), class.index(), MANY, spent);
        self.pop(node, class).or_else(|| self.carve(node, bytes))
    }

    /// Cuts a chunk from the smallest stretch that has room.
    fn carve(&mut self, node: Node, bytes: usize) -> Option<Chunk> {
        let shelf = self.shelves.get_mut(node.index())?;
        let span = shelf.spans(Class::of(bytes).is_large()).take(bytes)?;
        let slab = self.slabs.iter().find(|slab| slab.id() == span.slab)?;
        let chunk = slab.chunk(span);
        self.counts.cached -= bytes;
        self.counts.hand_out(bytes);
        Some(chunk)
    }

    /// Keeps those pending chunks of a bin that are known to be done with. Asks no driver.
    fn settle(&mut self, node: usize, bin: usize, most: usize, spent: &mut Spent) {
        let count = match self.shelves.get(node) {
            Some(shelf) => shelf.bins[bin].pending.len().min(most),
            None => return,
        };
        // In turn: one that waits for a stream that is held up does not hide the others.
        for _ in 0..count {
            let pending = &mut self.shelves[node].bins[bin].pending;
            let Some((chunk, fences)) = pending.pop_front() else {
                return;
            };
            if !is_known(&fences) {
                pending.push_back((chunk, fences));
                continue;
            }
            spent.push(fences);
            self.counts.pending -= chunk.bytes;
            if let Some(slab) = chunk.slab {
                self.keep(chunk, slab);
            }
        }
    }

    /// Takes a pending chunk out, to be looked at without the lock; the longest pending first.
    /// [`Cache::put`] and [`Cache::put_pending`] take it back.
    pub(super) fn take_pending(&mut self, node: usize, bin: usize) -> Option<(Chunk, Fences)> {
        let shelf = self.shelves.get_mut(node)?;
        let taken = shelf.bins[bin].pending.pop_front()?;
        self.counts.pending -= taken.0.bytes;
        self.counts.used += taken.0.bytes;
        Some(taken)
    }

    /// The bins that have pending chunks, and how many.
    pub(super) fn pending(&self) -> Vec<(usize, usize, usize)> {
        let mut all = Vec::new();
        for (node, shelf) in self.shelves.iter().enumerate() {
            for (index, bin) in shelf.bins.iter().enumerate() {
                if !bin.pending.is_empty() {
                    all.push((node, index, bin.pending.len()));
                }
            }
        }
        all
    }

    /// Puts an idle chunk where the next of its kind is looked for.
    #[inline]
    fn keep(&mut self, chunk: Chunk, slab: SlabId) {
        if self.is_retired(slab) {
            return;
        }
        let Some(shelf) = self.shelves.get_mut(chunk.node.index()) else {
            return;
        };
        self.counts.cached += chunk.bytes;
        let class = Class::of(chunk.bytes);
        if class.is_large() {
            shelf.large.insert(chunk.span(slab));
        } else {
            shelf.bins[class.index()].idle.push(chunk);
        }
    }

    #[inline]
    fn is_retired(&self, slab: SlabId) -> bool {
        !self.retired.is_empty() && self.retired.contains(&slab)
    }

    /// Keeps all pending chunks that are known to be done with. Asks no driver.
    pub(super) fn settle_all(&mut self, spent: &mut Spent) {
        for node in 0..self.shelves.len() {
            for bin in 0..=CLASSES {
                self.settle(node, bin, usize::MAX, spent);
            }
        }
    }

    /// Makes stretches of all idle chunks, so that they can be cut anew.
    pub(super) fn merge(&mut self, spent: &mut Spent) {
        self.settle_all(spent);
        for shelf in &mut self.shelves {
            for bin in shelf.bins.iter_mut().filter(|bin| !bin.idle.is_empty()) {
                for chunk in bin.idle.drain(..) {
                    if let Some(slab) = chunk.slab {
                        shelf.small.insert(chunk.span(slab));
                    }
                }
            }
        }
    }

    /// Takes in a new slab, and cuts its first chunk.
    pub(super) fn adopt(&mut self, slab: Slab, bytes: usize) -> Chunk {
        let _ = kept::PINNED.set(prune);
        let span = slab.whole();
        let (first, rest) = span.split(bytes);
        let chunk = slab.chunk(first);
        self.insert(slab, rest);
        self.counts.hand_out(bytes);
        chunk
    }

    /// Takes in a slab of which nothing is used.
    pub(super) fn readopt(&mut self, slab: Slab) {
        let whole = slab.whole();
        self.insert(slab, Some(whole));
    }

    /// Takes in a slab of which only this is free.
    fn insert(&mut self, slab: Slab, free: Option<Span>) {
        let node = slab.node().index();
        while self.shelves.len() <= node {
            self.shelves.push(Shelf::new());
        }
        if let Some(free) = free {
            self.shelves[node].spans(slab.is_large()).insert(free);
            self.counts.cached += free.bytes;
        }
        self.counts.reserved += slab.bytes();
        self.counts.reserved_peak = self.counts.reserved_peak.max(self.counts.reserved);
        self.slabs.push(slab);
    }

    /// Takes a slab out of which nothing is used, if there is one. To be called after
    /// [`Cache::merge`].
    pub(super) fn disown(&mut self) -> Option<Slab> {
        let shelves = &mut self.shelves;
        let at = self.slabs.iter().position(|slab| {
            let shelf = shelves.get_mut(slab.node().index());
            shelf.is_some_and(|shelf| shelf.spans(slab.is_large()).take_whole(slab.whole()))
        })?;
        let slab = self.slabs.swap_remove(at);
        self.counts.cached -= slab.bytes();
        self.counts.reserved -= slab.bytes();
        Some(slab)
    }

    /// Gives a slab up for good: nothing of it is handed out again.
    pub(super) fn retire(&mut self, id: SlabId, spent: &mut Spent) -> Option<Slab> {
        let at = self.slabs.iter().position(|slab| slab.id() == id)?;
        let slab = self.slabs.swap_remove(at);
        self.retired.push(id);
        self.counts.reserved -= slab.bytes();
        let (mut idle, mut pending) = (0, 0);
        if let Some(shelf) = self.shelves.get_mut(slab.node().index()) {
            idle += shelf.spans(slab.is_large()).take_rest(id);
            for bin in &mut shelf.bins {
                bin.idle.retain(|chunk| {
                    let gone = chunk.slab == Some(id);
                    idle += if gone { chunk.bytes } else { 0 };
                    !gone
                });
                let (gone, kept) = std::mem::take(&mut bin.pending)
                    .into_iter()
                    .partition::<Vec<_>, _>(|(chunk, _)| chunk.slab == Some(id));
                bin.pending = kept.into();
                pending += gone.iter().map(|(chunk, _)| chunk.bytes).sum::<usize>();
                spent.extend(gone.into_iter().map(|(_, fences)| fences));
            }
        }
        self.counts.cached -= idle;
        self.counts.pending -= pending;
        Some(slab)
    }

    /// Bytes of the slabs for chunks that have a class.
    pub(super) fn reserved_for_classes(&self) -> usize {
        let small = self.slabs.iter().filter(|slab| !slab.is_large());
        small.map(Slab::bytes).sum()
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Begins the peaks anew.
    pub(super) fn reset_peaks(&mut self) {
        self.counts.used_peak = self.counts.used;
        self.counts.reserved_peak = self.counts.reserved;
    }
}

impl Counts {
    #[inline]
    fn hand_out(&mut self, bytes: usize) {
        self.used += bytes;
        self.used_peak = self.used_peak.max(self.used);
    }
}

impl Shelf {
    fn new() -> Self {
        Self {
            bins: (0..=CLASSES).map(|_| Bin::default()).collect(),
            small: Spans::default(),
            large: Spans::default(),
        }
    }

    fn spans(&mut self, large: bool) -> &mut Spans {
        if large {
            &mut self.large
        } else {
            &mut self.small
        }
    }
}

/// Whether all of them are known to be reached, without asking.
fn is_known(fences: &Fences) -> bool {
    let reached = |mark: &Mark| mark.timeline.has_completed(mark.seq);
    fences.marks().iter().all(reached)
}
