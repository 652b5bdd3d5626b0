//! Copies and fills of elements in rows, with gaps between the rows.

use std::marker::PhantomData;
use std::ptr;

use cuda_sys::symbol as cu;

use crate::alloc::PitchedBuffer;
use crate::context::Context;
use crate::copy::{CopySide, Geometry, Shape, at_one_end, cross, ends, if_captured, same_extent};
use crate::error::Result;
use crate::memory::{Buffer, DeviceMemory, Memory, Slice, SliceMut};
use crate::stream::{Stream, StreamKind};
use crate::timeline::recording::Notes;
use crate::types::Pod;
use crate::util::debug_by;

/// A shared view of elements in rows, laid out by a [`Shape`].
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::Shape;
///
/// let image = stream.alloc::<f32>(64 * 64)?;
/// let left_half = image.pitched(Shape::plane(32, 64).with_pitch(64 * 4))?;
/// assert_eq!(left_half.shape().width(), 32);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Pitched<'a, T: Pod, M: Memory> {
    // INVARIANT: `geometry.span` bytes.
    bytes: Slice<'a, u8, M>,
    geometry: Geometry,
    _elements: PhantomData<&'a [T]>,
}

/// An exclusive view of elements in rows, laid out by a [`Shape`], and of all bytes between the rows.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::Shape;
///
/// let mut image = stream.alloc::<f32>(64 * 64)?;
/// let left_half = Shape::plane(32, 64).with_pitch(64 * 4);
/// stream.fill_pitched(image.pitched_mut(left_half)?, 1.0)?; // the right half stays
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct PitchedMut<'a, T: Pod, M: Memory> {
    // INVARIANT: `geometry.span` bytes.
    bytes: SliceMut<'a, u8, M>,
    geometry: Geometry,
    _elements: PhantomData<&'a mut [T]>,
}

/// # Rows
impl<'a, T: Pod, M: Memory> Slice<'a, T, M> {
    /// Views the elements in rows; the first row begins at the view's first element.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if rows or slices are longer than the distance between
    /// them; [`Error::OutOfBounds`](crate::Error::OutOfBounds), in bytes, if the last row ends beyond
    /// the view; [`Error::SizeOverflow`](crate::Error::SizeOverflow).
    pub fn pitched(&self, shape: Shape) -> Result<Pitched<'a, T, M>> {
        Pitched::over(self.cast()?, shape)
    }
}

/// # Rows
impl<'a, T: Pod, M: Memory> SliceMut<'a, T, M> {
    /// [`Slice::pitched`] for an exclusive view.
    ///
    /// # Errors
    /// Those of [`Slice::pitched`].
    pub fn pitched(self, shape: Shape) -> Result<PitchedMut<'a, T, M>> {
        PitchedMut::over(self.cast()?, shape)
    }
}

/// # Rows
impl<T: Pod, M: Memory, X> Buffer<T, M, X> {
    /// Views the elements in rows: see [`Slice::pitched`].
    ///
    /// # Errors
    /// Those of [`Slice::pitched`].
    pub fn pitched(&self, shape: Shape) -> Result<Pitched<'_, T, M>> {
        self.as_view().pitched(shape)
    }

    /// Views the elements in rows, exclusively: see [`Slice::pitched`].
    ///
    /// # Errors
    /// Those of [`Slice::pitched`].
    pub fn pitched_mut(&mut self, shape: Shape) -> Result<PitchedMut<'_, T, M>> {
        self.as_view_mut().pitched(shape)
    }
}

/// # Rows
impl<T: Pod> PitchedBuffer<T> {
    fn shape(&self) -> Shape {
        Shape::plane(self.width(), self.height()).with_pitch(self.pitch())
    }

    /// Returns a view of all rows.
    ///
    /// # Errors
    /// None: this crate made the buffer.
    pub fn pitched(&self) -> Result<Pitched<'_, T, DeviceMemory>> {
        Pitched::over(self.as_bytes(), self.shape())
    }

    /// Returns an exclusive view of all rows.
    ///
    /// # Errors
    /// None: this crate made the buffer.
    pub fn pitched_mut(&mut self) -> Result<PitchedMut<'_, T, DeviceMemory>> {
        let shape = self.shape();
        PitchedMut::over(self.as_bytes_mut(), shape)
    }
}

impl<'a, T: Pod, M: Memory> Pitched<'a, T, M> {
    fn over(bytes: Slice<'a, u8, M>, shape: Shape) -> Result<Self> {
        let geometry = Geometry::of::<T>(shape)?;
        Ok(Self { bytes: bytes.slice(..geometry.span)?, geometry, _elements: PhantomData })
    }

    /// Returns the layout of the elements; the distances between rows and planes are explicit.
    pub fn shape(&self) -> Shape {
        self.geometry.shape()
    }

    /// Returns all bytes from the first element to the last, and the layout of the rows in them.
    pub(crate) fn into_parts(self) -> (Slice<'a, u8, M>, Geometry) {
        (self.bytes, self.geometry)
    }
}

impl<'a, T: Pod, M: Memory> PitchedMut<'a, T, M> {
    fn over(bytes: SliceMut<'a, u8, M>, shape: Shape) -> Result<Self> {
        let geometry = Geometry::of::<T>(shape)?;
        Ok(Self { bytes: bytes.into_slice(..geometry.span)?, geometry, _elements: PhantomData })
    }

    /// Returns the layout of the elements; the distances between rows and planes are explicit.
    pub fn shape(&self) -> Shape {
        self.geometry.shape()
    }

