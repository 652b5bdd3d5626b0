//! Textures: arrays and device memory that kernels sample.

use std::ptr;

use cuda_sys::symbol as cu;

use crate::error::{Error, Result};
use crate::image::Texel;
use crate::image::array::RawArray;
use crate::process::driver;
use crate::types::Resource;

pub(crate) mod descriptor;
pub(crate) mod object;
pub(crate) mod surface;
pub(crate) mod view;

use descriptor::{Coordinates, TextureDescriptor};
use object::{BoundObject, Describe, Destroy, ImageObject, ObjectKind};
use view::TextureSource;

/// Marks an [`ImageObject`] as a [`Texture`].
#[derive(Debug)]
pub enum TextureKind {}

impl ObjectKind for TextureKind {
    const RESOURCE: Resource = Resource::Texture;
    const NAME: &'static str = "texture";
    const DESTROY: (&'static str, Destroy) = ("cuTexObjectDestroy", cu::cuTexObjectDestroy);
    const DESCRIBE: (&'static str, Describe) =
        ("cuTexObjectGetResourceDesc", cu::cuTexObjectGetResourceDesc);
}

/// A texture, through which kernels sample an array or device memory.
///
/// A kernel is passed a texture together with its source, by [`Texture::bind`]. So the memory cannot be
/// written or freed while the kernel uses it, and is ordered like any other argument. Between launches
/// the memory may change freely. An array lives as long as its textures. A texture does not keep linear
/// memory: after the buffer is dropped, [`Texture::bind`] is impossible, and the texture can only be
/// dropped. Dropping a texture waits for the kernels to which it was passed. A graph to which it was
/// passed keeps both.
///
/// ```no_run
/// use cuda_core::{
///     Device, image::{ArrayFlags, ArrayShape, CudaArray, Texture, TextureDescriptor},
/// };
///
/// let context = Device::get(0)?.context()?;
/// let shape = ArrayShape::D2 { width: 64, height: 64 };
/// let image = CudaArray::<f32>::new(&context, shape, ArrayFlags::default())?;
/// let texture = Texture::new(&image, &TextureDescriptor::default())?;
/// let argument = texture.bind(&image)?;
/// # let _ = argument;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub type Texture<T> = ImageObject<T, TextureKind>;

impl<T: Texel> Texture<T> {
    /// Creates a texture of `source`: `cuTexObjectCreate`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for combinations that CUDA does not define, for a source without texels, and
    /// for linear memory whose address or rows the device cannot sample; the driver's `INVALID_VALUE`
    /// for sizes that exceed the device's limits.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::image::{ArrayFlags, ArrayShape, CudaArray, Texture, TextureDescriptor};
    ///
    /// let shape = ArrayShape::D1 { width: 256 };
    /// let table = CudaArray::<f32>::new(&context, shape, ArrayFlags::default())?;
    /// let texture = Texture::new(&table, &TextureDescriptor::default())?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuTexObjectCreate", "cudaCreateTextureObject"))]
    pub fn new<'a>(
        source: impl Into<TextureSource<'a, T>>,
        descriptor: &TextureDescriptor,
    ) -> Result<Self> {
        driver::ensure()?;
        let source = source.into();
        let op = "cuTexObjectCreate";
        descriptor.check::<T>(op)?;
        source.made.check(op, source.context.device())?;
        let has_levels = matches!(source.made.array(), Some(RawArray::Mipmapped(_)));
        let why = "levels want normalised coordinates: `with_coordinates(Coordinates::Normalized)`";
        Error::unless(!has_levels || descriptor.coordinates == Coordinates::Normalized, op, why)?;
        let (resource, sampling) = (source.made.description::<T>(), descriptor.as_raw());
        let handle = source.context.call(op, 0, |handle| {
            // SAFETY: the call reads two descriptions and writes one handle, all of them borrowed for
            // longer than the call; no view is requested. `source` borrows the memory that the
            // description refers to.
            unsafe { cu::cuTexObjectCreate(handle, &resource, &sampling, ptr::null()) }
        })?;
        Ok(Self::own(source.context, handle, source.made))
    }

    /// Returns the texture as a kernel's argument: a `CUtexObject`, with the memory that it samples.
    ///
    /// # Errors
    /// [`Error::Invalid`] for memory other than that from which the texture was created.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # const PTX: &str = "";
    /// # use cuda_core::{Module, image::{Texture, TextureDescriptor}};
    /// # let function = Module::from_ptx(&context, PTX)?.function("sample")?;
    /// let table = stream.alloc_zeroed::<f32>(1024)?;
    /// let texture = Texture::new(&table, &TextureDescriptor::default())?;
    /// // It reads `table`, as `arg(&table)` would.
    /// let mut launch = stream.kernel(&function).elements(1024).arg(texture.bind(&table)?);
    /// // SAFETY: sample(cudaTextureObject_t table) does nothing but that.
    /// unsafe { launch.launch() }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn bind<'a>(&'a self, source: impl Into<TextureSource<'a, T>>) -> Result<BoundTexture<'a>> {
        let source = source.into();
        self.bound(&source.made, source.touch)
    }

    /// Returns how the texture samples, as the driver reports: `cuTexObjectGetTextureDesc`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuTexObjectGetTextureDesc", "cudaGetTextureObjectTextureDesc"))]
    pub fn descriptor(&self) -> Result<TextureDescriptor> {
        let raw = self.ask("cuTexObjectGetTextureDesc", |handle, raw| {
            // SAFETY: the handle is live while `self` is; the call writes one structure of this
            // type, to an exclusive borrow.
            unsafe { cu::cuTexObjectGetTextureDesc(raw, handle) }
        })?;
        Ok(TextureDescriptor::from_raw(&raw))
    }
}

/// A texture and the memory that it samples, while both are borrowed: a kernel's argument.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("blur")?;
/// use cuda_core::{
///     image::{ArrayFlags, ArrayShape, BoundTexture, CudaArray, Texture, TextureDescriptor},
/// };
///
/// let shape = ArrayShape::D2 { width: 64, height: 64 };
/// let image = CudaArray::<f32>::new(stream.context(), shape, ArrayFlags::default())?;
/// let texture = Texture::new(&image, &TextureDescriptor::default())?;
/// let bound: BoundTexture<'_> = texture.bind(&image)?;
/// // SAFETY: blur(cudaTextureObject_t image) samples the image, and touches nothing else.
/// unsafe { stream.kernel(&function).block((8, 8)).arg(bound).launch() }?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub type BoundTexture<'a> = BoundObject<'a, TextureKind>;
