//! Staging: this crate's pinned chunks, through which copies of borrowed slices go.
//!
//! A borrowed slice is never passed to the driver: its bytes are copied to or from a chunk. The crate
//! owns the chunk until the device is done with it, whatever happens to the slice.

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::host::PinnedPool;
use crate::host::pinned_pool::SIGNALS;
use crate::process::{Failed, Pass, driver, workers};
use crate::timeline::ledger::Fences;
use crate::timeline::recording::streams;
use crate::timeline::{Bound, Mark, StagingSlot, StreamCore, Timeline};
use crate::util::{Pocket, lock};

use chunk::StagingChunk;

mod chunk;
mod copying;
mod lines;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod ring;
pub(crate) mod share;

/// Size of a chunk that small copies share.
pub(crate) const CHUNK: usize = 1 << 20;

/// Bytes of chunks of one size beyond which a copy waits for its own stream's chunks before it
/// allocates another.
const MOST: usize = 256 << 20;

/// How many streams are queried for an unused chunk, other than the copy's own: `ASKED` if a new chunk
/// may be allocated instead, `ASKED_AT_MOST` if not. Of the copy's own chunks, `ASKED_AT_MOST` are
/// queried in both cases.
const ASKED: usize = 2;
const ASKED_AT_MOST: usize = 8;

/// Alignment of regions in a chunk.
const ALIGNMENT: usize = 256;

/// Chunks without a lease.
struct StagingPool {
    /// Each with the points up to which devices use it: idle if they are reached, else pending.
    ///
    /// The chunk used last comes last, and is reused last: the caches of a core that has read a
    /// device's writes to it hold it for a while, and a device is slow to write to cached lines.
    chunks: VecDeque<(StagingChunk, Fences)>,
    /// Bytes of all chunks by size class: the logarithm of the size, which is a power of two.
    allocated: [usize; usize::BITS as usize],
}

static POOL: Mutex<StagingPool> =
    Mutex::new(StagingPool { chunks: VecDeque::new(), allocated: [0; usize::BITS as usize] });

/// A chunk in use; it returns to the pool when its last region is dropped.
pub(crate) struct Lease {
    // INVARIANT: only this lease's regions access it.
    chunk: StagingChunk,
    claimed: AtomicUsize,
    /// The last point of each stream that uses the chunk.
    last: Mutex<Fences>,
}

/// A part of a chunk that belongs to one copy.
pub(crate) struct Region {
    lease: Arc<Lease>,
    // INVARIANT: `start + len` is at most the chunk's size, and no other region has these bytes.
    start: usize,
    len: usize,
}

impl Pocket for StagingSlot {
    type Content = Mutex<Option<Arc<Lease>>>;
}

impl Lease {
    fn of(chunk: StagingChunk) -> Arc<Self> {
        Arc::new(Self { chunk, claimed: AtomicUsize::new(0), last: Mutex::new(Fences::none()) })
    }

    fn claim(self: &Arc<Self>, len: usize) -> Option<Region> {
        let room = len.next_multiple_of(ALIGNMENT);
        let fits = |claimed: usize| {
            let end = claimed.checked_add(room);
            end.filter(|end| *end <= self.chunk.bytes)
        };
        let start = self.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Region { lease: self.clone(), start, len })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if driver::is_gone() {
            return;
        }
        let mut last = std::mem::replace(&mut *lock(&self.last), Fences::none());
        let done = last.are_known_reached();
        if done {
            if self.chunk.is_pageable() {
                return self.chunk.discard();
            }
            // Drops the timelines, outside the lock.
            last = Fences::none();
        }
        lock(&POOL).chunks.push_back((self.chunk, last));
    }
}

