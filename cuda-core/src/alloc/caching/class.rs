//! Size classes: how a request is rounded, which bin a block belongs in, and which segments it is cut from.

use crate::util::size_class;

/// Blocks up to this size are packed in segments of their own, so that a small block does not keep
/// a large segment from being given back.
const SMALL: usize = 1 << 20;

/// Segments are multiples of this, the unit in which the driver maps device memory.
pub(super) const SEGMENT: usize = 2 << 20;

/// Size of the segments that blocks above [`SMALL`] and below [`LARGE`] are cut from.
const SHARED: usize = 20 << 20;

/// Blocks of at least this size get a segment each.
const LARGE: usize = 10 << 20;

/// Sizes of blocks are multiples of this: the alignment of `cuMemAlloc`, which textures need. Blocks are
/// aligned to it if their segment is.
const GRAIN: usize = 512;

/// A large block is cut only if at least this much would be left over.
const LARGE_SPARE: usize = 512 << 10;

/// Bins of a stream cache; blocks of half a tebibyte and more have none.
pub(super) const BINS: usize = bin(1 << 39);

/// Kinds of segments, by the blocks cut from them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentKind {
    Small,
    Large,
}

impl SegmentKind {
    /// The largest block cut from small segments.
    pub(super) const LARGEST_SMALL: usize = SMALL;

    /// The kind of segment for blocks of `bytes`, then the kind to fall back on.
    pub(super) const fn both(bytes: usize) -> [Self; 2] {
        match Self::of(bytes) {
            Self::Small => [Self::Small, Self::Large],
            Self::Large => [Self::Large, Self::Small],
        }
    }

    /// The kind of segment for blocks of `bytes`.
    pub(super) const fn of(bytes: usize) -> Self {
        if bytes <= SMALL { Self::Small } else { Self::Large }
    }

    /// Returns the smallest remainder that is cut off as a separate block. In small segments any remainder
    /// is: blocks are multiples of [`GRAIN`], and chunks of pinned memory multiples of half as much.
    pub(super) const fn spare(self) -> usize {
        match self {
            Self::Small => 1,
            Self::Large => LARGE_SPARE,
        }
    }
}

/// Returns the size of the block that serves a request for `bytes`, which is at most `isize::MAX`.
#[inline]
pub(super) const fn rounded(bytes: usize) -> usize {
    // Large sizes are rounded only to the grain: an eighth of a gibibyte would waste a lot.
    if bytes > SMALL { bytes.next_multiple_of(GRAIN) } else { size_class::rounded(bytes, GRAIN) }
}

/// The bin of blocks of `bytes` (already rounded).
#[inline]
pub(super) const fn bin(bytes: usize) -> usize {
    size_class::class_of(bytes, GRAIN)
}

/// Returns the size of the largest block that serves a request for `needed` uncut.
#[inline]
pub(super) const fn most(needed: usize) -> usize {
    needed + (SegmentKind::of(needed).spare() - 1) / GRAIN * GRAIN
}

/// Whether a block of `bytes` serves a request for `needed` uncut.
#[inline]
pub(super) const fn fits(bytes: usize, needed: usize) -> bool {
    bytes >= needed && bytes - needed < SegmentKind::of(needed).spare()
}

/// Returns the segment size to allocate for a block of `bytes`, and the smallest that would suffice.
pub(super) const fn segments(bytes: usize) -> (usize, usize) {
    let least = bytes.next_multiple_of(SEGMENT);
    if bytes <= SMALL || bytes >= LARGE { (least, least) } else { (SHARED, least) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_sizes_to_each_power_of_two() {
        assert_eq!((rounded(0), rounded(1)), (0, 512));
        assert_eq!(rounded(4096), 4096);
        assert_eq!(rounded(4097), 4608);
        assert_eq!(rounded(8193), 9216);
        assert_eq!(rounded(SMALL - 1), SMALL);
        assert_eq!(rounded(SMALL + 1), SMALL + 512);
        let step = if cfg!(miri) { 64 << 4 } else { 64 };
        let sizes: Vec<_> = (1..=SMALL).step_by(step).map(rounded).collect();
        assert!(sizes.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn a_bin_holds_one_small_size() {
        let mut sizes: Vec<_> = (1..=SMALL).step_by(128).map(rounded).collect();
        sizes.dedup();
        let bins: Vec<_> = sizes.iter().map(|size| bin(*size)).collect();
        assert!(bins.windows(2).all(|pair| pair[0] < pair[1]), "{bins:?}");
        assert!(bins.iter().all(|bin| *bin < BINS));
    }
}
