//! Slabs: this crate's own pinned memory, cut into chunks that are reused.
//!
//! The driver takes a third of a millisecond to pin each mebibyte, and stops the device when it
//! frees one. So this crate maps memory from the system in large pieces, registers each whole, and
//! gives it back only on request. A chunk that is given back waits, if need be, until the copies
//! that use it are done: the ledger of its buffer knows which. No event is recorded for it before
//! the memory is wanted.
//!
//! The memory is portable and belongs to the process: slabs are registered in primary contexts,
//! which outlive them.

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

use cuda_sys::CUdeviceptr;

use cache::{CACHE, Cache};
use class::Class;
use node::NumaNode;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::host::pinned::{self, HostAddress, PinnedFlags};
use crate::process::driver;
use crate::process::release::FailedRelease;
use crate::timeline::ledger::Fences;
use crate::util::sync::lock;

/// Pinned memory that its holder owns exclusively from [`take`] to [`give`].
#[derive(Clone, Copy)]
pub(crate) struct PinnedChunk {
    // INVARIANT: the first of `bytes` initialised bytes that are pinned, portable, and this chunk's
    // alone. Aligned to 256 bytes.
    pub(crate) base: HostAddress,
    /// At least the requested size.
    pub(crate) bytes: usize,
    /// It is part of a slab rather than an allocation of the driver's, which the driver frees.
    is_cached: bool,
    node: NumaNode,
}

impl PinnedChunk {
    fn address(&self) -> CUdeviceptr {
        self.base.0.addr().get() as CUdeviceptr
    }

    /// Whether it is part of a slab rather than an allocation of the driver's.
    pub(crate) fn is_cached(&self) -> bool {
        self.is_cached
    }
}

/// Pending chunks that are queried before idle memory is merged and cut anew.
const ASKED_ABOUT: usize = 4;

/// A chunk of at least `bytes`, which are not zero, near the context's device; usable in every
/// context. Its contents are unspecified.
///
/// No driver call if a chunk of this size is idle.
#[inline]
pub(crate) fn take(context: &Context, bytes: usize) -> Result<PinnedChunk> {
    driver::ensure()?;
    if backend::is_driver()? {
        return allocate(context, bytes);
    }
    let node = NumaNode::of(context.device());
    if let Some(chunk) = lock(&CACHE).pop(node, Class::of(bytes)) {
        return Ok(chunk);
    }
    take_slowly(context, node, bytes)
}

/// Takes back a chunk, which may be reused once the fences are reached. No driver call if it is
/// part of a slab. A chunk of the driver's is waited for and freed; on
/// [`Kept`](FailedRelease::Kept), the caller still owns it, otherwise it must not be used any more.
#[inline]
pub(crate) fn give(chunk: PinnedChunk, fences: Fences) -> Result<(), FailedRelease> {
    if !chunk.is_cached {
        fences.wait_host().map_err(FailedRelease::Kept)?;
        return pinned::free_raw(chunk.base);
    }
    if fences.is_empty() {
        lock(&CACHE).put(chunk);
    } else {
        give_pending(chunk, fences);
    }
    Ok(())
}

#[cold]
fn give_pending(chunk: PinnedChunk, fences: Fences) {
    cache::with(|cache| cache.put_pending(chunk, fences));
}

/// Drops fences that are known to have been reached, and so the streams they refer to. No driver
/// call.
fn prune() {
    cache::with(Cache::settle_all);
}

/// An allocation of the driver's.
#[cold]
fn allocate(context: &Context, bytes: usize) -> Result<PinnedChunk> {
    Ok(PinnedChunk {
        base: pinned::alloc_raw(context, bytes, PinnedFlags::PORTABLE)?,
        bytes,
        is_cached: false,
        node: NumaNode::ANY,
    })
}

/// A chunk when no idle one has exactly this size.
#[cold]
fn take_slowly(context: &Context, node: NumaNode, asked: usize) -> Result<PinnedChunk> {
    let bytes = class::rounded(asked);
    if let Some(chunk) = find(node, bytes) {
        return Ok(chunk);
    }
    if let Some(chunk) = ask(node, bytes) {
        return Ok(chunk);
    }
    // Idle chunks of other sizes may fit once merged with their neighbours.
    if let Some(chunk) = find_merged(node, bytes) {
        return Ok(chunk);
    }
    growth::grow(context, node, asked)
}

/// A chunk from what is known to be idle.
fn find(node: NumaNode, bytes: usize) -> Option<PinnedChunk> {
    cache::with(|cache| cache.find(node, bytes))
}

/// [`find`] after merging all idle chunks with their neighbours.
fn find_merged(node: NumaNode, bytes: usize) -> Option<PinnedChunk> {
    cache::with(|cache| {
        cache.merge();
        cache.find(node, bytes)
    })
}

/// A chunk that the driver, when queried, reports to be done with.
fn ask(node: NumaNode, bytes: usize) -> Option<PinnedChunk> {
    let bin = Class::of(bytes).index();
    for _ in 0..ASKED_ABOUT {
        let (chunk, fences) = lock(&CACHE).take_pending(node.index(), bin)?;
        if ask_about(chunk, fences) {
            if let Some(found) = find(node, bytes) {
                return Some(found);
            }
        }
    }
    None
}

/// Queries all pending chunks.
fn ask_about_all() {
    let pending = lock(&CACHE).pending();
    for (node, bin, count) in pending {
        for _ in 0..count {
            let Some((chunk, fences)) = lock(&CACHE).take_pending(node, bin) else {
                break;
            };
            ask_about(chunk, fences);
        }
    }
}

/// Queries the fences of a pending chunk, puts it where it belongs by now, and returns whether it
/// is idle.
fn ask_about(chunk: PinnedChunk, fences: Fences) -> bool {
    let done = match fences.query() {
        Ok(done) => done,
        Err(Error::LostStream) => {
            set_aside(chunk);
            return false;
        }
        // An error of other work is not this caller's to report.
        Err(_) => false,
    };
    let fences = if done { Fences::none() } else { fences };
    // The chunk is part of a slab, so this makes no driver call and does not fail.
    let _ = give(chunk, fences);
    done
}

/// Gives up the slab of a chunk that a device may still use, since its stream is lost. Other chunks
/// of that slab stay valid while they are in use.
fn set_aside(chunk: PinnedChunk) {
    let retired = cache::with(|cache| {
        let retired = cache.retire(&chunk);
        cache.put(chunk);
        retired
    });
    if let Some(slab) = retired {
        slab.leak(Error::LostStream);
    }
}
