//! Pinned chunks of our own, through which borrowed slices travel.
//!
//! A borrowed slice is never handed to the driver: its bytes are copied to or from a chunk, and the
//! chunk stays ours until the device is done with it, whatever becomes of the slice.

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::device::Device;
use crate::driver;
use crate::drops::{self, Resource};
use crate::error::{Error, Result};
use crate::memory::ledger::Fences;
use crate::release::Unreleased;
use crate::slab;
use crate::stream::signal;
use crate::stream_core::{Bound, StreamCore};
use crate::sync::lock;
use crate::timeline::{Mark, Timeline};
use crate::workers;

use copying::Pass;

pub(crate) mod copying;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod ring;
pub(crate) mod share;

/// Size of a chunk that small copies share.
pub(crate) const CHUNK: usize = 1 << 20;

/// Bytes of chunks beyond which an old one is waited for before a new one is allocated.
const MOST: usize = 256 << 20;

/// Alignment of what is staged in a chunk.
const ALIGNMENT: usize = 256;

/// Pinned memory of the pool's.
#[derive(Clone, Copy)]
struct Chunk {
    memory: slab::Chunk,
    /// As many as were asked for.
    // INVARIANT: no more than the memory has, which is this chunk's until `trim_staging` gives it back.
    bytes: usize,
}

impl Chunk {
    /// Says that the chunk is nobody's any more, and why.
    fn report_lost(&self, why: Error) {
        let address = self.memory.base.0.addr().get() as u64;
        drops::report(Resource::PinnedMemory, address, self.bytes, Some(why));
    }
}

/// Chunks that nobody leases.
struct Pool {
    /// The one that was used last comes last: what reads what a device wrote there has it in its
    /// caches for a while, and a device is slow to write what is in some core's.
    idle: VecDeque<Chunk>,
    /// Devices may still use them, up to these points; oldest first.
    pending: VecDeque<(Chunk, Fences)>,
    /// Bytes of all chunks.
    allocated: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    idle: VecDeque::new(),
    pending: VecDeque::new(),
    allocated: 0,
});

/// A chunk on loan; goes back to the pool with the last region.
pub(crate) struct Lease {
    // INVARIANT: only this lease's regions touch it.
    chunk: Chunk,
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

impl Lease {
    /// A chunk that no device uses. Allocates one in the primary context, which outlives all.
    fn acquire(device: Device) -> Result<Arc<Self>> {
        take(device, CHUNK).map(Self::of)
    }

    fn of(chunk: Chunk) -> Arc<Self> {
        Arc::new(Self {
            chunk,
            claimed: AtomicUsize::new(0),
            last: Mutex::new(Fences::none()),
        })
    }

    fn claim(self: &Arc<Self>, len: usize) -> Option<Region> {
        let room = len.next_multiple_of(ALIGNMENT);
        let fits = |claimed: usize| {
            let end = claimed.checked_add(room);
            end.filter(|end| *end <= self.chunk.bytes)
        };
        let start = self
            .claimed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .ok()?;
        Some(Region {
            lease: self.clone(),
            start,
            len,
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if driver::is_gone() {
            return;
        }
        let last = std::mem::replace(&mut *lock(&self.last), Fences::none());
        let mut pool = lock(&POOL);
        if last.are_known_reached() {
            pool.idle.push_back(self.chunk);
        } else {
            pool.pending.push_back((self.chunk, last));
        }
    }
}

impl Region {
    /// Where the region begins, for the driver.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        // SAFETY: `start` is within the chunk, by the invariant.
        unsafe { self.lease.chunk.memory.base.0.as_ptr().add(self.start) }
    }

    /// Copies `bytes`, as many as the region has, into it; or fails, once the process exits.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let _pass = Pass::or_gone()?;
        let len = self.len.min(bytes.len());
        // SAFETY: `len` bytes are valid on both sides; nobody else touches the region, no device
        // either before it is enqueued; a borrowed slice does not overlap a chunk of ours.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.as_ptr(), len) };
        Ok(())
    }

    /// Copies the region's bytes, which the device has finished writing, out of it; or fails, once
    /// the process exits.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> Result<()> {
        let _pass = Pass::or_gone()?;
        let len = self.len.min(bytes.len());
        // SAFETY: `len` bytes are valid on both sides; no device writes the region any more, since
        // the caller has waited for the copy that fills it; a borrowed slice does not overlap a
        // chunk of ours.
        unsafe { ptr::copy_nonoverlapping(self.as_ptr(), bytes.as_mut_ptr(), len) };
        Ok(())
    }

    /// The stream uses the region up to `seq`.
    pub(crate) fn mark(&self, timeline: &Arc<Timeline>, seq: u64) {
        let timeline = timeline.clone();
        lock(&self.lease.last).add(&Mark { timeline, seq });
    }
}

/// `len` bytes, at most a chunk, for a copy on the stream.
///
/// Small ones share the stream's current chunk, so that most of them cost no driver call.
pub(crate) fn reserve(core: &StreamCore, stream: &Bound<'_>, len: usize) -> Result<Region> {
    let timeline = core.timeline();
    if len > CHUNK / 2 {
        return claim_new(&Lease::acquire(core.device())?, len);
    }
    let current = lock(&core.staging).clone();
    if let Some(region) = current.as_ref().and_then(|lease| lease.claim(len)) {
        return Ok(region);
    }
    let lease = Lease::acquire(core.device())?;
    let region = claim_new(&lease, len)?;
    let old = lock(&core.staging).replace(lease);
    if old.is_some() {
        // Lets the pool see when the old chunk is done with. Without it the pool waits instead.
        let _ = timeline.checkpoint(false, stream.entered());
    }
    Ok(region)
}

