//! Size classes: eight to each power of two.

/// Returns the class of `bytes`: one class for each `grain` up to eight of them, then eight to each power of
/// two. `grain` is a power of two.
#[inline]
pub(crate) const fn class_of(bytes: usize, grain: usize) -> usize {
    if bytes < 8 * grain {
        return bytes / grain;
    }
    let power = bytes.ilog2();
    // The three bits after the most significant one.
    let eighth = (bytes >> (power - 3)) & 7;
    8 * (power - grain.ilog2() - 2) as usize + eighth
}

/// Returns the smallest size of at least `bytes` at which a class begins.
#[inline]
pub(crate) const fn rounded(bytes: usize, grain: usize) -> usize {
    // For zero bytes all bits are set, and shifted out again below.
    let last = bytes.wrapping_sub(1);
    let shift = if last < 8 * grain { grain.ilog2() } else { last.ilog2() - 3 };
    ((last >> shift) + 1) << shift
}
