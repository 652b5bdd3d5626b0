//! Sizes and positions, in elements.

use std::fmt;

use crate::util::from;

/// A size in up to three dimensions, in elements or texels: along a row, across rows, and across slices,
/// layers or faces. A shape that lacks a dimension has one row, or one slice.
///
/// ```
/// use cuda_core::{Extent, image::ArrayShape};
///
/// let sky = ArrayShape::LayeredCubemap { width: 64, cubes: 2 };
/// assert_eq!(sky.extent(), Extent { width: 64, height: 64, depth: 12 });
/// assert_eq!(Extent::from((640, 480)), Extent::new(640, 480, 1));
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

/// A position in an array, in texels: along the row, down the rows, and into the slices, layers or
/// faces. A coordinate left out of a tuple is zero.
///
/// ```
/// use cuda_core::Origin;
///
/// assert_eq!(Origin::from((48, 16)), Origin { x: 48, y: 16, z: 0 });
/// assert_eq!(Origin::default(), Origin::ZERO);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Origin {
    /// The texel of a row.
    pub x: usize,
    /// The row.
    pub y: usize,
    /// The slice, layer or face.
    pub z: usize,
}

/// `(48, 16, 0)`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { x, y, z } = self;
        write!(f, "({x}, {y}, {z})")
    }
}

impl Extent {
    /// The extent `width` × `height` × `depth`.
    pub const fn new(width: usize, height: usize, depth: usize) -> Self {
        Self { width, height, depth }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    /// Returns the number of texels; [`None`] if it overflows.
    pub(crate) fn texels(self) -> Option<usize> {
        let slice = self.width.checked_mul(self.height)?;
        slice.checked_mul(self.depth)
    }

    /// Returns the size `times` levels further down a mipmap: each level halves each dimension, to at least
    /// 1.
    pub(crate) fn halved(self, times: u32) -> Self {
        let half = |size: usize| size.checked_shr(times).unwrap_or(0).max(1);
        Self { width: half(self.width), height: half(self.height), depth: half(self.depth) }
    }
}

impl Origin {
    /// The first texel.
    pub const ZERO: Self = Self::new(0, 0, 0);

    /// The position `x`, `y`, `z`.
    pub const fn new(x: usize, y: usize, z: usize) -> Self {
        Self { x, y, z }
    }
}

/// "640 × 480", or "640 × 480 × 2" if there is more than one slice.
impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.width, self.height)?;
        match self.depth {
            1 => Ok(()),
            depth => write!(f, " × {depth}"),
        }
    }
}

from! {
    [] usize => Extent: |x| Self::new(x, 1, 1);
    [] (usize, usize) => Extent: |pair| Self::new(pair.0, pair.1, 1);
    [] (usize, usize, usize) => Extent: |all| Self::new(all.0, all.1, all.2);
    [] usize => Origin: |x| Self::new(x, 0, 0);
    [] (usize, usize) => Origin: |pair| Self::new(pair.0, pair.1, 0);
    [] (usize, usize, usize) => Origin: |all| Self::new(all.0, all.1, all.2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_one_size_and_the_first_place() {
        assert_eq!(Extent::from(7), Extent::new(7, 1, 1));
        assert_eq!(Extent::from((7, 5)), Extent::new(7, 5, 1));
        assert_eq!(Origin::from(7), Origin::new(7, 0, 0));
        assert_eq!(Origin::from((7, 5)), Origin::new(7, 5, 0));
        assert_eq!(Extent::new(640, 480, 1).to_string(), "640 × 480");
        assert_eq!(Extent::new(640, 480, 0).to_string(), "640 × 480 × 0");
    }
}
