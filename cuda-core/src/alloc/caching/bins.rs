//! Blocks of one pool that a stream has for itself, by size.

use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use super::awaiting::Awaiting;
use super::class;
use super::heap::Heap;
use super::segments::CacheBlockState;
use crate::timeline::core::StreamCore;
use crate::timeline::ledger::Fences;
use crate::timeline::{Mark, Timeline};

/// The blocks of one pool that a stream has.
#[derive(Default)]
pub(super) struct Bins {
    /// Those that it may use at once, by [`class::bin`].
    bins: Vec<Vec<Cached>>,
    /// Those that other streams may still use.
    pending: Awaiting<Cached>,
    pub(super) counts: Counts,
}

/// Bytes of a stream's blocks.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) used: usize,
    pub(super) peak: usize,
    pub(super) pending: usize,
    /// All that was ever allocated.
    pub(super) allocations: u64,
    pub(super) allocated: u64,
}

impl Counts {
    #[inline]
    pub(super) fn allocate(&mut self, bytes: usize) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        self.allocations += 1;
        self.allocated += bytes as u64;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.used += other.used;
        self.peak += other.peak;
        self.pending += other.pending;
        self.allocations += other.allocations;
        self.allocated += other.allocated;
    }
}

/// A block that nobody has. It brings along what its next owner needs, so that handing it over
/// counts no references: a hit touches no cache line that other streams' threads write.
pub(super) struct Cached {
    pub(super) address: CUdeviceptr,
    pub(super) bytes: usize,
    /// Where it belongs, by [`class::bin`].
    pub(super) bin: usize,
    /// The home stream's point behind which other streams may use it.
    pub(super) seq: u64,
    pub(super) timeline: Arc<Timeline>,
    pub(super) home: Arc<StreamCore>,
    /// Where it was cut, if that is not the process's pool.
    pub(super) branch: Option<Arc<Heap>>,
}

impl Cached {
    /// Where it was cut.
    pub(super) fn heap(&self) -> Option<&Arc<Heap>> {
        self.branch.as_ref().or_else(|| self.home.arena.heap())
    }

    fn into_free(self, gone: &mut Vec<Gone>) -> (CUdeviceptr, Mark) {
        gone.push((self.home, self.branch));
        let mark = Mark {
            timeline: self.timeline,
            seq: self.seq,
        };
        (self.address, mark)
    }
}

/// Blocks that were taken out of an arena.
#[derive(Default)]
pub(super) struct Contents {
    bins: Vec<Vec<Cached>>,
    pending: Vec<(Cached, Fences)>,
}

/// Blocks on their way to the address space.
#[derive(Default)]
pub(super) struct Flushed {
    pub(super) free: Vec<(CUdeviceptr, Mark)>,
    pub(super) pending: Vec<(CUdeviceptr, Mark, Fences)>,
    /// Dropped last, and with no lock held.
    pub(super) gone: Vec<Gone>,
}

/// What a block kept alive. The last reference destroys a stream, or frees what a pool has left.
type Gone = (Arc<StreamCore>, Option<Arc<Heap>>);

impl Bins {
    /// A block for a request of `needed` bytes, which are rounded.
    #[inline]
    pub(super) fn take(&mut self, needed: usize) -> Option<Cached> {
        let mut bin = class::bin(needed);
        let latest = self.bins.get(bin)?.last();
        if latest.is_none_or(|block| block.bytes != needed) {
            bin = self.bring_forward(needed)?;
        }
        let block = self.bins.get_mut(bin)?.pop()?;
        self.counts.allocate(block.bytes);
        Some(block)
    }

    /// Moves the smallest block that serves a request to the end of its bin, and says which that is.
    ///
    /// Those of a bin are of one size unless they are large; large ones may be somewhat larger than
    /// was asked for, and only the latest are looked at. Any but the smallest would be missed by
    /// whoever freed it, and asks for the same again.
    #[cold]
    fn bring_forward(&mut self, needed: usize) -> Option<usize> {
        const LOOKS: usize = 16;
        for at in class::bin(needed)..=class::bin(class::most(needed)) {
            let bin = self.bins.get_mut(at)?;
            let looked_at = bin.iter().enumerate().rev().take(LOOKS);
            let serving = looked_at.filter(|(_, block)| class::fits(block.bytes, needed));
            if let Some((best, _)) = serving.min_by_key(|(_, block)| block.bytes) {
                let last = bin.len() - 1;
                bin.swap(last, best);
                return Some(at);
            }
        }
        None
    }

