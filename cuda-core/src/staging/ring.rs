//! The chunks that one large copy goes through, over and over.

use std::sync::Arc;

use cuda_sys::CUDA_ERROR_OUT_OF_MEMORY;

use super::{
    Chunk, Lease, MOST, POOL, Region, allocate, claim_new, take_done, take_idle, take_pending,
    take_when_done, wait_for,
};
use crate::device::Device;
use crate::error::Result;
use crate::memory::ledger::Fences;
use crate::stream_core::StreamCore;
use crate::sync::lock;

/// Chunks of one copy that are in use at once. As many events as a stream keeps for points that may
/// be pending: beyond, waiting for the oldest would mean waiting for a younger one.
pub(crate) const DEPTH: usize = 8;

/// See the module.
pub(crate) struct Ring {
    /// Which new chunks are near.
    device: Device,
    /// Those of the streams that the copy is on.
    timelines: Vec<u64>,
    /// Bytes of a chunk.
    chunk: usize,
    /// The one whose regions are being handed out.
    current: Option<Arc<Lease>>,
    /// Chunks that this copy has brought into use; no fewer than [`DEPTH`] where there are no more.
    taken: usize,
}

impl Ring {
    /// For a copy on these streams, of which `first` is one.
    pub(crate) fn new<'s>(
        first: &StreamCore,
        all: impl Iterator<Item = &'s StreamCore>,
        chunk: usize,
    ) -> Self {
        Self {
            device: first.device(),
            timelines: all.map(|core| core.timeline().id()).collect(),
            chunk,
            current: None,
            taken: 0,
        }
    }

    /// `len` bytes, at most a chunk. Waits for a device if the copy has all the chunks that it may
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
        let lease = Lease::of(chunk);
        let region = claim_new(&lease, len)?;
        self.current = Some(lease);
        Ok(Some(region))
    }

    fn take(&mut self, has_others: bool) -> Result<Option<Chunk>> {
        let timelines = &self.timelines;
        let is_own = |last: &Fences| {
            let mut marks = last.marks().iter();
            marks.all(|mark| timelines.contains(&mark.timeline.id()))
        };
        if self.taken >= DEPTH {
            if let Some(chunk) = take_idle(self.chunk) {
                return Ok(Some(chunk));
            }
            if let Some((chunk, last)) = take_pending(self.chunk, is_own) {
                return wait_for(chunk, last).map(Some);
            }
        }
        self.taken += 1;
        let done = take_done(self.chunk, is_own);
        if let Some(chunk) = done.or_else(|| take_done(self.chunk, |last| !is_own(last))) {
            return Ok(Some(chunk));
        }
        let mut refused = None;
        if lock(&POOL).allocated + self.chunk <= MOST {
            match allocate(self.device, self.chunk) {
                Err(error) if error.code() == Some(CUDA_ERROR_OUT_OF_MEMORY) => {
                    // Those that there are will do.
                    self.taken = DEPTH;
                    refused = Some(error);
                }
                allocated => return allocated.map(Some),
            }
        }
        if let Some((chunk, last)) = take_pending(self.chunk, is_own) {
            return wait_for(chunk, last).map(Some);
        }
        if has_others {
            return Ok(None);
        }
        // A stranger's, which may take any time.
        if let Some(chunk) = take_when_done(self.chunk) {
            return Ok(Some(chunk));
        }
        match refused {
            Some(error) => Err(error),
            None => allocate(self.device, self.chunk).map(Some),
        }
    }
}
