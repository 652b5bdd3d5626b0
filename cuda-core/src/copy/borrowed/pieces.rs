//! Copies between borrowed slices and elements of up to three dimensions, piece by piece through this
//! crate's pinned chunks.

use std::collections::VecDeque;

use crate::copy::CopySide;
use crate::copy::borrowed::staging::{self, CHUNK, Region};
use crate::error::Result;
use crate::memory::Place;
use crate::timeline::Bound;
use crate::types::{Extent, Origin, Pod, bytes_of, bytes_of_mut};

/// Chunks of a large download that are in flight while another is copied out.
const DEPTH: usize = 4;

/// An enqueued copy: its place among the stream's operations, and the driver's result.
pub(crate) type Enqueued = (u64, Result<()>);

/// Copies a borrowed slice to the elements of `extent`, in their order, by a call of `copy` for each
/// mebibyte or less. `copy` gets a part of the extent, and the pinned memory that holds that part's
/// elements until the copy is done.
pub(crate) fn upload<T: Pod>(
    stream: &Bound<'_>,
    source: &[T],
    extent: Extent,
    mut copy: impl FnMut(Origin, Extent, CopySide) -> Result<Enqueued>,
) -> Result<()> {
    let mut rest = source;
    let several = size_of_val(source) > CHUNK;
    for (origin, extent) in pieces::<T>(extent) {
        let (piece, behind) = rest.split_at(extent.width * extent.height * extent.depth);
        rest = behind;
        let mut region = staging::reserve(stream, size_of_val(piece))?;
        region.write(bytes_of(piece))?;
        let (seq, result) = copy(origin, extent, side::<T>(&region, extent))?;
        region.mark(stream.timeline(), seq);
        result?;
        if several {
            // Lets the chunk be reused as soon as the device has read it.
            stream.timeline().checkpoint(false, stream.entered())?;
        }
    }
    Ok(())
}

/// Copies the elements of `extent` to a borrowed slice, in their order, and waits. Calls `copy` as
/// [`upload`] does, but the pinned memory is written.
pub(crate) fn download<T: Pod>(
    stream: &Bound<'_>,
    extent: Extent,
    destination: &mut [T],
    mut copy: impl FnMut(Origin, Extent, CopySide) -> Result<Enqueued>,
) -> Result<()> {
    let mut in_flight: VecDeque<(Region, u64, &mut [T])> = VecDeque::new();
    let mut rest = destination;
    for (origin, extent) in pieces::<T>(extent) {
        if in_flight.len() == DEPTH {
            drain(stream, &mut in_flight)?;
        }
        let (piece, behind) = rest.split_at_mut(extent.width * extent.height * extent.depth);
        rest = behind;
        let region = staging::reserve(stream, size_of_val(piece))?;
        let (seq, result) = copy(origin, extent, side::<T>(&region, extent))?;
        region.mark(stream.timeline(), seq);
        result?;
        in_flight.push_back((region, seq, piece));
        stream.timeline().checkpoint(false, stream.entered())?;
    }
    while !in_flight.is_empty() {
        drain(stream, &mut in_flight)?;
    }
    Ok(())
}

/// Waits for the oldest piece in flight and copies it out.
fn drain<T: Pod>(
    stream: &Bound<'_>,
    in_flight: &mut VecDeque<(Region, u64, &mut [T])>,
) -> Result<()> {
    if let Some((region, seq, piece)) = in_flight.pop_front() {
        stream.timeline().wait_host(seq)?;
        region.read(bytes_of_mut(piece))?;
    }
    Ok(())
}

/// Describes a region that holds the elements of `extent` without gaps.
fn side<T>(region: &Region, extent: Extent) -> CopySide {
    CopySide::linear(Place::Host(region.as_ptr()), extent.width * size_of::<T>(), extent.height)
}

/// Returns parts of `extent` that fit a chunk each, in the order of their elements: whole slices, whole
/// rows of a slice, or parts of a row.
fn pieces<T>(extent: Extent) -> impl Iterator<Item = (Origin, Extent)> {
    let Extent { width, height, depth } = extent;
    let most = CHUNK / size_of::<T>();
    let step = if width.saturating_mul(height) <= most {
        Extent::new(width, height, most / (width * height).max(1))
    } else if width <= most {
        Extent::new(width, most / width.max(1), 1)
    } else {
        Extent::new(most, 1, 1)
    };
    let starts = |len: usize, step: usize| (0..len).step_by(step.max(1));
    starts(depth, step.depth).flat_map(move |z| {
        starts(height, step.height).flat_map(move |y| {
            starts(width, step.width).map(move |x| {
                let size = Extent::new(
                    step.width.min(width - x),
                    step.height.min(height - y),
                    step.depth.min(depth - z),
                );
                (Origin::new(x, y, z), size)
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that every element occurs once and in order, and that no piece exceeds a chunk.
    fn check(extent: Extent) -> usize {
        let (mut count, mut at) = (0, 0);
        for (origin, size) in pieces::<u32>(extent) {
            let first = (origin.z * extent.height + origin.y) * extent.width;
            assert_eq!(first + origin.x, at);
            let elements = size.texels().unwrap_or(0);
            assert!(elements > 0 && elements * 4 <= CHUNK);
            at += elements;
            count += 1;
        }
        assert_eq!(Some(at), extent.texels());
        count
    }

    #[test]
    fn pieces_follow_each_other() {
        assert_eq!(check(Extent::new(3, 2, 5)), 1);
        assert_eq!(check(Extent::new(256, 1024, 3)), 3);
        assert_eq!(check(Extent::new(1024, 1000, 2)), 8);
        assert_eq!(check(Extent::new(CHUNK / 4 + 1, 2, 1)), 4);
        assert_eq!(check(Extent::new(0, 2, 1)), 0);
    }
}
