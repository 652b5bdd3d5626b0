//! Textures: arrays and device memory that kernels sample.

use std::fmt;
use std::marker::PhantomData;

use cuda_sys::{CUDA_RESOURCE_DESC, CUresult, CUtexObject, symbol as cu};

use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::image::array::texel::Texel;
use crate::process::driver;
use crate::timeline::ledger::Touch;
use crate::types::resource::Resource;

pub(crate) mod descriptor;
mod object;
pub(crate) mod surface;
pub(crate) mod view;

use descriptor::TextureDescriptor;
use object::{Object, ObjectKind, other_memory};
use view::{Made, TextureSource};

enum TextureKind {}

impl ObjectKind for TextureKind {
    const RESOURCE: Resource = Resource::Texture;
    const DESTROY: &'static str = "cuTexObjectDestroy";

    unsafe fn destroy(handle: u64) -> CUresult {
        // SAFETY: a texture object that is destroyed once, when no kernel uses it any more, by the
        // caller's promise.
        unsafe { cu::cuTexObjectDestroy(handle) }
    }

    unsafe fn resource(handle: u64, resource: *mut CUDA_RESOURCE_DESC) -> CUresult {
        // SAFETY: both are what the call asks for, by the caller's promise: a live object, and a
        // place for one description.
        unsafe { cu::cuTexObjectGetResourceDesc(resource, handle) }
    }
}

/// A texture: how kernels sample an array, or device memory.
///
/// A kernel is passed a texture together with what it was created from, [`Texture::bind`], so that
/// the memory cannot be written or freed meanwhile, and is ordered like any other argument. Between
/// launches the memory may change freely. An array lives as long as its textures; linear memory may
/// be freed before, after which the texture cannot be used. Dropping a texture waits for the
/// kernels that were passed it.
///
/// ```no_run
/// use cuda_core::{ArrayFlags, ArrayShape, CudaArray, Device, Texture, TextureDescriptor};
///
/// let context = Device::get(0)?.context()?;
/// let shape = ArrayShape::D2 { width: 64, height: 64 };
/// let image = CudaArray::<f32>::new(&context, shape, ArrayFlags::default())?;
/// let texture = Texture::new(&image, &TextureDescriptor::default())?;
/// let argument = texture.bind(&image)?;
/// # let _ = argument;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct Texture<T: Texel> {
    // Dropped before its source.
    object: Object<TextureKind>,
    made: Made,
    device: Device,
    _texels: PhantomData<T>,
}

