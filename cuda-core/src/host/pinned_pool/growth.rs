//! Allocating slabs, and giving them back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, TryLockError};

use super::cache::{self, CACHE, Cache};
use super::class::{self, Class};
use super::host_mapping::UNIT;
use super::node::NumaNode;
use super::source::Slab;
use super::{PinnedChunk, ask_about_all};
use crate::alloc::caching::class::SegmentKind;
use crate::context::Context;
use crate::error::{Error, Rejected, Result};
use crate::util::sync::lock;

/// The first slab for chunks that have a class: it takes no longer to get than a mebibyte from the
/// driver. Each later slab is as large as all before together, so that there are never many.
const FIRST: usize = UNIT;

/// The largest slab for chunks that have a class.
const MOST: usize = 64 * UNIT;

/// Bytes of slabs beyond which idle ones are given back before another is allocated.
pub(super) static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The right to allocate a slab larger than the request, which one thread has at a time. Other
/// threads do not wait for it: the driver may be waiting for a device, and the device for what
/// another thread does next. Threads that lose the race allocate a slab of exactly the size they
/// need; so does a drop hook that runs while its own thread has the right.
static TURN: Mutex<()> = Mutex::new(());

/// A chunk of a new slab.
pub(super) fn grow(context: &Context, node: NumaNode, asked: usize) -> Result<PinnedChunk> {
    let bytes = class::rounded(asked);
    let primary = context.device().primary()?;
    let kind = Class::of(bytes).kind();
    let least = bytes.next_multiple_of(UNIT);
    let turn = match TURN.try_lock() {
        Ok(turn) => Some(turn),
        Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    };
    let wanted = if kind == SegmentKind::Large || turn.is_none() {
        least
    } else {
        least.max(lock(&CACHE).reserved_for_classes().clamp(FIRST, MOST))
    };
    let limit = LIMIT.load(Ordering::Relaxed);
    if lock(&CACHE).counts.reserved.saturating_add(wanted) > limit {
        // Slabs that cannot be given back stay, which is no reason to fail.
        let _ = release_idle(limit.saturating_sub(wanted));
    }
    let slab = Slab::acquire(primary, node, wanted, kind)
        .or_else(|error| {
            if !error.is_out_of_memory() {
                return Err(error);
            }
            ask_about_all();
            let _ = release_idle(0);
            Slab::acquire(primary, node, least, kind)
        })
        .map_err(|error| match error {
            // Reports the size that was requested instead of the slab's.
            Error::OutOfMemory { op, device, memory, .. } => {
                Error::OutOfMemory { op, requested: asked, device, memory }
            }
            other => other,
        })?;
    drop(turn);
    let mut cache = lock(&CACHE);
    // Cuts the caller's chunk before other threads see the rest.
    Ok(cache.adopt(slab, bytes))
}

/// Gives idle slabs back until at most `keep` bytes are reserved, or none is idle; returns the
/// bytes given back.
pub(super) fn release_idle(keep: usize) -> Result<usize> {
    let mut gone = 0;
    cache::with(Cache::merge);
    loop {
        let slab = {
            let mut cache = lock(&CACHE);
            if cache.counts.reserved <= keep {
                return Ok(gone);
            }
            cache.disown()
        };
        let Some(slab) = slab else {
            return Ok(gone);
        };
        match slab.release() {
            Ok(bytes) => gone += bytes,
            Err(Rejected { error, value: kept }) => {
                if let Some(slab) = kept {
                    lock(&CACHE).readopt(slab);
                }
                return Err(error);
            }
        }
    }
}
