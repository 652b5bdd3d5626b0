//! The shapes of arrays, and what they are for.

use std::ops::BitOr;

use cuda_sys::{CUDA_ARRAY3D_DESCRIPTOR, CUarray_format};

use super::texel::Texel;
use crate::error::{Error, Result};

/// The shape of an array, in texels.
///
/// ```no_run
/// use cuda_core::{ArrayShape, Extent};
///
/// let photo = ArrayShape::D2 { width: 640, height: 480 };
/// assert_eq!(photo.extent(), Extent::new(640, 480, 1));
/// let sky = ArrayShape::Cubemap { width: 256 };
/// assert_eq!(sky.extent(), Extent::new(256, 256, 6));
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ArrayShape {
    /// A row.
    D1 {
        /// Texels of the row.
        width: usize,
    },
    /// Rows.
    D2 {
        /// Texels of a row.
        width: usize,
        /// Rows.
        height: usize,
    },
    /// Slices of rows.
    D3 {
        /// Texels of a row.
        width: usize,
        /// Rows of a slice.
        height: usize,
        /// Slices.
        depth: usize,
    },
    /// Rows that are filtered each on its own.
    Layered1D {
        /// Texels of a row.
        width: usize,
        /// Rows.
        layers: usize,
    },
    /// Images that are filtered each on its own.
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

/// A place in an array, or the size of a part of it, in texels: across, down, and slices or layers.
/// A shape that lacks one of these has one row, or one slice.
///
/// ```no_run
/// use cuda_core::{ArrayShape, Extent};
///
/// let sky = ArrayShape::LayeredCubemap { width: 64, cubes: 2 };
/// assert_eq!(sky.extent(), Extent { width: 64, height: 64, depth: 12 });
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Along a row.
    pub width: usize,
    /// Across rows.
    pub height: usize,
    /// Across slices, layers or faces.
    pub depth: usize,
}

/// What an array can do beside being copied and sampled: the flags of `cuArray3DCreate`.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// use cuda_core::{ArrayFlags, ArrayShape, CudaArray};
///
/// let shape = ArrayShape::D2 { width: 64, height: 64 };
/// let canvas = CudaArray::<f32>::new(&context, shape, ArrayFlags::SURFACE_LOAD_STORE)?;
/// assert!(canvas.flags().contains(ArrayFlags::SURFACE_LOAD_STORE));
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ArrayFlags(pub u32);

impl ArrayFlags {
    /// Surfaces can be bound to the array, through which kernels write it.
    pub const SURFACE_LOAD_STORE: Self = Self(2);
    /// Kernels can gather four texels at once from it; two-dimensional arrays alone.
    pub const TEXTURE_GATHER: Self = Self(8);

    /// Whether all of `other` are among these.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Refuses what would make another kind of array, or one without memory.
    pub(super) fn check(self, op: &'static str) -> Result<()> {
        if (Self::SURFACE_LOAD_STORE | Self::TEXTURE_GATHER).contains(self) {
            return Ok(());
        }
        Err(Error::Flags {
            op,
            why: "there are SURFACE_LOAD_STORE and TEXTURE_GATHER",
        })
    }
}

impl BitOr for ArrayFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What an array takes; see
/// [`CudaArray::memory_requirements`](crate::CudaArray::memory_requirements).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArrayMemoryRequirements {
    /// Bytes of device memory.
    pub size: usize,
    /// At which multiple of so many bytes they begin.
    pub alignment: usize,
}

/// The array is made without memory, which nobody gives it here.
pub(super) const DEFERRED_MAPPING: ArrayFlags = ArrayFlags(0x80);

const LAYERED: u32 = 1;
const CUBEMAP: u32 = 4;

/// What the driver says of an array; see [`CudaArray::descriptor`](crate::CudaArray::descriptor).
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// use cuda_core::{ArrayFlags, ArrayShape, CudaArray};
///
/// let shape = ArrayShape::Layered1D { width: 64, layers: 4 };
/// let rows = CudaArray::<[u8; 4]>::new(&context, shape, ArrayFlags::default())?;
/// let descriptor = rows.descriptor()?;
/// assert_eq!((descriptor.width, descriptor.depth, descriptor.channels), (64, 4, 4));
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArrayDescriptor {
    /// Texels of a row.
    pub width: usize,
    /// Rows; zero for one dimension.
    pub height: usize,
    /// Slices, layers or faces; zero for none of those.
    pub depth: usize,
    /// The format of a channel.
    pub format: CUarray_format,
    /// Channels of a texel.
    pub channels: u32,
    /// What the array can do, layers (1) and cubemaps (4) included.
    pub flags: ArrayFlags,
}

