//! Mipmapped arrays: an image in several sizes.

use std::ptr;

use cuda_sys::{CUmipmappedArray, symbol as cu};

use super::{
    ArrayFlags, ArrayShape, ArraySlice, ArraySliceMut, Level, RawArray, Texel, TexelArray,
};
use crate::context::Context;
use crate::error::{Error, Result, asked};
use crate::memory::within;
use crate::process::{Handle, driver};
use crate::types::Extent;

/// An array with levels, each half as large as the one before in every dimension that is filtered.
///
/// Each level is copied like a separate array; a texture samples all of them. Otherwise like
/// [`CudaArray`](crate::image::CudaArray).
///
/// ```no_run
/// use cuda_core::{Device, image::{ArrayFlags, ArrayShape, MipmappedArray}};
///
/// let context = Device::get(0)?.context()?;
/// let stream = context.create_stream()?;
/// let shape = ArrayShape::D2 { width: 64, height: 64 };
/// let mut image = MipmappedArray::<f32>::new(&context, shape, 2, ArrayFlags::default())?;
/// stream.upload_to_array(&[1.0; 64 * 64], image.level_mut(0)?)?;
/// stream.upload_to_array(&[1.0; 32 * 32], image.level_mut(1)?)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub type MipmappedArray<T> = TexelArray<T, MipLevels>;

/// The levels of a [`MipmappedArray`], the largest first.
#[expect(missing_debug_implementations, reason = "has nothing to show beside its array")]
pub struct MipLevels(Vec<Level>);

impl<T: Texel> MipmappedArray<T> {
    /// Creates an array of unspecified texels with `levels` levels, at least one:
    /// `cuMipmappedArrayCreate`, and `cuMipmappedArrayGetLevel` for each.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a dimension of zero, for no levels, for more levels than the shape
    /// has, or for unknown flags; [`Error::SizeOverflow`]; [`Error::OutOfMemory`]; the driver's.
    #[doc(alias("cuMipmappedArrayCreate", "cuMipmappedArrayGetLevel"))]
    #[doc(alias("cudaMallocMipmappedArray", "cudaGetMipmappedArrayLevel"))]
    pub fn new(
        context: &Context,
        shape: ArrayShape,
        levels: u32,
        flags: ArrayFlags,
    ) -> Result<Self> {
        driver::ensure()?;
        let op = "cuMipmappedArrayCreate";
        shape.check::<T>(op, flags)?;
        let exist = (1..=shape.most_levels()).contains(&levels);
        let why = "a mipmap has at least one level, and its last is that of one texel";
        Error::unless(exist, op, why)?;
        let mut bytes = 0_usize;
        let mut places = Vec::new();
        for extent in (0..levels).map(|level| shape.level(level)) {
            places.push((extent, bytes));
            bytes = bytes.saturating_add(extent.texels().unwrap_or(0) * size_of::<T>());
        }
        let descriptor = shape.descriptor::<T>(flags);
        let raw = context.allocate(op, bytes, ptr::null_mut(), |raw| {
            // SAFETY: the call reads a description and writes one handle, both borrowed for longer than
            // the call; a live context is current.
            unsafe { cu::cuMipmappedArrayCreate(raw, &descriptor, levels) }
        })?;
        let address = RawArray::Mipmapped(Handle(raw));
        let mut array = Self::own(context, address, bytes, shape, MipLevels(Vec::new()));
        let _entered = context.enter_briefly()?;
        for (level, (extent, start)) in (0..).zip(places) {
            // SAFETY: the call writes one handle, to an exclusive borrow; `array` keeps the mipmapped
            // array, which has the level.
            let single = asked("cuMipmappedArrayGetLevel", ptr::null_mut(), |single| unsafe {
                cu::cuMipmappedArrayGetLevel(single, raw, level)
            })?;
            array.levels.0.push(Level { raw: Handle(single), extent, start });
        }
        Ok(array)
    }

    /// Returns the number of levels.
    pub fn levels(&self) -> u32 {
        self.known().len() as u32
    }

    /// Returns the levels; none if the array was given up.
    fn known(&self) -> &[Level] {
        self.storage.ensure().map_or(&[], |()| &self.levels.0)
    }

    /// Returns the driver's handle, valid while `self` lives; null for an array that was
    /// [given up](Error::GivenUp).
    pub fn as_raw(&self) -> CUmipmappedArray {
        match self.storage.block().address {
            RawArray::Mipmapped(raw) => raw.0,
            RawArray::Single(_) => ptr::null_mut(),
        }
    }

    /// Returns a view of a level, 0 for the largest.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a level that does not exist.
    pub fn level(&self, level: u32) -> Result<ArraySlice<'_, T>> {
        Ok(ArraySlice::whole(&self.storage, self.at(level)?))
    }

    /// Returns an exclusive view of a level.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a level that does not exist.
    pub fn level_mut(&mut self, level: u32) -> Result<ArraySliceMut<'_, T>> {
        Ok(ArraySliceMut::whole(&self.storage, self.at(level)?))
    }

    fn at(&self, level: u32) -> Result<Level> {
        within("MipmappedArray::level", "level", level as usize, self.known().len())?;
        Ok(self.known()[level as usize])
    }

    /// Returns the size of a level in texels.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a level that does not exist.
    pub fn extent(&self, level: u32) -> Result<Extent> {
        Ok(self.at(level)?.extent)
    }
}
