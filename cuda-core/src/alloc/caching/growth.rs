//! Slow path of the caching pool: reuses other streams' blocks, grows the pool, then waits.

use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use super::bins::Bins;
use super::builder::Settings;
use super::class::{self, SegmentKind};
use super::heap::{ALL, Heap, LOOKED_AT, PendingBlock};
use super::space::{Fate, Segment, TakenRange};
use crate::alloc::{Choice, custom, plain};
use crate::context::leave_behind;
use crate::error::{Error, PoolExhausted, Result};
use crate::process::{Failed, drop_hook, held};
use crate::timeline::ledger::NO_FENCES;
use crate::timeline::{Mark, StreamCore};
use crate::types::Resource;

/// Allocates a block of `bytes` (already rounded) when the heap has none that the stream may use at once.
///
/// The pool first takes other streams' memory that turns out to be idle, then new memory: taking more is
/// better than waiting for another stream. Only when the device has no more memory, or the limit allows no
/// more, does the pool query all pending work, give unused segments back, make this stream wait for others,
/// and finally block the calling thread. Memory that other threads are moving meanwhile is no shortage: the
/// pool waits for these threads.
pub(super) fn allocate(
    heap: &Heap,
    core: &Arc<StreamCore>,
    bytes: usize,
    requested: usize,
) -> Result<TakenRange> {
    let request = Request { heap, core, bytes, kind: SegmentKind::of(bytes) };
    let mut rounds = 0..ROUNDS;
    loop {
        if let Some(taken) = request.without_waiting()? {
            return Ok(taken);
        }
        // Neither waiting nor `on_shortage` helps a request that is larger than what the heap can ever hold,
        // and larger than what it holds now, which may exceed a limit that was lowered.
        let can_fit = bytes <= heap.reserved() || class::segments(bytes).1 <= heap.most()?;
        if can_fit {
            let seen = heap.with(|state| state.moves);
            if let Some(taken) = request.by_waiting()? {
                return Ok(taken);
            }
            if heap.wait_for_others(seen) && rounds.next().is_some() {
                continue;
            }
        }
        let error = heap.exhausted(requested);
        if !can_fit || !heap.settings.relieve(&error) {
            return Err(error);
        }
        if let Some(taken) = heap.find(core, bytes, ALL) {
            return Ok(taken);
        }
    }
}

/// How often an allocation looks again at all memory because other threads have moved some meanwhile. What
/// they free and take again at once must not hold up a request that it can never serve.
const ROUNDS: usize = 8;

/// The number of streams that are queried before the pool grows.
const ASKED: usize = 8;

/// An allocation that the heap cannot serve at once.
struct Request<'a> {
    heap: &'a Heap,
    core: &'a Arc<StreamCore>,
    /// Already rounded.
    bytes: usize,
    kind: SegmentKind,
}

