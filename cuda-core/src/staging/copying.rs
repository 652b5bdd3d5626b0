//! Copying between borrowed slices and pinned chunks.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use super::lines::{self, LINE};
use crate::driver;
use crate::error::{Error, Result};

/// Counts the threads that access pinned memory at this moment. Each thread counts in one of
/// several lanes, since a single counter would be slow under contention.
static BUSY: [Lane; 16] = [const { Lane(AtomicUsize::new(0)) }; 16];

/// On cache lines of its own.
#[repr(align(128))]
struct Lane(AtomicUsize);

impl Lane {
    fn mine() -> &'static Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static LANE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % BUSY.len();
        }
        // A thread whose thread-locals are destroyed takes the first lane.
        &BUSY[LANE.try_with(|lane| *lane).unwrap_or(0)]
    }
}

/// Permission to access pinned memory. CUDA's documentation does not promise that the memory
/// remains while the process exits; driver 580 keeps it until the process is gone.
pub(super) struct Pass(&'static Lane);

impl Pass {
    /// [`None`] once the process exits.
    pub(super) fn enter() -> Option<Self> {
        let lane = Lane::mine();
        lane.0.fetch_add(1, Ordering::SeqCst);
        let pass = Self(lane);
        // Either this thread sees that the driver is going, or `park` sees this thread in its lane.
        fence(Ordering::SeqCst);
        (!driver::is_gone()).then_some(pass)
    }

    /// [`Pass::enter`], with the error to return once the process exits.
    pub(super) fn or_gone() -> Result<Self> {
        Self::enter().ok_or_else(|| driver::gone().unwrap_or(Error::Exiting))
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// Waits until no thread copies borrowed slices any more. Called as the process exits, when no
/// thread can begin to. Each piece takes some microseconds.
#[cfg_attr(any(not(unix), miri), allow(dead_code))]
pub(crate) fn park() {
    fence(Ordering::SeqCst);
    for lane in &BUSY {
        while lane.0.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}

/// Where in the memory hierarchy a copy leaves the bytes that it has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Path {
    /// In memory.
    PastCaches,
    /// In the caches of the core that copies.
    ThroughCaches,
    /// In the cache that all cores share, if the processor [can](can_demote) send them there:
    /// devices read it without going to memory, or fetching lines from a core's own cache.
    ToSharedCache,
}

/// Copies `len` bytes, which other threads and devices can read when this returns.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
pub(super) unsafe fn copy(path: Path, from: *const u8, to: *mut u8, len: usize) {
    let Some(lines) = lines::by(path) else {
        // SAFETY: the caller's promise is the same.
        unsafe { ptr::copy_nonoverlapping(from, to, len) };
        return;
    };
    let head = to.align_offset(LINE).min(len);
    let body = (len - head) / LINE;
    // SAFETY: the first `head` bytes of both sides, by the caller's promise.
    unsafe { ptr::copy_nonoverlapping(from, to, head) };
    if body > 0 {
        // SAFETY: whole lines, one at least, within the `len` bytes of both sides.
        unsafe { lines(from.wrapping_add(head), to.wrapping_add(head), body) };
    }
    let done = head + body * LINE;
    let (from, to) = (from.wrapping_add(done), to.wrapping_add(done));
    // SAFETY: the rest of both sides.
    unsafe { ptr::copy_nonoverlapping(from, to, len - done) };
}

/// Whether the processor can send lines that it has written to the cache that all cores share.
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
                        // SAFETY: both have `len` bytes from there on, and are different vectors.
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