impl Region {
    /// Returns the address of the region, for the driver.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        // SAFETY: `start` is within the chunk, by the invariant.
        unsafe { self.lease.chunk.base().add(self.start) }
    }

    /// Copies `bytes`, as many as the region has, into the region. Fails once the process exits.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let _pass = Pass::or_gone()?;
        let len = self.len.min(bytes.len());
        // SAFETY: `len` bytes are valid on both sides. No other code accesses the region, and no device
        // does before a copy is enqueued. A borrowed slice does not overlap a chunk of this crate.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.as_ptr(), len) };
        Ok(())
    }

    /// Copies the region's bytes, which the device has finished writing, into `bytes`. Fails once
    /// the process exits.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> Result<()> {
        let _pass = Pass::or_gone()?;
        let len = self.len.min(bytes.len());
        // SAFETY: `len` bytes are valid on both sides. No device writes the region any more, since the
        // caller has waited for the copy that fills it. A borrowed slice does not overlap a chunk of
        // this crate.
        unsafe { ptr::copy_nonoverlapping(self.as_ptr(), bytes.as_mut_ptr(), len) };
        Ok(())
    }

    /// Notes that the stream uses the region up to `seq`.
    pub(crate) fn mark(&self, timeline: &Arc<Timeline>, seq: u64) {
        lock(&self.lease.last).add(timeline, seq);
    }
}

/// Reserves a region of `len` bytes, at most [`CHUNK`], for a copy on the stream.
///
/// Small regions share the stream's current chunk, so that most of them cost no driver call.
pub(crate) fn reserve(stream: &Bound<'_>, len: usize) -> Result<Region> {
    let core = stream.core();
    if len > CHUNK / 2 {
        return claim_new(&Lease::of(take(core)?), len);
    }
    let current = lock(&core.staging).clone();
    if let Some(region) = current.as_ref().and_then(|lease| lease.claim(len)) {
        return Ok(region);
    }
    let lease = Lease::of(take(core)?);
    let region = claim_new(&lease, len)?;
    if lease.chunk.is_pageable() {
        // Not kept as the current chunk: the next copy may find a pinned one.
        return Ok(region);
    }
    let old = lock(&core.staging).replace(lease);
    if old.is_some() {
        // Lets the pool see when the old chunk is no longer used. If the checkpoint fails, a later copy
        // waits for the chunk instead.
        let _ = stream.timeline().checkpoint(false, stream.entered());
    }
    Ok(region)
}

fn claim_new(lease: &Arc<Lease>, len: usize) -> Result<Region> {
    lease.claim(len).ok_or(Error::SizeOverflow { len, element_size: 1 })
}

/// Takes a chunk of [`CHUNK`] bytes: one that is idle, known so or by a query, a new one, or, after a
/// wait, one of the stream's own. Allocates in the primary context, which outlives all chunks.
///
/// Does not wait for other streams, nor for work that is held up, which may continue only after what
/// the calling thread does next. (If no memory is left for a new chunk, [it must](take_at_last).)
fn take(core: &StreamCore) -> Result<StagingChunk> {
    let id = core.timeline().id();
    let is_own = |last: &Fences| last.marks().iter().all(|mark| mark.timeline.id() == id);
    if let Some(chunk) = take_done(CHUNK, &is_own) {
        return Ok(chunk);
    }
    if !has_room(CHUNK) {
        if let Some(chunk) = take_when_done(CHUNK, &|last| is_own(last) && !last.are_held_up()) {
            return Ok(chunk);
        }
    }
    allocate_or_wait(core.device(), CHUNK)
}

/// Whether the limit allows one more chunk of that size.
fn has_room(bytes: usize) -> bool {
    *lock(&POOL).allocated(bytes) + bytes <= MOST
}

/// Takes an idle chunk, or a pending one that is known to be done. No driver call.
///
/// Held-up streams may have grown the pool beyond [`MOST`]; if so, a second such chunk is given back to
/// its slab.
fn take_known(bytes: usize) -> Option<StagingChunk> {
    let mut chunk = find_known(bytes, &|_| true)?;
    while chunk.is_pageable() {
        // A pinned chunk may be available by now.
        chunk.discard();
        chunk = find_known(bytes, &|_| true)?;
    }
    if *lock(&POOL).allocated(bytes) > MOST {
        // Not a chunk that the driver allocated: freeing it waits for devices, which may wait for the
        // calling thread.
        if let Some(other) = find_known(bytes, &StagingChunk::is_cached) {
            other.discard();
        }
    }
    Some(chunk)
}