impl Request<'_> {
    fn id(&self) -> u64 {
        self.core.timeline().id()
    }

    /// Tries the sources that need no wait.
    fn without_waiting(&self) -> Result<Option<TakenRange>> {
        if self.kind == SegmentKind::Large {
            // Small blocks stay with the streams that cache them, which would need them again at once.
            let moving = self.heap.begin_move();
            for other in self.heap.served_in_turn(LOOKED_AT) {
                self.heap.collect(&other, |bins| bins.take_from(self.bytes));
            }
            drop(moving);
            if let Some(taken) = self.heap.find(self.core, self.bytes, LOOKED_AT) {
                return Ok(Some(taken));
            }
        }
        let taken = self.take_finished().or_else(|| self.take_idle());
        taken.map_or_else(|| self.grow(), |taken| Ok(Some(taken)))
    }

    /// Takes a block from memory that was freed while other streams used it, if the driver reports that they
    /// have finished. Makes two driver calls for each stream queried.
    fn take_finished(&self) -> Option<TakenRange> {
        let awaited = self.heap.with(|state| state.pending.next_asked(ASKED));
        if awaited.is_empty() {
            return None;
        }
        for mark in &awaited {
            let _ = mark.timeline.query(mark.seq);
        }
        let streams: Vec<_> = awaited.iter().map(|mark| mark.timeline.id()).collect();
        self.heap.with(|state| state.reclaim_of(&streams));
        self.heap.take(self.core, self.bytes)
    }

    /// Tries the sources that need a wait, for when the device has no more memory or the limit allows no
    /// more.
    fn by_waiting(&self) -> Result<Option<TakenRange>> {
        self.heap.collect_all();
        self.heap.query_marks();
        if let Some(taken) = self.find_or_release()? {
            return Ok(Some(taken));
        }
        if let Some(taken) = self.take_behind() {
            return Ok(Some(taken));
        }
        for mark in self.heap.marks() {
            let _ = mark.timeline.wait_host(mark.seq);
        }
        self.find_or_release()
    }

    /// Takes a free range; else new memory in place of unused segments; else a free range of the other kind.
    fn find_or_release(&self) -> Result<Option<TakenRange>> {
        if let Some(taken) = self.heap.find(self.core, self.bytes, ALL) {
            return Ok(Some(taken));
        }
        // Segments that cannot be given back stay reserved, so the shortage remains.
        let released = self.heap.release(0).unwrap_or(0);
        if released > 0 {
            if let Some(taken) = self.grow()? {
                return Ok(Some(taken));
            }
        }
        Ok(self.find_anywhere())
    }

    /// Takes another stream's range that the driver reports idle. Makes two driver calls for each stream
    /// queried.
    fn take_idle(&self) -> Option<TakenRange> {
        let mut busy = vec![self.id()];
        while busy.len() <= ASKED {
            let (_, mark) =
                self.heap.with(|state| state.space.of_others(&busy, self.kind, self.bytes))?;
            let other = mark.timeline.id();
            busy.push(other);
            if !mark.timeline.query(mark.seq).unwrap_or(false) {
                continue;
            }
            let found = self.heap.with(|state| {
                state.space.settle_of(other);
                // Another thread may have taken it first.
                state.space.take(self.id(), self.kind, self.bytes)
            });
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Takes another stream's range, and makes this stream wait for that stream's work.
    fn take_behind(&self) -> Option<TakenRange> {
        for kind in SegmentKind::both(self.bytes) {
            let mut tried = vec![self.id()];
            while let Some((address, mark)) =
                self.heap.with(|state| state.space.of_others(&tried, kind, self.bytes))
            {
                tried.push(mark.timeline.id());
                let Ok(behind) = wait(self.core, std::slice::from_ref(&mark)) else { continue };
                let taken = self.heap.with(|state| {
                    state.space.hand_over(address, &mark, behind);
                    state.space.take(self.id(), kind, self.bytes)
                });
                if taken.is_some() {
                    return taken;
                }
            }
        }
        let _moving = self.heap.begin_move();
        let pending = self.heap.with(|state| {
            let blocks = state.pending.iter();
            let large = blocks.filter(|(_, block, _)| block.bytes >= self.bytes);
            let (smallest, ..) = large.min_by_key(|(_, block, _)| block.bytes)?;
            state.take_pending(smallest)
        })?;
        let (PendingBlock { address, home, .. }, fences) = pending;
        let marks = [std::slice::from_ref(&home), fences.marks()].concat();
        match wait(self.core, &marks) {
            Ok(behind) => self.heap.with(|state| {
                state.moves += 1;
                state.space.give(address, Some(behind));
            }),
            Err(_) => self.heap.with(|state| state.keep_pending(address, home, fences)),
        }
        self.find_anywhere()
    }

    /// [`Heap::find`] in segments of either kind, without checking streams' progress.
    fn find_anywhere(&self) -> Option<TakenRange> {
        self.heap.with(|state| {
            let mut kinds = SegmentKind::both(self.bytes).into_iter();
            kinds.find_map(|kind| state.space.take(self.id(), kind, self.bytes))
        })
    }

    /// Allocates a segment and cuts a block from it; [`None`] if neither the device nor the limit
    /// allows one.
    fn grow(&self) -> Result<Option<TakenRange>> {
        let limit = self.heap.limit()?;
        let (mut wanted, least) = class::segments(self.bytes);
        if self.heap.with(|state| state.space.reserved + state.in_transit == 0) {
            wanted = wanted.max(self.heap.settings.options.initial);
        }
        let mut sizes = vec![wanted, least];
        sizes.dedup();
        for size in sizes {
            let _moving = self.heap.begin_move();
            let allowed = self.heap.with(|state| {
                let total = state.space.reserved.saturating_add(state.in_transit);
                let total = total.checked_add(size);
                let allowed =
                    total.is_some_and(|total| total <= limit.unwrap_or(isize::MAX as usize));
                state.in_transit += if allowed { size } else { 0 };
                allowed
            });
            if !allowed {
                continue;
            }
            let (segment, behind) = match self.obtain(size) {
                Ok(got) => got,
                Err(error) => {
                    self.heap.with(|state| state.in_transit -= size);
                    if error.is_out_of_memory() {
                        continue;
                    }
                    return Err(error);
                }
            };
            let base = segment.base;
            // Under one lock, so that no other thread takes the range that this stream asked for.
            return Ok(self.heap.with(|state| {
                state.in_transit -= size;
                state.moves += 1;
                state.space.add(segment);
                state.counts.reserved_peak = state.counts.reserved_peak.max(state.space.reserved);
                state.space.give(base, behind);
                state.space.take(self.id(), self.kind, self.bytes)
            }));
        }
        Ok(None)
    }

    /// Allocates a segment from the upstream allocator. The returned mark is the point after which it may be
    /// used.
    fn obtain(&self, bytes: usize) -> Result<(Segment, Option<Mark>)> {
        let segment = |base, home| Segment { base, bytes, kind: self.kind, home, fate: Fate::Kept };
        let allocator = &self.heap.settings.options.upstream;
        if let Choice::Plain = allocator.0 {
            let base = plain::allocate(&self.heap.context, bytes)?;
            return Ok((segment(base, None), None));
        }
        let (base, _) = custom::allocate(allocator, self.core, bytes)?;
        Ok((segment(base, Some(self.core.clone())), Some(self.core.timeline().here())))
    }
}

/// Makes the stream wait for all of `marks`; returns the point of its own timeline after that
/// wait.
fn wait(core: &Arc<StreamCore>, marks: &[Mark]) -> Result<Mark> {
    let bound = core.bind("cuStreamWaitEvent")?;
    for mark in marks {
        bound.wait_for(mark)?;
    }
    Ok(core.timeline().here())
}

/// Gives a segment that no work uses back to the upstream allocator.
fn give_back(segment: &Segment, settings: &Settings) -> Result<(), Failed> {
    match &segment.home {
        // SAFETY: `obtain` allocated it there; no work uses it any more.
        None => unsafe { plain::free(segment.base) },
        // SAFETY: `obtain` allocated it on this stream from this allocator; no work uses it any
        // more.
        Some(home) => unsafe {
            let upstream = &settings.options.upstream;
            custom::free(upstream, home, segment.base, segment.bytes, &NO_FENCES)
        },
    }
}

impl Heap {
    /// Returns the marks that free and pending blocks wait for.
    pub(super) fn marks(&self) -> Vec<Mark> {
        self.with(|state| {
            let mut marks = state.space.owners.marks();
            for (_, pending, fences) in state.pending.iter() {
                marks.push(pending.home.clone());
                marks.extend_from_slice(fences.marks());
            }
            marks
        })
    }

    /// Moves all blocks of stream caches into the heap.
    fn collect_all(&self) {
        let _moving = self.begin_move();
        self.served().iter().for_each(|core| self.collect(core, Bins::take_all));
    }

    /// Asks the driver which of the [marks](Self::marks) are reached.
    fn query_marks(&self) {
        for mark in self.marks() {
            // The error of another stream's work is reported to those who wait for that work.
            let _ = mark.timeline.query(mark.seq);
        }
    }

    /// Gives unused segments back until no more than `keep` bytes are reserved; returns the bytes given
    /// back.
    pub(super) fn release(&self, keep: usize) -> Result<usize> {
        let _moving = self.begin_move();
        let mut refused = self.with(|state| {
            state.reclaim(ALL);
            state.space.settle(ALL);
            let refused = state.space.take_refused();
            state.in_transit += refused.iter().map(|segment| segment.bytes).sum::<usize>();
            refused
        });
        let (mut went, mut failed) = (0, None);
        loop {
            let unused = refused.pop().or_else(|| {
                self.with(|state| {
                    let more = state.space.reserved > keep;
                    let segment = more.then(|| state.space.take_segment()).flatten()?;
                    state.in_transit += segment.bytes;
                    Some(segment)
                })
            });
            let Some(segment) = unused else { return failed.map_or(Ok(went), Err) };
            let (base, bytes) = (segment.base, segment.bytes);
            match give_back(&segment, &self.settings) {
                Ok(()) => {
                    self.add(|state| state.in_transit -= bytes);
                    went += bytes;
                }
                // The upstream allocator still counts the segment as allocated: offer it once more.
                Err(Failed::Refused(error)) if segment.fate == Fate::Kept => {
                    self.with(|state| {
                        state.in_transit -= bytes;
                        state.space.keep_refused(segment);
                    });
                    failed.get_or_insert(error);
                }
                // The segment may or may not have been freed, or was refused twice: neither use it nor give
                // it back again.
                Err(why) => {
                    self.with(|state| state.in_transit -= bytes);
                    let error: Error = why.into();
                    drop_hook::report(Resource::DeviceMemory, base, bytes, Some(error.clone()));
                    failed.get_or_insert(error);
                }
            }
        }
    }

    /// [`Heap::release`] for all memory that the driver reports idle, blocks in all stream caches included.
    pub(super) fn trim(&self, keep: usize) -> Result<usize> {
        held::retry();
        self.collect_all();
        self.query_marks();
        self.give_up_lost();
        self.release(keep)
    }

    /// Gives up and reports the segments that may be used by work whose completion can never be
    /// proven.
    fn give_up_lost(&self) {
        let mut lost = self.marks();
        lost.retain(|mark| mark.timeline.is_lost(mark.seq));
        if lost.is_empty() {
            return;
        }
        let owners: Vec<_> = lost.iter().map(|mark| mark.timeline.id()).collect();
        let is_lost = |mark: &Mark| {
            owners.contains(&mark.timeline.id()) && !mark.timeline.has_completed(mark.seq)
        };
        let given_up = self.with(|state| {
            let mut given_up = state.space.give_up(&owners);
            let lost = state.pending.take_if(|pending, fences| {
                is_lost(&pending.home) || fences.marks().iter().any(is_lost)
            });
            for (pending, fences) in lost {
                state.counts.pending -= pending.bytes;
                given_up.extend(state.space.give_up_around(pending.address));
                state.space.give(pending.address, None);
                state.space.spent.push(pending.home.timeline);
                state.spent.push(fences);
            }
            given_up
        });
        self.leave_behind(given_up);
    }

    /// Frees everything that no work uses and reports the rest, which stays allocated. Called when
    /// nothing refers to the heap any more.
    pub(super) fn release_all(&self) {
        self.query_marks();
        // The second call retries refused segments, and reports those that fail again.
        let _ = self.release(0);
        let _ = self.release(0);
        let lost = self.with(|state| state.space.give_up_all());
        self.leave_behind(lost);
        drop(self.with(std::mem::take));
    }

    /// Reports segments that may be used by work whose completion cannot be proven.
    fn leave_behind(&self, segments: Vec<(CUdeviceptr, usize)>) {
        for (base, bytes) in segments {
            let why = Failed::Refused(Error::LostStream);
            leave_behind(&self.context, Resource::DeviceMemory, base, bytes, why);
        }
    }

    /// The most bytes that the heap can ever hold.
    fn most(&self) -> Result<usize> {
        let total = self.context.device().known_memory()?;
        Ok(self.limit()?.map_or(total, |limit| limit.min(total)))
    }

    fn limit(&self) -> Result<Option<usize>> {
        self.settings.limit().bytes(self.context.device())
    }

    fn exhausted(&self, requested: usize) -> Error {
        Error::from(PoolExhausted {
            requested,
            device: self.context.device().ordinal(),
            usage: self.usage(),
            memory: self.context.memory_info().ok(),
        })
    }
}
