//! A large copy between a borrowed slice and pinned chunks, in quanta that several threads copy.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::Region;
use super::copying::{self, Path};
use super::plan;
use crate::error::{Error, Result};
use crate::process::{Help, Pass, Work, driver};

/// The number of threads from which on sending each line to the cache that all cores share still fills
/// chunks as fast as devices read them, although it takes each core longer. The bytes then need not go
/// to memory and back, whose bandwidth is scarce when other programs use it too. docs/measured.md has
/// the figures.
const DEMOTERS: usize = 12;

/// The size of an upload from which on fewer threads, or processors without `CLDEMOTE`, fill its chunks
/// through the caches instead of past them. A device is slow to read a chunk from the caches of the
/// core that filled it. In a long upload the threads get so far ahead of the device that the chunk has
/// left those caches before the device reads it.
const LONG: usize = 256 << 20;

/// The size of a quantum from which on the chunks in use at once exceed the cores' own caches.
const WIDE: usize = 128 << 10;

/// A large copy, shared by several threads.
pub(crate) struct Share<'a> {
    /// Whether the bytes come from the device.
    pub(crate) is_download: bool,
    path: Path,
    /// The size of a quantum in bytes.
    quantum: usize,
    pieces: Vec<SharePiece>,
    /// The number of quanta that threads have taken.
    taken: AtomicUsize,
    /// The number of quanta that may be taken: those of the first pieces.
    // INVARIANT: each piece that these quanta belong to has a region, whose bytes only that piece uses.
    open: AtomicUsize,
    /// The total number of quanta.
    pub(crate) quanta: usize,
    /// Stands for the borrow of the slices.
    _borrow: PhantomData<&'a mut [u8]>,
}

/// The bytes that one driver copy moves.
struct SharePiece {
    // INVARIANT: `len` bytes that are borrowed while the share lives: exclusively for a download; for
    // an upload shared, and only read. No other piece has them.
    slice: *mut u8,
    len: usize,
    /// The index of the piece's first quantum.
    first: usize,
    /// The address of the piece's region.
    staged: AtomicPtr<u8>,
    /// The number of quanta that are not copied yet.
    left: AtomicUsize,
}

// SAFETY: the pointers stand for borrows of bytes, which any thread may access, and only the thread
// that has taken a quantum copies it.
unsafe impl Sync for Share<'_> {}

impl<'a> Share<'a> {
    /// Creates a copy of pieces into chunks of size `chunk`, by up to `threads` threads.
    pub(crate) fn of(pieces: impl Iterator<Item = &'a [u8]>, chunk: usize, threads: usize) -> Self {
        let slices = pieces.map(|slice| (slice.as_ptr().cast_mut(), slice.len()));
        let mut share = Self::new(slices, chunk);
        share.path = share.path_in(threads.min(share.quanta), copying::can_demote());
        share
    }

    /// Creates a copy of pieces out of chunks of size `chunk`.
    pub(crate) fn of_mut(pieces: impl Iterator<Item = &'a mut [u8]>, chunk: usize) -> Self {
        let slices = pieces.map(|slice| (slice.as_mut_ptr(), slice.len()));
        Self { is_download: true, ..Self::new(slices, chunk) }
    }

    /// Creates a copy of pieces into chunks.
    fn new(slices: impl Iterator<Item = (*mut u8, usize)>, chunk: usize) -> Self {
        let (quantum, mut quanta) = (plan::quantum(chunk), 0);
        let piece = |(slice, len): (_, usize)| {
            let (first, count) = (quanta, len.div_ceil(quantum));
            quanta += count;
            SharePiece { slice, len, first, staged: AtomicPtr::default(), left: count.into() }
        };
        let pieces = slices.map(piece).collect();
        Self {
            is_download: false,
            path: Path::PastCaches,
            quantum,
            pieces,
            taken: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            quanta,
            _borrow: PhantomData,
        }
    }

    /// Returns the best path for this many threads.
    fn path_in(&self, threads: usize, can_demote: bool) -> Path {
        if self.quantum < WIDE {
            Path::PastCaches
        } else if can_demote && threads >= DEMOTERS {
            Path::ToSharedCache
        } else if self.quanta * self.quantum >= LONG {
            Path::ThroughCaches
        } else {
            Path::PastCaches
        }
    }

