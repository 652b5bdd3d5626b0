//! The blocks that a stream has for itself: bins in front of the address space.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::{hint, thread};

use cuda_sys::CUdeviceptr;

use super::class;
use super::heap::{self, Heap};
use super::segments::CacheBlockState;
use crate::driver;
use crate::error::Result;
use crate::memory::ledger::Fences;
use crate::stream_core::StreamCore;
use crate::timeline::{Mark, Timeline};

/// A stream's own blocks. On cache lines of its own, since streams are used by different threads.
#[repr(align(128))]
pub(crate) struct Arena {
    locked: AtomicBool,
    // INVARIANT: touched by whoever set `locked` alone.
    bins: UnsafeCell<Bins>,
    heap: OnceLock<Arc<Heap>>,
}

// SAFETY: the bins are Send, and touched by one thread at a time.
unsafe impl Sync for Arena {}

/// What an arena holds.
#[derive(Default)]
pub(super) struct Bins {
    /// The stream has handles: somebody may allocate on it.
    open: bool,
    /// Blocks that the stream may use at once, by [`class::bin`].
    bins: Vec<Vec<Cached>>,
    /// Blocks that other streams may still use.
    pending: Vec<Pending>,
    pub(super) counts: Counts,
}

/// Bytes of the arena's blocks.
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
}

impl Cached {
    fn into_free(self, gone: &mut Vec<Arc<StreamCore>>) -> (CUdeviceptr, Mark) {
        gone.push(self.home);
        let mark = Mark {
            timeline: self.timeline,
            seq: self.seq,
        };
        (self.address, mark)
    }
}

/// A block that was freed while other streams used it.
struct Pending {
    block: Cached,
    fences: Fences,
}

/// Blocks that were taken out of an arena.
#[derive(Default)]
pub(super) struct Contents {
    bins: Vec<Vec<Cached>>,
    pending: Vec<Pending>,
}

/// Blocks on their way to the address space.
#[derive(Default)]
pub(super) struct Flushed {
    pub(super) free: Vec<(CUdeviceptr, Mark)>,
    pub(super) pending: Vec<(CUdeviceptr, Mark, Fences)>,
    /// Dropped last, and with no lock held: the last reference destroys a stream.
    pub(super) homes: Vec<Arc<StreamCore>>,
}

impl Arena {
    pub(crate) fn new() -> Self {
        Self {
            locked: AtomicBool::new(false),
            bins: UnsafeCell::default(),
            heap: OnceLock::new(),
        }
    }

    /// The address space behind the arena, [`None`] before the first miss.
    pub(super) fn heap(&self) -> Option<&Arc<Heap>> {
        self.heap.get()
    }

    /// [`Arena::heap`], which `find` finds at the first miss.
    pub(super) fn heap_or(&self, find: impl FnOnce() -> Result<Arc<Heap>>) -> Result<&Arc<Heap>> {
        if let Some(heap) = self.heap.get() {
            return Ok(heap);
        }
        let found = find()?;
        Ok(self.heap.get_or_init(|| found))
    }

    /// Locks the bins for a moment: no driver call, no other lock of this crate's and no destructor
    /// of anybody's comes under it. Taking it is one atomic exchange, giving it back a plain store.
    #[inline]
    pub(super) fn lock(&self) -> Locked<'_> {
        if self.locked.swap(true, Ordering::Acquire) {
            self.lock_contended();
        }
        Locked(self)
    }

    #[cold]
    fn lock_contended(&self) {
        const SPINS: u32 = 100;
        let mut spins = 0;
        while self.locked.swap(true, Ordering::Acquire) {
            while self.locked.load(Ordering::Relaxed) {
                if spins < SPINS {
                    spins += 1;
                    hint::spin_loop();
                } else {
                    // Whoever has it was put aside by the system.
                    thread::yield_now();
                }
            }
        }
    }

    /// Keeps freed blocks from now on if the stream has handles, and gives them up if it has none:
    /// to where other streams find them, so that they do not keep this one alive.
    pub(crate) fn follow(&self, has_handles: impl FnOnce() -> bool) {
        let contents = {
            let mut bins = self.lock();
            bins.open = has_handles();
            if bins.open {
                return;
            }
            bins.take_all()
        };
        if let Some(heap) = self.heap() {
            heap.take_back(contents.into_flushed());
        }
    }

    /// Takes back a block that only its home stream has used, or that nobody uses any more.
    ///
    /// The arena is that of the block's home.
    #[inline]
    pub(super) fn put(block: Cached) {
        let core = Arc::as_ptr(&block.home);
        // SAFETY: the reference in `block` keeps the stream alive while the lock is held: whoever
        // takes the block out of the bins has to have the lock.
        let arena = unsafe { &(*core).arena };
        let refused = {
            let mut bins = arena.lock();
            bins.counts.used -= block.bytes;
            bins.put(block)
            // Unlocked here, and not by a call that is handed the lock: while it returned, whoever
            // took the block out could already have freed the stream that the lock refers to.
        };
        if let Some(block) = refused {
            Heap::put(block);
        }
    }

    /// Takes back a block that other streams may still use.
    #[cold]
    pub(super) fn put_behind(block: Cached, fences: Fences) {
        let home = Arc::clone(&block.home);
        let pending = Pending { block, fences };
        let mut bins = home.arena.lock();
        bins.counts.used -= pending.block.bytes;
        if bins.open {
            bins.counts.pending += pending.block.bytes;
            bins.pending.push(pending);
            return;
        }
        drop(bins);
        if let Some(heap) = home.arena.heap() {
            let bins = Vec::new();
            let pending = vec![pending];
            heap.take_back(Contents { bins, pending }.into_flushed());
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // In a forked child our locks may be held by threads that no longer exist.
        if driver::is_gone() {
            return;
        }
        let counts = self.bins.get_mut().counts;
        if let Some(heap) = self.heap.get() {
            heap.remember(&counts);
        }
    }
}

