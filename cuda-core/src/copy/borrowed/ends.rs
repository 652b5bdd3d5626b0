//! What devices do for a large copy.

use super::flow::{Arrival, Failure, Way};
use super::{fetch, send};
use crate::copy::borrowed::staging::Region;
use crate::copy::borrowed::staging::plan::Piece;
use crate::error::{Error, Result};
use crate::memory::device::{DeviceSlice, DeviceSliceMut};
use crate::timeline::core::StreamCore;

/// Where on a device bytes go or come from, and by which stream.
pub(crate) struct End<'s, V> {
    pub(crate) core: &'s StreamCore,
    pub(crate) memory: V,
}

impl<V> End<'_, V> {
    fn failure(&self, error: Error) -> Failure {
        Failure {
            device: self.core.device(),
            error,
        }
    }
}

/// What the ends of an upload get.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Portion {
    /// Each of them all of it.
    Whole,
    /// Each of them as much as it has room for, one behind the other.
    Next,
}

/// Pieces are filled, then sent.
pub(super) struct Up<'s, 'b> {
    // INVARIANT: pieces are within the memory of each end that they are for: of all, which are as
    // long as the slice, or of the one whose part they were cut of.
    pub(super) ends: Vec<End<'s, DeviceSliceMut<'b, u8>>>,
    pub(super) portion: Portion,
}

impl Way for Up<'_, '_> {
    const EAGER: bool = false;

    fn begin(&self, _: &Piece, _: &Region) -> Result<Option<Arrival>, Failure> {
        Ok(None)
    }

    fn finish(&mut self, piece: &Piece, region: &Region) -> Result<(), Failure> {
        let ends = match self.portion {
            Portion::Whole => &mut self.ends[..],
            Portion::Next => &mut self.ends[piece.part..=piece.part],
        };
        let mut ends = ends.iter_mut();
        ends.try_for_each(|end| end.send(piece, region).map_err(|error| end.failure(error)))
    }
}

impl End<'_, DeviceSliceMut<'_, u8>> {
    fn send(&mut self, piece: &Piece, region: &Region) -> Result<()> {
        let stream = self.core.bind("cuMemcpyHtoDAsync")?;
        let to = &mut self.memory;
        send(region, self.core, &stream, to, piece.start, piece.len)?;
        if piece.is_last {
            // Lets the chunk be taken again as soon as it has been read.
            let timeline = self.core.timeline();
            timeline.checkpoint(false, stream.entered())?;
        }
        Ok(())
    }
}

/// Pieces are fetched, then emptied. As much is asked for as may be, since a device takes its time.
pub(super) struct Down<'s, 'b> {
    // INVARIANT: pieces are within the memory of the end whose part they were cut of.
    pub(super) ends: Vec<End<'s, DeviceSlice<'b, u8>>>,
}

impl Way for Down<'_, '_> {
    const EAGER: bool = true;

    fn begin(&self, piece: &Piece, region: &Region) -> Result<Option<Arrival>, Failure> {
        let end = &self.ends[piece.part];
        let arrival = end.fetch(piece, region);
        arrival.map(Some).map_err(|error| end.failure(error))
    }

    fn finish(&mut self, _: &Piece, _: &Region) -> Result<(), Failure> {
        Ok(())
    }
}

impl End<'_, DeviceSlice<'_, u8>> {
    /// Enqueues the copy, and an event behind it.
    fn fetch(&self, piece: &Piece, region: &Region) -> Result<Arrival> {
        let stream = self.core.bind("cuMemcpyDtoHAsync")?;
        let from = &self.memory;
        let seq = fetch(region, self.core, &stream, from, piece.start, piece.len)?;
        let timeline = self.core.timeline();
        timeline.checkpoint(false, stream.entered())?;
        Ok(Arrival {
            device: self.core.device(),
            timeline: timeline.clone(),
            seq,
            _event: timeline.hold(seq),
        })
    }
}
