//! Per-stream caches of free blocks, by size, in front of a context's address space.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, ptr, thread};

use super::bins::{Bins, Cached, Contents};
use super::builder::SHARED;
use super::heap::Heap;
use super::space::Rest;
use crate::process::driver;
use crate::timeline::FreeBlocks;
use crate::timeline::ledger::Fences;
use crate::util::Pocket;

/// The cached blocks of one stream. Aligned to cache lines of its own, since streams are used by
/// different threads.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct StreamCache {
    locked: AtomicBool,
    // INVARIANT: accessed only by the thread that set `locked`.
    blocks: UnsafeCell<CachedBlocks>,
}

// SAFETY: `CachedBlocks` is Send, and the lock lets one thread at a time access it; `locked` is `Sync` by
// itself.
unsafe impl Sync for StreamCache {}

// Code that unwinds under the lock leaves the blocks consistent, as under all locks of this crate.
impl RefUnwindSafe for StreamCache {}

/// The content of a stream cache, under its lock.
#[derive(Default)]
pub(super) struct CachedBlocks {
    /// Whether the stream has user handles, so that an allocation on it can still reuse what is cached here.
    open: bool,
    /// Blocks of the pools that the stream has allocated from, while those pools exist.
    branches: Vec<Branch>,
}

/// A stream's cached blocks of one pool, from the first miss on. A pool that is dropped removes this entry,
/// so the entry never outlives the pool.
pub(super) struct Branch {
    /// The pool's [number](super::builder::Settings::pool).
    pool: u64,
    heap: Arc<Heap>,
    bins: Bins,
}

impl Pocket for FreeBlocks {
    type Content = StreamCache;
}

impl StreamCache {
    /// Takes the spin lock. The holder keeps it briefly: it makes no driver call, takes no other lock of this
    /// crate and runs no foreign destructor. Locking is one atomic exchange, unlocking a plain store.
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
                    // The system has probably descheduled the thread that holds the lock.
                    thread::yield_now();
                }
            }
        }
    }

    /// Runs `f` on the stream's bins of this heap, if the stream has any.
    pub(super) fn with<R: Default>(&self, heap: &Heap, f: impl FnOnce(&mut Bins) -> R) -> R {
        self.lock().of(heap).map(f).unwrap_or_default()
    }

    /// Returns the heap of a pool, if the stream has bins for that pool.
    pub(super) fn branch(&self, pool: u64) -> Option<Arc<Heap>> {
        let blocks = self.lock();
        let mut branches = blocks.branches.iter();
        let branch = branches.find(|branch| branch.pool == pool)?;
        Some(branch.heap.clone())
    }

    /// Adds bins for the heap of a pool, unless there are some.
    pub(super) fn add_branch(&self, pool: u64, heap: &Arc<Heap>) {
        let mut blocks = self.lock();
        if blocks.of(heap).is_none() {
            let new = Branch { pool, heap: heap.clone(), bins: Bins::default() };
            // The shared pool's branch comes first, to be found first. It is never removed, so no other takes
            // its place.
            let at = if pool == SHARED { 0 } else { blocks.branches.len() };
            blocks.branches.insert(at, new);
        }
    }

    /// Removes the bins of a pool that is being dropped, with the blocks in them. Blocks freed
    /// later go straight to their heap. Drop the result where no lock is held.
    pub(super) fn remove_branch(&self, heap: &Heap) -> Option<(Branch, Contents)> {
        let mut blocks = self.lock();
        let mut branches = blocks.branches.iter();
        let at = branches.position(|branch| ptr::eq(&*branch.heap, heap))?;
        let mut branch = blocks.branches.swap_remove(at);
        let contents = branch.bins.take_all();
        Some((branch, contents))
    }

    /// Updates whether freed blocks are cached here. A stream with handles caches them. A stream without
    /// handles returns all its blocks to the heap, where other streams find them and where they do not keep
    /// this stream alive.
    pub(crate) fn follow(&self, has_handles: impl FnOnce() -> bool) {
        let heaps: Vec<_> = {
            let mut blocks = self.lock();
            blocks.open = has_handles();
            if blocks.open {
                return;
            }
            blocks.branches.iter().map(|branch| branch.heap.clone()).collect()
        };
        for heap in heaps {
            let _moving = heap.begin_move();
            heap.take_back(self.with(&heap, Bins::take_all), Rest::Stays);
        }
    }

    /// Takes a block back into its home stream's cache. Only the home stream has used the block, or no work
    /// uses it any more.
    #[inline]
    pub(super) fn put(block: Cached) {
        let core = Arc::as_ptr(&block.home.core);
        // SAFETY: the reference in `block` keeps the stream alive while the lock is held: any
        // thread that takes the block out of the bins must hold the lock.
        let stream_cache = unsafe { &(*core).stream_cache };
        let refused = {
            let mut blocks = stream_cache.lock();
            blocks.put(block)
            // Unlocked here, rather than in a callee that takes the guard by value: while such a
            // callee returned, another thread could take the block out and free the stream that the
            // guard refers to.
        };
        if let Some(block) = refused {
            Heap::put(block);
        }
    }

    /// Takes back a block that other streams may still use, up to the points in `fences`.
    #[cold]
    pub(super) fn put_behind(block: Cached, fences: Fences) {
        // The home stream's cache counts the block; the heap keeps it, where all streams find it.
        let _ = block.home.core.stream_cache.lock().accept(&block);
        Heap::put_behind(block, fences);
    }
}

impl CachedBlocks {
    /// Takes a block of pool `pool` for a request of `needed` bytes (already rounded).
    #[inline]
    pub(super) fn take(&mut self, pool: u64, needed: usize) -> Option<Cached> {
        let mut branches = self.branches.iter_mut();
        let branch = branches.find(|branch| branch.pool == pool)?;
        branch.bins.take(needed)
    }

    /// Returns the bins for a heap; [`None`] if its pool is gone, and with it the counters.
    #[inline]
    fn of(&mut self, heap: &Heap) -> Option<&mut Bins> {
        let mut branches = self.branches.iter_mut();
        let branch = branches.find(|branch| ptr::eq(&*branch.heap, heap))?;
        Some(&mut branch.bins)
    }

    /// Counts a block that comes back, and returns the bins for it, unless this stream cache does not keep
    /// it.
    #[inline]
    fn accept(&mut self, block: &Cached) -> Option<&mut Bins> {
        let open = self.open;
        let bins = self.of(&block.home.heap)?;
        bins.counts.used -= block.home.bytes;
        open.then_some(bins)
    }

    /// Puts a block into its bin; returns it if this stream cache does not keep it.
    #[inline]
    fn put(&mut self, block: Cached) -> Option<Cached> {
        match self.accept(&block) {
            Some(bins) => bins.put(block),
            None => Some(block),
        }
    }
}

impl Drop for StreamCache {
    fn drop(&mut self) {
        // In a fork's child, this crate's locks may be held by threads that do not exist there.
        if driver::is_gone() {
            return;
        }
        for branch in &self.blocks.get_mut().branches {
            branch.heap.remember(branch.bins.counts);
        }
    }
}

/// Guard of the stream cache's lock.
pub(super) struct Locked<'a>(&'a StreamCache);

impl Deref for Locked<'_> {
    type Target = CachedBlocks;

    #[inline]
    fn deref(&self) -> &CachedBlocks {
        // SAFETY: this guard holds the lock.
        unsafe { &*self.0.blocks.get() }
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut CachedBlocks {
        // SAFETY: this guard holds the lock and is borrowed exclusively.
        unsafe { &mut *self.0.blocks.get() }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}
