//! Copies between arrays and borrowed slices.

use super::{ArraySlice, ArraySliceMut, Texel};
use crate::copy::borrowed::pieces;
use crate::copy::{OP_3D as OP, enqueue_3d};
use crate::error::Result;
use crate::memory::same_len;
use crate::stream::{Stream, StreamKind};

/// # Copies of arrays and borrowed memory
impl<K: StreamKind> Stream<K> {
    /// Copies a borrowed slice to all or a part of an array: row after row, slice after slice. Returns
    /// as soon as the bytes are staged in pinned memory, as [`Stream::upload`] does:
    /// `cuMemcpy3DAsync_v2`, once for each mebibyte or less. Pinned memory needs no staging: use
    /// [`Stream::copy_to_array`].
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](crate::Error::LengthMismatch) and
    /// [`Error::WrongDevice`](crate::Error::WrongDevice) before any driver call. If the driver fails, a
    /// large destination may be partly written.
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
        let (stream, extent) = (core.bind(OP)?, destination.extent());
        pieces::upload(&stream, source, extent, |origin, extent, from| {
            let mut part = destination.region_mut(origin, extent)?;
            let copy = from.to::<T>(part.as_view().side(), extent);
            // SAFETY: the pinned memory has the texels until the copy is done; the touch covers the
            // destination, which has the extent.
            Ok(unsafe { enqueue_3d(&stream, &copy, &mut [part.write()]) })
        })
    }

    /// Copies all or a part of an array to a borrowed slice and waits for the copies:
    /// `cuMemcpy3DAsync_v2`, once for each mebibyte or less. For pinned memory, without a wait, use
    /// [`Stream::copy_from_array`].
    ///
    /// # Errors
    /// As [`Stream::upload_to_array`]. A slice of up to a mebibyte is unchanged after a failure; a
    /// larger one may be partly written.
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
        pieces::download(&stream, source.extent(), destination, |origin, extent, to| {
            let part = source.region(origin, extent)?;
            let copy = part.side().to::<T>(to, extent);
            // SAFETY: the touch covers the source, which has the extent; the pinned memory has as many
            // bytes, and is not accessed until the copy is done.
            Ok(unsafe { enqueue_3d(&stream, &copy, &mut [part.read()]) })
        })
    }
}
