//! Size classes: eight for each power of two. So a chunk is at most an eighth larger than the request,
//! or, up to 2 KiB, less than 256 bytes larger.

use crate::alloc::caching::class::SegmentKind;
use crate::util::size_class;

/// The size of the smallest chunk, and the alignment of all chunks.
pub(super) const GRANULE: usize = 256;

/// The largest chunk that has a class; larger sizes are too rare and too varied for bins.
pub(super) const LARGEST: usize = 32 << 20;

/// Sizes of chunks beyond [`LARGEST`] are multiples of this.
const STEP: usize = 2 << 20;

/// The number of classes; the index [`CLASSES`] itself stands for everything larger.
pub(super) const CLASSES: usize = size_class::class_of(LARGEST, GRANULE);

/// Returns the bin of chunks for `bytes`, which are not zero: the index of their class.
#[inline]
pub(super) const fn bin(bytes: usize) -> usize {
    if bytes > LARGEST { CLASSES } else { size_class::class_of(bytes - 1, GRANULE) }
}

/// Returns the kind of slab that chunks for `bytes` are cut from. Large chunks have separate slabs,
/// since a small chunk in the middle would split them.
#[inline]
pub(super) const fn kind(bytes: usize) -> SegmentKind {
    if bytes > LARGEST { SegmentKind::Large } else { SegmentKind::Small }
}

/// Returns the size of the chunk for `bytes`, which are not zero and at most `isize::MAX`.
#[inline]
pub(super) fn rounded(bytes: usize) -> usize {
    if bytes > LARGEST { bytes.next_multiple_of(STEP) } else { size_class::rounded(bytes, GRANULE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns sizes at and around every boundary.
    fn sizes() -> impl Iterator<Item = usize> {
        let powers = (0..27).map(|log| 1_usize << log);
        let eighths = powers.flat_map(|power| (8..16).map(move |n| power * n / 8));
        eighths.flat_map(|size| [size.max(2) - 1, size.max(1), size + 1])
    }

    #[test]
    fn a_chunk_is_an_eighth_larger_at_most() {
        for bytes in sizes() {
            let size = rounded(bytes);
            assert!(size >= bytes && size % GRANULE == 0, "{bytes}: {size}");
            let most = if bytes <= 8 * GRANULE { bytes + GRANULE - 1 } else { bytes + bytes / 8 };
            assert!(bytes > LARGEST || size <= most, "{bytes}: {size}");
        }
    }

    #[test]
    fn a_class_is_one_size() {
        for bytes in sizes().filter(|bytes| *bytes <= LARGEST) {
            let (class, size) = (bin(bytes), rounded(bytes));
            assert_eq!(class, bin(size), "{bytes} and {size}");
            assert!(class < CLASSES && kind(bytes) == SegmentKind::Small, "{bytes}");
            if size < LARGEST {
                assert_eq!(bin(size + 1), class + 1, "{size}");
            }
        }
        assert_eq!(bin(1), 0);
        assert_eq!((bin(LARGEST + 1), kind(LARGEST + 1)), (CLASSES, SegmentKind::Large));
    }
}
