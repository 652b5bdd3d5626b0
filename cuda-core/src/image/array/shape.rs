//! The shapes of arrays, and the uses that they support.

use cuda_sys::{CUDA_ARRAY3D_DESCRIPTOR, CUarray_format};

use super::texel::Texel;
use crate::error::{Error, Result};
use crate::types::Extent;
use crate::util::{flags, from};

/// The shape of an array, in texels.
///
/// ```
/// use cuda_core::{Extent, image::ArrayShape};
///
/// let photo = ArrayShape::D2 { width: 640, height: 480 };
/// assert_eq!(photo.extent(), Extent::new(640, 480, 1));
/// let sky = ArrayShape::Cubemap { width: 256 };
/// assert_eq!(sky.extent(), Extent::new(256, 256, 6));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ArrayShape {
    /// A single row.
    D1 {
        /// Texels of the row.
        width: usize,
    },
    /// An image: rows of texels.
    D2 {
        /// Texels of a row.
        width: usize,
        /// Rows.
        height: usize,
    },
    /// A volume: slices of rows.
    D3 {
        /// Texels of a row.
        width: usize,
        /// Rows of a slice.
        height: usize,
        /// Slices.
        depth: usize,
    },
    /// Rows that are filtered separately.
    Layered1D {
        /// Texels of a row.
        width: usize,
        /// Rows.
        layers: usize,
    },
    /// Images that are filtered separately.
    Layered2D {
        /// Texels of a row.
        width: usize,
        /// Rows of a layer.
        height: usize,
        /// Layers.
        layers: usize,
    },
    /// The six square faces of a cube: +x, −x, +y, −y, +z, −z.
    Cubemap {
        /// Texels of an edge.
        width: usize,
    },
    /// Several cubes, of six layers each.
    LayeredCubemap {
        /// Texels of an edge.
        width: usize,
        /// Cubes.
        cubes: usize,
    },
}

flags! {
    /// The uses that an array supports besides copies and sampling: the flags of `cuArray3DCreate`.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::image::{ArrayFlags, ArrayShape, CudaArray};
    ///
    /// let shape = ArrayShape::D2 { width: 64, height: 64 };
    /// let canvas = CudaArray::<f32>::new(&context, shape, ArrayFlags::SURFACE_LOAD_STORE)?;
    /// assert!(canvas.flags().contains(ArrayFlags::SURFACE_LOAD_STORE));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    ArrayFlags {
        /// The array has layers: `CUDA_ARRAY3D_LAYERED`. Reported by
        /// [`CudaArray::descriptor`](crate::image::CudaArray::descriptor). The shape determines it; the
        /// caller cannot set it.
        LAYERED = cuda_sys::CUDA_ARRAY3D_LAYERED;
        /// Surfaces, through which kernels write, can be bound to the array:
        /// `CUDA_ARRAY3D_SURFACE_LDST`.
        SURFACE_LOAD_STORE = cuda_sys::CUDA_ARRAY3D_SURFACE_LDST;
        /// The array has the faces of cubes: `CUDA_ARRAY3D_CUBEMAP`. Reported by
        /// [`CudaArray::descriptor`](crate::image::CudaArray::descriptor). The shape determines it; the
        /// caller cannot set it.
        CUBEMAP = cuda_sys::CUDA_ARRAY3D_CUBEMAP;
        /// Kernels can gather four texels at once from the array; only for two-dimensional arrays:
        /// `CUDA_ARRAY3D_TEXTURE_GATHER`.
        TEXTURE_GATHER = cuda_sys::CUDA_ARRAY3D_TEXTURE_GATHER;
    }
}

/// The driver's description of an array; see
/// [`CudaArray::descriptor`](crate::image::CudaArray::descriptor).
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// use cuda_core::image::{ArrayFlags, ArrayShape, CudaArray};
///
/// let shape = ArrayShape::Layered1D { width: 64, layers: 4 };
/// let rows = CudaArray::<[u8; 4]>::new(&context, shape, ArrayFlags::default())?;
/// let descriptor = rows.descriptor()?;
/// assert_eq!((descriptor.width, descriptor.depth, descriptor.channels), (64, 4, 4));
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ArrayDescriptor {
    /// Texels per row.
    pub width: usize,
    /// Rows; zero for a one-dimensional array.
    pub height: usize,
    /// Slices, layers or faces; zero if the array has none.
    pub depth: usize,
    /// The format of a channel.
    pub format: CUarray_format,
    /// Channels of a texel.
    pub channels: u32,
    /// The uses that the array supports, and whether it is [layered](ArrayFlags::LAYERED) or a
    /// [cubemap](ArrayFlags::CUBEMAP).
    pub flags: ArrayFlags,
}

