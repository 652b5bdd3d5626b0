//! Growth of the pinned pool by new slabs, and the release of slabs.

use std::sync::TryLockError;
use std::sync::atomic::Ordering;

use super::class::{self, GRANULE};
use super::host_mapping::UNIT;
use super::source::{Slab, SlabSource};
use super::{Cache, NumaNode, PinnedChunk, Slabs};
use crate::alloc::caching::class::SegmentKind;
use crate::context::Context;
use crate::error::{Error, Rejected, Result};
use crate::process::driver;
use crate::util::lock;

/// The size of the largest slab for chunks that have a class, in units.
const MOST: usize = 64;

impl Slabs {
    /// Returns the unit of slab sizes, also the size of the first slab for chunks that have a class: a
    /// mapping takes no longer to get than a mebibyte from the driver. Each later slab is as large as
    /// all earlier ones together, so that there are never many.
    fn unit(&self) -> usize {
        match self.source {
            SlabSource::Mappings => UNIT,
            SlabSource::Driver => 64 * GRANULE,
        }
    }

    /// Allocates a new slab, and takes a chunk of it.
    pub(super) fn grow(
        &self,
        context: &Context,
        node: NumaNode,
        asked: usize,
    ) -> Result<PinnedChunk> {
        let bytes = class::rounded(asked);
        let primary = context.device().primary()?;
        let kind = class::kind(bytes);
        let acquire = |bytes| Slab::acquire(primary, node, bytes, kind, self.source);
        let unit = self.unit();
        let least = bytes.next_multiple_of(unit);
        let turn = match self.turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let mut wanted = if kind == SegmentKind::Large || turn.is_none() {
            least
        } else {
            least.max(lock(&self.cache).reserved_for_classes().clamp(unit, MOST * unit))
        };
        let limit = self.limit.load(Ordering::Relaxed);
        let exceeds = |more| lock(&self.cache).counts.reserved.saturating_add(more) > limit;
        if exceeds(wanted) {
            self.ask_about_all();
            // If slabs cannot be released, they stay, and the allocation continues.
            let _ = self.release_idle(limit.saturating_sub(wanted));
            if exceeds(wanted) {
                wanted = least;
            }
        }
        let mut acquired = acquire(wanted);
        if acquired.as_ref().is_err_and(Error::is_out_of_memory) {
            self.ask_about_all();
            if let Some(chunk) = self.find(node, bytes) {
                return Ok(chunk);
            }
            if self.source == SlabSource::Mappings {
                let _ = self.release_idle(0);
            }
            acquired = acquire(least);
        }
        let slab = acquired.map_err(|mut error| {
            if let Error::OutOfHostMemory(it) = &mut error {
                it.requested = asked; // instead of the slab's size
            }
            error
        })?;
        drop(turn);
        let mut cache = lock(&self.cache);
        // Cuts the caller's chunk before other threads see the rest.
        Ok(cache.adopt(slab, bytes))
    }

    /// Implements [`PinnedPool::trim`](super::PinnedPool::trim).
    pub(crate) fn trim(&self, keep: usize) -> Result<usize> {
        driver::ensure()?;
        self.ask_about_all();
        self.release_idle(keep)
    }

    /// Releases idle slabs until at most `keep` bytes are reserved, or none is idle; returns the bytes
    /// released.
    fn release_idle(&self, keep: usize) -> Result<usize> {
        let mut gone = 0;
        self.with(Cache::merge);
        loop {
            let slab = {
                let mut cache = lock(&self.cache);
                if cache.counts.reserved <= keep {
                    return Ok(gone);
                }
                cache.disown()
            };
            let Some(slab) = slab else { return Ok(gone) };
            match slab.release() {
                Ok(bytes) => gone += bytes,
                Err(Rejected { error, value: kept }) => {
                    if let Some(slab) = kept {
                        lock(&self.cache).readopt(slab);
                    }
                    return Err(error);
                }
            }
        }
    }
}
