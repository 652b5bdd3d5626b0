//! Mipmapped arrays: the same image in several sizes.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use cuda_sys::{CUmipmappedArray, symbol as cu};

use super::shape::{ArrayFlags, ArrayShape};
use super::texel::Texel;
use super::view::{self, ArraySlice, ArraySliceMut, Level};
use super::{ArrayMemory, RawArray, close, storage};
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Result, check};
use crate::memory::Storage;
use crate::process::driver;
use crate::process::handle::Handle;
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::Access;
use crate::timeline::submit::note_use;
use crate::types::extent::Extent;

/// An array with levels, each half as large as the one before in every dimension that is filtered.
///
/// Each level is copied like an array of its own; a texture samples all of them. Otherwise like
/// [`CudaArray`](crate::CudaArray).
///
/// ```no_run
/// use cuda_core::{ArrayFlags, ArrayShape, Device, MipmappedArray};
///
/// let context = Device::get(0)?.context()?;
/// let stream = context.create_stream()?;
/// let shape = ArrayShape::D2 { width: 64, height: 64 };
/// let mut image = MipmappedArray::<f32>::new(&context, shape, 2, ArrayFlags::default())?;
/// stream.upload_to_array(&[1.0; 64 * 64], image.level_mut(0)?)?;
/// stream.upload_to_array(&[1.0; 32 * 32], image.level_mut(1)?)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct MipmappedArray<T: Texel> {
    // INVARIANT: created by cuMipmappedArrayCreate with this shape and this type's format.
    storage: Arc<Storage<ArrayMemory>>,
    /// The largest level first.
    levels: Vec<Level>,
    shape: ArrayShape,
    _texels: PhantomData<T>,
}

impl<T: Texel> MipmappedArray<T> {
    /// An array of unspecified texels with that many levels, at least one:
    /// `cuMipmappedArrayCreate`, and `cuMipmappedArrayGetLevel` for each.
    ///
    /// # Errors
    /// [`Error::Shape`] for a dimension of zero, no level, or more than the shape has;
    /// [`Error::SizeOverflow`]; [`Error::OutOfMemory`]; the driver's.
    pub fn new(
        context: &Context,
        shape: ArrayShape,
        levels: u32,
        flags: ArrayFlags,
    ) -> Result<Self> {
        driver::ensure()?;
        let op = "cuMipmappedArrayCreate";
        flags.check(op)?;
        shape.check::<T>(op)?;
        if levels == 0 || levels > shape.most_levels() {
            return Err(Error::Shape {
                op,
                why: "a mipmap has one level at least, and none behind that of one texel",
            });
        }
        let extents: Vec<_> = (0..levels).map(|level| shape.level(level)).collect();
        let mut bytes = 0_usize;
        let mut starts = Vec::new();
        for extent in &extents {
            starts.push(bytes);
            let level = extent.texels().unwrap_or(0) * size_of::<T>();
            bytes = bytes.saturating_add(level);
        }
        let descriptor = shape.descriptor::<T>(flags);
        let mut raw = ptr::null_mut();
        context.allocate(op, bytes, || {
            // SAFETY: the call reads the description and writes one handle, both locals that
            // outlive it; a live context is current.
            unsafe { cu::cuMipmappedArrayCreate(&mut raw, &descriptor, levels) }
        })?;
        let mut array = Self {
            storage: storage(context, RawArray::Mipmapped(Handle(raw)), bytes),
            levels: Vec::new(),
            shape,
            _texels: PhantomData,
        };
        let _entered = context.enter_briefly()?;
        for (level, (extent, start)) in (0..).zip(extents.into_iter().zip(starts)) {
            let mut single = ptr::null_mut();
            // SAFETY: the call writes one handle, to a local that outlives it; `array` keeps the
            // array, which has the level.
            check("cuMipmappedArrayGetLevel", unsafe {
                cu::cuMipmappedArrayGetLevel(&mut single, raw, level)
            })?;
            array.levels.push(Level { raw: Handle(single), extent, start });
        }
        Ok(array)
    }

    /// The shape of its largest level.
    pub fn shape(&self) -> ArrayShape {
        self.shape
    }

    /// The number of levels.
    pub fn levels(&self) -> u32 {
        self.levels.len() as u32
    }

    /// The context that it was created in.
    pub fn context(&self) -> &Context {
        &self.storage.block().backing
    }

    /// The device that it is on.
    pub fn device(&self) -> Device {
        self.context().device()
    }

    /// The driver's handle, valid while `self` lives; null for an array that was
    /// [given up](Error::GivenUp).
    pub fn as_raw(&self) -> CUmipmappedArray {
        match self.storage.block().address {
            RawArray::Mipmapped(raw) => raw.0,
            RawArray::Single(_) => ptr::null_mut(),
        }
    }

    pub(crate) fn storage(&self) -> &Arc<Storage<ArrayMemory>> {
        &self.storage
    }

    /// A view of a level, 0 for the largest.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn level(&self, level: u32) -> Result<ArraySlice<'_, T>> {
        Ok(ArraySlice::whole(&self.storage, self.at(level)?))
    }

    /// An exclusive view of a level.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn level_mut(&mut self, level: u32) -> Result<ArraySliceMut<'_, T>> {
        Ok(ArraySliceMut::whole(&self.storage, self.at(level)?))
    }

    fn at(&self, level: u32) -> Result<Level> {
        let found = self.levels.get(level as usize).copied();
        found.ok_or(Error::OutOfBounds {
            start: level as usize,
            end: (level as usize).saturating_add(1),
            len: self.levels.len(),
        })
    }

    /// The size of a level in texels.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn extent(&self, level: u32) -> Result<Extent> {
        Ok(self.at(level)?.extent)
    }

    /// Notes that work enqueued on `stream` behind this crate's back uses the array: see
    /// [`Buffer::note_use`](crate::Buffer::note_use).
    ///
    /// # Errors
    /// The driver's, when the stream is made to wait.
    ///
    /// # Safety
    /// That of [`Buffer::note_use`](crate::Buffer::note_use).
    pub unsafe fn note_use<K: StreamKind>(&self, stream: &Stream<K>, access: Access) -> Result<()> {
        let block = self.storage.block();
        note_use(stream.core(), &block.ledger, &block.whole(), access)
    }

    /// Blocks the thread until no stream uses the array any more.
    ///
    /// # Errors
    /// The driver's errors about the work waited for.
    pub fn synchronize(&self) -> Result<()> {
        driver::ensure()?;
        view::synchronize(&self.storage)
    }

    /// Destroys the array, once no work uses it: `cuMipmappedArrayDestroy`. Like
    /// [`CudaArray::close`](crate::CudaArray::close).
    ///
    /// # Errors
    /// Those of [`CudaArray::close`](crate::CudaArray::close); an array that was given up has no
    /// levels.
    pub fn close(self) -> Result<(), (Error, Self)> {
        close(self.storage).map_err(|(error, storage)| {
            let (shape, levels) = match storage.ensure() {
                Ok(()) => (self.shape, self.levels),
                Err(_) => (ArrayShape::D1 { width: 0 }, Vec::new()),
            };
            let array = Self { storage, levels, shape, _texels: PhantomData };
            (error, array)
        })
    }
}

impl<T: Texel> fmt::Debug for MipmappedArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MipmappedArray")
            .field("shape", &self.shape)
            .field("levels", &self.levels())
            .field("device", &self.device())
            .finish()
    }
}