/// The bins, locked.
pub(super) struct Locked<'a>(&'a Arena);

impl Deref for Locked<'_> {
    type Target = Bins;

    #[inline]
    fn deref(&self) -> &Bins {
        // SAFETY: this value has the lock.
        unsafe { &*self.0.bins.get() }
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Bins {
        // SAFETY: this value has the lock, and is borrowed exclusively.
        unsafe { &mut *self.0.bins.get() }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

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
    fn put(&mut self, block: Cached) -> Option<Cached> {
        if self.open {
            let bin = self.bins.get_mut(block.bin);
            if let Some(bin) = bin.filter(|bin| bin.len() < bin.capacity()) {
                bin.push(block);
                return None;
            }
        }
        self.put_first(block)
    }

    /// [`Bins::put`] where there are no bins yet, or no room in them. Of large blocks there is room
    /// for one: those before it join their neighbours in the address space, so that what lives long
    /// is not put where a larger one will be missed.
    #[cold]
    fn put_first(&mut self, block: Cached) -> Option<Cached> {
        if !self.open || block.bin >= class::BINS {
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

    /// Bytes of the blocks that the stream may use at once. Counted when asked for, since a hit has
    /// better things to do.
    pub(super) fn free(&self) -> usize {
        self.bins.iter().flatten().map(|block| block.bytes).sum()
    }

    /// Tells `f` of each block that nobody has.
    pub(super) fn list(&self, mut f: impl FnMut(CUdeviceptr, CacheBlockState)) {
        for block in self.bins.iter().flatten() {
            f(block.address, CacheBlockState::Free);
        }
        for pending in &self.pending {
            f(pending.block.address, CacheBlockState::Pending);
        }
    }

    /// Takes the blocks out that other streams are known to have finished with.
    pub(super) fn take_reached(&mut self) -> Contents {
        let reached = |pending: &Pending| pending.fences.are_known_reached();
        let mut contents = Contents::default();
        let mut at = 0;
        while at < self.pending.len() {
            if reached(&self.pending[at]) {
                let pending = self.pending.remove(at);
                self.counts.pending -= pending.block.bytes;
                contents.pending.push(pending);
            } else {
                at += 1;
            }
        }
        contents
    }

    /// What the oldest blocks wait for that other streams may still use.
    pub(super) fn awaited(&self, most: usize) -> Vec<Mark> {
        heap::awaited(self.pending.iter().map(|pending| &pending.fences), most)
    }

    /// Takes all blocks out.
    pub(super) fn take_all(&mut self) -> Contents {
        self.counts.pending = 0;
        Contents {
            bins: std::mem::take(&mut self.bins),
            pending: std::mem::take(&mut self.pending),
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
    /// Sorted out, where no arena is locked.
    pub(super) fn into_flushed(self) -> Flushed {
        let mut flushed = Flushed::default();
        for block in self.bins.into_iter().flatten() {
            flushed.free.push(block.into_free(&mut flushed.homes));
        }
        for Pending { block, fences } in self.pending {
            let (address, mark) = block.into_free(&mut flushed.homes);
            flushed.pending.push((address, mark, fences));
        }
        flushed
    }
}
