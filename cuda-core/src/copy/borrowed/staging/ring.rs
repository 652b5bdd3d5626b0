//! The chunks that one large copy goes through, over and over.

use std::sync::Arc;

use super::{
    Chunk, Lease, Region, allocate_or_wait, claim_new, has_room, take_at_last, take_done,
    take_known, take_pending, wait_for,
};
use crate::device::Device;
use crate::error::Result;
use crate::timeline::core::StreamCore;
use crate::timeline::ledger::Fences;

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

    /// `len` bytes, at most a chunk. Waits for the copy's own streams if it has all the chunks that
    /// it may have.
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
        if self.taken >= DEPTH {
            if let Some(chunk) = take_known(self.chunk) {
                return Ok(Some(chunk));
            }
            if let Some((chunk, last)) = take_pending(self.chunk, &|last| self.is_own(last)) {
                return wait_for(chunk, last).map(Some);
            }
        }
        let chunk = self.bring(has_others)?;
        // Where there was none yet, it is asked for again.
        self.taken += usize::from(chunk.is_some());
        Ok(chunk)
    }

    /// One more chunk.
    fn bring(&mut self, has_others: bool) -> Result<Option<Chunk>> {
        if let Some(chunk) = take_done(self.chunk, &|last| self.is_own(last)) {
            return Ok(Some(chunk));
        }
        let mut refused = None;
        if has_room(self.chunk) {
            match Chunk::pinned(self.device, self.chunk) {
                Err(error) if error.is_out_of_memory() => {
                    // Those that there are will do.
                    self.taken = DEPTH;
                    refused = Some(error);
                }
                allocated => return allocated.map(Some),
            }
        }
        // What is held up may wait for what the caller does next; but where there is no memory, all
        // that is left is to wait.
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

    /// Whether nobody but the copy's streams has to come to these points.
    fn is_own(&self, last: &Fences) -> bool {
        let mut marks = last.marks().iter();
        marks.all(|mark| self.timelines.contains(&mark.timeline.id()))
    }
}
