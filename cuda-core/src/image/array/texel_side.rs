//! The other side of a copy to or from an array.

use std::fmt;
use std::marker::PhantomData;

use cuda_sys::CUDA_MEMCPY3D;

use super::texel::Texel;
use super::view::{ArraySlice, ArraySliceMut};
use super::{CudaArray, RawLevel};
use crate::copy::endpoint::{Endpoint, Place, Side};
use crate::copy::pitched::{Pitched, PitchedMut};
use crate::copy::shape::Geometry;
use crate::device::Device;
use crate::device_memory::managed::ManagedBuffer;
use crate::device_memory::virtual_memory::buffer::VirtualBuffer;
use crate::error::{Error, Result};
use crate::host::registered::Registered;
use crate::host::stable_host::{StableHost, StableHostMut};
use crate::memory::buffer::Buffer;
use crate::memory::device::{DeviceSlice, DeviceSliceMut};
use crate::memory::same_len;
use crate::memory::view::{Slice, SliceMut};
use crate::timeline::core::{StreamCore, same_device};
use crate::timeline::ledger::{Access, Touch};
use crate::types::extent::{Extent, Origin};

/// Where texels come from: memory whose elements are texels, row after row and slice after slice;
/// memory in rows ([`Buffer::pitched`](crate::Buffer::pitched)); or another array.
///
/// Converted from buffers, arrays and their views.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{CudaArray, Result, Stream, TexelSource};
///
/// /// Copies from anything that has texels.
/// fn replace<'a>(
///     stream: &Stream,
///     image: &mut CudaArray<f32>,
///     from: impl Into<TexelSource<'a, f32>>,
/// ) -> Result<()> {
///     stream.copy_to_array(from, image)
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct TexelSource<'a, T: Texel> {
    end: TexelSide,
    touch: Touch<'a>,
    _texels: PhantomData<&'a [T]>,
}

/// Where texels go to; otherwise like [`TexelSource`].
///
/// ```no_run
/// use cuda_core::{CudaArray, Result, Stream, TexelDestination};
///
/// /// Copies to anything that takes texels.
/// fn save<'a>(
///     stream: &Stream,
///     image: &CudaArray<f32>,
///     to: impl Into<TexelDestination<'a, f32>>,
/// ) -> Result<()> {
///     stream.copy_from_array(image, to)
/// }
/// ```
pub struct TexelDestination<'a, T: Texel> {
    end: TexelSide,
    touch: Touch<'a>,
    _texels: PhantomData<&'a mut [T]>,
}

/// One side of a copy.
#[derive(Clone, Copy)]
enum TexelSide {
    Linear {
        place: Place,
        /// The device that it is on; [`None`] for host memory.
        on: Option<Device>,
        rows: Rows,
    },
    Array {
        raw: RawLevel,
        origin: Origin,
        extent: Extent,
        on: Device,
    },
}

/// The layout of texels in linear memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rows {
    /// This many, one after the other.
    Tight(usize),
    Apart(Geometry),
}

impl TexelSide {
    fn of_array<T: Texel>(view: &ArraySlice<'_, T>) -> Self {
        Self::Array {
            raw: view.raw(),
            origin: view.origin(),
            extent: view.extent(),
            on: view.device(),
        }
    }

    fn of_memory<T: Texel, M: Endpoint>(view: &Slice<'_, T, M>) -> Self {
        Self::Linear { place: view.place(), on: view.on(), rows: Rows::Tight(view.len()) }
    }

    fn of_rows<M: Endpoint>(bytes: &Slice<'_, u8, M>, geometry: Geometry) -> Self {
        Self::Linear { place: bytes.place(), on: bytes.on(), rows: Rows::Apart(geometry) }
    }

    /// Refuses a side that has not exactly the extent of the array on the other side, or that the
    /// stream cannot reach.
    fn check(self, role: Role, op: &'static str, core: &StreamCore, array: Extent) -> Result<()> {
        let on = match self {
            TexelSide::Linear { on, .. } => on,
            TexelSide::Array { on, .. } => Some(on),
        };
        if let Some(device) = on {
            same_device(op, core, device)?;
        }
        let here = match self {
            TexelSide::Linear { rows: Rows::Tight(len), .. } => {
                let (from, to) = role.order(len, array.texels().unwrap_or(usize::MAX));
                return same_len(op, from, to);
            }
            TexelSide::Linear { rows: Rows::Apart(geometry), .. } => geometry.extent,
            TexelSide::Array { extent, .. } => extent,
        };
        if here == array {
            return Ok(());
        }
        let (from, to) = role.order(here, array);
        Err(Error::ShapeMismatch { op, from, to })
    }
}

/// Which side of a copy it is.
#[derive(Clone, Copy)]
enum Role {
    Source,
    Destination,
}

