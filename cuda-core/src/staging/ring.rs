//! The chunks that one large copy goes through, over and over.

use std::sync::Arc;

use cuda_sys::CUDA_ERROR_OUT_OF_MEMORY;

use super::{
    Chunk, Lease, MOST, POOL, Region, allocate, claim_new, take_done, take_idle, take_pending,
    wait_for,
};
use crate::error::Result;
use crate::stream_core::StreamCore;
use crate::sync::lock;
use crate::timeline::Mark;

/// Chunks of one copy that are in use at once. As many events as a stream keeps for points that may
/// be pending: beyond, waiting for the oldest would mean waiting for a younger one.
pub(crate) const DEPTH: usize = 8;

/// See the module.
pub(crate) struct Ring<'a> {
    core: &'a StreamCore,
    /// Bytes of a chunk.
    chunk: usize,
    /// The one whose regions are being handed out.
    current: Option<Arc<Lease>>,
    /// Chunks that this copy has brought into use; no fewer than [`DEPTH`] where there are no more.
    taken: usize,
}

impl<'a> Ring<'a> {
    pub(crate) fn new(core: &'a StreamCore, chunk: usize) -> Self {
        Self {
            core,
            chunk,
            current: None,
            taken: 0,
        }
    }

    /// `len` bytes, at most a chunk. Waits for the device if the copy has all the chunks that it may
    /// have, or that there are.
    ///
    /// [`None`], if the copy has other regions: there will be room when it is done with one.
    pub(crate) fn region(&mut self, len: usize, has_others: bool) -> Result<Option<Region>> {
        if let Some(region) = self.current.as_ref().and_then(|lease| lease.claim(len)) {
            return Ok(Some(region));
        }
        // Back to the pool, with its last region.
        self.current = None;
        let Some(chunk) = self.take(has_others)? else {
            return Ok(None);
        };
        let lease = Lease::of(chunk, self.core.timeline());
        let region = claim_new(&lease, len)?;
        self.current = Some(lease);
        Ok(Some(region))
    }

    fn take(&mut self, has_others: bool) -> Result<Option<Chunk>> {
        let id = self.core.timeline().id();
        let is_own = |mark: &Mark| mark.timeline.id() == id;
        if self.taken >= DEPTH {
            if let Some(chunk) = take_idle(self.chunk) {
                return Ok(Some(chunk));
            }
            if let Some((chunk, mark)) = take_pending(self.chunk, is_own) {
                return wait_for(chunk, mark).map(Some);
            }
        }
        self.taken += 1;
        let done = take_done(self.chunk, is_own);
        if let Some(chunk) = done.or_else(|| take_done(self.chunk, |mark| !is_own(mark))) {
            return Ok(Some(chunk));
        }
        let mut refused = None;
        if lock(&POOL).allocated + self.chunk <= MOST {
            match allocate(self.core.device(), self.chunk) {
                Err(error) if error.code() == Some(CUDA_ERROR_OUT_OF_MEMORY) => {
                    // Those that there are will do.
                    self.taken = DEPTH;
                    refused = Some(error);
                }
                allocated => return allocated.map(Some),
            }
        }
        if let Some((chunk, mark)) = take_pending(self.chunk, is_own) {
            return wait_for(chunk, mark).map(Some);
        }
        if has_others {
            return Ok(None);
        }
        // A stranger's, which may take any time.
        if let Some((chunk, mark)) = take_pending(self.chunk, |_| true) {
            return wait_for(chunk, mark).map(Some);
        }
        match refused {
            Some(error) => Err(error),
            None => allocate(self.core.device(), self.chunk).map(Some),
        }
    }
}
