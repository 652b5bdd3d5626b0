//! CUDA arrays: memory in a layout for textures and surfaces, without an address.

use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use cuda_sys::{CUarray, CUmipmappedArray, symbol as cu};

use crate::context::{Context, of_context};
use crate::error::{Rejected, Result};
use crate::memory::{self, Block, Storage};
use crate::process::{Failed, Handle, driver};
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::Access;
use crate::types::{Extent, Origin, Resource};
use crate::util::debug_by;

mod copy;
pub(crate) mod mipmap;
pub(crate) mod shape;
mod staged;
pub(crate) mod texel;
pub(crate) mod texel_side;
pub(crate) mod view;

use shape::{ArrayDescriptor, ArrayFlags, ArrayShape};
use texel::Texel;
use view::{ArraySlice, ArraySliceMut, Level};

/// Memory of arrays, as a kind of memory.
#[derive(Clone, Copy)]
pub(crate) enum ArrayMemory {}

/// An array's handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RawArray {
    Single(Handle<CUarray>),
    Mipmapped(Handle<CUmipmappedArray>),
}

impl memory::MemoryKind for ArrayMemory {
    type Address = RawArray;
    /// The context that the array was created in.
    type Backing = Context;

    const RESOURCE: Resource = Resource::Array;
    const NOWHERE: RawArray = RawArray::Single(Handle(ptr::null_mut()));

    fn free(block: &mut Block<Self>) -> Result<(), Failed> {
        block.ledger.last_uses(&block.whole()).wait_host()?;
        let context = &block.backing;
        match block.address {
            RawArray::Single(raw) => context.release("cuArrayDestroy", || {
                // SAFETY: this crate owns the array, destroys it once, and no work uses it any more.
                unsafe { cu::cuArrayDestroy(raw.0) }
            }),
            RawArray::Mipmapped(raw) => context.release("cuMipmappedArrayDestroy", || {
                // SAFETY: this crate owns the mipmapped array, destroys it once, and no work uses it or
                // a level of it any more.
                unsafe { cu::cuMipmappedArrayDestroy(raw.0) }
            }),
        }
    }

    fn context_of(backing: &Context) -> &Context {
        backing
    }

    fn number(address: RawArray) -> u64 {
        match address {
            RawArray::Single(raw) => raw.number(),
            RawArray::Mipmapped(raw) => raw.number(),
        }
    }
}

/// A CUDA array: texels that textures sample and surfaces write, in a layout that the driver chooses.
///
/// The crate orders copies to and from it like those of buffers; the caller needs no events. Dropping
/// it waits for the work that uses it. Its textures and surfaces keep its memory allocated until they
/// are dropped, too.
///
/// ```no_run
/// use cuda_core::{Device, image::{ArrayFlags, ArrayShape, CudaArray}};
///
/// let context = Device::get(0)?.context()?;
/// let stream = context.create_stream()?;
/// let shape = ArrayShape::D2 { width: 640, height: 480 };
/// let mut image = CudaArray::<[u8; 4]>::new(&context, shape, ArrayFlags::default())?;
/// stream.upload_to_array(&vec![[0, 0, 0, 255]; 640 * 480], &mut image)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub type CudaArray<T> = TexelArray<T, OneLevel>;

/// An array of texels; [`CudaArray`] and [`MipmappedArray`](crate::image::MipmappedArray) are aliases
/// of it. This type provides what both share.
pub struct TexelArray<T: Texel, L> {
    // INVARIANT: created with this shape and this type's format.
    storage: Arc<Storage<ArrayMemory>>,
    shape: ArrayShape,
    levels: L,
    _texels: PhantomData<T>,
}

/// The only level of a [`CudaArray`].
#[derive(Debug)]
pub struct OneLevel {
    flags: ArrayFlags,
}

const OP: &str = "cuArray3DCreate";

impl<T: Texel, L> TexelArray<T, L> {
    /// Creates an array that owns `address`; textures and surfaces share its storage.
    fn own(
        context: &Context,
        address: RawArray,
        bytes: usize,
        shape: ArrayShape,
        levels: L,
    ) -> Self {
        let storage = Arc::new(Storage::new(Block::unused(address, bytes, context.clone())));
        Self { storage, shape, levels, _texels: PhantomData }
    }

    /// Returns the array's shape, or that of its largest level.
    pub fn shape(&self) -> ArrayShape {
        self.storage.ensure().map_or(ArrayShape::D1 { width: 0 }, |()| self.shape)
    }

    of_context! { "The context that it was created in.": |it| it.storage.context() }

    pub(crate) fn storage(&self) -> &Arc<Storage<ArrayMemory>> {
        &self.storage
    }

    /// Notes that work that other code enqueues on `stream` uses the array: see
    /// [`Buffer::note_use`](crate::Buffer::note_use).
    ///
    /// # Errors
    /// The driver's, if making the stream wait fails.
    ///
    /// # Safety
    /// As for [`Buffer::note_use`](crate::Buffer::note_use).
    pub unsafe fn note_use<K: StreamKind>(&self, stream: &Stream<K>, access: Access) -> Result<()> {
        self.storage.note_use(stream, &self.storage.block().whole(), access)
    }

    /// Blocks the thread until the work that writes the array is done.
    ///
    /// # Errors
    /// Those of [`Buffer::synchronize`](crate::Buffer::synchronize).
    pub fn synchronize(&self) -> Result<()> {
        self.storage.synchronize(Access::Read)
    }

    /// Blocks the thread until all work that uses the array is done, that of its textures and surfaces
    /// included.
    ///
    /// # Errors
    /// Those of [`Buffer::synchronize`](crate::Buffer::synchronize).
    pub fn synchronize_mut(&mut self) -> Result<()> {
        self.storage.synchronize(Access::Write)
    }

