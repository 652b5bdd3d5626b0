//! Sizes: what a request is rounded to, the bin that a block belongs in, the segment that it is cut
//! from.

/// Blocks up to here are packed in segments of their own, so that one of them does not keep a large
/// segment from being given back.
const SMALL: usize = 1 << 20;

/// Segments are multiples of this, the unit in which the device's memory is mapped.
pub(super) const SEGMENT: usize = 2 << 20;

/// The segment that blocks above [`SMALL`] and below [`LARGE`] are cut from.
const SHARED: usize = 20 << 20;

/// Blocks from here on have a segment for themselves.
const LARGE: usize = 10 << 20;

/// Sizes below are multiples of [`GRAIN`]; from here on there are eight to each power of two.
const LINEAR: usize = 8 * GRAIN;

/// The alignment of all blocks: that of `cuMemAlloc`, which textures ask for.
const GRAIN: usize = 512;

/// What a large block may have left over without being cut.
const LARGE_SPARE: usize = 512 << 10;

/// Bins of an arena; blocks of half a tebibyte and more have none.
pub(super) const BINS: usize = bin(1 << 39);

/// Which segments a block comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Span {
    Small,
    Large,
}

impl Span {
    /// The largest blocks of small segments.
    pub(super) const LARGEST_SMALL: usize = SMALL;

    /// Where blocks of `bytes` come from, and where they may come from if there is nothing left.
    pub(super) const fn both(bytes: usize) -> [Self; 2] {
        match Self::of(bytes) {
            Self::Small => [Self::Small, Self::Large],
            Self::Large => [Self::Large, Self::Small],
        }
    }

    /// Where blocks of `bytes` come from.
    pub(super) const fn of(bytes: usize) -> Self {
        if bytes <= SMALL {
            Self::Small
        } else {
            Self::Large
        }
    }

    /// Room that is left when a block is cut, from which on it becomes a block of its own.
    pub(super) const fn spare(self) -> usize {
        match self {
            Self::Small => GRAIN,
            Self::Large => LARGE_SPARE,
        }
    }
}

/// Bytes of the block that serves a request for `bytes`, at most `isize::MAX` of them.
#[inline]
pub(super) const fn rounded(bytes: usize) -> usize {
    let step = if bytes <= LINEAR {
        GRAIN
    } else if bytes <= SMALL {
        1 << ((bytes - 1).ilog2() - 3)
    } else {
        // In no other way rounded: an eighth of a gibibyte is a lot.
        GRAIN
    };
    bytes.next_multiple_of(step)
}

/// The bin of blocks of `bytes`, which are rounded.
#[inline]
pub(super) const fn bin(bytes: usize) -> usize {
    if bytes < LINEAR {
        return bytes / GRAIN;
    }
    let power = bytes.ilog2();
    let eighth = (bytes >> (power - 3)) & 7;
    8 * (power - LINEAR.ilog2() + 1) as usize + eighth
}

/// Bytes of the largest block that serves a request for `needed` as it is.
#[inline]
pub(super) const fn most(needed: usize) -> usize {
    needed + Span::of(needed).spare() - GRAIN
}

/// Whether a block of `bytes` serves a request for `needed` as it is.
#[inline]
pub(super) const fn fits(bytes: usize, needed: usize) -> bool {
    bytes >= needed && bytes - needed < Span::of(needed).spare()
}

/// The segment to allocate for a block of `bytes`, and a smaller one that would do.
pub(super) const fn segments(bytes: usize) -> (usize, usize) {
    let least = bytes.next_multiple_of(SEGMENT);
    if bytes <= SMALL || bytes >= LARGE {
        (least, least)
    } else {
        (SHARED, least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_sizes_to_each_power_of_two() {
        assert_eq!(rounded(1), 512);
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