    /// Puts a block into its bin; gives it back if nobody would find it there.
    #[inline]
    pub(super) fn put(&mut self, block: Cached) -> Option<Cached> {
        let bin = self.bins.get_mut(block.bin);
        if let Some(bin) = bin.filter(|bin| bin.len() < bin.capacity()) {
            bin.push(block);
            return None;
        }
        self.put_first(block)
    }

    /// [`Bins::put`] where there are no bins yet, or no room in them. Of large blocks there is room
    /// for one: those before it join their neighbours in the address space, so that what lives long
    /// is not put where a larger one will be missed.
    #[cold]
    fn put_first(&mut self, block: Cached) -> Option<Cached> {
        if block.bin >= class::BINS {
            return Some(block);
        }
        self.bins.resize_with(class::BINS, Vec::new);
        let bin = &mut self.bins[block.bin];
        if block.bytes <= class::Span::LARGEST_SMALL {
            bin.push(block);
            return None;
        }
        let older = bin.pop();
        bin.reserve_exact(1);
        bin.push(block);
        older
    }

    /// Keeps a block that other streams may still use.
    pub(super) fn put_behind(&mut self, block: Cached, fences: Fences) {
        self.counts.pending += block.bytes;
        self.pending.enter(block, fences);
    }

    /// Bytes of the blocks that the stream may use at once. Counted when asked for, since a hit has
    /// better things to do.
    pub(super) fn free(&self) -> usize {
        self.bins.iter().flatten().map(|block| block.bytes).sum()
    }

    /// Bytes of the largest of these blocks.
    pub(super) fn largest(&self) -> usize {
        let blocks = self.bins.iter().flatten();
        blocks.map(|block| block.bytes).max().unwrap_or(0)
    }

    /// Tells `f` of each block that nobody has.
    pub(super) fn list(&self, mut f: impl FnMut(CUdeviceptr, CacheBlockState)) {
        for block in self.bins.iter().flatten() {
            f(block.address, CacheBlockState::Free);
        }
        for (_, block, _) in self.pending.iter() {
            f(block.address, CacheBlockState::Pending);
        }
    }

    /// Takes the blocks out that other streams are known to have finished with, of at most so many
    /// streams.
    pub(super) fn take_reached(&mut self, streams: usize) -> Contents {
        let reached = self.pending.take_reached_in_turn(streams);
        self.no_more_pending(reached)
    }

    /// [`take_reached`](Self::take_reached) of those streams.
    pub(super) fn take_reached_of(&mut self, streams: &[u64]) -> Contents {
        let reached = self.pending.take_reached(streams);
        self.no_more_pending(reached)
    }

    fn no_more_pending(&mut self, pending: Vec<(Cached, Fences)>) -> Contents {
        let bytes: usize = pending.iter().map(|(block, _)| block.bytes).sum();
        self.counts.pending -= bytes;
        Contents {
            bins: Vec::new(),
            pending,
        }
    }

    /// What to ask of streams that may still use blocks.
    pub(super) fn next_asked(&mut self, most: usize) -> Vec<Mark> {
        self.pending.next_asked(most)
    }

    /// Takes all blocks out.
    pub(super) fn take_all(&mut self) -> Contents {
        self.counts.pending = 0;
        Contents {
            bins: std::mem::take(&mut self.bins),
            pending: std::mem::take(&mut self.pending).into_iter().collect(),
        }
    }

    /// Takes the free blocks out that serve a request for `needed` bytes, or are larger.
    pub(super) fn take_from(&mut self, needed: usize) -> Contents {
        let first = class::bin(needed).min(self.bins.len());
        let bins: Vec<_> = self.bins[first..].iter_mut().map(std::mem::take).collect();
        Contents {
            bins,
            pending: Vec::new(),
        }
    }
}

impl Contents {
    /// A block that other streams may still use.
    pub(super) fn behind(block: Cached, fences: Fences) -> Self {
        Self {
            bins: Vec::new(),
            pending: vec![(block, fences)],
        }
    }

    /// Sorted out, where no arena is locked.
    pub(super) fn into_flushed(self) -> Flushed {
        let mut flushed = Flushed::default();
        for block in self.bins.into_iter().flatten() {
            flushed.free.push(block.into_free(&mut flushed.gone));
        }
        for (block, fences) in self.pending {
            let (address, mark) = block.into_free(&mut flushed.gone);
            flushed.pending.push((address, mark, fences));
        }
        flushed
    }
}
