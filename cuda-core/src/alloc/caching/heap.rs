//! A pool's memory in one context, below the streams' caches.

use std::cell::Cell;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use cuda_sys::CUdeviceptr;

use super::awaiting::{Awaiting, AwaitingKey};
use super::bins::{Bins, Cached, Contents};
use super::builder::Settings;
use super::class::SegmentKind;
use super::space::{Rest, Space, TakenRange};
use crate::context::Context;
use crate::process::{DeferForeignCode, deferred, driver, held};
use crate::timeline::ledger::Fences;
use crate::timeline::{Mark, StreamCore};
use crate::types::PoolUsage;
use crate::util::{OnDrop, Turns, lock, wait_while};
use crate::wait::PendingMark;

/// A pool's segments in one context, and their free ranges. Locked briefly, never over a driver call.
pub(crate) struct Heap {
    pub(super) context: Context,
    pub(super) settings: Arc<Settings>,
    state: Mutex<HeapState>,
    /// Notified when [`HeapState::moving`] falls or memory is added, if threads wait for it.
    moved: Condvar,
    /// The streams whose caches have blocks of this heap.
    stream_caches: Mutex<Turns<Weak<StreamCore>>>,
}

/// The number of streams whose known progress a miss checks, in round-robin order, without driver calls.
pub(super) const LOOKED_AT: usize = 16;

/// All streams, for when there is no more memory.
pub(super) const ALL: usize = usize::MAX;

thread_local! {
    /// The number of spans of [`Heap::begin_move`] that the thread is in.
    static IN_HAND: Cell<usize> = const { Cell::new(0) };
}

/// What the heap's lock guards.
#[derive(Default)]
pub(super) struct HeapState {
    pub(super) space: Space,
    /// Blocks that other streams may still use.
    pub(super) pending: Awaiting<PendingBlock>,
    /// Bytes of segments that are being allocated or given back: they count towards the limit.
    pub(super) in_transit: usize,
    /// The number of threads that hold memory which is in no list at the moment, so that other threads cannot
    /// find it. Such a thread allocates or frees a segment, empties stream caches, or takes a pending block.
    moving: usize,
    /// The number of threads that wait for these.
    waiting: usize,
    /// The number of moves that have changed what the heap holds.
    pub(super) moves: u64,
    /// Counters of blocks that no stream cache counts, totals of dropped stream caches, and the most that was
    /// reserved.
    pub(super) counts: PoolUsage,
    /// Fences that are no longer needed, to be dropped after unlocking.
    pub(super) spent: Vec<Fences>,
}

/// A block that was freed while other streams used it.
pub(super) struct PendingBlock {
    pub(super) address: CUdeviceptr,
    pub(super) bytes: usize,
    pub(super) home: Mark,
}

