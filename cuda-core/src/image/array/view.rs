//! Borrowed parts of arrays.

use std::marker::PhantomData;

use cuda_sys::CUarray;

use super::{ArrayMemory, CudaArray, Texel};
use crate::copy::CopySide;
use crate::device::Device;
use crate::error::Result;
use crate::memory::{Storage, bounds};
use crate::process::Handle;
use crate::timeline::ledger::{Access, Bytes, InGraphs, Touch};
use crate::types::{Extent, Origin};
use crate::util::{debug_by, from};

/// An array, or a level of a mipmap, within its storage.
#[derive(Clone, Copy)]
pub(super) struct Level {
    // INVARIANT: an array of size `extent`, which the storage keeps alive.
    pub(super) raw: Handle<CUarray>,
    pub(super) extent: Extent,
    /// The offset of the level's first byte in the storage's ledger.
    pub(super) start: usize,
}

/// A shared view of a part of an array.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let stream = context.create_stream()?;
/// use cuda_core::image::{ArrayFlags, ArrayShape, CudaArray};
///
/// let shape = ArrayShape::D2 { width: 64, height: 64 };
/// let image = CudaArray::<u8>::new(&context, shape, ArrayFlags::default())?;
/// let corner = image.as_view().region((48, 48), (16, 16))?;
/// let mut back = vec![0; corner.len()];
/// stream.download_from_array(corner, &mut back)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct ArraySlice<'a, T: Texel> {
    storage: &'a Storage<ArrayMemory>,
    pub(super) level: Level,
    // INVARIANT: origin and extent are within the level.
    pub(super) origin: Origin,
    extent: Extent,
    _texels: PhantomData<&'a [T]>,
}

/// An exclusive view of a part of an array.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let stream = context.create_stream()?;
/// use cuda_core::image::{ArrayFlags, ArrayShape, CudaArray};
///
/// let shape = ArrayShape::D2 { width: 64, height: 64 };
/// let mut image = CudaArray::<u8>::new(&context, shape, ArrayFlags::default())?;
/// let band = image.region_mut((0, 8), (64, 4))?;
/// stream.upload_to_array(&[255; 64 * 4], band)?; // rows 8 to 11
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct ArraySliceMut<'a, T: Texel> {
    // INVARIANT: no other view of these texels is used while this one lives.
    view: ArraySlice<'a, T>,
    _exclusive: PhantomData<&'a mut [T]>,
}

impl<'a, T: Texel> ArraySlice<'a, T> {
    pub(super) fn whole(storage: &'a Storage<ArrayMemory>, level: Level) -> Self {
        Self { storage, level, origin: Origin::ZERO, extent: level.extent, _texels: PhantomData }
    }

    /// Returns the part's size in texels.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Returns the number of texels.
    pub fn len(&self) -> usize {
        self.extent.texels().unwrap_or(0)
    }

    /// Whether there are no texels.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the device that the array is on.
    pub fn device(&self) -> Device {
        self.storage.context().device()
    }

    /// Returns a part of the view, given by its origin, relative to the view's own, and its size:
    /// `region((16, 8), (64, 64))`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds), for the first dimension in which the part is
    /// not within the view.
    pub fn region(&self, origin: impl Into<Origin>, extent: impl Into<Extent>) -> Result<Self> {
        let (origin, extent) = (origin.into(), extent.into());
        let within = |start: usize, size, len| bounds(start..start.saturating_add(size), len);
        within(origin.x, extent.width, self.extent.width)?;
        within(origin.y, extent.height, self.extent.height)?;
        within(origin.z, extent.depth, self.extent.depth)?;
        let (x, y, z) = (origin.x, origin.y, origin.z);
        Ok(Self {
            origin: Origin::new(self.origin.x + x, self.origin.y + y, self.origin.z + z),
            extent,
            ..*self
        })
    }

    /// Returns the bytes from the part's first texel to its last, as if texels were stored one after
    /// the other. They may include rows outside the part: a stream that uses those waits without need,
    /// which is harmless.
    fn range(&self) -> Bytes {
        let Extent { width, height, .. } = self.level.extent;
        let texel = |x: usize, y: usize, z: usize| (z * height + y) * width + x;
        let (at, size) = (self.origin, self.extent);
        if self.is_empty() {
            return self.level.start..self.level.start;
        }
        let first = texel(at.x, at.y, at.z);
        let last = texel(at.x + size.width - 1, at.y + size.height - 1, at.z + size.depth - 1);
        let byte = |texel: usize| self.level.start + texel * size_of::<T>();
        byte(first)..byte(last + 1)
    }

    pub(super) fn side(&self) -> CopySide {
        let Origin { x, y, z } = self.origin;
        CopySide::array(self.level.raw.0, Origin::new(x * size_of::<T>(), y, z))
    }

    pub(super) fn read(&self) -> Touch<'a> {
        self.touch(Access::Read)
    }

    fn touch(&self, access: Access) -> Touch<'a> {
        Touch::shared(&self.storage.block().ledger, self.range(), access, InGraphs::Kept)
    }
}

impl<'a, T: Texel> ArraySliceMut<'a, T> {
    /// Makes an exclusive view of the level. The caller creates no other view of it while this one
    /// lives.
    pub(super) fn whole(storage: &'a Storage<ArrayMemory>, level: Level) -> Self {
        Self { view: ArraySlice::whole(storage, level), _exclusive: PhantomData }
    }

    /// Returns the part's size in texels.
    pub fn extent(&self) -> Extent {
        self.view.extent()
    }

    /// Returns the number of texels.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Whether there are no texels.
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    /// Returns a shared view of the same texels while `self` is borrowed.
    pub fn as_view(&self) -> ArraySlice<'_, T> {
        self.view
    }

    /// Returns an exclusive view of a part of the view while `self` is borrowed.
    ///
    /// # Errors
    /// As [`ArraySlice::region`].
    pub fn region_mut(
        &mut self,
        origin: impl Into<Origin>,
        extent: impl Into<Extent>,
    ) -> Result<ArraySliceMut<'_, T>> {
        ArraySliceMut { view: self.view, _exclusive: PhantomData }
            .into_region(origin.into(), extent.into())
    }

    /// [`ArraySliceMut::region_mut`] with the lifetime of `self`.
    pub(super) fn into_region(self, origin: Origin, extent: Extent) -> Result<Self> {
        Ok(Self { view: self.view.region(origin, extent)?, _exclusive: PhantomData })
    }

    /// Returns a view with the lifetime of `self`; the caller keeps it exclusive.
    pub(super) fn into_view(self) -> ArraySlice<'a, T> {
        self.view
    }

    pub(super) fn write(&mut self) -> Touch<'_> {
        self.view.touch(Access::Write)
    }
}

from! {
    ['a, T: Texel] &'a CudaArray<T> => ArraySlice<'a, T>: |it| it.as_view();
    ['a, T: Texel] &'a mut CudaArray<T> => ArraySliceMut<'a, T>: |it| it.as_view_mut();
    ['a, T: Texel] &ArraySlice<'a, T> => ArraySlice<'a, T>: |it| *it;
}

debug_by! { [T: Texel] ArraySlice<'_, T>: |it| "ArraySlice({} at {})", it.extent, it.origin }
debug_by! { [T: Texel] ArraySliceMut<'_, T>: |it| "ArraySliceMut of {:?}", it.view }