    /// Lets threads copy `piece`, the next one, to or from its region.
    ///
    /// # Safety
    /// The pieces before it are open, and this one is not. `region` has as many bytes as the piece; for
    /// a download they are initialised. The caller keeps the region, and neither the caller nor the
    /// device accesses it, until the piece [is done](Self::is_done) or no thread can be copying it any
    /// more.
    pub(crate) unsafe fn open(&self, piece: usize, region: &Region) {
        let Some(opened) = self.pieces.get(piece) else { return };
        opened.staged.store(region.as_ptr(), Ordering::Relaxed);
        let end = opened.first + opened.len.div_ceil(self.quantum);
        self.open.store(end, Ordering::Release);
    }

    /// Returns the number of quanta that could be taken at this moment.
    pub(crate) fn waiting(&self) -> usize {
        let open = self.open.load(Ordering::Relaxed);
        open.saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Whether the piece has been copied.
    pub(crate) fn is_done(&self, piece: usize) -> bool {
        let piece = self.pieces.get(piece);
        piece.is_none_or(|piece| piece.left.load(Ordering::Acquire) == 0)
    }

    /// Copies a quantum if one is open. Otherwise waits until other threads have copied `piece`, or
    /// another quantum is opened.
    pub(crate) fn help_or_await(&self, piece: usize, help: &Help<'_>) -> Result<()> {
        let mut spins = 0_u32;
        loop {
            if self.step() || self.is_done(piece) {
                return Ok(());
            }
            driver::ensure_not_gone()?;
            if help.has_failed() {
                // `with_help` resumes the helper's panic when the help ends.
                return Err(Error::Exiting);
            }
            spins += 1;
            if spins < 1 << 12 && !cfg!(miri) {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Takes an open quantum.
    fn take(&self) -> Option<usize> {
        let next = |next| (next < self.open.load(Ordering::Acquire)).then_some(next + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
    }

    fn copy(&self, quantum: usize) {
        let at = self.pieces.partition_point(|piece| piece.first <= quantum);
        let Some(piece) = at.checked_sub(1).and_then(|at| self.pieces.get(at)) else { return };
        let start = (quantum - piece.first) * self.quantum;
        let len = self.quantum.min(piece.len - start);
        let slice = piece.slice.wrapping_add(start);
        let staged = piece.staged.load(Ordering::Relaxed).wrapping_add(start);
        let (from, to) = if self.is_download { (staged, slice) } else { (slice, staged) };
        // SAFETY: a quantum of an open piece: `len` bytes of the slice, by the piece's invariant, and
        // of its region, by the contract of `open`. Only the thread that has taken a quantum copies it.
        // A borrowed slice does not overlap a chunk of this crate.
        unsafe { copying::copy(self.path, from.cast_const(), to, len) };
        piece.left.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Work for Share<'_> {
    fn step(&self) -> bool {
        if self.waiting() == 0 {
            return false;
        }
        let Some(_pass) = Pass::enter() else { return false };
        let taken = self.take();
        if let Some(quantum) = taken {
            self.copy(quantum);
        }
        taken.is_some()
    }

    fn is_ready(&self) -> bool {
        self.waiting() > 0 && !driver::is_gone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "takes much memory")]
    fn uploads_take_the_path_that_suits_them() {
        const CHUNK: usize = 8 << 20;
        let mut slice = vec![0_u8; LONG];
        let path = |from: usize, chunk, threads, can_demote| {
            let pieces = slice[from..].chunks(chunk);
            Share::of(pieces, chunk, 1).path_in(threads, can_demote)
        };
        assert_eq!(path(0, CHUNK, DEMOTERS, true), Path::ToSharedCache);
        assert_eq!(path(CHUNK, CHUNK, DEMOTERS, true), Path::ToSharedCache);
        for (threads, can_demote) in [(DEMOTERS - 1, true), (DEMOTERS, false)] {
            assert_eq!(path(0, CHUNK, threads, can_demote), Path::ThroughCaches);
            assert_eq!(path(CHUNK, CHUNK, threads, can_demote), Path::PastCaches);
        }
        // Quanta so small that all chunks in use stay in the cores' own caches.
        assert_eq!(path(0, CHUNK / 8, DEMOTERS, true), Path::PastCaches);
        assert_eq!(Share::of_mut(slice.chunks_mut(CHUNK), CHUNK).path, Path::PastCaches);
    }
}