fn find_known(bytes: usize, wanted: &dyn Fn(&StagingChunk) -> bool) -> Option<StagingChunk> {
    let fits = |chunk: &StagingChunk| chunk.bytes == bytes && wanted(chunk);
    take_first(&|chunk, last| fits(chunk) && last.are_known_reached()).map(|(chunk, _)| chunk)
}

/// Takes the first chunk that is `wanted`. The caller drops its points outside the lock: dropping the last
/// reference to a timeline destroys its events.
fn take_first(wanted: &dyn Fn(&StagingChunk, &Fences) -> bool) -> Option<(StagingChunk, Fences)> {
    let mut pool = lock(&POOL);
    let at = pool.chunks.iter().position(|(chunk, last)| wanted(chunk, last))?;
    pool.chunks.remove(at)
}

/// Takes a chunk that is known to be done, or a pending one that a query finds done, `own` ones first.
/// One driver call for each stream queried.
fn take_done(bytes: usize, own: &dyn Fn(&Fences) -> bool) -> Option<StagingChunk> {
    let others = if has_room(bytes) { ASKED } else { ASKED_AT_MOST };
    // Streams that have not finished with their oldest chunk. A held-up chunk thus does not hide those
    // of other streams.
    let mut busy = Vec::new();
    take_known(bytes)
        .or_else(|| take_asked(bytes, own, ASKED_AT_MOST, &mut busy))
        .or_else(|| take_asked(bytes, &|last| !own(last), others, &mut busy))
}

/// Takes a pending chunk whose points are `wanted`, if queries find it done. Queries at most `most`
/// streams, and none in `busy`.
fn take_asked(
    bytes: usize,
    wanted: &dyn Fn(&Fences) -> bool,
    most: usize,
    busy: &mut Vec<u64>,
) -> Option<StagingChunk> {
    let most = busy.len() + most;
    while busy.len() < most {
        let is_busy = |mark: &Mark| busy.contains(&mark.timeline.id());
        let unasked = |last: &Fences| wanted(last) && !last.marks().iter().any(is_busy);
        let (chunk, last) = take_pending(bytes, &unasked)?;
        let mut marks = last.marks().iter();
        let Some(pending) = marks.find(|mark| !mark.timeline.peek(mark.seq)) else {
            return Some(chunk);
        };
        if is_lost(&last) {
            // The lost stream is another copy's: this copy need not fail because of it.
            set_aside(chunk, last, Error::LostStream);
            continue;
        }
        busy.push(pending.timeline.id());
        lock(&POOL).chunks.push_front((chunk, last));
    }
    None
}

/// Takes the oldest pending chunk whose points are `wanted`, after waiting for its devices. A chunk
/// whose wait fails is set aside.
fn take_when_done(bytes: usize, wanted: &dyn Fn(&Fences) -> bool) -> Option<StagingChunk> {
    loop {
        let (chunk, last) = take_pending(bytes, wanted)?;
        if let Ok(chunk) = wait_for(chunk, last) {
            return Some(chunk);
        }
    }
}

/// Takes the first chunk whose points are `wanted`. Another thread may have made it idle since
/// [`take_known`] found none.
fn take_pending(bytes: usize, wanted: &dyn Fn(&Fences) -> bool) -> Option<(StagingChunk, Fences)> {
    take_first(&|chunk, last| chunk.bytes == bytes && wanted(last))
}

/// Whether one of the points can never be proven complete.
fn is_lost(points: &Fences) -> bool {
    let mut marks = points.marks().iter();
    marks.any(|mark| mark.timeline.is_lost(mark.seq))
}

impl StagingPool {
    fn allocated(&mut self, bytes: usize) -> &mut usize {
        // The logarithm is less than the number of bits.
        &mut self.allocated[bytes.max(1).ilog2() as usize]
    }
}

