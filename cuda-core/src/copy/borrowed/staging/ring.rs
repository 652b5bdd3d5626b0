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

/// Chunks of one copy that are in use at once. It equals the number of events that a stream keeps
/// for points that may be pending: with more chunks, waiting for the oldest would wait for a
/// younger one.
pub(crate) const DEPTH: usize = 8;

/// See the module.
pub(crate) struct Ring {
    /// New chunks are allocated near this device.
    device: Device,
    /// The streams that the copy is on.
    timelines: Vec<u64>,
    /// Bytes of a chunk.
    chunk: usize,
    /// The chunk whose regions are being handed out.
    current: Option<Arc<Lease>>,
    /// Chunks that this copy has taken; set to [`DEPTH`] when no more can be allocated.
    taken: usize,
}

impl Ring {
    /// A ring for a copy on these streams; [`None`] if there are none.
    pub(crate) fn new(cores: &[&StreamCore], chunk: usize) -> Option<Self> {
        let device = cores.first()?.device();
        let timelines = cores.iter().map(|core| core.timeline().id()).collect();
        Some(Self { device, timelines, chunk, current: None, taken: 0 })
    }

    /// A region of `len` bytes, at most a chunk. Waits for the copy's own streams if the copy
    /// already has all the chunks it may have.
    ///
    /// [`None`] only if the copy has other regions: it must finish one of them first.
    pub(crate) fn region(&mut self, len: usize, has_others: bool) -> Result<Option<Region>> {
        if let Some(region) = self.current.as_ref().and_then(|lease| lease.claim(len)) {
            return Ok(Some(region));
        }
        // Goes back to the pool with its last region.
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
        // If none was found, the caller asks again.
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
                    // The copy makes do with those it has.
                    self.taken = DEPTH;
                    refused = Some(error);
                }
                allocated => return allocated.map(Some),
            }
        }
        // Work that is held up may wait for what the calling thread does next; but without memory,
        // waiting is all that is left.
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

    /// Whether only the copy's own streams have to reach these points.
    fn is_own(&self, last: &Fences) -> bool {
        let mut marks = last.marks().iter();
        marks.all(|mark| self.timelines.contains(&mark.timeline.id()))
    }
}
