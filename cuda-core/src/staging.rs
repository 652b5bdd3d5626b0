//! Pinned chunks of our own, through which borrowed slices travel.
//!
//! A borrowed slice is never handed to the driver: its bytes are copied to or from a chunk, and the
//! chunk stays ours until the device is done with it, whatever becomes of the slice.

use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::device::Device;
use crate::driver;
use crate::drops::{self, Resource};
use crate::error::{Error, Result};
use crate::memory::pinned::{self, HostAddress, PinnedFlags};
use crate::stream::signal;
use crate::stream_core::{Bound, StreamCore};
use crate::sync::lock;
use crate::timeline::{Mark, Timeline};

/// Size of a chunk. Below a mebibyte a copy costs more than it hides.
pub(crate) const CHUNK: usize = 1 << 20;

/// Chunks beyond which an old one is waited for before a new one is allocated.
const MOST: usize = 64;

/// Alignment of what is staged in a chunk.
const ALIGNMENT: usize = 256;

/// Chunks that nobody leases.
struct Pool {
    idle: Vec<HostAddress>,
    /// The device may still use them; oldest first.
    pending: Vec<(HostAddress, Mark)>,
    allocated: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    idle: Vec::new(),
    pending: Vec::new(),
    allocated: 0,
});

/// A chunk on loan to one stream; goes back to the pool with the last region.
pub(crate) struct Lease {
    // INVARIANT: `CHUNK` bytes that only this lease's regions touch.
    chunk: HostAddress,
    timeline: Arc<Timeline>,
    claimed: AtomicUsize,
    /// The last point of the stream that uses the chunk.
    last: AtomicU64,
}

/// A part of a chunk that belongs to one copy.
pub(crate) struct Region {
    lease: Arc<Lease>,
    // INVARIANT: `start + len` is at most `CHUNK`, and no other region has these bytes.
    start: usize,
    len: usize,
}

impl Lease {
    /// A chunk that no device uses. Allocates one in the primary context, which outlives all.
    fn acquire(device: Device, timeline: &Arc<Timeline>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            chunk: take(device)?,
            timeline: timeline.clone(),
            claimed: AtomicUsize::new(0),
            last: AtomicU64::new(0),
        }))
    }

    fn claim(self: &Arc<Self>, len: usize) -> Option<Region> {
        let room = len.next_multiple_of(ALIGNMENT);
        let fits = |claimed: usize| claimed.checked_add(room).filter(|end| *end <= CHUNK);
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
            pool.idle.push(self.chunk);
        } else {
            let timeline = self.timeline.clone();
            pool.pending.push((self.chunk, Mark { timeline, seq }));
        }
    }
}

impl Region {
    /// Where the region begins, for the driver.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        // SAFETY: `start` is within the chunk, by the invariant.
        unsafe { self.lease.chunk.0.as_ptr().add(self.start) }
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

/// An idle chunk, a pending one that turns out to be done, a new one, or the oldest after a wait.
fn take(device: Device) -> Result<HostAddress> {
    loop {
        let (oldest, full) = {
            let mut pool = lock(&POOL);
            if let Some(chunk) = pool.idle.pop() {
                return Ok(chunk);
            }
            let full = pool.allocated >= MOST;
            let oldest = (!pool.pending.is_empty()).then(|| pool.pending.remove(0));
            (oldest, full)
        };
        let Some((chunk, mark)) = oldest else { break };
        if mark.timeline.peek(mark.seq) {
            return Ok(chunk);
        }
        if mark.timeline.is_lost(mark.seq) {
            // Somebody else's loss: this copy need not fail for it.
            set_aside(chunk, Error::LostStream);
            continue;
        }
        if full {
            if let Err(error) = mark.timeline.wait_host(mark.seq) {
                set_aside(chunk, error.clone());
                return Err(error);
            }
            return Ok(chunk);
        }
        lock(&POOL).pending.insert(0, (chunk, mark));
        break;
    }
    let chunk = pinned::alloc_raw(device.primary()?, CHUNK, PinnedFlags::PORTABLE)?;
    lock(&POOL).allocated += 1;
    Ok(chunk)
}

/// Gives up a chunk that a device may still use, and nobody can prove otherwise.
fn set_aside(chunk: HostAddress, error: Error) {
    lock(&POOL).allocated -= 1;
    let address = chunk.0.addr().get() as u64;
    drops::report(Resource::PinnedMemory, address, CHUNK, Some(error));
}

/// Frees the pinned memory that this crate keeps for copies of borrowed slices and for
/// [signals](crate::Signal), except what is in use: `cuMemFreeHost`, which stops all devices for a
/// moment, and waits for work that waits for a signal.
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
    let pending = std::mem::take(&mut lock(&POOL).pending);
    for (chunk, mark) in pending {
        if mark.timeline.is_lost(mark.seq) {
            set_aside(chunk, Error::LostStream);
            continue;
        }
        let done = mark.timeline.query(mark.seq).unwrap_or(false);
        let mut pool = lock(&POOL);
        if done {
            pool.idle.push(chunk);
        } else {
            pool.pending.push((chunk, mark));
        }
    }
    loop {
        let Some(chunk) = lock(&POOL).idle.pop() else {
            return signal::trim();
        };
        if let Err(error) = pinned::free_raw(chunk) {
            lock(&POOL).idle.push(chunk);
            return Err(error);
        }
        lock(&POOL).allocated -= 1;
    }
}