impl Heap {
    pub(super) fn new(context: &Context, settings: &Arc<Settings>) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            settings: settings.clone(),
            state: Mutex::default(),
            moved: Condvar::default(),
            stream_caches: Mutex::default(),
        })
    }

    /// Returns the bytes of the heap's segments.
    pub(super) fn reserved(&self) -> usize {
        self.with(|state| state.space.reserved)
    }

    /// Returns the usage of the heap and of the stream caches in front of it.
    pub(super) fn usage(&self) -> PoolUsage {
        let served = self.served();
        let of_streams =
            served.iter().map(|core| core.stream_cache.with(self, |bins| bins.usage()));
        let of_streams = of_streams.fold(PoolUsage::NONE, PoolUsage::and);
        let limit = self.settings.limit().bytes(self.context.device());
        let mut usage = of_streams.and(self.with(|state| PoolUsage {
            reserved: state.space.reserved,
            free: state.space.free,
            pending: state.counts.pending + state.space.lost,
            largest_free: state.space.owners.largest(),
            limit: limit.ok().flatten(),
            ..state.counts
        }));
        usage.used_peak = usage.used_peak.min(usage.reserved_peak);
        usage
    }

    /// Sets the peaks to the present values.
    pub(super) fn reset_peaks(&self) {
        for core in self.served() {
            let reset = |bins: &mut Bins| bins.counts.used_peak = bins.counts.used;
            core.stream_cache.with(self, reset);
        }
        self.with(|state| {
            state.counts.used_peak = state.counts.used;
            state.counts.reserved_peak = state.space.reserved;
        });
    }

    /// Runs `f` under the lock. After unlocking, drops timelines and fences that are no longer needed.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut HeapState) -> R) -> R {
        let mut state = self.locked();
        let result = f(&mut state);
        Self::unlock(state);
        result
    }

    // This and `unlock` are compiled once, not with each closure of `with`.
    #[inline(never)]
    fn locked(&self) -> MutexGuard<'_, HeapState> {
        lock(&self.state)
    }

    #[inline(never)]
    fn unlock(mut state: MutexGuard<'_, HeapState>) {
        let spent = (mem::take(&mut state.space.spent), mem::take(&mut state.spent));
        drop(state);
        drop(spent);
    }

    /// To be called before this thread takes memory that other threads then cannot find. Until the result is
    /// dropped, threads that find no memory [wait](Self::wait_for_others) for this one; so foreign code, which
    /// may wait for one of them, is deferred until then.
    pub(super) fn begin_move(&self) -> OnDrop<impl FnOnce() + use<'_>> {
        let quiet = DeferForeignCode::begin();
        IN_HAND.set(IN_HAND.get() + 1);
        self.with(|state| state.moving += 1);
        OnDrop::new(move || {
            IN_HAND.set(IN_HAND.get() - 1);
            self.change(|state| state.moving -= 1);
            drop(quiet);
        })
    }

    /// Waits while other threads are in a span of [`begin_move`](Self::begin_move). Returns whether memory
    /// was added or removed since there were `seen` moves. A thread that is itself in a span, because an
    /// allocator or a hook that it calls allocates, does not wait: the others may be waiting for it.
    pub(super) fn wait_for_others(&self, seen: u64) -> bool {
        let waits = IN_HAND.get() == 0;
        let nothing_came = |state: &mut HeapState| waits && state.moves == seen && state.moving > 0;
        let mut state = self.locked();
        state.waiting += 1;
        let mut state = wait_while(&self.moved, state, nothing_came);
        state.waiting -= 1;
        let moved = state.moves != seen;
        Self::unlock(state);
        moved
    }

    /// Adds or removes memory by `f`, and wakes the threads that [wait](Self::wait_for_others) for some.
    pub(super) fn add(&self, f: impl FnOnce(&mut HeapState)) {
        self.change(|state| {
            state.moves += 1;
            f(state);
        });
    }

    fn change(&self, f: impl FnOnce(&mut HeapState)) {
        let is_awaited = self.with(|state| {
            f(state);
            state.waiting > 0
        });
        if is_awaited {
            self.moved.notify_all();
        }
    }

    /// Registers a stream whose cache has blocks of this heap from now on.
    pub(super) fn serve(&self, core: &Arc<StreamCore>) {
        let id = core.timeline().id();
        let gone = |core: &Weak<StreamCore>| core.strong_count() == 0;
        lock(&self.stream_caches).enter(id, Arc::downgrade(core), gone);
    }

    /// Returns the streams that cache blocks of this heap. Drop the result where no lock is held.
    pub(super) fn served(&self) -> Vec<Arc<StreamCore>> {
        let stream_caches = lock(&self.stream_caches);
        stream_caches.values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the next `most` of these streams, in round-robin order.
    pub(super) fn served_in_turn(&self, most: usize) -> Vec<Arc<StreamCore>> {
        let mut stream_caches = lock(&self.stream_caches);
        let streams = stream_caches.in_turn(most).into_iter();
        let cores = streams.filter_map(|stream| stream_caches.get(stream)?.upgrade());
        cores.collect()
    }

    /// Moves the blocks that `f` takes out of the stream's bins into the heap.
    pub(super) fn collect(&self, core: &StreamCore, f: impl FnOnce(&mut Bins) -> Contents) {
        let contents = core.stream_cache.with(self, f);
        self.take_back(contents, Rest::Joins);
    }

    /// Moves blocks that a stream cache has given up, and no longer counts, into the heap.
    pub(super) fn take_back(&self, contents: Contents, rest: Rest) {
        // Dropped last, where no lock is held.
        let mut gone = Vec::new();
        let free = contents.into_iter().flatten().map(|block| block.into_free(&mut gone));
        let free: Vec<_> = free.collect();
        if gone.is_empty() {
            return;
        }
        self.add(|state| {
            for (address, mark) in free {
                state.space.give_beside(address, Some(mark), rest);
            }
        });
        drop(gone);
    }

    /// Moves a block that its stream's cache does not keep into the heap.
    pub(super) fn put(block: Cached) {
        // A stream that has handles keeps all its small blocks in its stream cache.
        let rest = match SegmentKind::of(block.home.bytes) {
            SegmentKind::Small => Rest::Stays,
            SegmentKind::Large => Rest::Joins,
        };
        let Cached { address, mark, home } = block;
        home.heap.add(|state| state.space.give_beside(address, Some(mark), rest));
    }

    /// Keeps a block that other streams may still use, up to the points in `fences`.
    pub(super) fn put_behind(block: Cached, fences: Fences) {
        let Cached { address, mark, home } = block;
        home.heap.add(|state| state.keep_pending(address, mark, fences));
        // Not under the lock: this may destroy a stream.
        drop(home);
    }

    /// Takes back a block that this heap counts, and no stream cache does.
    pub(super) fn free(&self, address: CUdeviceptr, home: Mark) {
        self.add(|state| {
            let bytes = state.space.taken(address).unwrap_or(0);
            state.counts.used -= bytes.min(state.counts.used);
            state.space.give(address, Some(home));
            state.reclaim(LOOKED_AT);
        });
    }

    /// Takes a free block for the stream, without driver calls, from its own ranges and the idle ones. If
    /// none fits, checks the known progress of up to `streams` other streams, and tries again.
    pub(super) fn find(
        &self,
        core: &StreamCore,
        bytes: usize,
        streams: usize,
    ) -> Option<TakenRange> {
        let (id, kind) = (core.timeline().id(), SegmentKind::of(bytes));
        self.with(|state| {
            state.space.take(id, kind, bytes).or_else(|| {
                state.reclaim(streams);
                state.space.settle(streams);
                state.space.take(id, kind, bytes)
            })
        })
    }

    /// [`find`](Self::find) without checking other streams' progress.
    pub(super) fn take(&self, core: &StreamCore, bytes: usize) -> Option<TakenRange> {
        let id = core.timeline().id();
        self.with(|state| state.space.take(id, SegmentKind::of(bytes), bytes))
    }

    /// Adds the totals of a stream cache that is being dropped.
    pub(super) fn remember(&self, counts: PoolUsage) {
        self.with(|state| state.counts = state.counts.and(counts));
    }
}

