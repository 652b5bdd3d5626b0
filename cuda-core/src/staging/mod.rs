//! Pinned chunks of our own, through which borrowed slices travel.
//!
//! A borrowed slice is never handed to the driver: its bytes are copied to or from a chunk, and the
//! chunk stays ours until the device is done with it, whatever becomes of the slice.

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::device::Device;
use crate::driver;
use crate::drops::{self, Resource};
use crate::error::{Error, Result};
use crate::memory::ledger::Fences;
use crate::slab;
use crate::stream::signal;
use crate::stream_core::{Bound, StreamCore};
use crate::sync::lock;
use crate::timeline::{Mark, Timeline};
use crate::workers;

pub(crate) mod copying;
pub(crate) mod options;
mod plan;
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

/// Chunks that nobody leases.
struct Pool {
    /// The one that was used last comes last: what reads what a device wrote there has it in its
    /// caches for a while, and a device is slow to write what is in some core's.
    idle: VecDeque<Chunk>,
    /// The device may still use them; oldest first.
    pending: VecDeque<(Chunk, Mark)>,
    /// Bytes of all chunks.
    allocated: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    idle: VecDeque::new(),
    pending: VecDeque::new(),
    allocated: 0,
});

/// A chunk on loan to one stream; goes back to the pool with the last region.
pub(crate) struct Lease {
    // INVARIANT: only this lease's regions touch it.
    chunk: Chunk,
    timeline: Arc<Timeline>,
    claimed: AtomicUsize,
    /// The last point of the stream that uses the chunk.
    last: AtomicU64,
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
    fn acquire(device: Device, timeline: &Arc<Timeline>) -> Result<Arc<Self>> {
        let chunk = take(device, CHUNK)?;
        Ok(Self::of(chunk, timeline))
    }

    fn of(chunk: Chunk, timeline: &Arc<Timeline>) -> Arc<Self> {
        Arc::new(Self {
            chunk,
            timeline: timeline.clone(),
            claimed: AtomicUsize::new(0),
            last: AtomicU64::new(0),
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
        let seq = *self.last.get_mut();
        let mut pool = lock(&POOL);
        if self.timeline.has_completed(seq) {
            pool.idle.push_back(self.chunk);
        } else {
            let timeline = self.timeline.clone();
            pool.pending.push_back((self.chunk, Mark { timeline, seq }));
        }
    }
}

impl Region {
    /// Where the region begins, for the driver.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        // SAFETY: `start` is within the chunk, by the invariant.
        unsafe { self.lease.chunk.memory.base.0.as_ptr().add(self.start) }
    }

    /// Copies `bytes`, as many as the region has, into it.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let len = self.len.min(bytes.len());
        // SAFETY: `len` bytes are valid on both sides; nobody else touches the region, no device
        // either before it is enqueued; a borrowed slice does not overlap a chunk of ours.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.as_ptr(), len) };
    }

    /// Copies the region's bytes, which the device has finished writing, out of it.
    pub(crate) fn read(&self, bytes: &mut [u8]) {
        let len = self.len.min(bytes.len());
        // SAFETY: as in `write`; the caller has waited for the copy that fills the region.
        unsafe { ptr::copy_nonoverlapping(self.as_ptr(), bytes.as_mut_ptr(), len) };
    }

    /// The stream uses the region up to `seq`.
    pub(crate) fn mark(&self, seq: u64) {
        let later = |known| (known < seq).then_some(seq);
        let _ = self
            .lease
            .last
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }
}

/// `len` bytes, at most a chunk, for a copy on the stream.
///
/// Small ones share the stream's current chunk, so that most of them cost no driver call.
pub(crate) fn reserve(core: &StreamCore, stream: &Bound<'_>, len: usize) -> Result<Region> {
    let timeline = core.timeline();
    if len > CHUNK / 2 {
        return claim_new(&Lease::acquire(core.device(), timeline)?, len);
    }
    let current = lock(&core.staging).clone();
    if let Some(region) = current.as_ref().and_then(|lease| lease.claim(len)) {
        return Ok(region);
    }
    let lease = Lease::acquire(core.device(), timeline)?;
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
    let full = lock(&POOL).allocated + bytes > MOST;
    if let Some((chunk, mark)) = full.then(|| take_pending(bytes, |_| true)).flatten() {
        return wait_for(chunk, mark);
    }
    allocate(device, bytes)
}

