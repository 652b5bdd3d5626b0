//! Surfaces: arrays that kernels read and write.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use cuda_sys::{CUDA_RESOURCE_DESC, CUresult, CUsurfObject, symbol as cu};

use super::object::{Object, ObjectKind, description, other_memory};
use super::view::whole;
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::image::array::shape::ArrayFlags;
use crate::image::array::texel::Texel;
use crate::image::array::{ArrayMemory, CudaArray};
use crate::memory::Storage;
use crate::process::driver;
use crate::timeline::ledger::{Access, Touch};
use crate::types::resource::Resource;

enum SurfaceKind {}

impl ObjectKind for SurfaceKind {
    const RESOURCE: Resource = Resource::Surface;
    const DESTROY: &'static str = "cuSurfObjectDestroy";

    unsafe fn destroy(handle: u64) -> CUresult {
        // SAFETY: a surface object that is destroyed once, when no kernel uses it any more, by the
        // caller's promise.
        unsafe { cu::cuSurfObjectDestroy(handle) }
    }

    unsafe fn resource(handle: u64, resource: *mut CUDA_RESOURCE_DESC) -> CUresult {
        // SAFETY: both are what the call asks for, by the caller's promise: a live object, and a
        // place for one description.
        unsafe { cu::cuSurfObjectGetResourceDesc(resource, handle) }
    }
}

/// A surface: how kernels read and write an array that was created with
/// [`ArrayFlags::SURFACE_LOAD_STORE`].
///
/// Like a [`Texture`](crate::Texture) it is passed to a kernel together with its array:
/// [`Surface::bind_mut`] for a kernel that writes, [`Surface::bind`] for one that only reads.
///
/// ```no_run
/// use cuda_core::{ArrayFlags, ArrayShape, CudaArray, Device, Surface};
///
/// let context = Device::get(0)?.context()?;
/// let shape = ArrayShape::D2 { width: 64, height: 64 };
/// let mut image = CudaArray::<f32>::new(&context, shape, ArrayFlags::SURFACE_LOAD_STORE)?;
/// let surface = Surface::new(&image)?;
/// let argument = surface.bind_mut(&mut image)?;
/// # let _ = argument;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct Surface<T: Texel> {
    // Dropped before its array.
    object: Object<SurfaceKind>,
    array: Arc<Storage<ArrayMemory>>,
    _texels: PhantomData<T>,
}

impl<T: Texel> Surface<T> {
    /// A surface of `array`: `cuSurfObjectCreate`.
    ///
    /// # Errors
    /// [`Error::Flags`] for an array that was not created for surfaces; the driver's.
    pub fn new(array: &CudaArray<T>) -> Result<Self> {
        driver::ensure()?;
        let op = "cuSurfObjectCreate";
        if !array.flags().contains(ArrayFlags::SURFACE_LOAD_STORE) {
            return Err(Error::Flags { op, why: "the array was made without SURFACE_LOAD_STORE" });
        }
        array.storage().ensure()?;
        let mut resource = description(cuda_sys::CU_RESOURCE_TYPE_ARRAY);
        resource.res.array.hArray = array.as_raw();
        let context = array.context();
        let mut handle = 0;
        context.call(op, || {
            // SAFETY: the call reads the description and writes one handle, both locals that outlive
            // it; the caller holds the array.
            unsafe { cu::cuSurfObjectCreate(&mut handle, &resource) }
        })?;
        Ok(Self {
            object: Object::new(context, handle),
            array: array.storage().clone(),
            _texels: PhantomData,
        })
    }

    /// The device that it is on.
    pub fn device(&self) -> Device {
        self.array.block().backing.device()
    }

    /// The driver's handle, valid while `self` lives; zero for one that was
    /// [given up](Error::GivenUp).
    pub fn as_raw(&self) -> CUsurfObject {
        self.object.handle()
    }

