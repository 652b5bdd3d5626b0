//! One context's address space of a pool, behind the arenas of its streams.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cuda_sys::CUdeviceptr;

use super::awaiting::{Awaiting, Place};
use super::bins::{Bins, Cached, Contents, Counts, Flushed};
use super::builder::Settings;
use super::class::Span;
use super::space::{Piece, Rest, Space};
use crate::alloc::custom;
use crate::context::Context;
use crate::process::{deferred, driver};
use crate::timeline::Mark;
use crate::timeline::core::StreamCore;
use crate::timeline::ledger::Fences;
use crate::types::usage::CacheUsage;
use crate::util::sync::lock;
use crate::util::turns::Turns;
use crate::wait::Pending as Awaited;

/// Segments of one context and their free ranges. Locked briefly, never over a driver call.
pub(crate) struct Heap {
    pub(super) context: Context,
    pub(super) settings: Arc<Settings>,
    state: Mutex<State>,
    /// The streams whose arenas cache blocks of this heap.
    arenas: Mutex<Turns<Weak<StreamCore>>>,
}

/// The number of streams whose known progress a miss looks at, in round-robin order, without driver
/// calls.
pub(super) const LOOKED_AT: usize = 16;

/// All streams, for when there is no more memory.
pub(super) const ALL: usize = usize::MAX;

/// What the heap's lock guards.
#[derive(Default)]
pub(super) struct State {
    pub(super) space: Space,
    /// Blocks of streams without handles that other streams may still use.
    pub(super) pending: Awaiting<Pending>,
    pub(super) pending_bytes: usize,
    /// Bytes of segments that are being allocated.
    pub(super) growing: usize,
    pub(super) reserved_peak: usize,
    /// Counters of blocks that no arena counts, and the totals of dropped arenas.
    pub(super) counts: Counts,
}

/// A block that was freed while other streams used it.
pub(super) struct Pending {
    pub(super) address: CUdeviceptr,
    pub(super) bytes: usize,
    pub(super) home: Mark,
}

impl Heap {
    /// Whether its segments belong to its context, as memory from `cuMemAlloc` does.
    pub(crate) fn is_in_the_context(&self) -> bool {
        custom::is_in_the_context(&self.settings.upstream)
    }

    pub(super) fn new(context: &Context, settings: &Arc<Settings>) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            settings: settings.clone(),
            state: Mutex::default(),
            arenas: Mutex::default(),
        })
    }

    /// The usage of the heap and the arenas in front of it.
    pub(super) fn usage(&self) -> CacheUsage {
        let (mut arenas, mut free, mut largest) = (Counts::default(), 0, 0);
        for core in self.served() {
            core.arena.with(self, |bins| {
                arenas.add(&bins.counts);
                free += bins.free();
                largest = bins.largest().max(largest);
            });
        }
        let limit = self.settings.limit().bytes(self.context.device());
        self.with(|state| {
            arenas.add(&state.counts);
            CacheUsage {
                reserved: state.space.reserved(),
                reserved_peak: state.reserved_peak,
                used: arenas.used,
                used_peak: arenas.peak.min(state.reserved_peak),
                free: free + state.space.free(),
                pending: arenas.pending + state.pending_bytes + state.space.lost(),
                largest_free: state.space.largest_free().max(largest),
                allocations: arenas.allocations,
                allocated: arenas.allocated,
                limit: limit.ok().flatten(),
            }
        })
    }

    /// Sets the peaks to the present values.
    pub(super) fn reset_peaks(&self) {
        for core in self.served() {
            let reset = |bins: &mut Bins| bins.counts.peak = bins.counts.used;
            core.arena.with(self, reset);
        }
        self.with(|state| {
            state.counts.peak = state.counts.used;
            state.reserved_peak = state.space.reserved();
        });
    }

    /// Runs `f` under the lock. Timelines that are needed no more are dropped after unlocking.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.locked();
        let result = f(&mut state);
        Self::unlock(state);
        result
    }

    // This and `unlock` are compiled once, and not with each closure of `with`.
    #[inline(never)]
    fn locked(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    #[inline(never)]
    fn unlock(mut state: MutexGuard<'_, State>) {
        let spent = state.space.take_spent();
        drop(state);
        drop(spent);
    }

    /// Registers a stream whose arena caches blocks of this heap from now on.
    pub(super) fn serve(&self, core: &Arc<StreamCore>) {
        let id = core.timeline().id();
        let gone = |core: &Weak<StreamCore>| core.strong_count() == 0;
        lock(&self.arenas).enter(id, Arc::downgrade(core), gone);
    }

    /// The streams that cache blocks of this heap. Drop the result where no lock is held.
    pub(super) fn served(&self) -> Vec<Arc<StreamCore>> {
        let arenas = lock(&self.arenas);
        arenas.values().filter_map(Weak::upgrade).collect()
    }

    /// The next `most` of them, in round-robin order.
    pub(super) fn served_in_turn(&self, most: usize) -> Vec<Arc<StreamCore>> {
        let mut arenas = lock(&self.arenas);
        let streams = arenas.in_turn(most).into_iter();
        let cores = streams.filter_map(|stream| arenas.get(stream)?.upgrade());
        cores.collect()
    }

    /// Moves what `f` takes out of the stream's bins into the heap.
    pub(super) fn collect(&self, core: &StreamCore, f: impl FnOnce(&mut Bins) -> Contents) {
        let contents = core.arena.with(self, f);
        self.take_back(contents.into_flushed(), Rest::Joins);
    }

    /// Moves what an arena has given up, and no longer counts, into the heap.
    pub(super) fn take_back(&self, flushed: Flushed, rest: Rest) {
        if flushed.free.is_empty() && flushed.pending.is_empty() {
            return;
        }
        let spent = self.with(|state| {
            for (address, mark) in flushed.free {
                state.space.give_beside(address, Some(mark), rest);
            }
            let mut spent = state.reclaim(LOOKED_AT);
            for (address, home, fences) in flushed.pending {
                if fences.are_known_reached() {
                    state.space.give_beside(address, Some(home), rest);
                    spent.push(fences);
                } else {
                    state.keep_pending(address, home, fences);
                }
            }
            spent
        });
        drop(spent);
        drop(flushed.gone);
    }

    /// Moves a block that its stream's arena does not keep into the heap.
    pub(super) fn put(block: Cached) {
        let Some(heap) = block.heap().cloned() else {
            return;
        };
        let mark = Mark {
            timeline: block.timeline,
            seq: block.seq,
        };
        // A stream that has handles keeps all its small blocks in its arena.
        let rest = match Span::of(block.bytes) {
            Span::Small => Rest::Stays,
            Span::Large => Rest::Joins,
        };
        heap.with(|state| {
            let space = &mut state.space;
            space.give_beside(block.address, Some(mark), rest);
        });
    }

    /// Takes back a block that this heap itself, and no arena, counts.
    pub(super) fn free(&self, address: CUdeviceptr, home: Mark) {
        let spent = self.with(|state| {
            let bytes = state.space.taken(address).unwrap_or(0);
            state.counts.used -= bytes.min(state.counts.used);
            state.space.give(address, Some(home));
            state.reclaim(LOOKED_AT)
        });
        drop(spent);
    }

    /// A free block for the stream, without driver calls: from its own ranges and the idle ones,
    /// then after looking at the known progress of up to `streams` other streams.
    pub(super) fn find(&self, core: &StreamCore, bytes: usize, streams: usize) -> Option<Piece> {
        let (id, span) = (core.timeline().id(), Span::of(bytes));
        let (found, spent) = self.with(|state| {
            let mut spent = Vec::new();
            let found = state.space.take(id, span, bytes).or_else(|| {
                spent = state.reclaim(streams);
                state.space.settle(streams);
                state.space.take(id, span, bytes)
            });
            (found, spent)
        });
        drop(spent);
        found
    }

    /// [`find`](Self::find) without looking at other streams' progress again.
    pub(super) fn take(&self, core: &StreamCore, bytes: usize) -> Option<Piece> {
        let id = core.timeline().id();
        self.with(|state| state.space.take(id, Span::of(bytes), bytes))
    }

    /// Adds the totals of an arena that is being dropped.
    pub(super) fn remember(&self, counts: &Counts) {
        self.with(|state| {
            state.counts.peak += counts.peak;
            state.counts.allocations += counts.allocations;
            state.counts.allocated += counts.allocated;
        });
    }
}

