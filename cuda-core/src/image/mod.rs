//! Images: arrays, and the textures and surfaces that kernels see them through.

pub(crate) mod array;
pub(crate) mod texture;

pub use array::mipmap::{MipLevels, MipmappedArray};
pub use array::shape::{ArrayDescriptor, ArrayFlags, ArrayMemoryRequirements, ArrayShape};
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
