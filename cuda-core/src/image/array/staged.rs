//! Copies between arrays and borrowed slices, through this crate's pinned chunks.

use std::collections::VecDeque;

use super::copy::{OP, enqueue};
use super::{ArraySlice, ArraySliceMut, Texel};
use crate::copy::CopySide;
use crate::copy::borrowed::staging::{self, CHUNK, Region};
use crate::error::Result;
use crate::memory::{Place, same_len};
use crate::stream::{Stream, StreamKind};
use crate::types::{Extent, Origin, bytes_of, bytes_of_mut};

/// Chunks of a large download that are in flight while another is copied out.
const DEPTH: usize = 4;

/// # Copies of arrays and borrowed memory
impl<K: StreamKind> Stream<K> {
    /// Copies a borrowed slice to an array, or a part of one: row after row, slice after slice.
    /// Returns as soon as the bytes are staged in pinned memory, as
    /// [`Stream::upload`] does: `cuMemcpy3DAsync_v2`, once for each mebibyte or less.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](crate::Error::LengthMismatch) and
    /// [`Error::WrongDevice`](crate::Error::WrongDevice) before any driver call. After the driver
    /// fails, a large destination may be written in part.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::image::{ArrayFlags, ArrayShape, CudaArray};
    ///
    /// let shape = ArrayShape::D2 { width: 64, height: 32 };
    /// let mut image = CudaArray::<u8>::new(stream.context(), shape, ArrayFlags::default())?;
    /// stream.upload_to_array(&[255; 64 * 32], &mut image)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpy3DAsync", "cudaMemcpy3DAsync"))]
    pub fn upload_to_array<'b, T: Texel>(
        &self,
        source: &[T],
        destination: impl Into<ArraySliceMut<'b, T>>,
    ) -> Result<()> {
        let mut destination = destination.into();
        same_len(OP, source.len(), destination.len())?;
        let core = self.core();
        core.device().require_same(OP, destination.as_view().device())?;
        if source.is_empty() {
            return Ok(());
        }
        let stream = core.bind(OP)?;
        let extent = destination.extent();
        let mut rest = source;
        let several = size_of_val(source) > CHUNK;
        for (origin, extent) in pieces::<T>(extent) {
            let mut part = destination.region_mut(origin, extent)?;
            let (piece, behind) = rest.split_at(part.len());
            rest = behind;
            let mut region = staging::reserve(&stream, size_of_val(piece))?;
            region.write(bytes_of(piece))?;
            let copy = side::<T>(&region, extent).to::<T>(part.as_view().side(), extent);
            // SAFETY: the region has the piece's bytes and is not accessed until its mark has
            // completed; the touch is of the destination, which has the extent.
            let (seq, result) = unsafe { enqueue(&stream, &copy, &mut [part.write()]) };
            region.mark(core.timeline(), seq);
            result?;
            if several {
                // Lets the chunk be reused as soon as the device has read it.
                core.timeline().checkpoint(false, stream.entered())?;
            }
        }
        Ok(())
    }

    /// Copies an array, or a part of one, to a borrowed slice and waits for it:
    /// `cuMemcpy3DAsync_v2`, once for each mebibyte or less.
    ///
    /// # Errors
    /// As [`Stream::upload_to_array`]. A slice of up to a mebibyte is untouched after a failure, a
    /// larger one may be written in part.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::image::{ArrayFlags, ArrayShape, CudaArray};
    ///
    /// let shape = ArrayShape::D2 { width: 8, height: 4 };
    /// let mut image = CudaArray::<u16>::new(&context, shape, ArrayFlags::default())?;
    /// let rows: Vec<u16> = (0..32).collect();
    /// stream.upload_to_array(&rows, &mut image)?;
    /// let mut back = vec![0; 32];
    /// stream.download_from_array(&image, &mut back)?; // row by row
    /// assert_eq!(back, rows);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpy3DAsync", "cudaMemcpy3DAsync"))]
    pub fn download_from_array<'a, T: Texel>(
        &self,
        source: impl Into<ArraySlice<'a, T>>,
        destination: &mut [T],
    ) -> Result<()> {
        let source = source.into();
        same_len(OP, source.len(), destination.len())?;
        let core = self.core();
        core.device().require_same(OP, source.device())?;
        if destination.is_empty() {
            return Ok(());
        }
        let stream = core.bind(OP)?;
        let mut in_flight: VecDeque<(Region, u64, &mut [T])> = VecDeque::new();
        let mut rest = destination;
        for (origin, extent) in pieces::<T>(source.extent()) {
            if in_flight.len() == DEPTH {
                self.drain(&mut in_flight)?;
            }
            let part = source.region(origin, extent)?;
            let (piece, behind) = rest.split_at_mut(part.len());
            rest = behind;
            let region = staging::reserve(&stream, size_of_val(piece))?;
            let copy = part.side().to::<T>(side::<T>(&region, extent), extent);
            // SAFETY: the touch is of the source, which has the extent; the region has as many
            // bytes and is not accessed until its own mark has completed.
            let (seq, result) = unsafe { enqueue(&stream, &copy, &mut [part.read()]) };
            region.mark(core.timeline(), seq);
            result?;
            in_flight.push_back((region, seq, piece));
            core.timeline().checkpoint(false, stream.entered())?;
        }
        while !in_flight.is_empty() {
            self.drain(&mut in_flight)?;
        }
        Ok(())
    }

    /// Waits for the oldest piece in flight and copies it out.
    fn drain<T: Texel>(&self, in_flight: &mut VecDeque<(Region, u64, &mut [T])>) -> Result<()> {
        if let Some((region, seq, piece)) = in_flight.pop_front() {
            self.core().timeline().wait_host(seq)?;
            region.read(bytes_of_mut(piece))?;
        }
        Ok(())
    }
}

/// A region with the texels of `extent` one after the other.
fn side<T: Texel>(region: &Region, extent: Extent) -> CopySide {
    CopySide::linear(Place::Host(region.as_ptr()), extent.width * size_of::<T>(), extent.height)
}

/// Parts of `extent` that fit a chunk each, in the order of their texels: whole slices, whole rows
/// of a slice, or parts of a row.
fn pieces<T: Texel>(extent: Extent) -> impl Iterator<Item = (Origin, Extent)> {
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

    /// Every texel once and in order, no piece above a chunk.
    fn check(extent: Extent) -> usize {
        let (mut count, mut at) = (0, 0);
        for (origin, size) in pieces::<u32>(extent) {
            let first = (origin.z * extent.height + origin.y) * extent.width;
            assert_eq!(first + origin.x, at);
            let texels = size.texels().unwrap_or(0);
            assert!(texels > 0 && texels * 4 <= CHUNK);
            at += texels;
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
