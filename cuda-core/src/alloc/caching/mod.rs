//! The caching pool: blocks that were freed, kept for those to come.
//!
//! Each stream has an [arena](stream_cache): for each pool that it has allocated from, [bins] of blocks that it
//! may use at once, by size. A block that is allocated and freed while its bin has one costs two
//! exchanges of one flag on a cache line of the stream's own, whatever thread does it, and brings
//! along the references that it needs.
//!
//! Behind the bins that a context's streams have of a pool there is one [heap], an
//! [address space](space) of segments in which free ranges join their neighbours, and from which the
//! smallest that fits is cut. A free range remembers whose work it comes after: that stream uses it
//! at once, others when that work is known to be complete, or behind it. No event belongs to a block.
//! One is recorded when a range is about to change hands, and not before.
//!
//! Segments come from `cuMemAlloc`, not from the driver's pool. They are there for all streams at
//! once, whatever is being captured; peers reach them as soon as their contexts have access; and
//! copies of them do not depend on what is current. What speaks against `cuMemAlloc` is that it is
//! slow, which is paid once a segment, and that freeing stops the device, which happens in
//! `CachingPool::trim` and when the device has no more.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use crate::alloc::origin::Origin;
use crate::error::Result;
use crate::memory::Block;
use crate::memory::device::DeviceMemory;
use crate::timeline::core::StreamCore;
use crate::timeline::ledger::{Fences, Ledger};
use crate::timeline::{Mark, Timeline};

mod awaiting;
mod bins;
pub(crate) mod builder;
mod class;
mod growth;
mod heap;
pub(crate) mod limit;
mod owners;
pub(crate) mod pool;
pub(crate) mod segments;
mod space;
mod stream_cache;

use bins::{Bins, Cached};
use class::Span;
use heap::Heap;
use pool::CachingPool;
use stream_cache::Arena;

/// The stream that a cached block was allocated on.
pub(crate) struct Home {
    // INVARIANT: taken by `free` alone, which is the last thing that is done with a block.
    core: ManuallyDrop<Arc<StreamCore>>,
    /// Where the block was cut, if that is not the process's pool.
    branch: Option<Arc<Heap>>,
    /// The block's size, which is the request's, rounded.
    bytes: usize,
    bin: usize,
}

impl Home {
    #[inline]
    pub(crate) fn core(&self) -> &Arc<StreamCore> {
        &self.core
    }

    /// Whether it is in its context, as what comes from `cuMemAlloc` is.
    #[inline]
    pub(crate) fn is_in_the_context(&self) -> bool {
        let heap = self.branch.as_ref();
        heap.is_none_or(|heap| heap.is_in_the_context())
    }
}

/// A block that the stream has at hand, of the pool with that [number](CachingPool::id). None is of
/// no bytes.
#[inline]
pub(crate) fn find(pool: u64, core: &StreamCore, bytes: usize) -> Option<Block<DeviceMemory>> {
    let needed = class::rounded(bytes);
    let found = core.arena.lock().take(pool, needed)?;
    Some(block(found, bytes))
}

/// A block of the pool, for the stream.
pub(crate) fn allocate(
    pool: &CachingPool,
    core: &Arc<StreamCore>,
    bytes: usize,
) -> Result<Block<DeviceMemory>> {
    if let Some(block) = find(pool.id(), core, bytes) {
        return Ok(block);
    }
    let found = miss(pool, core, class::rounded(bytes), bytes)?;
    Ok(block(found, bytes))
}

/// What is at hand, as a block of `bytes`.
#[inline]
fn block(cached: Cached, bytes: usize) -> Block<DeviceMemory> {
    let mark = Mark {
        timeline: cached.timeline,
        seq: cached.seq,
    };
    Block {
        address: cached.address,
        bytes,
        // Another stream may use it only behind what this one did with it before.
        ledger: Ledger::behind(0..bytes, mark),
        keeper: Origin::Cached(Home {
            core: ManuallyDrop::new(cached.home),
            branch: cached.branch,
            bytes: cached.bytes,
            bin: cached.bin,
        }),
    }
}

/// A block for the stream whose bins have none.
#[cold]
fn miss(
    pool: &CachingPool,
    core: &Arc<StreamCore>,
    needed: usize,
    requested: usize,
) -> Result<Cached> {
    let heap = &pool.serve(core);
    heap.collect(core, |bins| bins.take_reached(heap::LOOKED_AT));
    if Span::of(needed) == Span::Large {
        // Joined, what lies in the bins may fit better than what would have to be cut.
        heap.collect(core, |bins| bins.take_from(Span::LARGEST_SMALL + 1));
    }
    let mut found = heap.find(core, needed, heap::LOOKED_AT);
    if found.is_none() {
        heap.collect(core, Bins::take_all);
        found = heap.take(core, needed);
    }
    let piece = match found {
        Some(piece) => piece,
        None => growth::allocate(heap, core, needed, requested)?,
    };
    let allocate = |bins: &mut Bins| bins.counts.allocate(piece.bytes);
    core.arena.with(heap, allocate);
    Ok(Cached {
        address: piece.address,
        bytes: piece.bytes,
        bin: class::bin(piece.bytes),
        seq: piece.seq,
        timeline: core.timeline().clone(),
        home: core.clone(),
        branch: (!heap.settings.is_shared()).then(|| heap.clone()),
    })
}

/// Takes a block back that no other stream has used: for its home stream, whose timeline is given,
/// at once. No driver call.
///
/// # Safety
/// The block is not used after this, nor freed once more.
#[inline]
pub(crate) unsafe fn recycle(address: CUdeviceptr, home: &mut Home, timeline: Arc<Timeline>) {
    // SAFETY: nobody takes it after this, by the caller's promise.
    let core = unsafe { ManuallyDrop::take(&mut home.core) };
    Arena::put(Cached {
        address,
        bytes: home.bytes,
        bin: home.bin,
        seq: timeline.issued(),
        timeline,
        home: core,
        branch: home.branch.take(),
    });
}

/// [`recycle`] of a block that other streams may still use, up to those points.
///
/// # Safety
/// That of [`recycle`].
pub(crate) unsafe fn free(address: CUdeviceptr, home: &mut Home, fences: Fences) {
    let timeline = home.core.timeline().clone();
    if fences.is_empty() {
        // SAFETY: what the caller promised is what `recycle` asks for: nobody uses the block after
        // this, nor frees it once more.
        return unsafe { recycle(address, home, timeline) };
    }
    // SAFETY: nobody takes it after this, by the caller's promise.
    let core = unsafe { ManuallyDrop::take(&mut home.core) };
    let block = Cached {
        address,
        bytes: home.bytes,
        bin: home.bin,
        seq: timeline.issued(),
        timeline,
        home: core,
        branch: home.branch.take(),
    };
    Arena::put_behind(block, fences);
}
