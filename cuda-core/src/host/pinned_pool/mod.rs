//! The pinned pool: slabs of pinned memory, cut into chunks that are reused.
//!
//! The driver takes a third of a millisecond to pin each mebibyte, and stops the device when it frees
//! pinned memory. So this crate maps memory from the system in large pieces, registers each as a whole,
//! and releases it only on request. A chunk that is given back waits, if necessary, until the copies
//! that use it are done; the ledger of its buffer knows these copies. No event is recorded for it
//! before the memory is needed.
//!
//! The memory is portable and belongs to the process: slabs are registered in primary contexts, which
//! outlive them.

mod backend;
mod cache;
mod class;
mod growth;
mod host_mapping;
mod node;
mod room;
mod settings;
mod source;

pub use backend::PinnedBackend;
pub use settings::PinnedPool;

use std::mem;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cuda_sys::CUdeviceptr;

use cache::{ALL, Cache, MANY};
use node::NumaNode;
use source::SlabSource;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::host::{HostAddress, pinned};
use crate::process::{Failed, driver};
use crate::timeline::Mark;
use crate::timeline::ledger::Fences;
use crate::util::lock;

/// Pinned memory that its holder owns exclusively from [`Slabs::take`] to [`Slabs::give`].
#[derive(Clone, Copy)]
pub(crate) struct PinnedChunk {
    // INVARIANT: the first of `bytes` initialised bytes that are pinned and portable, and that only
    // this chunk has. Aligned to 256 bytes.
    pub(crate) base: HostAddress,
    /// At least the requested size.
    pub(crate) bytes: usize,
    /// Whether the chunk is part of a slab; otherwise the driver allocated it, and frees it.
    is_cached: bool,
    node: NumaNode,
}

impl PinnedChunk {
    fn address(&self) -> CUdeviceptr {
        self.base.0.addr().get() as CUdeviceptr
    }

    /// Whether the chunk is part of a slab; otherwise the driver allocated it.
    pub(crate) fn is_cached(&self) -> bool {
        self.is_cached
    }
}

/// The number of streams that are queried about pending chunks before idle memory is merged and cut
/// anew.
const ASKED: usize = 8;

/// Slabs and the chunks cut from them: those of the process, or of a [`PinnedPool`].
pub(crate) struct Slabs {
    cache: Mutex<Cache>,
    /// Bytes of slabs beyond which idle slabs are released before another is allocated.
    limit: AtomicUsize,
    /// The right to allocate a slab larger than the request, which one thread has at a time. Other
    /// threads do not wait for it: the driver may be waiting for a device, and the device for what
    /// another thread does next. Threads that do not get it allocate a slab of exactly the size they
    /// need; so does a drop hook that runs while its own thread has the right.
    turn: Mutex<()>,
    source: SlabSource,
}

/// The slabs of the process.
pub(crate) static SHARED: Slabs = Slabs::new(SlabSource::Mappings);

/// The slabs for signals, 64 in the first slab: devices must reach signals by the host's addresses.
pub(crate) static SIGNALS: Slabs = Slabs::new(SlabSource::Driver);

/// The slabs of every other [`PinnedPool`].
static OTHERS: Mutex<Vec<Weak<Slabs>>> = Mutex::new(Vec::new());

/// Takes a chunk of at least `bytes`, which are not zero, near the context's device; usable in every
/// context. Its contents are unspecified.
///
/// No driver call if a chunk of this size is idle.
#[inline]
pub(crate) fn take(context: &Context, bytes: usize) -> Result<PinnedChunk> {
    driver::ensure()?;
    if backend::is_driver()? { allocate(context, bytes) } else { SHARED.take(context, bytes) }
}

/// Drops fences that are known to have been reached, and so the streams they refer to. No driver call.
fn prune() {
    let settle = |slabs: &Slabs| slabs.with(|cache| cache.settle(ALL));
    settle(&SHARED);
    settle(&SIGNALS);
    let others: Vec<_> = lock(&OTHERS).iter().filter_map(Weak::upgrade).collect();
    others.iter().for_each(|slabs| settle(slabs));
}

/// Lets the driver allocate a chunk.
#[cold]
fn allocate(context: &Context, bytes: usize) -> Result<PinnedChunk> {
    Ok(PinnedChunk {
        base: pinned::alloc_raw(context, bytes, 0)?,
        bytes,
        is_cached: false,
        node: NumaNode::ANY,
    })
}

impl Slabs {
    const fn new(source: SlabSource) -> Self {
        Self {
            cache: Mutex::new(Cache::NEW),
            limit: AtomicUsize::new(usize::MAX),
            turn: Mutex::new(()),
            source,
        }
    }