    /// Destroys the array, once no work uses it: `cuArrayDestroy` or `cuMipmappedArrayDestroy`.
    /// Dropping it does the same, but reports a failure to the hook of
    /// [`drops::set_hook`](crate::drops::set_hook). If textures or surfaces of the array still live,
    /// the last of them destroys it instead.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) while a graph uses the array, and the errors of the
    /// wait for that work; the array is then unchanged. The driver's if the call that destroys the
    /// array fails; the array then has no texels and no levels, and is
    /// [given up](crate::Error::GivenUp).
    #[doc(alias("cuArrayDestroy", "cuMipmappedArrayDestroy"))]
    #[doc(alias("cudaFreeArray", "cudaFreeMipmappedArray"))]
    pub fn close(mut self) -> Result<(), Rejected<Self>> {
        let sole = Arc::get_mut(&mut self.storage);
        let freed = driver::ensure().and_then(|()| sole.map_or(Ok(()), Storage::free));
        freed.map_err(|error| Rejected::new(error, self))
    }
}

impl<T: Texel> CudaArray<T> {
    /// Creates an array of unspecified texels: `cuArray3DCreate_v2`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a dimension of zero and for unknown flags;
    /// [`Error::SizeOverflow`](crate::Error::SizeOverflow);
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory); the driver's `INVALID_VALUE` for a shape
    /// larger than the device allows.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::image::{ArrayFlags, ArrayShape, CudaArray};
    ///
    /// let shape = ArrayShape::D2 { width: 640, height: 480 };
    /// let image = CudaArray::<f32>::new(&context, shape, ArrayFlags::default())?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuArray3DCreate", "cudaMallocArray", "cudaMalloc3DArray"))]
    #[doc(alias("cuArrayCreate"))]
    pub fn new(context: &Context, shape: ArrayShape, flags: ArrayFlags) -> Result<Self> {
        driver::ensure()?;
        let bytes = shape.check::<T>(OP, flags)?;
        let descriptor = shape.descriptor::<T>(flags);
        let raw = context.allocate(OP, bytes, ptr::null_mut(), |raw| {
            // SAFETY: the call reads a description and writes one handle, both borrowed for longer than
            // the call; a live context is current.
            unsafe { cu::cuArray3DCreate_v2(raw, &descriptor) }
        })?;
        let address = RawArray::Single(Handle(raw));
        Ok(Self::own(context, address, bytes, shape, OneLevel { flags }))
    }

    /// Returns the flags that the array was created with.
    pub fn flags(&self) -> ArrayFlags {
        self.levels.flags
    }

    /// Returns the array's size in texels.
    pub fn extent(&self) -> Extent {
        self.shape().extent()
    }

    /// Returns the driver's handle, valid while `self` lives; null for an array that was
    /// [given up](crate::Error::GivenUp).
    pub fn as_raw(&self) -> CUarray {
        match self.storage.block().address {
            RawArray::Single(raw) => raw.0,
            RawArray::Mipmapped(_) => ptr::null_mut(),
        }
    }

    /// Returns the driver's description of the array: `cuArray3DGetDescriptor_v2`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuArray3DGetDescriptor", "cudaArrayGetInfo"))]
    pub fn descriptor(&self) -> Result<ArrayDescriptor> {
        self.storage.ensure()?;
        let to = cuda_sys::CUDA_ARRAY3D_DESCRIPTOR::default();
        let descriptor = self.context().ask("cuArray3DGetDescriptor", to, |descriptor| {
            // SAFETY: the call writes one structure of this type, to an exclusive borrow; `self`
            // keeps the array alive.
            unsafe { cu::cuArray3DGetDescriptor_v2(descriptor, self.as_raw()) }
        })?;
        Ok(descriptor.into())
    }

    /// Returns a view of all texels.
    pub fn as_view(&self) -> ArraySlice<'_, T> {
        ArraySlice::whole(&self.storage, self.level())
    }

    /// Returns an exclusive view of all texels.
    pub fn as_view_mut(&mut self) -> ArraySliceMut<'_, T> {
        ArraySliceMut::whole(&self.storage, self.level())
    }

    fn level(&self) -> Level {
        Level { raw: Handle(self.as_raw()), extent: self.extent(), start: 0 }
    }

    /// Returns a view of a part, given by its origin and its size: `region((16, 8), (64, 64))`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds), for the first dimension in which the part is
    /// not within the array.
    ///
    /// ```no_run
    /// # use cuda_core::{Device, image::{ArrayFlags, ArrayShape, CudaArray}};
    /// # let context = Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let shape = ArrayShape::Layered2D { width: 64, height: 64, layers: 8 };
    /// let image = CudaArray::<f32>::new(&context, shape, ArrayFlags::default())?;
    /// // Row 10 of layer 3.
    /// let row = image.region((0, 10, 3), 64)?;
    /// let mut host = [0.0; 64];
    /// stream.download_from_array(row, &mut host)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn region(
        &self,
        origin: impl Into<Origin>,
        extent: impl Into<Extent>,
    ) -> Result<ArraySlice<'_, T>> {
        self.as_view().region(origin, extent)
    }

    /// Returns an exclusive view of a part.
    ///
    /// # Errors
    /// As [`CudaArray::region`].
    pub fn region_mut(
        &mut self,
        origin: impl Into<Origin>,
        extent: impl Into<Extent>,
    ) -> Result<ArraySliceMut<'_, T>> {
        self.as_view_mut().into_region(origin.into(), extent.into())
    }
}

debug_by! {
    [T: Texel, L] TexelArray<T, L>: |it| "TexelArray" {
        raw: it.storage.block().address, shape: it.shape(), device: it.device()
    }
}
