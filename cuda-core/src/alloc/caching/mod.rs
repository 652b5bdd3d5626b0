//! The caching pool: keeps freed blocks for later allocations.
//!
//! Each stream has a [cache](stream_cache): for each pool that it has allocated from, [bins], by size, of
//! blocks that it may use at once. An allocation that finds a block in its bin, and a free that puts one
//! back, each cost one atomic exchange of a flag, on a cache line that only this stream uses. The block
//! carries the references that its next owner needs.
//!
//! Below the bins of all streams of a context, each pool has one [heap]: an [address space](space) of
//! segments. Free ranges join their neighbours there, and a block is cut from the smallest range that fits. A
//! free range remembers a stream and the point of it whose work the range comes after. That stream uses the
//! range at once; others use it when that work is known to be complete, or wait for the work first. No event
//! belongs to a block: an event is recorded only when a range is about to pass from one stream to another.
//!
//! Segments come from `cuMemAlloc`, not from the driver's pool. All streams may use them at once,
//! even during captures; peers reach them as soon as their contexts have access; and copies of them do not
//! depend on the current context. `cuMemAlloc` is slow, but is called once per segment. Freeing stops the
//! device, but happens only in `CachingPool::trim`, when the device or the pool's limit allows no more
//! memory, and at the end of a pool or a context.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use crate::alloc::DeviceBacking;
use crate::error::Result;
use crate::memory::{Block, DeviceMemory};
use crate::timeline::ledger::{Fences, Ledger};
use crate::timeline::{Mark, StreamCore, Timeline};

pub(crate) mod awaiting;
mod bins;
pub(crate) mod builder;
pub(crate) mod class;
mod growth;
mod heap;
pub(crate) mod limit;
pub(crate) mod owners;
pub(crate) mod pool;
pub(crate) mod segments;
pub(crate) mod space;
mod stream_cache;

use bins::{Bins, Cached};
use class::SegmentKind;
use heap::Heap;
use pool::CachingPool;
use stream_cache::StreamCache;

/// The stream and the heap that a block is from. It holds the references that the block's next owner needs,
/// so handing the block over touches no reference count: a hit writes no cache line that other streams'
/// threads write.
pub(crate) struct Home {
    /// The stream that the block was allocated on.
    pub(crate) core: Arc<StreamCore>,
    /// The heap that the block was cut from.
    heap: Arc<Heap>,
    /// The size of the block: the request's, rounded.
    bytes: usize,
    /// Index of its bin, by [`class::bin`].
    bin: usize,
}

impl Home {
    /// Whether the block belongs to its context, as memory from `cuMemAlloc` does.
    #[inline]
    pub(crate) fn is_in_the_context(&self) -> bool {
        self.heap.settings.is_in_the_context
    }
}

/// Takes a block of the pool with that [id](CachingPool::id) from the stream's own bins. No block has zero
/// bytes.
#[inline]
pub(crate) fn find(pool: u64, core: &StreamCore, bytes: usize) -> Option<Block<DeviceMemory>> {
    let needed = class::rounded(bytes);
    let found = core.stream_cache.lock().take(pool, needed)?;
    Some(block(found, bytes))
}

/// Turns a cached block into an allocated one of `bytes`.
#[inline]
fn block(cached: Cached, bytes: usize) -> Block<DeviceMemory> {
    Block {
        address: cached.address,
        bytes,
        // Another stream may use it only after what its home stream did with it before.
        ledger: Ledger::after(0..bytes, cached.mark),
        backing: DeviceBacking::Cached(ManuallyDrop::new(cached.home)),
    }
}

/// Allocates a block of `requested` bytes for a stream whose bins have none that fits.
#[cold]
pub(crate) fn allocate(
    pool: &CachingPool,
    core: &Arc<StreamCore>,
    requested: usize,
) -> Result<Block<DeviceMemory>> {
    let needed = class::rounded(requested);
    let heap = &pool.serve(core);
    heap.with(|state| state.reclaim(heap::LOOKED_AT));
    let moving = heap.begin_move();
    if SegmentKind::of(needed) == SegmentKind::Large {
        // Blocks of the bins, once joined in the heap, may fit better than a range that would have to be cut.
        heap.collect(core, |bins| bins.take_from(SegmentKind::LARGEST_SMALL + 1));
    }
    let found = heap.find(core, needed, heap::LOOKED_AT).or_else(|| {
        heap.collect(core, Bins::take_all);
        heap.take(core, needed)
    });
    drop(moving);
    let taken = match found {
        Some(taken) => taken,
        None => growth::allocate(heap, core, needed, requested)?,
    };
    core.stream_cache.with(heap, |bins| bins.counts.allocate(taken.bytes));
    let home = Home {
        core: core.clone(),
        heap: heap.clone(),
        bytes: taken.bytes,
        bin: class::bin(taken.bytes),
    };
    let mark = core.timeline().at(taken.seq);
    Ok(block(Cached { address: taken.address, mark, home }, requested))
}

impl Cached {
    /// Makes the entry for the block at `address`, which has this home and is now free.
    #[inline]
    fn new(address: CUdeviceptr, home: Home, timeline: Arc<Timeline>) -> Self {
        Self { address, mark: Mark { seq: timeline.issued(), timeline }, home }
    }
}

/// Takes back a block that no other stream has used. Its home stream, whose timeline is given, may reuse it
/// at once. Makes no driver call.
///
/// # Safety
/// The block is neither used nor freed again after this, and `home` is not used.
#[inline]
pub(crate) unsafe fn recycle(
    address: CUdeviceptr,
    home: &mut ManuallyDrop<Home>,
    timeline: Arc<Timeline>,
) {
    // SAFETY: by the caller's promise nothing uses it after this.
    let home = unsafe { ManuallyDrop::take(home) };
    StreamCache::put(Cached::new(address, home, timeline));
}

/// [`recycle`] of a block that other streams may still use, up to the points in `fences`.
///
/// # Safety
/// That of [`recycle`].
pub(crate) unsafe fn free(address: CUdeviceptr, home: &mut ManuallyDrop<Home>, fences: Fences) {
    // SAFETY: by the caller's promise nothing uses it after this.
    let home = unsafe { ManuallyDrop::take(home) };
    let timeline = home.core.timeline().clone();
    let block = Cached::new(address, home, timeline);
    if fences.is_empty() { StreamCache::put(block) } else { StreamCache::put_behind(block, fences) }
}