from! {
    [] CUDA_ARRAY3D_DESCRIPTOR => ArrayDescriptor: |raw| Self {
        width: raw.Width,
        height: raw.Height,
        depth: raw.Depth,
        format: raw.Format,
        channels: raw.NumChannels,
        flags: ArrayFlags(raw.Flags),
    };
}

impl ArrayShape {
    /// Returns the size in texels.
    pub fn extent(self) -> Extent {
        let (width, height, depth) = match self {
            Self::D1 { width } => (width, 1, 1),
            Self::D2 { width, height } => (width, height, 1),
            Self::D3 { width, height, depth } => (width, height, depth),
            Self::Layered1D { width, layers } => (width, 1, layers),
            Self::Layered2D { width, height, layers } => (width, height, layers),
            Self::Cubemap { width } => (width, width, 6),
            Self::LayeredCubemap { width, cubes } => (width, width, cubes.saturating_mul(6)),
        };
        Extent::new(width, height, depth)
    }

    /// Returns the size of a level of a mipmap with this shape at level 0. All levels have the same
    /// number of layers.
    pub(super) fn level(self, level: u32) -> Extent {
        let whole = self.extent();
        let half = whole.halved(level);
        match self {
            Self::D1 { .. } | Self::D2 { .. } | Self::D3 { .. } => half,
            _ => Extent { depth: whole.depth, ..half },
        }
    }

    /// Returns the number of levels of a full mipmap, down to one texel.
    pub(super) fn most_levels(self) -> u32 {
        let Extent { width, height, depth } = self.extent();
        let largest = match self {
            Self::D3 { .. } => width.max(height).max(depth),
            _ => width.max(height),
        };
        largest.checked_ilog2().map_or(0, |log| log + 1)
    }

    /// Returns the size in bytes. Returns an error for flags that would make another kind of array, or
    /// one without memory, and for shapes that no array can have.
    pub(super) fn check<T: Texel>(self, op: &'static str, flags: ArrayFlags) -> Result<usize> {
        let known = ArrayFlags::SURFACE_LOAD_STORE | ArrayFlags::TEXTURE_GATHER;
        let why = "an array is made with SURFACE_LOAD_STORE, TEXTURE_GATHER, both or neither";
        Error::unless(known.contains(flags), op, why)?;
        let extent = self.extent();
        Error::unless(!extent.is_empty(), op, "an array has at least one texel in each dimension")?;
        let texels = extent.texels().unwrap_or(usize::MAX);
        let bytes =
            texels.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= isize::MAX as usize);
        bytes.ok_or(Error::SizeOverflow { len: texels, element_size: size_of::<T>() })
    }

    /// Returns the description for `cuArray3DCreate`: zero for absent dimensions.
    pub(super) fn descriptor<T: Texel>(self, flags: ArrayFlags) -> CUDA_ARRAY3D_DESCRIPTOR {
        let Extent { width, height, depth } = self.extent();
        let (height, depth, kind) = match self {
            Self::D1 { .. } => (0, 0, ArrayFlags::NONE),
            Self::D2 { .. } => (height, 0, ArrayFlags::NONE),
            Self::D3 { .. } => (height, depth, ArrayFlags::NONE),
            Self::Layered1D { .. } => (0, depth, ArrayFlags::LAYERED),
            Self::Layered2D { .. } => (height, depth, ArrayFlags::LAYERED),
            Self::Cubemap { .. } => (height, depth, ArrayFlags::CUBEMAP),
            Self::LayeredCubemap { .. } => {
                (height, depth, ArrayFlags::CUBEMAP | ArrayFlags::LAYERED)
            }
        };
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: T::FORMAT,
            NumChannels: T::CHANNELS,
            Flags: (flags | kind).bits(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_halve_what_is_filtered_and_keep_layers() {
        let volume = ArrayShape::D3 { width: 9, height: 4, depth: 2 };
        assert_eq!(volume.most_levels(), 4);
        let last = volume.level(3);
        assert_eq!((last.width, last.height, last.depth), (1, 1, 1));
        let layers = ArrayShape::Layered2D { width: 8, height: 8, layers: 5 };
        let second = layers.level(1);
        assert_eq!((second.width, second.height, second.depth), (4, 4, 5));
        assert_eq!(ArrayShape::D1 { width: 1 }.most_levels(), 1);
    }
}
