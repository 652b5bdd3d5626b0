//! Copies between borrowed slices and elements in rows.

use super::pieces;
use crate::copy::{CopySide, OP_3D, Pitched, PitchedMut, at_home, enqueue_3d};
use crate::error::Result;
use crate::memory::{DeviceMemory, same_len};
use crate::stream::{Stream, StreamKind};
use crate::types::{Pod, bytes_of, bytes_of_mut};

/// # Copies of rows and borrowed memory
impl<K: StreamKind> Stream<K> {
    /// Copies a borrowed slice to elements of device memory in rows: row after row, plane after plane.
    /// Returns as soon as the bytes are staged in pinned memory, as [`Stream::upload`] does:
    /// `cuMemcpy3DAsync_v2`, once for each mebibyte or less. The bytes between the rows are not
    /// written. Pinned memory needs no staging: use [`Stream::copy_pitched`].
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](crate::Error::LengthMismatch) and
    /// [`Error::WrongDevice`](crate::Error::WrongDevice) before any driver call; the driver's, for
    /// pitches of 2 GiB and more. If the driver fails, a large destination may be partly written.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let pixels = vec![1.0f32; 640 * 480];
    /// let mut image = stream.context().alloc_pitched::<f32>(640, 480)?;
    /// stream.upload_pitched(&pixels, image.pitched_mut()?)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpy3DAsync", "cudaMemcpy2DAsync", "cudaMemcpy3DAsync"))]
    pub fn upload_pitched<T: Pod>(
        &self,
        source: &[T],
        mut destination: PitchedMut<'_, T, DeviceMemory>,
    ) -> Result<()> {
        let (bytes, geometry) = destination.parts();
        same_len(OP_3D, source.len(), geometry.extent.texels().unwrap_or(usize::MAX))?;
        let core = self.core();
        at_home(OP_3D, core, &bytes.as_view())?;
        if geometry.span == 0 {
            return Ok(());
        }
        let stream = core.bind(OP_3D)?;
        pieces::upload(&stream, bytes_of(source), geometry.in_bytes(), |origin, extent, from| {
            let mut part = bytes.reborrow().into_slice(geometry.range(origin, extent))?;
            let to =
                CopySide::linear(part.as_view().place(), geometry.pitch, geometry.slice_height);
            let copy = from.to::<u8>(to, extent);
            // SAFETY: the pinned memory has the bytes until the copy is done; the touch covers all
            // bytes from the first row of the part to its last, at their distances.
            Ok(unsafe { enqueue_3d(&stream, &copy, &mut [part.write()]) })
        })
    }

    /// Copies elements of device memory in rows to a borrowed slice, row after row, plane after plane,
    /// and waits for the copies: `cuMemcpy3DAsync_v2`, once for each mebibyte or less. For pinned
    /// memory, without a wait, use [`Stream::copy_pitched`].
    ///
    /// # Errors
    /// As [`Stream::upload_pitched`]. A slice of up to a mebibyte is unchanged after a failure; a
    /// larger one may be partly written.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let image = stream.context().alloc_pitched::<f32>(640, 480)?;
    /// let mut pixels = vec![0.0; 640 * 480];
    /// stream.download_pitched(image.pitched()?, &mut pixels)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpy3DAsync", "cudaMemcpy2DAsync", "cudaMemcpy3DAsync"))]
    pub fn download_pitched<T: Pod>(
        &self,
        source: Pitched<'_, T, DeviceMemory>,
        destination: &mut [T],
    ) -> Result<()> {
        let (bytes, geometry) = source.into_parts();
        same_len(OP_3D, geometry.extent.texels().unwrap_or(usize::MAX), destination.len())?;
        let core = self.core();
        at_home(OP_3D, core, &bytes)?;
        if geometry.span == 0 {
            return Ok(());
        }
        let stream = core.bind(OP_3D)?;
        let destination = bytes_of_mut(destination);
        pieces::download(&stream, geometry.in_bytes(), destination, |origin, extent, to| {
            let part = bytes.slice(geometry.range(origin, extent))?;
            let from = CopySide::linear(part.place(), geometry.pitch, geometry.slice_height);
            let copy = from.to::<u8>(to, extent);
            // SAFETY: the touch covers all bytes from the first row of the part to its last, at their
            // distances; the pinned memory has as many bytes, and is not accessed until the copy is
            // done.
            Ok(unsafe { enqueue_3d(&stream, &copy, &mut [part.read()]) })
        })
    }
}
