//! Sizes of grids, blocks and clusters.

use std::fmt;

use crate::util::from::from;

/// A size in up to three dimensions; those left out are 1.
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
    /// The second.
    pub y: u32,
    /// The third.
    pub z: u32,
}

impl Dimensions {
    pub(super) const ONE: Self = Self { x: 1, y: 1, z: 1 };

    /// The product.
    pub fn volume(self) -> u128 {
        u128::from(self.x) * u128::from(self.y) * u128::from(self.z)
    }

    /// Whether no dimension is zero, or more than that of `most`.
    #[inline]
    pub(super) fn is_within(self, most: Self) -> bool {
        let fits = |size: u32, most: u32| size.wrapping_sub(1) < most;
        fits(self.x, most.x) && fits(self.y, most.y) && fits(self.z, most.z)
    }
}

/// `4`, `4x2` or `4x2x8`.
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