fn take_idle(bytes: usize) -> Option<Chunk> {
    let mut pool = lock(&POOL);
    let at = pool.idle.iter().position(|chunk| chunk.bytes == bytes)?;
    pool.idle.remove(at)
}

/// An idle chunk, or the oldest pending one whose mark is `wanted`, if it turns out to be done: one
/// question to the driver.
fn take_done(bytes: usize, wanted: impl Fn(&Mark) -> bool) -> Option<Chunk> {
    if let Some(chunk) = take_idle(bytes) {
        return Some(chunk);
    }
    loop {
        let (chunk, mark) = take_pending(bytes, &wanted)?;
        if mark.timeline.peek(mark.seq) {
            return Some(chunk);
        }
        if mark.timeline.is_lost(mark.seq) {
            // Somebody else's loss: this copy need not fail for it.
            set_aside(chunk, mark, Error::LostStream);
            continue;
        }
        lock(&POOL).pending.push_front((chunk, mark));
        return None;
    }
}

fn take_pending(bytes: usize, wanted: impl Fn(&Mark) -> bool) -> Option<(Chunk, Mark)> {
    lock(&POOL).take_pending(bytes, wanted)
}

impl Pool {
    /// The oldest pending chunk of that size whose mark is `wanted`.
    fn take_pending(
        &mut self,
        bytes: usize,
        wanted: impl Fn(&Mark) -> bool,
    ) -> Option<(Chunk, Mark)> {
        let fits = |(chunk, mark): &(Chunk, Mark)| chunk.bytes == bytes && wanted(mark);
        let at = self.pending.iter().position(fits)?;
        self.pending.remove(at)
    }
}

/// The chunk, once the device is done with it.
fn wait_for(chunk: Chunk, mark: Mark) -> Result<Chunk> {
    if let Err(error) = mark.timeline.wait_host(mark.seq) {
        set_aside(chunk, mark, error.clone());
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
fn set_aside(chunk: Chunk, mark: Mark, error: Error) {
    lock(&POOL).allocated -= chunk.bytes;
    if chunk.memory.is_cached() {
        // Its slab knows what becomes of memory that waits in vain, and does not fail here.
        let _ = slab::give(chunk.memory, Fences::of(mark));
        return;
    }
    let address = chunk.memory.base.0.addr().get() as u64;
    drops::report(Resource::PinnedMemory, address, chunk.bytes, Some(error));
}

/// Frees the pinned memory that this crate keeps for copies of borrowed slices and for
/// [signals](crate::Signal), except what is in use: [`trim_pinned`](crate::trim_pinned), then
/// `cuMemFreeHost`, which stops all devices for a moment, and waits for work that waits for a signal.
/// The threads that help with those copies end.
///
/// # Errors
/// The driver's; what was not freed is kept.
///
/// ```no_run
/// cuda_core::trim_staging()?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub fn trim_staging() -> Result<()> {
    driver::ensure()?;
    workers::end();
    let pending = std::mem::take(&mut lock(&POOL).pending);
    for (chunk, mark) in pending {
        if mark.timeline.is_lost(mark.seq) {
            set_aside(chunk, mark, Error::LostStream);
            continue;
        }
        let done = mark.timeline.query(mark.seq).unwrap_or(false);
        let mut pool = lock(&POOL);
        if done {
            pool.idle.push_back(chunk);
        } else {
            pool.pending.push_back((chunk, mark));
        }
    }
    loop {
        let Some(chunk) = lock(&POOL).idle.pop_front() else {
            slab::trim_pinned()?;
            return signal::trim();
        };
        if let Err(error) = slab::give(chunk.memory, Fences::none()) {
            lock(&POOL).idle.push_front(chunk);
            return Err(error);
        }
        lock(&POOL).allocated -= chunk.bytes;
    }
}
