//! The chunks that one large copy reuses.

use std::sync::Arc;

use super::{
    Lease, Region, StagingChunk, allocate_or_wait, claim_new, has_room, take_at_last, take_done,
    take_known, take_pending, wait_for,
};
use crate::device::Device;
use crate::error::Result;
use crate::timeline::StreamCore;
use crate::timeline::ledger::Fences;

/// The number of chunks that one copy uses at once. It equals the number of events that a stream keeps
/// for points that may be pending: with more chunks, waiting for the oldest chunk would wait for a
/// younger one.
pub(crate) const DEPTH: usize = 8;

/// The chunks that one large copy reuses.
pub(crate) struct Ring {
    /// The device near which new chunks are allocated.
    device: Device,
    /// The ids of the copy's streams.
    timelines: Vec<u64>,
    /// The size of a chunk in bytes.
    chunk: usize,
    /// The chunk whose regions are being handed out.
    current: Option<Arc<Lease>>,
    /// The number of chunks that this copy has taken; set to [`DEPTH`] when no more can be allocated.
    taken: usize,
}

impl Ring {
    /// Creates a ring for a copy on these streams; [`None`] if there are none.
    pub(crate) fn new(cores: &[&StreamCore], chunk: usize) -> Option<Self> {
        let device = cores.first()?.device();
        let timelines = cores.iter().map(|core| core.timeline().id()).collect();
        Some(Self { device, timelines, chunk, current: None, taken: 0 })
    }

    /// Returns a region of `len` bytes, at most a chunk. Waits for the copy's own streams if the copy
    /// already has as many chunks as it may have.
    ///
    /// Returns [`None`] only if the copy has other regions: it must finish one of them first.
    pub(crate) fn region(&mut self, len: usize, has_others: bool) -> Result<Option<Region>> {
        if let Some(region) = self.current.as_ref().and_then(|lease| lease.claim(len)) {
            return Ok(Some(region));
        }
        // The chunk returns to the pool when its last region is dropped.
        self.current = None;
        let Some(chunk) = self.take(has_others)? else { return Ok(None) };
        let lease = Lease::of(chunk);
        let region = claim_new(&lease, len)?;
        self.current = Some(lease);
        Ok(Some(region))
    }

    fn take(&mut self, has_others: bool) -> Result<Option<StagingChunk>> {
        if self.taken >= DEPTH {
            if let Some(chunk) = take_known(self.chunk) {
                return Ok(Some(chunk));
            }
            if let Some((chunk, last)) = take_pending(self.chunk, &|last| self.is_own(last)) {
                return wait_for(chunk, last).map(Some);
            }
        }
        let chunk = self.bring(has_others)?;
        // If no chunk was found, the caller tries again.
        self.taken += usize::from(chunk.is_some());
        Ok(chunk)
    }

    /// Takes one more chunk.
    fn bring(&mut self, has_others: bool) -> Result<Option<StagingChunk>> {
        if let Some(chunk) = take_done(self.chunk, &|last| self.is_own(last)) {
            return Ok(Some(chunk));
        }
        let mut refused = None;
        if has_room(self.chunk) {
            match StagingChunk::pinned(self.device, self.chunk) {
                Err(error) if error.is_out_of_memory() => {
                    // The copy continues with the chunks that it has.
                    self.taken = DEPTH;
                    refused = Some(error);
                }
                allocated => return allocated.map(Some),
            }
        }
        // Work that is held up may wait for what the calling thread does next; but if no memory is
        // left, waiting is the only option.
        let comes = |last: &Fences| refused.is_some() || !last.are_held_up();
        let wanted = |last: &Fences| self.is_own(last) && comes(last);
        if let Some((chunk, last)) = take_pending(self.chunk, &wanted) {
            return wait_for(chunk, last).map(Some);
        }
        if has_others {
            return Ok(None);
        }
        let chunk = match refused {
            Some(refused) => take_at_last(self.chunk, refused),
            None => allocate_or_wait(self.device, self.chunk),
        };
        chunk.map(Some)
    }

    /// Whether all these points are on the copy's own streams.
    fn is_own(&self, last: &Fences) -> bool {
        let mut marks = last.marks().iter();
        marks.all(|mark| self.timelines.contains(&mark.timeline.id()))
    }
}
