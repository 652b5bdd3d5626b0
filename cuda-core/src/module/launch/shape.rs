//! The shape of a launch: everything it asks for besides its arguments.

use std::{fmt, ptr};

use cuda_sys::{CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CUlaunchConfig};

use super::attributes::Attributes;
use super::limits::LaunchLimits;
use crate::error::Result;
use crate::module::Function;
use crate::util::from;

/// A size in up to three dimensions; omitted dimensions are 1.
///
/// ```
/// use cuda_core::Dimensions;
///
/// assert_eq!(Dimensions::from(8), Dimensions { x: 8, y: 1, z: 1 });
/// assert_eq!(Dimensions::from((8, 4)).volume(), 32);
/// assert_eq!(Dimensions::from((8, 4)).to_string(), "8x4");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias("dim3"))]
pub struct Dimensions {
    /// The first dimension, in which neighbouring indices are adjacent.
    pub x: u32,
    /// The second dimension.
    pub y: u32,
    /// The third dimension.
    pub z: u32,
}

impl Dimensions {
    pub(super) const ONE: Self = Self { x: 1, y: 1, z: 1 };
    pub(super) const NONE: Self = Self { x: 0, y: 1, z: 1 };

    /// The product of the dimensions.
    pub fn volume(self) -> u128 {
        u128::from(self.x) * u128::from(self.y) * u128::from(self.z)
    }

    /// Returns whether no dimension is zero, or more than the same dimension of `most`.
    #[inline]
    pub(super) fn is_within(self, most: [u32; 3]) -> bool {
        let fits = |size: u32, most: u32| size.wrapping_sub(1) < most;
        fits(self.x, most[0]) && fits(self.y, most[1]) && fits(self.z, most[2])
    }
}

/// Writes `4`, `4x2` or `4x2x8`.
impl fmt::Display for Dimensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { x, y: 1, z: 1 } => write!(f, "{x}"),
            Self { x, y, z: 1 } => write!(f, "{x}x{y}"),
            Self { x, y, z } => write!(f, "{x}x{y}x{z}"),
        }
    }
}

from! {
    [] u32 => Dimensions: |x| Self { x, ..Self::ONE };
    [] (u32, u32) => Dimensions: |xy| Self { x: xy.0, y: xy.1, z: 1 };
    [] (u32, u32, u32) => Dimensions: |xyz| Self { x: xyz.0, y: xyz.1, z: xyz.2 };
    [] [u32; 3] => Dimensions: |xyz| Self { x: xyz[0], y: xyz[1], z: xyz[2] };
}

/// Everything a launch asks for besides its arguments.
pub(super) struct LaunchShape {
    pub(super) grid: Dimensions,
    pub(super) block: Dimensions,
    pub(super) dynamic_shared: usize,
    pub(super) attributes: Attributes,
}

impl LaunchShape {
    /// One block, whose size is still to be set.
    pub(super) const UNSET: Self = Self {
        grid: Dimensions::ONE,
        block: Dimensions::NONE,
        dynamic_shared: 0,
        attributes: Attributes::NONE,
    };

    /// Returns the driver's description, without the stream. Refuses a shape that would certainly
    /// fail.
    #[inline(always)]
    pub(super) fn config(
        &mut self,
        function: &Function,
        limits: &LaunchLimits,
    ) -> Result<CUlaunchConfig> {
        let Self { grid, block, dynamic_shared, attributes } = self;
        limits.check_shape(function, *grid, *block)?;
        let shared = limits.check_shared(function, *dynamic_shared)?;
        let attributes = attributes.as_mut_slice();
        Ok(CUlaunchConfig {
            gridDimX: grid.x,
            gridDimY: grid.y,
            gridDimZ: grid.z,
            blockDimX: block.x,
            blockDimY: block.y,
            blockDimZ: block.z,
            sharedMemBytes: shared,
            hStream: ptr::null_mut(),
            numAttrs: attributes.len() as u32,
            attrs: attributes.as_mut_ptr(),
        })
    }
}

impl fmt::Display for LaunchShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grid, block, dynamic_shared, attributes } = self;
        write!(f, "grid {grid}, block {block}")?;
        if let Some([x, y, z]) = attributes.get(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            write!(f, ", cluster {}", Dimensions { x, y, z })?;
        }
        match dynamic_shared {
            0 => Ok(()),
            bytes => write!(f, ", {bytes} bytes of dynamic shared memory"),
        }
    }
}
