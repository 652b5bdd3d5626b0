//! The shape of elements that lie in rows, the rows in slices.

use crate::error::{Error, Result};

/// How many elements there are in each direction, and how far apart they lie.
///
/// A row is `width` elements side by side, a slice is `height` rows, a volume is `depth` slices.
/// From the beginning of a row to that of the next are [`pitch`](Self::with_pitch) bytes, from the
/// first row of a slice to that of the next [`slice_height`](Self::with_slice_height) rows. Unless
/// said otherwise nothing lies between them.
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

/// Elements in a row, rows in a slice, slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Extent {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

impl Extent {
    fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }
}

impl From<Extent> for [usize; 3] {
    fn from(extent: Extent) -> Self {
        [extent.width, extent.height, extent.depth]
    }
}

impl Shape {
    /// `height` rows of `width` elements.
    pub const fn plane(width: usize, height: usize) -> Self {
        Self::volume(width, height, 1)
    }

    /// `depth` slices of `height` rows of `width` elements.
    pub const fn volume(width: usize, height: usize, depth: usize) -> Self {
        Self {
            extent: Extent {
                width,
                height,
                depth,
            },
            pitch: None,
            slice_height: None,
        }
    }

    /// Rows begin `bytes` bytes apart.
    pub const fn with_pitch(mut self, bytes: usize) -> Self {
        self.pitch = Some(bytes);
        self
    }

    /// Slices begin `rows` rows apart.
    ///
    /// ```no_run
    /// use cuda_core::Shape;
    ///
    /// // The upper half of each slice of a volume of 64 × 64 × 8 floats.
    /// let upper = Shape::volume(64, 32, 8).with_pitch(64 * 4).with_slice_height(64);
    /// assert_eq!((upper.height(), upper.depth()), (32, 8));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub const fn with_slice_height(mut self, rows: usize) -> Self {
        self.slice_height = Some(rows);
        self
    }

    /// Elements in a row.
    pub const fn width(self) -> usize {
        self.extent.width
    }

    /// Rows in a slice.
    pub const fn height(self) -> usize {
        self.extent.height
    }

    /// Slices.
    pub const fn depth(self) -> usize {
        self.extent.depth
    }
}

/// A shape of elements of known size, all of whose distances are checked and known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) extent: Extent,
    // INVARIANT: at most `pitch`.
    pub(crate) row: usize,
    pub(crate) pitch: usize,
    // INVARIANT: at least `extent.height`.
    pub(crate) slice_height: usize,
    /// Bytes from the first of the first row to the last of the last: none if there are no elements.
    pub(crate) span: usize,
}

impl Geometry {
    /// The shape with its distances.
    pub(crate) fn shape(self) -> Shape {
        Shape {
            extent: self.extent,
            pitch: Some(self.pitch),
            slice_height: Some(self.slice_height),
        }
    }

    /// The planes that it consists of: where each begins, in bytes, and how many rows it has.
    pub(crate) fn planes(self) -> impl Iterator<Item = (usize, usize)> {
        let Extent { height, depth, .. } = self.extent;
        let (planes, rows) = if height == self.slice_height {
            // Slices that follow each other are one plane.
            (1, height * depth)
        } else {
            (depth, height)
        };
        (0..planes).map(move |z| (z * self.slice_height * self.pitch, rows))
    }

    pub(crate) fn of<T>(shape: Shape) -> Result<Self> {
        let extent = shape.extent;
        let overflow = |len| Error::SizeOverflow {
            len,
            element_size: size_of::<T>(),
        };
        let row = extent
            .width
            .checked_mul(size_of::<T>())
            .ok_or(overflow(extent.width))?;
        let pitch = shape.pitch.unwrap_or(row);
        let slice_height = shape.slice_height.unwrap_or(extent.height);
        fits("bytes in a row", row, "bytes of pitch", pitch)?;
        let rows = "rows from slice to slice";
        fits("rows in a slice", extent.height, rows, slice_height)?;
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
        Ok(Self {
            extent,
            row,
            pitch,
            slice_height,
            span: span.ok_or(overflow(usize::MAX))?,
        })
    }
}

fn fits(what: &'static str, needed: usize, of: &'static str, there: usize) -> Result<()> {
    if needed <= there {
        return Ok(());
    }
    Err(Error::Pitch {
        what,
        needed,
        of,
        there,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(shape: Shape) -> Option<usize> {
        Geometry::of::<u32>(shape)
            .ok()
            .map(|geometry| geometry.span)
    }

    #[test]
    fn the_span_ends_with_the_last_element() {
        assert_eq!(span(Shape::plane(3, 2)), Some(24));
        assert_eq!(span(Shape::plane(3, 2).with_pitch(100)), Some(112));
        assert_eq!(span(Shape::volume(3, 2, 2).with_pitch(16)), Some(60));
        let apart = Shape::volume(3, 2, 2).with_pitch(16).with_slice_height(5);
        assert_eq!(span(apart), Some(16 * 6 + 12));
        for nothing in [
            Shape::plane(0, 9),
            Shape::plane(9, 0),
            Shape::volume(1, 1, 0),
        ] {
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
