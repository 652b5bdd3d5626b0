//! The device side of a large copy.

use super::flow::{Arrival, CopyDirection, Failure};
use super::{fetch, send};
use crate::copy::borrowed::staging::Region;
use crate::copy::borrowed::staging::plan::Piece;
use crate::error::{Error, Result};
use crate::memory::device::{DeviceSlice, DeviceSliceMut};
use crate::timeline::core::StreamCore;

/// Device memory that takes part in a large copy, and the stream that copies it.
pub(crate) struct DeviceEnd<'s, V> {
    pub(crate) core: &'s StreamCore,
    pub(crate) memory: V,
}

impl<V> DeviceEnd<'_, V> {
    fn failure(&self, error: Error) -> Failure {
        Failure { device: self.core.device(), error }
    }
}

/// How the bytes of an upload are distributed to its ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    /// Each end gets all of them.
    Whole,
    /// Each end gets as many as it has room for, one end after the other.
    Next,
}

/// An upload: pieces are filled, then sent.
pub(super) struct Up<'s, 'b> {
    // INVARIANT: pieces are within the memory of each end that they are for: of all ends, which are
    // as long as the slice, or of the one whose part they were cut from.
    pub(super) ends: Vec<DeviceEnd<'s, DeviceSliceMut<'b, u8>>>,
    pub(super) split: Split,
}

impl CopyDirection for Up<'_, '_> {
    const EAGER: bool = false;

    fn begin(&self, _: &Piece, _: &Region) -> Result<Option<Arrival>, Failure> {
        Ok(None)
    }

    fn finish(&mut self, piece: &Piece, region: &Region) -> Result<(), Failure> {
        let ends = match self.split {
            Split::Whole => &mut self.ends[..],
            Split::Next => &mut self.ends[piece.part..=piece.part],
        };
        let mut ends = ends.iter_mut();
        ends.try_for_each(|end| end.send(piece, region).map_err(|error| end.failure(error)))
    }
}

impl DeviceEnd<'_, DeviceSliceMut<'_, u8>> {
    fn send(&mut self, piece: &Piece, region: &Region) -> Result<()> {
        let stream = self.core.bind("cuMemcpyHtoDAsync")?;
        let to = &mut self.memory;
        send(region, &stream, to, piece.start, piece.len)?;
        if piece.is_last {
            // Lets the chunk be reused as soon as the device has read it.
            let timeline = self.core.timeline();
            timeline.checkpoint(false, stream.entered())?;
        }
        Ok(())
    }
}

/// A download: pieces are fetched, then copied out. Enqueues as much as allowed, to keep the device
/// busy.
pub(super) struct Down<'s, 'b> {
    // INVARIANT: pieces are within the memory of the end whose part they were cut from.
    pub(super) ends: Vec<DeviceEnd<'s, DeviceSlice<'b, u8>>>,
}

impl CopyDirection for Down<'_, '_> {
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

impl DeviceEnd<'_, DeviceSlice<'_, u8>> {
    /// Enqueues the copy, and an event behind it.
    fn fetch(&self, piece: &Piece, region: &Region) -> Result<Arrival> {
        let stream = self.core.bind("cuMemcpyDtoHAsync")?;
        let from = &self.memory;
        let seq = fetch(region, &stream, from, piece.start, piece.len)?;
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
