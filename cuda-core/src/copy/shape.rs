//! The shape of elements laid out in rows and slices.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::types::{Extent, Origin};

/// The number of elements in each direction, and the distances between rows and slices.
///
/// A row is `width` elements side by side, a slice is `height` rows, a volume is `depth` slices.
/// Rows begin [`pitch`](Self::with_pitch) bytes apart, slices
/// [`slice_height`](Self::with_slice_height) rows apart. By default there are no gaps.
///
/// ```
/// use cuda_core::Shape;
///
/// let image = Shape::plane(640, 480).with_pitch(4096);
/// let volume = Shape::volume(64, 64, 32).with_slice_height(100);
/// # let _ = (image, volume);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    extent: Extent,
    pitch: Option<usize>,
    slice_height: Option<usize>,
}

impl Shape {
    /// Returns a shape of `height` rows of `width` elements.
    pub const fn plane(width: usize, height: usize) -> Self {
        Self::volume(width, height, 1)
    }

    /// Returns a shape of `depth` slices of `height` rows of `width` elements.
    pub const fn volume(width: usize, height: usize, depth: usize) -> Self {
        Self { extent: Extent::new(width, height, depth), pitch: None, slice_height: None }
    }

    /// Sets the distance between the beginnings of rows, in bytes.
    #[must_use = "returns a new shape"]
    pub const fn with_pitch(mut self, bytes: usize) -> Self {
        self.pitch = Some(bytes);
        self
    }

    /// Sets the distance between the beginnings of slices, in rows.
    ///
    /// ```
    /// use cuda_core::Shape;
    ///
    /// // The upper half of each slice of a volume of 64 × 64 × 8 floats.
    /// let upper = Shape::volume(64, 32, 8).with_pitch(64 * 4).with_slice_height(64);
    /// assert_eq!((upper.height(), upper.depth()), (32, 8));
    /// ```
    #[must_use = "returns a new shape"]
    pub const fn with_slice_height(mut self, rows: usize) -> Self {
        self.slice_height = Some(rows);
        self
    }

    /// Returns the number of elements in a row.
    pub const fn width(self) -> usize {
        self.extent.width
    }

    /// Returns the number of rows in a slice.
    pub const fn height(self) -> usize {
        self.extent.height
    }

    /// Returns the number of slices.
    pub const fn depth(self) -> usize {
        self.extent.depth
    }
}

/// A shape of elements of known size, with all distances checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) extent: Extent,
    // INVARIANT: at most `pitch`.
    pub(crate) row: usize,
    pub(crate) pitch: usize,
    // INVARIANT: at least `extent.height`.
    pub(crate) slice_height: usize,
    /// Bytes from the beginning of the first row to the end of the last; zero if there are no
    /// elements.
    pub(crate) span: usize,
}

impl Geometry {
    /// Returns the shape with explicit distances.
    pub(crate) fn shape(self) -> Shape {
        Shape {
            extent: self.extent,
            pitch: Some(self.pitch),
            slice_height: Some(self.slice_height),
        }
    }

    /// Returns the planes of the shape: the offset of each, in bytes, and its number of rows.
    pub(crate) fn planes(self) -> impl Iterator<Item = (usize, usize)> {
        let Extent { height, depth, .. } = self.extent;
        let (planes, rows) = if height == self.slice_height {
            // Slices without a gap between them are one plane.
            (1, height * depth)
        } else {
            (depth, height)
        };
        (0..planes).map(move |z| (z * self.slice_height * self.pitch, rows))
    }

    /// Returns the extent with its first dimension in bytes: an element may be larger than a piece of a
    /// copy.
    pub(crate) fn in_bytes(self) -> Extent {
        Extent { width: self.row, ..self.extent }
    }

    /// Returns the bytes from the first to the last of a non-empty part; `origin` and `extent` are in
    /// bytes in the first dimension.
    pub(crate) fn range(self, origin: Origin, extent: Extent) -> Range<usize> {
        let row = |y: usize, z: usize| (z * self.slice_height + y) * self.pitch + origin.x;
        let last = row(origin.y + extent.height - 1, origin.z + extent.depth - 1);
        row(origin.y, origin.z)..last + extent.width
    }

    pub(crate) fn of<T>(shape: Shape) -> Result<Self> {
        let extent = shape.extent;
        let overflow = |len| Error::SizeOverflow { len, element_size: size_of::<T>() };
        let row = extent.width.checked_mul(size_of::<T>()).ok_or(overflow(extent.width))?;
        let pitch = shape.pitch.unwrap_or(row);
        let slice_height = shape.slice_height.unwrap_or(extent.height);
        let why = || format!("a row of {row} bytes is longer than the pitch of {pitch} bytes");
        Error::unless_with(row <= pitch, OP, why)?;
        let height = extent.height;
        let why = || format!("slices of {height} rows begin only {slice_height} rows apart");
        Error::unless_with(height <= slice_height, OP, why)?;
        let span = if extent.is_empty() || row == 0 {
            Some(0)
        } else {
            let rows_before = (extent.depth - 1)
                .checked_mul(slice_height)
                .and_then(|rows| rows.checked_add(extent.height - 1));
            rows_before
                .and_then(|rows| rows.checked_mul(pitch))
                .and_then(|bytes| bytes.checked_add(row))
        };
        Ok(Self { extent, row, pitch, slice_height, span: span.ok_or(overflow(usize::MAX))? })
    }
}

/// The operation named by errors about a shape: a view of memory as rows.
const OP: &str = "pitched view";

/// Returns an error if the ends of a copy differ in shape.
pub(crate) fn same_extent(op: &'static str, from: Extent, to: Extent) -> Result<()> {
    Error::unless_with(from == to, op, || format!("the source is {from}, the destination {to}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(shape: Shape) -> Option<usize> {
        Geometry::of::<u32>(shape).ok().map(|geometry| geometry.span)
    }

    #[test]
    fn the_span_ends_with_the_last_element() {
        assert_eq!(span(Shape::plane(3, 2)), Some(24));
        assert_eq!(span(Shape::plane(3, 2).with_pitch(100)), Some(112));
        assert_eq!(span(Shape::volume(3, 2, 2).with_pitch(16)), Some(60));
        let apart = Shape::volume(3, 2, 2).with_pitch(16).with_slice_height(5);
        assert_eq!(span(apart), Some(16 * 6 + 12));
        for nothing in [Shape::plane(0, 9), Shape::plane(9, 0), Shape::volume(1, 1, 0)] {
            assert_eq!(span(nothing.with_pitch(1000)), Some(0));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(span(Shape::plane(3, 2).with_pitch(11)), None);
        assert_eq!(span(Shape::volume(3, 2, 2).with_slice_height(1)), None);
        assert_eq!(span(Shape::plane(usize::MAX / 2, 1)), None);
        assert_eq!(span(Shape::plane(1, 3).with_pitch(usize::MAX / 2)), None);
        assert_eq!(span(Shape::volume(1, 1, usize::MAX)), None);
    }
}