impl State {
    pub(super) fn keep_pending(&mut self, address: CUdeviceptr, home: Mark, fences: Fences) {
        let bytes = self.space.taken(address).unwrap_or(0);
        self.pending_bytes += bytes;
        let pending = Pending {
            address,
            bytes,
            home,
        };
        self.pending.enter(pending, fences);
    }

    /// Frees the blocks that other streams are known to have finished with, looking at no more than
    /// `streams` streams. Drop the result where no lock is held.
    pub(super) fn reclaim(&mut self, streams: usize) -> Vec<Fences> {
        let reached = self.pending.take_reached_in_turn(streams);
        self.give_pending(reached)
    }

    /// [`reclaim`](Self::reclaim) for the given streams.
    pub(super) fn reclaim_of(&mut self, streams: &[u64]) -> Vec<Fences> {
        let reached = self.pending.take_reached(streams);
        self.give_pending(reached)
    }

    fn give_pending(&mut self, reached: Vec<(Pending, Fences)>) -> Vec<Fences> {
        let give = |(pending, fences): (Pending, Fences)| {
            self.pending_bytes -= pending.bytes;
            self.space.give(pending.address, Some(pending.home));
            fences
        };
        reached.into_iter().map(give).collect()
    }

    pub(super) fn take_pending(&mut self, place: Place) -> Option<(Pending, Fences)> {
        let (pending, fences) = self.pending.remove(place)?;
        self.pending_bytes -= pending.bytes;
        Some((pending, fences))
    }

    pub(super) fn note_reserved(&mut self) {
        self.reserved_peak = self.reserved_peak.max(self.space.reserved());
    }
}

/// A heap to which only waits for its work still refer.
struct Leaving(Heap);

impl Heap {
    /// Arranges that all memory is given back when all work on it is done. The thread that drops a
    /// stream does not wait for that work, but a thread that waits for deferred drops must wait for
    /// all of it, so the waits are registered here, synchronously.
    fn end(self) {
        let marks = self.marks();
        // A second try; what cannot be waited for stays allocated.
        let of = |mark| Awaited::of(mark).or_else(|_| Awaited::of(mark));
        let awaited: Vec<_> = marks.iter().filter_map(|mark| of(mark).ok()?).collect();
        let leaving = Arc::new(Leaving(self));
        for awaited in awaited {
            let leaving = Arc::clone(&leaving);
            let _ = awaited.then(move |_| drop(leaving));
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if !driver::is_gone() {
            self.0.release_all();
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let mut state = std::mem::take(&mut self.state);
        if driver::is_gone() {
            // Dropping the state may run arbitrary user code, or call the driver.
            std::mem::forget(state);
            return;
        }
        let inner = state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if inner.space.is_empty() {
            return;
        }
        let moved = Self {
            context: self.context.clone(),
            settings: self.settings.clone(),
            state,
            arenas: Mutex::default(),
        };
        if deferred::must_not_run_here() {
            deferred::run_elsewhere(move || moved.end());
        } else {
            moved.end();
        }
    }
}
