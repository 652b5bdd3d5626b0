//! The memory or array at the other side of a copy to or from an array.

use std::marker::PhantomData;

use super::{ArraySlice, ArraySliceMut, CudaArray, Texel};
use crate::copy::{CopySide, OP_3D as OP, Pitched, PitchedMut, same_extent};
use crate::device::Device;
use crate::error::Result;
use crate::host::{Registered, StableHost, StableHostMut};
use crate::memory::{Buffer, Memory, SharedSlice, Slice, SliceMut, same_len};
use crate::timeline::StreamCore;
use crate::timeline::ledger::{Access, Touch};
use crate::types::Extent;
use crate::util::{debug_by, from};

/// The source of texels: memory whose elements are texels, row after row and slice after slice; memory
/// in rows ([`Buffer::pitched`](crate::Buffer::pitched)); or another array.
///
/// It is converted from buffers, arrays and their views.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{Result, Stream, image::{CudaArray, TexelSource}};
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
    side: CopySide,
    /// The device that holds the texels; [`None`] for host memory.
    on: Option<Device>,
    size: TexelSize,
    touch: Touch<'a>,
    _texels: PhantomData<&'a [T]>,
}

/// The destination of texels; otherwise like [`TexelSource`].
///
/// ```no_run
/// use cuda_core::{Result, Stream, image::{CudaArray, TexelDestination}};
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
    /// The same data as for a source, but its touch is a write.
    pub(super) written: TexelSource<'a, T>,
    _texels: PhantomData<&'a mut [T]>,
}

#[derive(Clone, Copy, Debug)]
enum TexelSize {
    /// This many texels without gaps.
    Texels(usize),
    Extent(Extent),
}

impl<'a, T: Texel> TexelSource<'a, T> {
    fn new(side: CopySide, on: Option<Device>, size: TexelSize, touch: Touch<'a>) -> Self {
        Self { side, on, size, touch, _texels: PhantomData }
    }

    /// Returns the side and its touch, for a copy to or from `array` texels of an array. Returns an
    /// error if the size differs, or the stream cannot access the memory.
    pub(super) fn checked(
        mut self,
        core: &StreamCore,
        array: Extent,
    ) -> Result<(CopySide, Touch<'a>)> {
        let is_source = self.touch.access == Access::Read;
        if let Some(device) = self.on {
            core.device().require_same(OP, device)?;
        }
        match self.size {
            TexelSize::Texels(len) => {
                let texels = array.texels().unwrap_or(usize::MAX);
                let (from, to) = if is_source { (len, texels) } else { (texels, len) };
                same_len(OP, from, to)?;
                (self.side.pitch, self.side.height) = (array.width * size_of::<T>(), array.height);
            }
            TexelSize::Extent(extent) => {
                let (from, to) = if is_source { (extent, array) } else { (array, extent) };
                same_extent(OP, from, to)?;
            }
        }
        Ok((self.side, self.touch))
    }
}

impl<'a, T: Texel> TexelDestination<'a, T> {
    fn new(view: impl Into<TexelSource<'a, T>>) -> Self {
        let mut written = view.into();
        written.touch.access = Access::Write;
        Self { written, _texels: PhantomData }
    }
}

from! {
    ['a, T: Texel, M: Memory] Slice<'a, T, M> => TexelSource<'a, T>: |view| {
        let size = TexelSize::Texels(view.len());
        Self::new(CopySide::linear(view.place(), 0, 0), view.only_on(), size, view.read())
    };
    ['a, T: Texel, M: Memory] Pitched<'a, T, M> => TexelSource<'a, T>: |view| {
        let (bytes, geometry) = view.into_parts();
        let side = CopySide::linear(bytes.place(), geometry.pitch, geometry.slice_height);
        Self::new(side, bytes.only_on(), TexelSize::Extent(geometry.extent), bytes.read())
    };
    ['a, T: Texel] ArraySlice<'a, T> => TexelSource<'a, T>: |view| {
        let (side, size) = (view.side(), TexelSize::Extent(view.extent()));
        Self::new(side, Some(view.device()), size, view.read())
    };
    ['a, T: Texel, M: Memory] SliceMut<'a, T, M> => TexelDestination<'a, T>:
        |view| Self::new(view.into_view());
    ['a, T: Texel, M: Memory] PitchedMut<'a, T, M> => TexelDestination<'a, T>:
        |view| Self::new(view.into_view());
    ['a, T: Texel] ArraySliceMut<'a, T> => TexelDestination<'a, T>:
        |view| Self::new(view.into_view());
    ['a, T: Texel, M: Memory, X] &'a Buffer<T, M, X> => TexelSource<'a, T>:
        |it| it.as_view().into();
    ['a, T: Texel, M: Memory] &'a SharedSlice<T, M> => TexelSource<'a, T>: |it| it.as_view().into();
    ['a, T: Texel, M: Memory, X] &'a mut Buffer<T, M, X> => TexelDestination<'a, T>:
        |it| it.as_view_mut().into();
    ['a, H: StableHost<Element: Texel>] &'a Registered<H> => TexelSource<'a, H::Element>:
        |it| it.as_view().into();
    ['a, H: StableHostMut<Element: Texel>] &'a mut Registered<H> => TexelDestination<'a, H::Element>:
        |it| it.as_view_mut().into();
    ['a, T: Texel] &'a CudaArray<T> => TexelSource<'a, T>: |it| it.as_view().into();
    ['a, T: Texel] &'a mut CudaArray<T> => TexelDestination<'a, T>: |it| it.as_view_mut().into();
}

debug_by! { [T: Texel] TexelSource<'_, T>: |it| "TexelSource" { size: it.size, on: it.on } }
debug_by! { [T: Texel] TexelDestination<'_, T>: |it| "TexelDestination"(it.written) }