impl From<CUDA_ARRAY3D_DESCRIPTOR> for ArrayDescriptor {
    fn from(raw: CUDA_ARRAY3D_DESCRIPTOR) -> Self {
        Self {
            width: raw.Width,
            height: raw.Height,
            depth: raw.Depth,
            format: raw.Format,
            channels: raw.NumChannels,
            flags: ArrayFlags(raw.Flags),
        }
    }
}

impl Extent {
    /// The extent `width` × `height` × `depth`.
    pub const fn new(width: usize, height: usize, depth: usize) -> Self {
        Self {
            width,
            height,
            depth,
        }
    }

    /// Texels in it; [`None`] if that is more than a number holds.
    pub(crate) fn texels(self) -> Option<usize> {
        let slice = self.width.checked_mul(self.height)?;
        slice.checked_mul(self.depth)
    }

    /// One level further down a mipmap: half of everything, but not nothing.
    fn halved(self, times: u32) -> Self {
        let half = |size: usize| size.checked_shr(times).unwrap_or(0).max(1);
        Self {
            width: half(self.width),
            height: half(self.height),
            depth: half(self.depth),
        }
    }
}

impl ArrayShape {
    /// Its size in texels.
    pub fn extent(self) -> Extent {
        let (width, height, depth) = match self {
            Self::D1 { width } => (width, 1, 1),
            Self::D2 { width, height } => (width, height, 1),
            Self::D3 {
                width,
                height,
                depth,
            } => (width, height, depth),
            Self::Layered1D { width, layers } => (width, 1, layers),
            Self::Layered2D {
                width,
                height,
                layers,
            } => (width, height, layers),
            Self::Cubemap { width } => (width, width, 6),
            Self::LayeredCubemap { width, cubes } => (width, width, cubes.saturating_mul(6)),
        };
        Extent {
            width,
            height,
            depth,
        }
    }

    /// The size of a level of a mipmap with this shape at level 0. Layers stay as many.
    pub(super) fn level(self, level: u32) -> Extent {
        let whole = self.extent();
        let half = whole.halved(level);
        match self {
            Self::D1 { .. } | Self::D2 { .. } | Self::D3 { .. } => half,
            _ => Extent {
                depth: whole.depth,
                ..half
            },
        }
    }

    /// Levels of a whole mipmap, down to one texel.
    pub(super) fn most_levels(self) -> u32 {
        let Extent {
            width,
            height,
            depth,
        } = self.extent();
        let largest = match self {
            Self::D3 { .. } => width.max(height).max(depth),
            _ => width.max(height),
        };
        largest.checked_ilog2().map_or(0, |log| log + 1)
    }

    /// Refuses what no array can be.
    pub(super) fn check<T: Texel>(self, op: &'static str) -> Result<()> {
        let extent = self.extent();
        if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
            return Err(Error::Shape {
                op,
                why: "an array has at least one texel in each dimension",
            });
        }
        let texels = extent.texels().unwrap_or(usize::MAX);
        let bytes = texels.checked_mul(size_of::<T>());
        match bytes.filter(|bytes| *bytes <= isize::MAX as usize) {
            Some(_) => Ok(()),
            None => Err(Error::SizeOverflow {
                len: texels,
                element_size: size_of::<T>(),
            }),
        }
    }

    /// What `cuArray3DCreate` wants to be told: zero for dimensions that there are not.
    pub(super) fn descriptor<T: Texel>(self, flags: ArrayFlags) -> CUDA_ARRAY3D_DESCRIPTOR {
        let extent = self.extent();
        let (height, depth, kind) = match self {
            Self::D1 { .. } => (0, 0, 0),
            Self::D2 { .. } => (extent.height, 0, 0),
            Self::D3 { .. } => (extent.height, extent.depth, 0),
            Self::Layered1D { .. } => (0, extent.depth, LAYERED),
            Self::Layered2D { .. } => (extent.height, extent.depth, LAYERED),
            Self::Cubemap { .. } => (extent.height, extent.depth, CUBEMAP),
            Self::LayeredCubemap { .. } => (extent.height, extent.depth, CUBEMAP | LAYERED),
        };
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: extent.width,
            Height: height,
            Depth: depth,
            Format: T::FORMAT,
            NumChannels: T::CHANNELS,
            Flags: flags.0 | kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_halve_what_is_filtered_and_keep_layers() {
        let volume = ArrayShape::D3 {
            width: 9,
            height: 4,
            depth: 2,
        };
        assert_eq!(volume.most_levels(), 4);
        let last = volume.level(3);
        assert_eq!((last.width, last.height, last.depth), (1, 1, 1));
        let layers = ArrayShape::Layered2D {
            width: 8,
            height: 8,
            layers: 5,
        };
        let second = layers.level(1);
        assert_eq!((second.width, second.height, second.depth), (4, 4, 5));
        assert_eq!(ArrayShape::D1 { width: 1 }.most_levels(), 1);
    }
}