fn claim_new(lease: &Arc<Lease>, len: usize) -> Result<Region> {
    lease.claim(len).ok_or(Error::SizeOverflow {
        len,
        element_size: 1,
    })
}

/// An idle chunk of that size, a pending one that turns out to be done, a new one, or the oldest
/// after a wait.
fn take(device: Device, bytes: usize) -> Result<Chunk> {
    if let Some(chunk) = take_done(bytes, |_| true) {
        return Ok(chunk);
    }
    if lock(&POOL).allocated + bytes > MOST {
        if let Some(chunk) = take_when_done(bytes) {
            return Ok(chunk);
        }
    }
    allocate(device, bytes)
}

fn take_idle(bytes: usize) -> Option<Chunk> {
    let mut pool = lock(&POOL);
    let at = pool.idle.iter().position(|chunk| chunk.bytes == bytes)?;
    pool.idle.remove(at)
}

/// An idle chunk, or the oldest pending one whose points are `wanted`, if it turns out to be done:
/// one question to the driver for each.
fn take_done(bytes: usize, wanted: impl Fn(&Fences) -> bool) -> Option<Chunk> {
    if let Some(chunk) = take_idle(bytes) {
        return Some(chunk);
    }
    loop {
        let (chunk, last) = take_pending(bytes, &wanted)?;
        let is_done = |mark: &Mark| mark.timeline.peek(mark.seq);
        if last.marks().iter().all(is_done) {
            return Some(chunk);
        }
        if is_lost(&last) {
            // Somebody else's loss: this copy need not fail for it.
            set_aside(chunk, last, Error::LostStream);
            continue;
        }
        lock(&POOL).pending.push_front((chunk, last));
        return None;
    }
}

/// The oldest pending chunk, whoever it waits for, once that is done with it. One whose device
/// fails is set aside, which is somebody else's loss as well.
fn take_when_done(bytes: usize) -> Option<Chunk> {
    loop {
        let (chunk, last) = take_pending(bytes, |_| true)?;
        if let Ok(chunk) = wait_for(chunk, last) {
            return Some(chunk);
        }
    }
}

fn take_pending(bytes: usize, wanted: impl Fn(&Fences) -> bool) -> Option<(Chunk, Fences)> {
    lock(&POOL).take_pending(bytes, wanted)
}

/// Whether it can never be proven that all of them were reached.
fn is_lost(points: &Fences) -> bool {
    let mut marks = points.marks().iter();
    marks.any(|mark| mark.timeline.is_lost(mark.seq))
}

impl Pool {
    /// The oldest pending chunk of that size whose points are `wanted`.
    fn take_pending(
        &mut self,
        bytes: usize,
        wanted: impl Fn(&Fences) -> bool,
    ) -> Option<(Chunk, Fences)> {
        let fits = |(chunk, last): &(Chunk, Fences)| chunk.bytes == bytes && wanted(last);
        let at = self.pending.iter().position(fits)?;
        self.pending.remove(at)
    }
}

/// The chunk, once the devices are done with it.
fn wait_for(chunk: Chunk, last: Fences) -> Result<Chunk> {
    if let Err(error) = last.wait_host() {
        set_aside(chunk, last, error.clone());
        return Err(error);
    }
    Ok(chunk)
}

fn allocate(device: Device, bytes: usize) -> Result<Chunk> {
    let memory = slab::take(device.primary()?, bytes)?;
    lock(&POOL).allocated += bytes;
    Ok(Chunk { memory, bytes })
}

/// Gives up a chunk that a device may still use, and nobody can prove otherwise.
fn set_aside(chunk: Chunk, last: Fences, error: Error) {
    lock(&POOL).allocated -= chunk.bytes;
    if chunk.memory.is_cached() {
        // Its slab knows what becomes of memory that waits in vain, and does not fail here.
        let _ = slab::give(chunk.memory, last);
        return;
    }
    chunk.report_lost(error);
}

/// Frees the pinned memory that this crate keeps for copies of borrowed slices and for
/// [signals](crate::Signal), except what is in use: [`trim_pinned`](crate::trim_pinned), then
/// `cuMemFreeHost`, which stops all devices for a moment, and waits for work that waits for a signal.
/// The threads that help with those copies end.
///
/// # Errors
/// The driver's. It may come although the memory is gone: that chunk is not used again, and the hook
/// of [`set_drop_hook`](crate::set_drop_hook) is told of it. All else is kept.
///
/// ```no_run
/// cuda_core::trim_staging()?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub fn trim_staging() -> Result<()> {
    driver::ensure()?;
    workers::end();
    let pending = std::mem::take(&mut lock(&POOL).pending);
    for (chunk, last) in pending {
        if is_lost(&last) {
            set_aside(chunk, last, Error::LostStream);
            continue;
        }
        let done = last.query().unwrap_or(false);
        let mut pool = lock(&POOL);
        if done {
            pool.idle.push_back(chunk);
        } else {
            pool.pending.push_back((chunk, last));
        }
    }
    loop {
        let Some(chunk) = lock(&POOL).idle.pop_front() else {
            slab::trim_pinned()?;
            return signal::trim();
        };
        let given = slab::give(chunk.memory, Fences::none());
        if let Err(Unreleased::Kept(error)) = given {
            lock(&POOL).idle.push_front(chunk);
            return Err(error);
        }
        lock(&POOL).allocated -= chunk.bytes;
        if let Err(Unreleased::Unknown(error)) = given {
            chunk.report_lost(error.clone());
            return Err(error);
        }
    }
}