impl HeapState {
    pub(super) fn keep_pending(&mut self, address: CUdeviceptr, home: Mark, fences: Fences) {
        let bytes = self.space.taken(address).unwrap_or(0);
        self.counts.pending += bytes;
        let pending = PendingBlock { address, bytes, home };
        self.pending.enter(pending, fences);
    }

    /// Frees the blocks that other streams are known to have finished with, checking at most `streams`
    /// streams.
    pub(super) fn reclaim(&mut self, streams: usize) {
        let streams = self.pending.in_turn(streams);
        self.reclaim_of(&streams);
    }

    /// [`reclaim`](Self::reclaim) for the given streams.
    pub(super) fn reclaim_of(&mut self, streams: &[u64]) {
        for (pending, fences) in self.pending.take_reached(streams) {
            self.counts.pending -= pending.bytes;
            self.space.give(pending.address, Some(pending.home));
            self.spent.push(fences);
        }
    }

    pub(super) fn take_pending(&mut self, place: AwaitingKey) -> Option<(PendingBlock, Fences)> {
        let (pending, fences) = self.pending.remove(place)?;
        self.counts.pending -= pending.bytes;
        Some((pending, fences))
    }
}

impl Heap {
    /// Arranges that all memory is given back when all work on it is done. The thread that drops a
    /// stream does not wait for that work, but a thread that waits for deferred drops must wait for all of
    /// it. So the waits are registered here, synchronously; if other code captures one of the streams, they
    /// are registered later.
    fn end(self) {
        let marks = self.marks();
        // Tries twice; memory whose work cannot be waited for stays allocated.
        let of = |mark| PendingMark::of(mark).or_else(|_| PendingMark::of(mark));
        let mut awaited = Vec::new();
        for mark in &marks {
            match of(mark) {
                Err(error) if held::is_held(&error) => return held::keep(move || self.end()),
                pending => awaited.extend(pending.ok().flatten()),
            }
        }
        // Called once no wait for the heap's work refers to the heap any more.
        let release = move || {
            if !driver::is_gone() {
                self.release_all();
            }
        };
        let leaving = Arc::new(OnDrop::new(release));
        for awaited in awaited {
            let leaving = Arc::clone(&leaving);
            let _ = awaited.then(Box::new(move |_| drop(leaving)));
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let mut state = mem::take(&mut self.state);
        if driver::is_gone() {
            // Forgotten: dropping the state may run arbitrary user code, or call the driver.
            mem::forget(state);
            return;
        }
        let inner = state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if inner.space.segments.is_empty() {
            return;
        }
        let moved = Self {
            context: self.context.clone(),
            settings: self.settings.clone(),
            state,
            moved: Condvar::default(),
            stream_caches: Mutex::default(),
        };
        deferred::run_or_defer(move || moved.end());
    }
}