impl Role {
    /// The values in the order source, destination.
    fn order<V>(self, here: V, there: V) -> (V, V) {
        match self {
            Role::Source => (here, there),
            Role::Destination => (there, here),
        }
    }
}

/// Bytes from row to row, and rows from slice to slice.
fn distances<T: Texel>(rows: Rows, extent: Extent) -> (usize, usize) {
    match rows {
        Rows::Tight(_) => (extent.width * size_of::<T>(), extent.height),
        Rows::Apart(geometry) => (geometry.pitch, geometry.slice_height),
    }
}

impl<'a, T: Texel> TexelSource<'a, T> {
    /// Fills this side of a copy of `extent` in, if it has that extent and the stream reaches it.
    pub(super) fn enter(
        &self,
        op: &'static str,
        core: &StreamCore,
        extent: Extent,
        copy: &mut CUDA_MEMCPY3D,
    ) -> Result<()> {
        self.end.check(Role::Source, op, core, extent)?;
        match self.end {
            TexelSide::Linear { place, rows, .. } => {
                enter_source_memory::<T>(place, rows, extent, copy);
            }
            TexelSide::Array { raw, origin, .. } => enter_source::<T>(raw, origin, copy),
        }
        Ok(())
    }

    pub(super) fn into_touch(self) -> Touch<'a> {
        self.touch
    }
}

impl<'a, T: Texel> TexelDestination<'a, T> {
    /// As [`TexelSource::enter`].
    pub(super) fn enter(
        &self,
        op: &'static str,
        core: &StreamCore,
        extent: Extent,
        copy: &mut CUDA_MEMCPY3D,
    ) -> Result<()> {
        self.end.check(Role::Destination, op, core, extent)?;
        match self.end {
            TexelSide::Linear { place, rows, .. } => {
                enter_destination_memory::<T>(place, rows, extent, copy);
            }
            TexelSide::Array { raw, origin, .. } => enter_destination::<T>(raw, origin, copy),
        }
        Ok(())
    }

    pub(super) fn into_touch(self) -> Touch<'a> {
        self.touch
    }
}

/// Fills linear memory in as the source.
pub(super) fn enter_source_memory<T: Texel>(
    place: Place,
    rows: Rows,
    extent: Extent,
    copy: &mut CUDA_MEMCPY3D,
) {
    (copy.srcPitch, copy.srcHeight) = distances::<T>(rows, extent);
    let side = Side::of(place);
    copy.srcMemoryType = side.kind;
    copy.srcHost = side.host;
    copy.srcDevice = side.device;
}

/// Fills linear memory in as the destination.
pub(super) fn enter_destination_memory<T: Texel>(
    place: Place,
    rows: Rows,
    extent: Extent,
    copy: &mut CUDA_MEMCPY3D,
) {
    (copy.dstPitch, copy.dstHeight) = distances::<T>(rows, extent);
    let side = Side::of(place);
    copy.dstMemoryType = side.kind;
    copy.dstHost = side.host;
    copy.dstDevice = side.device;
}

/// Fills a part of an array in as the source.
pub(super) fn enter_source<T: Texel>(raw: RawLevel, origin: Origin, copy: &mut CUDA_MEMCPY3D) {
    copy.srcMemoryType = cuda_sys::CU_MEMORYTYPE_ARRAY;
    copy.srcArray = raw.0;
    copy.srcXInBytes = origin.x * size_of::<T>();
    copy.srcY = origin.y;
    copy.srcZ = origin.z;
}

/// Fills a part of an array in as the destination.
pub(super) fn enter_destination<T: Texel>(raw: RawLevel, origin: Origin, copy: &mut CUDA_MEMCPY3D) {
    copy.dstMemoryType = cuda_sys::CU_MEMORYTYPE_ARRAY;
    copy.dstArray = raw.0;
    copy.dstXInBytes = origin.x * size_of::<T>();
    copy.dstY = origin.y;
    copy.dstZ = origin.z;
}

/// Fills the size of a copy in.
pub(super) fn enter_extent<T: Texel>(extent: Extent, copy: &mut CUDA_MEMCPY3D) {
    copy.WidthInBytes = extent.width * size_of::<T>();
    copy.Height = extent.height;
    copy.Depth = extent.depth;
}

/// The touch of a write through a view that was consumed: still exclusive, since the borrow goes
/// on.
fn writing(touch: Touch<'_>) -> Touch<'_> {
    Touch { access: Access::Write, ..touch }
}

impl<'a, T: Texel, M: Endpoint> From<Slice<'a, T, M>> for TexelSource<'a, T> {
    fn from(view: Slice<'a, T, M>) -> Self {
        Self { end: TexelSide::of_memory(&view), touch: view.read(), _texels: PhantomData }
    }
}