    /// The surface as an argument of a kernel that reads its array.
    ///
    /// # Errors
    /// [`Error::Flags`] for another array than the surface was created from.
    pub fn bind<'a>(&'a self, array: &'a CudaArray<T>) -> Result<BoundSurface<'a>> {
        self.bound(array, Access::Read)
    }

    /// The surface as an argument of a kernel that writes its array.
    ///
    /// # Errors
    /// [`Error::Flags`] for another array than the surface was created from.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # const PTX: &str = "";
    /// # use cuda_core::{ArrayFlags, ArrayShape, CudaArray, Module, Surface};
    /// # let function = Module::from_ptx(&context, PTX)?.function("draw")?;
    /// let shape = ArrayShape::D2 { width: 64, height: 64 };
    /// let mut image = CudaArray::<f32>::new(&context, shape, ArrayFlags::SURFACE_LOAD_STORE)?;
    /// let surface = Surface::new(&image)?;
    /// let mut launch = stream.kernel(&function);
    /// launch.grid((4, 4)).block((16, 16)).arg(surface.bind_mut(&mut image)?);
    /// // SAFETY: draw(cudaSurfaceObject_t image) writes the image, and touches nothing else.
    /// unsafe { launch.launch() }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn bind_mut<'a>(&'a self, array: &'a mut CudaArray<T>) -> Result<BoundSurface<'a>> {
        self.bound(array, Access::Write)
    }

    fn bound<'a>(&'a self, array: &'a CudaArray<T>, access: Access) -> Result<BoundSurface<'a>> {
        let op = "surface";
        if !Arc::ptr_eq(&self.array, array.storage()) {
            return Err(other_memory(op));
        }
        let (object, context) = self.object.touch()?;
        Ok(BoundSurface {
            handle: self.as_raw(),
            context,
            touches: [object, whole(array.storage(), access)],
        })
    }

    /// The driver's description of the array it was created from: `cuSurfObjectGetResourceDesc`.
    ///
    /// # Errors
    /// The driver's.
    pub fn resource(&self) -> Result<CUDA_RESOURCE_DESC> {
        self.object.resource("cuSurfObjectGetResourceDesc")
    }

    /// Destroys the surface, once no work uses it: `cuSurfObjectDestroy`. Dropping it does the
    /// same, but reports a failure to the hook of [`set_drop_hook`](crate::set_drop_hook).
    ///
    /// # Errors
    /// Those of the wait for that work, with the surface unchanged; the driver's of the call that
    /// destroys it, with a surface that is [given up](Error::GivenUp).
    pub fn close(mut self) -> Result<(), (Error, Self)> {
        self.object.destroy().map_err(|error| (error, self))
    }
}

/// A surface and its array, for as long as both are borrowed: a kernel's argument.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("draw")?;
/// use cuda_core::{ArrayFlags, ArrayShape, BoundSurface, CudaArray, Surface};
///
/// let shape = ArrayShape::D2 { width: 64, height: 64 };
/// let mut image = CudaArray::<f32>::new(stream.context(), shape, ArrayFlags::SURFACE_LOAD_STORE)?;
/// let surface = Surface::new(&image)?;
/// let bound: BoundSurface<'_> = surface.bind_mut(&mut image)?;
/// // SAFETY: draw(cudaSurfaceObject_t image) writes the image, and touches nothing else.
/// unsafe { stream.kernel(&function).block((8, 8)).arg(bound).launch() }?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct BoundSurface<'a> {
    handle: CUsurfObject,
    context: &'a Context,
    touches: [Touch<'a>; 2],
}

impl<'a> BoundSurface<'a> {
    /// As [`BoundTexture::into_parts`](super::BoundTexture::into_parts).
    pub(crate) fn into_parts(self) -> (u64, &'a Context, [Touch<'a>; 2]) {
        (self.handle, self.context, self.touches)
    }
}

impl<T: Texel> fmt::Debug for Surface<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surface")
            .field("handle", &self.as_raw())
            .field("device", &self.device())
            .finish()
    }
}

impl fmt::Debug for BoundSurface<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundSurface").field("handle", &self.handle).finish()
    }
}
