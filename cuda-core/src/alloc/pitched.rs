//! Device memory in rows, each aligned for fast access by the device.

use std::marker::PhantomData;

use cuda_sys::symbol as cu;

use crate::alloc::owned;
use crate::alloc::plain::Plain;
use crate::context::{Context, of_context};
use crate::error::{Rejected, Result};
use crate::memory::{
    ALIGNMENT, DeviceBuffer, DeviceSlice, DeviceSliceMut, NOWHERE, byte_len, within,
};
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::Access;
use crate::types::Pod;
use crate::util::debug_by;

/// `height` rows of `width` elements in device memory: `cuMemAllocPitch`.
///
/// The rows are [`pitch`](Self::pitch) bytes apart, a distance that the driver chooses. The bytes between
/// rows belong to none. Pass the buffer to a kernel like any other, with its pitch.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// let mut image = stream.context().alloc_pitched::<f32>(1000, 500)?;
/// for y in 0..image.height() {
///     stream.fill(image.row_mut(y)?, y as f32)?;
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct PitchedBuffer<T: Pod> {
    // INVARIANT: `height * pitch` bytes, and a row's bytes are at most `pitch`.
    bytes: DeviceBuffer<u8>,
    width: usize,
    height: usize,
    pitch: usize,
    _elements: PhantomData<T>,
}

/// # Pitched memory
impl Context {
    /// Allocates `height` rows of `width` elements, of unspecified value: `cuMemAllocPitch_v2`. Makes no
    /// driver call if there are no elements.
    ///
    /// Like memory of [`Context::alloc`] it belongs to no stream, and freeing it waits for the
    /// whole device.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`](crate::Error::SizeOverflow) and
    /// [`Error::Invalid`](crate::Error::Invalid) before the driver is asked;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let image = context.alloc_pitched::<f32>(1000, 500)?;
    /// assert!(image.pitch() >= 4000); // bytes from one row to the next
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemAllocPitch", "cudaMallocPitch"))]
    pub fn alloc_pitched<T: Pod>(&self, width: usize, height: usize) -> Result<PitchedBuffer<T>> {
        let row = byte_len::<T>(width, ALIGNMENT)?;
        let least = byte_len::<u8>(row.saturating_mul(height), 1)?;
        // "The size of the largest reads and writes that will be performed": 4, 8 or 16.
        let access = 1 << size_of::<T>().clamp(4, 16).ilog2();
        let to = (NOWHERE, row);
        let (address, pitch) =
            self.allocate("cuMemAllocPitch", least, to, |(address, pitch)| {
                // SAFETY: the call writes an address and a size, to exclusive borrows; a live context
                // is current.
                unsafe { cu::cuMemAllocPitch_v2(address, pitch, row, height, access) }
            })?;
        Ok(PitchedBuffer {
            bytes: owned(self, address, height * pitch, Plain, height * pitch),
            width,
            height,
            pitch,
            _elements: PhantomData,
        })
    }
}

/// # The buffer
impl<T: Pod> PitchedBuffer<T> {
    /// Elements in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Bytes from the beginning of a row to the beginning of the next.
    pub fn pitch(&self) -> usize {
        self.pitch
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0
    }

    of_context! { "The context that the memory belongs to.": |it| it.bytes.context() }

    /// A view of a row.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a row that does not exist, and if the pitch is not a
    /// multiple of the elements' alignment.
    pub fn row(&self, y: usize) -> Result<DeviceSlice<'_, T>> {
        self.bytes.slice(self.row_range(y)?)?.cast()
    }

    /// An exclusive view of a row.
    ///
    /// # Errors
    /// Those of [`PitchedBuffer::row`].
    pub fn row_mut(&mut self, y: usize) -> Result<DeviceSliceMut<'_, T>> {
        let range = self.row_range(y)?;
        self.bytes.slice_mut(range)?.cast()
    }

    fn row_range(&self, y: usize) -> Result<std::ops::Range<usize>> {
        within("PitchedBuffer::row", "row", y, self.height)?;
        let start = y * self.pitch;
        Ok(start..start + self.width * size_of::<T>())
    }

    /// All bytes, those between the rows included: `height * pitch` of them.
    pub fn as_bytes(&self) -> DeviceSlice<'_, u8> {
        self.bytes.as_view()
    }

    /// All bytes exclusively, those between the rows included.
    pub fn as_bytes_mut(&mut self) -> DeviceSliceMut<'_, u8> {
        self.bytes.as_view_mut()
    }

    /// Notes that work which other code enqueues on `stream` uses the buffer: see
    /// [`Buffer::note_use`](crate::Buffer::note_use).
    ///
    /// # Errors
    /// The driver's, when the stream is made to wait.
    ///
    /// # Safety
    /// That of [`Buffer::note_use`](crate::Buffer::note_use).
    pub unsafe fn note_use<K: StreamKind>(&self, stream: &Stream<K>, access: Access) -> Result<()> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.bytes.note_use(stream, access) }
    }

    /// Blocks the thread until the work that writes the buffer is done.
    ///
    /// # Errors
    /// Those of [`Buffer::synchronize`](crate::Buffer::synchronize).
    pub fn synchronize(&self) -> Result<()> {
        self.bytes.synchronize()
    }

    /// Blocks the thread until all work that uses the buffer is done.
    ///
    /// # Errors
    /// Those of [`Buffer::synchronize`](crate::Buffer::synchronize).
    pub fn synchronize_mut(&mut self) -> Result<()> {
        self.bytes.synchronize_mut()
    }

    /// Frees the memory once no work uses it: `cuMemFree_v2`.
    ///
    /// # Errors
    /// Those of [`Buffer::close`](crate::Buffer::close).
    #[doc(alias("cuMemFree", "cudaFree"))]
    pub fn close(mut self) -> Result<(), Rejected<Self>> {
        let freed = self.bytes.free();
        if self.bytes.storage.ensure().is_err() {
            (self.width, self.height, self.pitch) = (0, 0, 0);
        }
        freed.map_err(|error| Rejected::new(error, self))
    }
}

debug_by! {
    [T: Pod] PitchedBuffer<T>: |it| "PitchedBuffer" {
        address: format_args!("{:#x}", it.bytes.as_raw()), width: it.width, height: it.height,
        pitch: it.pitch, device: it.device()
    }
}