impl<T: Texel> Texture<T> {
    /// A texture of `source`: `cuTexObjectCreate`.
    ///
    /// # Errors
    /// [`Error::Flags`] for combinations that CUDA does not define; [`Error::Shape`] for no texels,
    /// and for linear memory whose address or rows the device cannot sample; the driver's
    /// `INVALID_VALUE` for more than the device samples.
    pub fn new<'a>(
        source: impl Into<TextureSource<'a, T>>,
        descriptor: &TextureDescriptor,
    ) -> Result<Self> {
        driver::ensure()?;
        let source = source.into();
        let op = "cuTexObjectCreate";
        descriptor.check::<T>(op)?;
        source.check(op)?;
        let (resource, sampling) = (source.description(), descriptor.as_raw());
        let context = source.context();
        let mut handle = 0;
        context.call(op, || {
            // SAFETY: the call reads two descriptions and writes one handle, all of them locals that
            // outlive it; no view is requested. The memory that the description refers to is borrowed
            // by `source`.
            unsafe { cu::cuTexObjectCreate(&mut handle, &resource, &sampling, std::ptr::null()) }
        })?;
        Ok(Self {
            object: Object::new(context, handle),
            made: source.made(),
            device: context.device(),
            _texels: PhantomData,
        })
    }

    /// The device that it is on.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The driver's handle, valid while `self` lives; zero for one that was
    /// [given up](Error::GivenUp).
    pub fn as_raw(&self) -> CUtexObject {
        self.object.handle()
    }

    /// The texture as a kernel's argument: a `CUtexObject`, with the memory that it samples.
    ///
    /// # Errors
    /// [`Error::Flags`] for other memory than the texture was created from.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # const PTX: &str = "";
    /// # use cuda_core::{Module, Texture, TextureDescriptor};
    /// # let function = Module::from_ptx(&context, PTX)?.function("sample")?;
    /// let table = stream.alloc_zeroed::<f32>(1024)?;
    /// let texture = Texture::new(&table, &TextureDescriptor::default())?;
    /// let mut launch = stream.kernel(&function);
    /// launch.elements(1024).arg(texture.bind(&table)?); // reads `table`, as `arg(&table)` would
    /// // SAFETY: sample(cudaTextureObject_t table) does nothing but that.
    /// unsafe { launch.launch() }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn bind<'a>(&'a self, source: impl Into<TextureSource<'a, T>>) -> Result<BoundTexture<'a>> {
        let source = source.into();
        let op = "texture";
        if !self.made.is(&source.made()) {
            return Err(other_memory(op));
        }
        let (object, context) = self.object.touch()?;
        Ok(BoundTexture { handle: self.as_raw(), context, touches: [object, source.read()] })
    }

    /// How the texture samples, as the driver reports: `cuTexObjectGetTextureDesc`.
    ///
    /// # Errors
    /// The driver's.
    pub fn descriptor(&self) -> Result<TextureDescriptor> {
        let raw = self.object.ask("cuTexObjectGetTextureDesc", |handle, raw| {
            // SAFETY: the handle is live while `self` is; the call writes one structure of this
            // type, to a local of `ask` that outlives it.
            unsafe { cu::cuTexObjectGetTextureDesc(raw, handle) }
        })?;
        Ok(TextureDescriptor::from_raw(&raw))
    }

    /// The driver's description of what it was created from: `cuTexObjectGetResourceDesc`.
    ///
    /// # Errors
    /// The driver's.
    pub fn resource(&self) -> Result<CUDA_RESOURCE_DESC> {
        self.object.resource("cuTexObjectGetResourceDesc")
    }

    /// Destroys the texture, once no work uses it: `cuTexObjectDestroy`. Dropping it does the same,
    /// but reports a failure to the hook of [`set_drop_hook`](crate::set_drop_hook).
    ///
    /// # Errors
    /// Those of the wait for that work, with the texture unchanged; the driver's of the call that
    /// destroys it, with a texture that is [given up](Error::GivenUp).
    pub fn close(mut self) -> Result<(), (Error, Self)> {
        self.object.destroy().map_err(|error| (error, self))
    }
}

/// A texture and what it samples, for as long as both are borrowed: a kernel's argument.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("blur")?;
/// use cuda_core::{ArrayFlags, ArrayShape, BoundTexture, CudaArray, Texture, TextureDescriptor};
///
/// let shape = ArrayShape::D2 { width: 64, height: 64 };
/// let image = CudaArray::<f32>::new(stream.context(), shape, ArrayFlags::default())?;
/// let texture = Texture::new(&image, &TextureDescriptor::default())?;
/// let bound: BoundTexture<'_> = texture.bind(&image)?;
/// // SAFETY: blur(cudaTextureObject_t image) samples the image, and touches nothing else.
/// unsafe { stream.kernel(&function).block((8, 8)).arg(bound).launch() }?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct BoundTexture<'a> {
    handle: CUtexObject,
    context: &'a Context,
    touches: [Touch<'a>; 2],
}

impl<'a> BoundTexture<'a> {
    /// What a launch needs: the parameter's value, the context where it is valid, and the accesses.
    pub(crate) fn into_parts(self) -> (u64, &'a Context, [Touch<'a>; 2]) {
        (self.handle, self.context, self.touches)
    }
}

impl<T: Texel> fmt::Debug for Texture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Texture")
            .field("handle", &self.as_raw())
            .field("array", &self.made.array())
            .field("device", &self.device)
            .finish()
    }
}

impl fmt::Debug for BoundTexture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundTexture").field("handle", &self.handle).finish()
    }
}
