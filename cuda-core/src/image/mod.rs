//! Images: arrays, and the textures and surfaces that kernels see them through.

pub(crate) mod array;
pub(crate) mod texture;
