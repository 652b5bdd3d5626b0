//! The memory that a texture can be created from.

use std::marker::PhantomData;
use std::sync::Arc;

use cuda_sys::{CUDA_RESOURCE_DESC, CUdeviceptr};

use crate::context::{Context, RawContext};
use crate::copy::Pitched;
use crate::device::{Device, DeviceAttribute};
use crate::error::{Error, Result};
use crate::image::array::{ArrayMemory, RawArray};
use crate::image::{Texel, TexelArray};
use crate::memory::{Buffer, DeviceMemory, DeviceSlice, SharedSlice, Storage};
use crate::timeline::ledger::{Access, InGraphs, Touch};
use crate::types::{Extent, Pod};
use crate::util::{debug_by, from};

/// The source of a texture, to create it and to use it: an array, mipmapped or not; a row of device
/// memory; or several rows of it, one below the other.
///
/// It is converted from references to arrays and buffers, and from views; see [`TextureSource::plane`]
/// for rows.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let stream = context.create_stream()?;
/// use cuda_core::{
///     Result, image::{ArrayFlags, ArrayShape, CudaArray, Texture, TextureDescriptor},
/// };
/// use cuda_core::image::{Texel, TextureSource};
///
/// fn nearest<'a, T: Texel>(source: impl Into<TextureSource<'a, T>>) -> Result<Texture<T>> {
///     Texture::new(source, &TextureDescriptor::default())
/// }
/// let shape = ArrayShape::D2 { width: 64, height: 64 };
/// let image = CudaArray::<f32>::new(&context, shape, ArrayFlags::default())?;
/// let row = stream.alloc::<f32>(1024)?;
/// let (of_image, of_row) = (nearest(&image)?, nearest(&row)?);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct TextureSource<'a, T: Texel> {
    pub(super) context: &'a Context,
    pub(super) made: Made,
    pub(super) touch: Touch<'a>,
    _texels: PhantomData<&'a [T]>,
}

/// Rows of linear memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plane {
    width: usize,
    height: usize,
    /// Bytes from row to row.
    pitch: usize,
}

/// What a texture or surface was created from: enough to recognise it.
#[derive(Clone)]
pub(super) enum Made {
    /// An array, kept alive by this reference.
    Array(Arc<Storage<ArrayMemory>>),
    /// Linear memory, which its owner frees. The texture cannot be used without it. The context is
    /// compared, too, since another context may have other memory at the same address.
    Memory { context: RawContext, address: CUdeviceptr, bytes: usize, plane: Option<Plane> },
}

impl<'a, T: Texel> TextureSource<'a, T> {
    /// Makes a source of rows of device memory, of one slice.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are no texels, or several slices.
    ///
    /// ```no_run
    /// # use cuda_core::{Device, image::{Texture, TextureDescriptor, TextureSource}};
    /// # let context = Device::get(0)?.context()?;
    /// let image = context.alloc_pitched::<f32>(100, 50)?;
    /// let rows = TextureSource::plane(image.pitched()?)?;
    /// let texture = Texture::new(rows, &TextureDescriptor::default())?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn plane(rows: Pitched<'a, T, DeviceMemory>) -> Result<Self> {
        let (bytes, geometry) = rows.into_parts();
        let Extent { width, height, depth } = geometry.extent;
        let is_plane = width > 0 && height > 0 && depth == 1;
        let why = "a plane has at least one texel and exactly one slice";
        Error::unless(is_plane, "cuTexObjectCreate", why)?;
        let plane = Plane { width, height, pitch: geometry.pitch };
        Ok(Self::linear(bytes, Some(plane)))
    }

    fn linear<U: Pod>(view: DeviceSlice<'a, U>, plane: Option<Plane>) -> Self {
        let (context, address, bytes) = (view.context(), view.as_raw(), view.byte_len());
        let made = Made::Memory { context: context.raw(), address, bytes, plane };
        Self { context, made, touch: view.read(), _texels: PhantomData }
    }
}

/// Returns the access to all of an array.
pub(super) fn whole(storage: &Storage<ArrayMemory>, access: Access) -> Touch<'_> {
    let block = storage.block();
    Touch::shared(&block.ledger, block.whole(), access, InGraphs::Kept)
}