    /// Returns an exclusive view of the same elements while `self` is borrowed.
    pub fn reborrow(&mut self) -> PitchedMut<'_, T, M> {
        PitchedMut { bytes: self.bytes.reborrow(), geometry: self.geometry, _elements: PhantomData }
    }

    /// Returns a view with the lifetime of `self`; the caller keeps it exclusive.
    pub(crate) fn into_view(self) -> Pitched<'a, T, M> {
        Pitched { bytes: self.bytes.into_view(), geometry: self.geometry, _elements: PhantomData }
    }

    pub(crate) fn parts(&mut self) -> (&mut SliceMut<'a, u8, M>, Geometry) {
        (&mut self.bytes, self.geometry)
    }
}

/// # Copies of rows
impl<K: StreamKind> Stream<K> {
    /// Copies elements in rows, asynchronously, between any two of device and pinned memory:
    /// `cuMemcpy2DAsync_v2` for a plane, `cuMemcpy3DAsync_v2` for a volume, `cuMemcpy3DPeerAsync`
    /// between two devices, unless the stream is captured. The bytes between the rows are not written.
    ///
    /// # Errors
    /// Before any driver call, [`Error::Invalid`](crate::Error::Invalid) and
    /// [`Error::WrongDevice`](crate::Error::WrongDevice), and in a capture those of [`Stream::copy`]; the
    /// driver's, for pitches of 2 GiB and more.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::{PinnedBuffer, Shape};
    ///
    /// let host = PinnedBuffer::from_slice(stream.context(), &[1.0f32; 640 * 480])?;
    /// let mut image = stream.context().alloc_pitched::<f32>(640, 480)?;
    /// stream.copy_pitched(host.pitched(Shape::plane(640, 480))?, image.pitched_mut()?)?;
    /// // Ten columns of it, from the twentieth on.
    /// let mut columns = stream.alloc::<f32>(10 * 480)?;
    /// let pitch = image.pitch();
    /// let part = image.as_bytes().slice(20 * 4..)?.cast::<f32>()?;
    /// stream.copy_pitched(
    ///     part.pitched(Shape::plane(10, 480).with_pitch(pitch))?,
    ///     columns.pitched_mut(Shape::plane(10, 480))?,
    /// )?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpy2DAsync", "cuMemcpy3DAsync", "cuMemcpy3DPeerAsync"))]
    #[doc(alias("cudaMemcpy2DAsync", "cudaMemcpy3DAsync", "cudaMemcpy3DPeerAsync"))]
    pub fn copy_pitched<T: Pod, A: Memory, B: Memory>(
        &self,
        source: Pitched<'_, T, A>,
        mut destination: PitchedMut<'_, T, B>,
    ) -> Result<()> {
        let (from, to) = (source.geometry, destination.geometry);
        let view = destination.bytes.as_view();
        let core = self.core();
        let (near, far) = (source.bytes.owner_for(core), view.owner_for(core));
        let apart = near.zip(far).is_some_and(|(near, far)| near.device() != far.device());
        // `cuMemcpy3DPeerAsync` would end a capture.
        let peers = apart && core.timeline().recording().is_none();
        let op = match to.extent.depth {
            _ if peers => "cuMemcpy3DPeerAsync",
            0 | 1 => "cuMemcpy2DAsync",
            _ => "cuMemcpy3DAsync",
        };
        same_extent(op, from.extent, to.extent)?;
        at_one_end(op, core, [near, far])?;
        if from.span == 0 {
            return Ok(());
        }
        let start = CopySide::linear(source.bytes.place(), from.pitch, from.slice_height);
        let end = CopySide::linear(view.place(), to.pitch, to.slice_height);
        // The buffers and the stream keep these contexts alive.
        let raw = |context: Option<&Context>| context.map_or(ptr::null_mut(), Context::as_raw);
        let contexts = [near, far].map(raw);
        let stream = core.bind_work(op)?;
        let crossing = cross([near, far]);
        let ends = || ends((&source.bytes, near), (&view, far));
        let (_entered, copies) = if_captured(op, &stream, crossing.is_some(), ends)?;
        let mut touches = [source.bytes.read(), destination.bytes.write()];
        let call = |stream| {
            if peers {
                let copy = start.across_to::<T>(end, to.extent, contexts);
                // SAFETY: both sides have the rows at their pitches, by the invariant of the views, and
                // stay allocated until this copy is done, since freeing either waits for the mark that
                // follows the copy. Both contexts are live.
                return unsafe { cu::cuMemcpy3DPeerAsync(&copy, stream) };
            }
            if to.extent.depth == 1 {
                let copy = start.plane_to::<T>(end, to.extent);
                // SAFETY: both sides have the rows at their pitches, by the invariant of the views, and
                // stay allocated until the completion of the mark that follows this copy.
                return unsafe { cu::cuMemcpy2DAsync_v2(&copy, stream) };
            }
            let copy = start.to::<T>(end, to.extent);
            // SAFETY: both sides have the slices at their pitches, by the invariant of the views, and
            // stay allocated until the completion of the mark that follows this copy.
            unsafe { cu::cuMemcpy3DAsync_v2(&copy, stream) }
        };
        let notes = || Notes { copies, ..Notes::default() };
        stream.submit_copy(op, &mut touches, notes, call).1
    }
}

debug_by! {
   [T: Pod, M: Memory] Pitched<'_, T, M>: |it| "Pitched({:?} in {:?})", it.geometry, it.bytes
}

debug_by! {
   [T: Pod, M: Memory] PitchedMut<'_, T, M>: |it| "PitchedMut({:?} in {:?})", it.geometry, it.bytes
}
