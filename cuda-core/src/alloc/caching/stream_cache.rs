//! The blocks that a stream has for itself: bins in front of the address space.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::{hint, ptr, thread};

use super::bins::{Bins, Cached, Contents};
use super::builder::SHARED;
use super::heap::Heap;
use super::space::Rest;
use crate::process::driver;
use crate::timeline::core::FreeBlocks;
use crate::timeline::ledger::Fences;
use crate::util::pocket::Pocket;

/// A stream's own blocks. On cache lines of its own, since streams are used by different threads.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Arena {
    locked: AtomicBool,
    // INVARIANT: touched by whoever set `locked` alone.
    kept: UnsafeCell<Kept>,
    /// Where the blocks of the process's pool come from.
    heap: OnceLock<Arc<Heap>>,
}

// SAFETY: what is kept is Send, and touched by one thread at a time.
unsafe impl Sync for Arena {}

/// What an arena holds.
#[derive(Default)]
pub(super) struct Kept {
    /// The stream has handles: somebody may allocate on it.
    open: bool,
    /// Blocks of the process's pool.
    bins: Bins,
    /// Blocks of the others that the stream has allocated from, while there are these.
    branches: Vec<Branch>,
}

/// What a stream has of a pool. The pool goes first: it takes this out when it is dropped.
pub(super) struct Branch {
    /// Its [number](super::builder::Settings::pool).
    pool: u64,
    heap: Arc<Heap>,
    bins: Bins,
}

impl Pocket for FreeBlocks {
    type Content = Arena;
}

impl Arena {
    /// The address space of the process's pool, [`None`] before the first miss.
    pub(super) fn heap(&self) -> Option<&Arc<Heap>> {
        self.heap.get()
    }

    /// [`Arena::heap`], which `find` finds at the first miss.
    pub(super) fn heap_or(&self, find: impl FnOnce() -> Arc<Heap>) -> &Arc<Heap> {
        self.heap.get_or_init(find)
    }

    /// Locks what is kept for a moment: no driver call, no other lock of this crate's and no destructor
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

    /// Runs `f` on the stream's bins of the heap, where it has any.
    pub(super) fn with<R: Default>(&self, heap: &Heap, f: impl FnOnce(&mut Bins) -> R) -> R {
        self.lock().of(heap).map(f).unwrap_or_default()
    }

    /// The heap of a pool other than the process's that the stream has bins of.
    pub(super) fn branch(&self, pool: u64) -> Option<Arc<Heap>> {
        let kept = self.lock();
        let mut branches = kept.branches.iter();
        let branch = branches.find(|branch| branch.pool == pool)?;
        Some(branch.heap.clone())
    }

    /// Makes bins of such a heap, if there are none yet.
    pub(super) fn add_branch(&self, pool: u64, heap: &Arc<Heap>) {
        let mut kept = self.lock();
        if kept.of(heap).is_none() {
            kept.branches.push(Branch {
                pool,
                heap: heap.clone(),
                bins: Bins::default(),
            });
        }
    }

    /// Takes the bins of a pool that goes out, and what is in them: blocks that are freed from now on go
    /// to where they were cut. To be dropped where nothing is locked.
    pub(super) fn remove_branch(&self, heap: &Heap) -> Option<(Branch, Contents)> {
        let mut kept = self.lock();
        let mut branches = kept.branches.iter();
        let at = branches.position(|branch| ptr::eq(&*branch.heap, heap))?;
        let mut branch = kept.branches.swap_remove(at);
        let contents = branch.bins.take_all();
        Some((branch, contents))
    }

    /// Keeps freed blocks from now on if the stream has handles, and gives them up if it has none:
    /// to where other streams find them, so that they do not keep this one alive.
    pub(crate) fn follow(&self, has_handles: impl FnOnce() -> bool) {
        let (contents, of_branches) = {
            let mut kept = self.lock();
            kept.open = has_handles();
            if kept.open {
                return;
            }
            let branches = kept.branches.iter_mut();
            let of_branches = branches.map(|branch| (branch.heap.clone(), branch.bins.take_all()));
            let of_branches: Vec<_> = of_branches.collect();
            (kept.bins.take_all(), of_branches)
        };
        if let Some(heap) = self.heap() {
            heap.take_back(contents.into_flushed(), Rest::Stays);
        }
        for (heap, contents) in of_branches {
            heap.take_back(contents.into_flushed(), Rest::Stays);
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
            let mut kept = arena.lock();
            kept.put(block)
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
        let Some(heap) = block.heap().cloned() else {
            return;
        };
        let refused = home.arena.lock().put_behind(block, fences);
        if let Some(contents) = refused {
            heap.take_back(contents.into_flushed(), Rest::Stays);
        }
    }
}

impl Kept {
    /// A block of the pool with that number for a request of `needed` bytes, which are rounded.
    #[inline]
    pub(super) fn take(&mut self, pool: u64, needed: usize) -> Option<Cached> {
        if pool == SHARED {
            return self.bins.take(needed);
        }
        let mut branches = self.branches.iter_mut();
        let branch = branches.find(|branch| branch.pool == pool)?;
        branch.bins.take(needed)
    }

    /// The bins of a heap.
    fn of(&mut self, heap: &Heap) -> Option<&mut Bins> {
        match heap.settings.is_shared() {
            true => Some(&mut self.bins),
            false => self.of_branch(heap),
        }
    }

    /// The bins that a block belongs in, [`None`] if its pool is gone: then nobody counts any more.
    #[inline]
    fn of_block(&mut self, block: &Cached) -> Option<&mut Bins> {
        match &block.branch {
            None => Some(&mut self.bins),
            Some(heap) => self.of_branch(heap),
        }
    }

    #[inline]
    fn of_branch(&mut self, heap: &Heap) -> Option<&mut Bins> {
        let mut branches = self.branches.iter_mut();
        let branch = branches.find(|branch| ptr::eq(&*branch.heap, heap))?;
        Some(&mut branch.bins)
    }

    /// Puts a block into its bin; gives it back if nobody would find it there.
    #[inline]
    fn put(&mut self, block: Cached) -> Option<Cached> {
        let open = self.open;
        let Some(bins) = self.of_block(&block) else {
            return Some(block);
        };
        bins.counts.used -= block.bytes;
        if !open {
            return Some(block);
        }
        bins.put(block)
    }

    /// [`Kept::put`] of a block that other streams may still use.
    fn put_behind(&mut self, block: Cached, fences: Fences) -> Option<Contents> {
        let open = self.open;
        let Some(bins) = self.of_block(&block) else {
            return Some(Contents::behind(block, fences));
        };
        bins.counts.used -= block.bytes;
        if !open {
            return Some(Contents::behind(block, fences));
        }
        bins.put_behind(block, fences);
        None
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // In a forked child our locks may be held by threads that no longer exist.
        if driver::is_gone() {
            return;
        }
        let kept = self.kept.get_mut();
        if let Some(heap) = self.heap.get() {
            heap.remember(&kept.bins.counts);
        }
        for branch in &kept.branches {
            branch.heap.remember(&branch.bins.counts);
        }
    }
}

/// What is kept, locked.
pub(super) struct Locked<'a>(&'a Arena);

impl Deref for Locked<'_> {
    type Target = Kept;

    #[inline]
    fn deref(&self) -> &Kept {
        // SAFETY: this value has the lock.
        unsafe { &*self.0.kept.get() }
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Kept {
        // SAFETY: this value has the lock, and is borrowed exclusively.
        unsafe { &mut *self.0.kept.get() }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}