/// Waits for the devices that use the chunk, and returns it.
fn wait_for(chunk: StagingChunk, last: Fences) -> Result<StagingChunk> {
    if let Err(error) = last.wait_host() {
        set_aside(chunk, last, error.clone());
        return Err(error);
    }
    Ok(chunk)
}

/// Allocates a chunk. If memory runs out, takes [any other available chunk](take_at_last).
fn allocate_or_wait(device: Device, bytes: usize) -> Result<StagingChunk> {
    match StagingChunk::pinned(device, bytes) {
        Err(error) if error.is_out_of_memory() => take_at_last(bytes, error),
        allocated => allocated,
    }
}

/// Takes a chunk after its allocation was `refused`: waits for a pending one, at last even for one that
/// is held up. If there is none, allocates memory that is not pinned.
fn take_at_last(bytes: usize, refused: Error) -> Result<StagingChunk> {
    take_when_done(bytes, &|last| !last.are_held_up())
        .or_else(|| take_when_done(bytes, &|_| true))
        .or_else(|| StagingChunk::pageable(bytes))
        .ok_or(refused)
}

/// Gives up a chunk that devices cannot be proven to have finished with.
fn set_aside(chunk: StagingChunk, last: Fences, error: Error) {
    chunk.uncount();
    if chunk.is_cached() {
        // `Slabs::give` makes no driver call for it, and so does not fail; the slab gives the chunk up
        // when it queries it.
        let _ = chunk.give(last);
        return;
    }
    chunk.report_lost(error);
}

/// Drops points that are known to have been reached, and so the streams they refer to. No driver call.
fn prune() {
    let mut pool = lock(&POOL);
    let all = pool.chunks.iter_mut().map(|(_, last)| last);
    let reached = all.filter(|last| last.are_known_reached());
    let spent: Vec<_> = reached.map(|last| std::mem::replace(last, Fences::none())).collect();
    // Dropping the last reference to a timeline destroys its events, so it happens outside the lock.
    drop(pool);
    drop(spent);
}

/// Frees the pinned memory that this crate keeps for copies of borrowed slices and for
/// [signals](crate::Signal), except memory in use, and returns the bytes freed: chunks, by
/// [`PinnedPool::trim`](crate::PinnedPool::trim) or `cuMemFreeHost`, then signals, by `cuMemFreeHost`.
/// `cuMemFreeHost` stops all devices until they have no work left, so it also waits for work that waits
/// for a signal. The threads that help with those copies end, and the streams that are kept for
/// [captures](crate::Graph::capture) are destroyed.
///
/// # Errors
/// The driver's. The memory may have been freed despite the error: the chunk is not used again, and is
/// reported to the hook of [`drops::set_hook`](crate::drops::set_hook). Everything else is kept. The
/// bytes freed before the error are not counted.
///
/// ```no_run
/// cuda_core::staging::trim()?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("cuMemFreeHost", "cudaFreeHost"))]
pub fn trim_staging() -> Result<usize> {
    driver::ensure()?;
    workers::end();
    let count = lock(&POOL).chunks.len();
    for _ in 0..count {
        let Some((chunk, last)) = take_first(&|_, _| true) else { break };
        if is_lost(&last) {
            set_aside(chunk, last, Error::LostStream);
            continue;
        }
        // If the query fails, the chunk stays pending.
        let _ = last.query();
        lock(&POOL).chunks.push_back((chunk, last));
    }
    let mut gone = 0;
    loop {
        let Some((chunk, _)) = take_first(&|_, last| last.are_known_reached()) else {
            gone += PinnedPool::shared().trim(0)?;
            gone += SIGNALS.trim(0)?;
            return streams::trim().map(|()| gone);
        };
        let given = chunk.give(Fences::none());
        if let Err(Failed::Refused(error)) = given {
            lock(&POOL).chunks.push_front((chunk, Fences::none()));
            return Err(error);
        }
        chunk.uncount();
        if let Err(Failed::Unknown(error)) = given {
            chunk.report_lost(error.clone());
            return Err(error);
        }
        gone += chunk.released_bytes();
    }
}