impl<'a, T: Texel, M: Endpoint> From<SliceMut<'a, T, M>> for TexelDestination<'a, T> {
    fn from(view: SliceMut<'a, T, M>) -> Self {
        let view = view.into_view();
        Self { end: TexelSide::of_memory(&view), touch: writing(view.read()), _texels: PhantomData }
    }
}

impl<'a, T: Texel, M: Endpoint> From<Pitched<'a, T, M>> for TexelSource<'a, T> {
    fn from(view: Pitched<'a, T, M>) -> Self {
        let (bytes, geometry) = view.into_parts();
        Self {
            end: TexelSide::of_rows(&bytes, geometry),
            touch: bytes.read(),
            _texels: PhantomData,
        }
    }
}

impl<'a, T: Texel, M: Endpoint> From<PitchedMut<'a, T, M>> for TexelDestination<'a, T> {
    fn from(view: PitchedMut<'a, T, M>) -> Self {
        let (bytes, geometry) = view.into_parts();
        let bytes = bytes.into_view();
        Self {
            end: TexelSide::of_rows(&bytes, geometry),
            touch: writing(bytes.read()),
            _texels: PhantomData,
        }
    }
}

impl<'a, T: Texel> From<ArraySlice<'a, T>> for TexelSource<'a, T> {
    fn from(view: ArraySlice<'a, T>) -> Self {
        Self { end: TexelSide::of_array(&view), touch: view.read(), _texels: PhantomData }
    }
}

impl<'a, T: Texel> From<ArraySliceMut<'a, T>> for TexelDestination<'a, T> {
    fn from(view: ArraySliceMut<'a, T>) -> Self {
        let view = view.into_view();
        Self { end: TexelSide::of_array(&view), touch: writing(view.read()), _texels: PhantomData }
    }
}

impl<'a, T: Texel, M: Endpoint> From<&'a Buffer<T, M>> for TexelSource<'a, T> {
    fn from(buffer: &'a Buffer<T, M>) -> Self {
        buffer.as_view().into()
    }
}

impl<'a, T: Texel, M: Endpoint> From<&'a mut Buffer<T, M>> for TexelDestination<'a, T> {
    fn from(buffer: &'a mut Buffer<T, M>) -> Self {
        buffer.as_view_mut().into()
    }
}

impl<'a, T: Texel> From<&'a VirtualBuffer<T>> for TexelSource<'a, T> {
    fn from(buffer: &'a VirtualBuffer<T>) -> Self {
        DeviceSlice::from(buffer).into()
    }
}

impl<'a, T: Texel> From<&'a mut VirtualBuffer<T>> for TexelDestination<'a, T> {
    fn from(buffer: &'a mut VirtualBuffer<T>) -> Self {
        DeviceSliceMut::from(buffer).into()
    }
}

impl<'a, T: Texel> From<&'a ManagedBuffer<T>> for TexelSource<'a, T> {
    fn from(buffer: &'a ManagedBuffer<T>) -> Self {
        buffer.as_view().into()
    }
}

impl<'a, T: Texel> From<&'a mut ManagedBuffer<T>> for TexelDestination<'a, T> {
    fn from(buffer: &'a mut ManagedBuffer<T>) -> Self {
        buffer.as_view_mut().into()
    }
}

impl<'a, H: StableHost<Element: Texel>> From<&'a Registered<H>> for TexelSource<'a, H::Element> {
    fn from(registered: &'a Registered<H>) -> Self {
        registered.as_view().into()
    }
}

impl<'a, H> From<&'a mut Registered<H>> for TexelDestination<'a, H::Element>
where
    H: StableHostMut<Element: Texel>,
{
    fn from(registered: &'a mut Registered<H>) -> Self {
        registered.as_view_mut().into()
    }
}

impl<'a, T: Texel> From<&'a CudaArray<T>> for TexelSource<'a, T> {
    fn from(array: &'a CudaArray<T>) -> Self {
        array.as_view().into()
    }
}

impl<'a, T: Texel> From<&'a mut CudaArray<T>> for TexelDestination<'a, T> {
    fn from(array: &'a mut CudaArray<T>) -> Self {
        array.as_view_mut().into()
    }
}

impl fmt::Debug for TexelSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TexelSide::Linear { rows, .. } => f.debug_tuple("Linear").field(rows).finish(),
            TexelSide::Array { extent, .. } => f.debug_tuple("Array").field(extent).finish(),
        }
    }
}

impl<T: Texel> fmt::Debug for TexelSource<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TexelSource").field(&self.end).finish()
    }
}

impl<T: Texel> fmt::Debug for TexelDestination<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TexelDestination").field(&self.end).finish()
    }
}
