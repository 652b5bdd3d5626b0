//! Copies to and from arrays: one driver call each, ordered by the ledgers of both sides.

use super::texel_side::{TexelDestination, TexelSource};
use super::{ArraySlice, ArraySliceMut, Texel};
use crate::copy::{OP_3D as OP, enqueue_3d};
use crate::error::Result;
use crate::stream::{Stream, StreamKind};

/// # Copies of arrays
impl<K: StreamKind> Stream<K> {
    /// Copies texels of device memory, pinned memory or another array to all or a part of an array,
    /// asynchronously: `cuMemcpy3DAsync_v2`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](crate::Error::LengthMismatch) and
    /// [`Error::Invalid`](crate::Error::Invalid) if the sides differ in size;
    /// [`Error::WrongDevice`](crate::Error::WrongDevice).
    ///
    /// ```no_run
    /// # use cuda_core::{Device, image::{ArrayFlags, ArrayShape, CudaArray}};
    /// # let context = Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let shape = ArrayShape::D2 { width: 64, height: 32 };
    /// let mut image = CudaArray::<f32>::new(&context, shape, ArrayFlags::default())?;
    /// let texels = stream.alloc_zeroed::<f32>(64 * 32)?;
    /// stream.copy_to_array(&texels, &mut image)?;
    /// // Rows that begin 512 bytes apart.
    /// let rows = stream.alloc_zeroed::<f32>(128 * 32)?;
    /// let rows = rows.pitched(cuda_core::Shape::plane(64, 32).with_pitch(512))?;
    /// stream.copy_to_array(rows, &mut image)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpy3DAsync", "cudaMemcpy3DAsync"))]
    pub fn copy_to_array<'a, 'b, T: Texel>(
        &self,
        source: impl Into<TexelSource<'a, T>>,
        destination: impl Into<ArraySliceMut<'b, T>>,
    ) -> Result<()> {
        let (source, mut destination) = (source.into(), destination.into());
        let core = self.core();
        let view = destination.as_view();
        core.device().require_same(OP, view.device())?;
        let (from, read) = source.checked(core, view.extent())?;
        if view.is_empty() {
            return Ok(());
        }
        let stream = core.bind_work(OP)?;
        let copy = from.to::<T>(view.side(), view.extent());
        // SAFETY: both sides have the whole extent, and the touches cover both.
        unsafe { enqueue_3d(&stream, &copy, &mut [read, destination.write()]) }.1
    }

    /// Copies texels of all or a part of an array to device memory, pinned memory or another array,
    /// asynchronously: `cuMemcpy3DAsync_v2`.
    ///
    /// # Errors
    /// As [`Stream::copy_to_array`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::image::{ArrayFlags, ArrayShape, CudaArray};
    ///
    /// let shape = ArrayShape::D2 { width: 8, height: 4 };
    /// let image = CudaArray::<f32>::new(&context, shape, ArrayFlags::default())?;
    /// let mut rows = stream.alloc::<f32>(32)?;
    /// stream.copy_from_array(&image, &mut rows)?; // where kernels can compute with them
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpy3DAsync", "cudaMemcpy3DAsync"))]
    pub fn copy_from_array<'a, 'b, T: Texel>(
        &self,
        source: impl Into<ArraySlice<'a, T>>,
        destination: impl Into<TexelDestination<'b, T>>,
    ) -> Result<()> {
        let (source, destination) = (source.into(), destination.into());
        let core = self.core();
        core.device().require_same(OP, source.device())?;
        let (to, write) = destination.written.checked(core, source.extent())?;
        if source.is_empty() {
            return Ok(());
        }
        let stream = core.bind_work(OP)?;
        let copy = source.side().to::<T>(to, source.extent());
        // SAFETY: both sides have the whole extent, and the touches cover both.
        unsafe { enqueue_3d(&stream, &copy, &mut [source.read(), write]) }.1
    }
}
