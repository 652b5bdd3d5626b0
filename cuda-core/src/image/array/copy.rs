//! Copies to and from arrays: one driver call each, ordered by the ledgers of both sides.

use cuda_sys::{CUDA_MEMCPY3D, symbol as cu};

use super::texel_side::{TexelDestination, TexelSource};
use super::{ArraySlice, ArraySliceMut, Texel};
use crate::copy::enter_if_captured;
use crate::error::Result;
use crate::stream::{Stream, StreamKind};
use crate::timeline::Bound;
use crate::timeline::ledger::Touch;

pub(super) const OP: &str = "cuMemcpy3DAsync";

/// # Copies of arrays
impl<K: StreamKind> Stream<K> {
    /// Copies texels of device memory, pinned memory or another array to an array, or a part of
    /// one, asynchronously: `cuMemcpy3DAsync_v2`.
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
        // SAFETY: both sides have all of the extent, and the touches are of both.
        unsafe { enqueue(&stream, &copy, &mut [read, destination.write()]) }.1
    }

    /// Copies texels of an array, or a part of one, to device memory, pinned memory or another
    /// array, asynchronously: `cuMemcpy3DAsync_v2`.
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
        // SAFETY: both sides have all of the extent, and the touches are of both.
        unsafe { enqueue(&stream, &copy, &mut [source.read(), write]) }.1
    }
}

/// Enqueues a copy after what conflicts with it.
///
/// # Safety
/// Both sides have the copy's extent; `touches` cover all memory that it reads and writes, or it is
/// kept otherwise until the copy is done.
pub(super) unsafe fn enqueue(
    stream: &Bound<'_>,
    copy: &CUDA_MEMCPY3D,
    touches: &mut [Touch<'_>],
) -> (u64, Result<()>) {
    let _entered = match enter_if_captured(stream) {
        Ok(entered) => entered,
        Err(error) => return (0, Err(error)),
    };
    // SAFETY: the call reads the description, a borrow; both sides have the extent and stay allocated
    // until this copy is done, by the caller's promise: freeing what `touches` cover waits for their
    // marks, and the caller keeps the rest.
    let call = |stream| unsafe { cu::cuMemcpy3DAsync_v2(copy, stream) };
    stream.submit_copy(OP, touches, call)
}
