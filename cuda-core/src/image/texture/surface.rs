//! Surfaces: arrays that kernels read and write.

use cuda_sys::symbol as cu;

use super::object::{BoundObject, Describe, Destroy, ImageObject, ObjectKind};
use super::view::{Made, whole};
use crate::error::{Error, Result};
use crate::image::{ArrayFlags, CudaArray, Texel};
use crate::process::driver;
use crate::timeline::ledger::Access;
use crate::types::Resource;

/// Marks an [`ImageObject`] as a [`Surface`].
#[derive(Debug)]
pub enum SurfaceKind {}

impl ObjectKind for SurfaceKind {
    const RESOURCE: Resource = Resource::Surface;
    const NAME: &'static str = "surface";
    const DESTROY: (&'static str, Destroy) = ("cuSurfObjectDestroy", cu::cuSurfObjectDestroy);
    const DESCRIBE: (&'static str, Describe) =
        ("cuSurfObjectGetResourceDesc", cu::cuSurfObjectGetResourceDesc);
}

/// A surface, through which kernels read and write an array that was created with
/// [`ArrayFlags::SURFACE_LOAD_STORE`].
///
/// Like a [`Texture`](crate::image::Texture), it is passed to a kernel together with its array:
/// [`Surface::bind_mut`] for a kernel that writes, [`Surface::bind`] for one that only reads.
///
/// ```no_run
/// use cuda_core::{Device, image::{ArrayFlags, ArrayShape, CudaArray, Surface}};
///
/// let context = Device::get(0)?.context()?;
/// let shape = ArrayShape::D2 { width: 64, height: 64 };
/// let mut image = CudaArray::<f32>::new(&context, shape, ArrayFlags::SURFACE_LOAD_STORE)?;
/// let surface = Surface::new(&image)?;
/// let argument = surface.bind_mut(&mut image)?;
/// # let _ = argument;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub type Surface<T> = ImageObject<T, SurfaceKind>;

impl<T: Texel> Surface<T> {
    /// Creates a surface of `array`: `cuSurfObjectCreate`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an array that was not created for surfaces; the driver's.
    #[doc(alias("cuSurfObjectCreate", "cudaCreateSurfaceObject"))]
    pub fn new(array: &CudaArray<T>) -> Result<Self> {
        driver::ensure()?;
        let op = "cuSurfObjectCreate";
        let why = "the array was made without SURFACE_LOAD_STORE";
        Error::unless(array.flags().contains(ArrayFlags::SURFACE_LOAD_STORE), op, why)?;
        array.storage().ensure()?;
        let made = Made::Array(array.storage().clone());
        let resource = made.description::<T>();
        let handle = array.context().call(op, 0, |handle| {
            // SAFETY: the call reads a description and writes one handle, both borrowed for longer than
            // the call; the caller holds the array.
            unsafe { cu::cuSurfObjectCreate(handle, &resource) }
        })?;
        Ok(Self::own(array.context(), handle, made))
    }

    /// Returns the surface as an argument of a kernel that reads its array.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an array other than that from which the surface was created.
    pub fn bind<'a>(&'a self, array: &'a CudaArray<T>) -> Result<BoundSurface<'a>> {
        self.bound_to(array, Access::Read)
    }

    /// Returns the surface as an argument of a kernel that writes its array.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an array other than that from which the surface was created.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # const PTX: &str = "";
    /// # use cuda_core::{Module, image::{ArrayFlags, ArrayShape, CudaArray, Surface}};
    /// # let function = Module::from_ptx(&context, PTX)?.function("draw")?;
    /// let shape = ArrayShape::D2 { width: 64, height: 64 };
    /// let mut image = CudaArray::<f32>::new(&context, shape, ArrayFlags::SURFACE_LOAD_STORE)?;
    /// let surface = Surface::new(&image)?;
    /// let mut launch = stream
    ///     .kernel(&function)
    ///     .grid((4, 4))
    ///     .block((16, 16))
    ///     .arg(surface.bind_mut(&mut image)?);
    /// // SAFETY: draw(cudaSurfaceObject_t image) writes the image, and touches nothing else.
    /// unsafe { launch.launch() }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn bind_mut<'a>(&'a self, array: &'a mut CudaArray<T>) -> Result<BoundSurface<'a>> {
        self.bound_to(array, Access::Write)
    }

    fn bound_to<'a>(&'a self, array: &'a CudaArray<T>, access: Access) -> Result<BoundSurface<'a>> {
        self.bound(&Made::Array(array.storage().clone()), whole(array.storage(), access))
    }
}

/// A surface and its array, while both are borrowed: a kernel's argument.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("draw")?;
/// use cuda_core::image::{ArrayFlags, ArrayShape, BoundSurface, CudaArray, Surface};
///
/// let shape = ArrayShape::D2 { width: 64, height: 64 };
/// let mut image = CudaArray::<f32>::new(stream.context(), shape, ArrayFlags::SURFACE_LOAD_STORE)?;
/// let surface = Surface::new(&image)?;
/// let bound: BoundSurface<'_> = surface.bind_mut(&mut image)?;
/// // SAFETY: draw(cudaSurfaceObject_t image) writes the image, and touches nothing else.
/// unsafe { stream.kernel(&function).block((8, 8)).arg(bound).launch() }?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub type BoundSurface<'a> = BoundObject<'a, SurfaceKind>;