    /// Creates slabs other than those of the process.
    fn others() -> Arc<Self> {
        let slabs = Arc::new(Self::new(SlabSource::Mappings));
        // In a forked child, a thread that exists only in the parent may hold the lock.
        if driver::is_gone() {
            return slabs;
        }
        let mut others = lock(&OTHERS);
        others.retain(|slabs| slabs.strong_count() > 0);
        others.push(Arc::downgrade(&slabs));
        slabs
    }

    /// Runs `f` with the cache locked, then drops what the cache no longer needs.
    fn with<R>(&self, f: impl FnOnce(&mut Cache) -> R) -> R {
        let mut cache = lock(&self.cache);
        let result = f(&mut cache);
        let spent = mem::take(&mut cache.spent);
        drop(cache);
        drop(spent);
        result
    }

    /// Takes a chunk of a slab.
    #[inline]
    pub(crate) fn take(&self, context: &Context, bytes: usize) -> Result<PinnedChunk> {
        let node = match self.source {
            SlabSource::Mappings => NumaNode::of(context.device()),
            SlabSource::Driver => NumaNode::ANY,
        };
        if let Some(chunk) = lock(&self.cache).pop(node, class::bin(bytes)) {
            return Ok(chunk);
        }
        self.take_slowly(context, node, bytes)
    }

    /// Takes back a chunk, which may be reused once the fences are reached. No driver call if the chunk
    /// is part of a slab. If the driver allocated it, this waits for the fences and frees it; on
    /// [`Refused`](Failed::Refused), the caller still owns the chunk, otherwise it must not be used
    /// any more.
    #[inline]
    pub(crate) fn give(&self, chunk: PinnedChunk, fences: Fences) -> Result<(), Failed> {
        if !chunk.is_cached {
            fences.wait_host()?;
            // SAFETY: memory of `alloc_raw`, which its owner gives back once; its last work has
            // completed.
            return unsafe { pinned::free_raw(chunk.base) };
        }
        if fences.is_empty() {
            lock(&self.cache).put(chunk);
        } else {
            self.give_pending(chunk, fences);
        }
        Ok(())
    }

    #[cold]
    fn give_pending(&self, chunk: PinnedChunk, fences: Fences) {
        self.with(|cache| cache.put_pending(chunk, fences));
    }

    /// Takes a chunk when no idle chunk has exactly this size.
    #[cold]
    fn take_slowly(&self, context: &Context, node: NumaNode, asked: usize) -> Result<PinnedChunk> {
        let bytes = class::rounded(asked);
        let known = self.with(|cache| {
            cache.settle(MANY);
            cache.find(node, bytes)
        });
        if let Some(chunk) = known {
            return Ok(chunk);
        }
        self.ask(|cache| cache.pending.next_asked(ASKED));
        if let Some(chunk) = self.find(node, bytes) {
            return Ok(chunk);
        }
        // Idle chunks of other sizes may fit once merged with their neighbours.
        let merged = self.with(|cache| {
            cache.merge();
            cache.find(node, bytes)
        });
        if let Some(chunk) = merged {
            return Ok(chunk);
        }
        // Before pinning memory, which takes longer than any number of queries.
        self.ask(|cache| cache.pending.next_asked(ALL));
        self.find(node, bytes).map_or_else(|| self.grow(context, node, asked), Ok)
    }

    /// Takes a chunk from idle memory.
    fn find(&self, node: NumaNode, bytes: usize) -> Option<PinnedChunk> {
        lock(&self.cache).find(node, bytes)
    }

    /// Queries all pending chunks.
    fn ask_about_all(&self) {
        let marks = |cache: &mut Cache| {
            let all = cache.pending.iter().flat_map(|(.., fences)| fences.marks());
            all.cloned().collect()
        };
        self.ask(marks);
    }

    /// Queries marks that pending chunks wait for, and makes chunks idle that devices have finished
    /// with. If a stream is lost, devices may still use its chunks: their slabs are given up. Other
    /// chunks of these slabs stay valid while they are in use.
    fn ask(&self, which: impl FnOnce(&mut Cache) -> Vec<Mark>) {
        let marks = which(&mut lock(&self.cache));
        // Any other error comes from other work, and this caller does not report it.
        let is_lost =
            |mark: &&Mark| matches!(mark.timeline.query(mark.seq), Err(Error::LostStream));
        let lost: Vec<_> = marks.iter().filter(is_lost).collect();
        self.with(|cache| cache.settle(ALL));
        for mark in lost {
            let retired = self.with(|cache| cache.retire_behind(mark));
            retired.into_iter().for_each(|slab| slab.leak(Error::LostStream));
        }
    }
}

/// Leaves the memory to the slabs of the process, which track when work has finished with it.
impl Drop for Slabs {
    fn drop(&mut self) {
        let cache = self.cache.get_mut().unwrap_or_else(PoisonError::into_inner);
        let cache = mem::replace(cache, Cache::NEW);
        match driver::is_gone() {
            true => mem::forget(cache),
            false => SHARED.with(|shared| shared.append(cache)),
        }
    }
}
