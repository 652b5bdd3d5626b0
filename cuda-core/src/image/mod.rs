//! Images: arrays, and the textures and surfaces through which kernels access them.
//!
//! A [`CudaArray`] has texels in a layout that the driver chooses, in one to three dimensions, layers
//! or cube faces; a [`MipmappedArray`] also has levels. Kernels sample an array through a [`Texture`],
//! which interpolates and handles coordinates outside of it, and read and write it through a
//! [`Surface`]. Copies to and from arrays are methods of [`Stream`](crate::Stream), ordered like those
//! of buffers.
//!
//! ```no_run
//! use cuda_core::{Device, image::{ArrayFlags, ArrayShape, CudaArray, Texture, TextureDescriptor}};
//!
//! let stream = Device::get(0)?.create_stream()?;
//! let shape = ArrayShape::D2 { width: 64, height: 64 };
//! let mut image = CudaArray::<f32>::new(stream.context(), shape, ArrayFlags::default())?;
//! stream.upload_to_array(&[0.5; 64 * 64], &mut image)?;
//! let texture = Texture::new(&image, &TextureDescriptor::default())?;
//! let argument = texture.bind(&image)?; // for `Launch::arg`
//! # let _ = argument;
//! # Ok::<(), cuda_core::Error>(())
//! ```

pub(crate) mod array;
pub(crate) mod texture;

pub use array::mipmap::{MipLevels, MipmappedArray};
pub use array::shape::{ArrayDescriptor, ArrayFlags, ArrayShape};
pub use array::texel::Texel;
pub use array::texel_side::{TexelDestination, TexelSource};
pub use array::view::{ArraySlice, ArraySliceMut};
pub use array::{CudaArray, OneLevel, TexelArray};
pub use texture::descriptor::{
    AddressMode, Coordinates, FilterMode, MipmapSampling, ReadMode, TextureDescriptor,
};
pub use texture::object::{BoundObject, ImageObject};
pub use texture::surface::{BoundSurface, Surface, SurfaceKind};
pub use texture::view::TextureSource;
pub use texture::{BoundTexture, Texture, TextureKind};