impl Made {
    /// Returns the description for the driver.
    pub(super) fn description<T: Texel>(&self) -> CUDA_RESOURCE_DESC {
        let mut resource = CUDA_RESOURCE_DESC::default();
        match self {
            Made::Array(storage) => match storage.block().address {
                RawArray::Single(raw) => {
                    resource.resType = cuda_sys::CU_RESOURCE_TYPE_ARRAY;
                    resource.res.array.hArray = raw.0;
                }
                RawArray::Mipmapped(raw) => {
                    resource.resType = cuda_sys::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
                    resource.res.mipmap.hMipmappedArray = raw.0;
                }
            },
            Made::Memory { address, bytes, plane: None, .. } => {
                resource.resType = cuda_sys::CU_RESOURCE_TYPE_LINEAR;
                resource.res.linear.devPtr = *address;
                resource.res.linear.format = T::FORMAT;
                resource.res.linear.numChannels = T::CHANNELS;
                resource.res.linear.sizeInBytes = *bytes;
            }
            Made::Memory { address, plane: Some(plane), .. } => {
                resource.resType = cuda_sys::CU_RESOURCE_TYPE_PITCH2D;
                resource.res.pitch2D.devPtr = *address;
                resource.res.pitch2D.format = T::FORMAT;
                resource.res.pitch2D.numChannels = T::CHANNELS;
                resource.res.pitch2D.width = plane.width;
                resource.res.pitch2D.height = plane.height;
                resource.res.pitch2D.pitchInBytes = plane.pitch;
            }
        }
        resource
    }

    /// Returns an error for an array that was given up, and for linear memory that the device cannot
    /// sample.
    pub(super) fn check(&self, op: &'static str, device: Device) -> Result<()> {
        let (address, bytes, plane) = match self {
            Made::Array(storage) => return storage.ensure(),
            Made::Memory { address, bytes, plane, .. } => (*address, *bytes, plane),
        };
        Error::unless(bytes != 0, op, "a texture has at least one texel")?;
        let aligned = |to: DeviceAttribute, what: u64, why| {
            let to = u64::try_from(device.attribute(to)?).unwrap_or(1).max(1);
            Error::unless(what % to == 0, op, why)
        };
        let why = "the memory does not begin at a multiple of the device's TEXTURE_ALIGNMENT";
        aligned(cuda_sys::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, address, why)?;
        let attribute = cuda_sys::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT;
        let why = "the rows do not begin at multiples of the device's TEXTURE_PITCH_ALIGNMENT";
        plane.map_or(Ok(()), |plane| aligned(attribute, plane.pitch as u64, why))
    }

    /// Whether both are the same memory.
    pub(super) fn is(&self, other: &Self) -> bool {
        let key = |made: &Self| match made {
            Made::Array(storage) => (Some(Arc::as_ptr(storage)), None),
            Made::Memory { context, address, bytes, .. } => {
                (None, Some((*context, *address, *bytes)))
            }
        };
        key(self) == key(other)
    }

    /// Returns the array's handle, if this is an array.
    pub(super) fn array(&self) -> Option<RawArray> {
        match self {
            Made::Array(storage) => Some(storage.block().address),
            Made::Memory { .. } => None,
        }
    }
}

from! {
    ['a, T: Texel, L] &'a TexelArray<T, L> => TextureSource<'a, T>: |array| {
        let (context, storage) = (array.context(), array.storage());
        let (made, touch) = (Made::Array(storage.clone()), whole(storage, Access::Read));
        Self { context, made, touch, _texels: PhantomData }
    };
    ['a, T: Texel] DeviceSlice<'a, T> => TextureSource<'a, T>: |it| Self::linear(it, None);
    ['a, T: Texel, X] &'a Buffer<T, DeviceMemory, X> => TextureSource<'a, T>:
        |it| it.as_view().into();
    ['a, T: Texel] &'a SharedSlice<T, DeviceMemory> => TextureSource<'a, T>: |it| it.as_view().into();
}

debug_by! { [T: Texel] TextureSource<'_, T>: |it| "TextureSource" { array: it.made.array() } }
