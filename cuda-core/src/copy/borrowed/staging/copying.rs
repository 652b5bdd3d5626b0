//! Copying between borrowed slices and pinned chunks.

use std::ptr;
use std::sync::OnceLock;

use super::lines::{self, LINE};

/// The level of the memory hierarchy in which a copy leaves the written bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Path {
    /// In memory.
    PastCaches,
    /// In the caches of the core that copies.
    ThroughCaches,
    /// In the cache that all cores share, if the processor [can](can_demote) send them there. Devices
    /// then read them without going to memory, or fetching lines from a core's own cache.
    ToSharedCache,
}

/// Copies `len` bytes, which other threads and devices can read when the function returns.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
pub(super) unsafe fn copy(path: Path, from: *const u8, to: *mut u8, len: usize) {
    let Some(lines) = lines::by(path) else {
        // SAFETY: the caller promises the same.
        unsafe { ptr::copy_nonoverlapping(from, to, len) };
        return;
    };
    let head = to.align_offset(LINE).min(len);
    let body = (len - head) / LINE;
    // SAFETY: the first `head` bytes of both sides, by the caller's promise.
    unsafe { ptr::copy_nonoverlapping(from, to, head) };
    if body > 0 {
        // SAFETY: whole lines, at least one, within the `len` bytes of both sides.
        unsafe { lines(from.wrapping_add(head), to.wrapping_add(head), body) };
    }
    let done = head + body * LINE;
    let (from, to) = (from.wrapping_add(done), to.wrapping_add(done));
    // SAFETY: the rest of both sides.
    unsafe { ptr::copy_nonoverlapping(from, to, len - done) };
}

/// Whether the processor can send written lines to the cache that all cores share.
pub(super) fn can_demote() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(lines::can_demote)
}

#[cfg(test)]
mod tests {
    use super::{Path, copy};

    #[test]
    fn every_byte_at_every_alignment() {
        let source: Vec<u8> = (0..700).map(|at| (at % 251) as u8).collect();
        for from in [0, 1, 15, 16, 33] {
            for to in [0, 1, 17, 48, 63] {
                for len in [0, 1, 15, 63, 64, 65, 127, 128, 500] {
                    for path in [Path::PastCaches, Path::ThroughCaches, Path::ToSharedCache] {
                        let mut target = vec![0xEE; 700];
                        let (source, into) = (&source[from..], target[to..].as_mut_ptr());
                        // SAFETY: both are different vectors and have `len` bytes from these offsets
                        // on.
                        unsafe { copy(path, source.as_ptr(), into, len) };
                        let mut expected = vec![0xEE; 700];
                        expected[to..to + len].copy_from_slice(&source[..len]);
                        assert_eq!(target, expected, "{path:?}");
                    }
                }
            }
        }
    }
}
