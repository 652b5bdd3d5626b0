//! A large copy between a borrowed slice and pinned chunks, in quanta that threads share out.

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::Region;
use super::copying::{self, Path};
use super::plan;
use crate::error::{Error, Result};
use crate::process::driver;
use crate::process::pinned_pass::Pass;
use crate::process::workers::{Help, Work};

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// From the slice to the chunks.
    In,
    /// From the chunks to the slice.
    Out,
}

/// Threads that fill chunks as fast as devices read them when they send each line on to the cache that
/// all cores share, which takes a core longer. What is there need not go to memory and back, whose
/// bandwidth is short where others use it too. docs/measured.md has the figures.
const DEMOTERS: usize = 12;

/// Bytes of an upload from which on fewer threads, or other processors, fill its chunks through the
/// caches, and not past them. In a long one the threads get so far ahead of the device that a chunk has
/// left the caches of the core that filled it, which a device is slow to read from, before its turn comes.
const LONG: usize = 256 << 20;

/// Bytes of a quantum from which on the chunks in use together exceed cores' own caches.
const WIDE: usize = 128 << 10;

/// See the module.
pub(crate) struct Share<'a> {
    way: Way,
    path: Path,
    /// Bytes of a quantum.
    quantum: usize,
    pieces: Vec<Piece>,
    /// Quanta that somebody has taken.
    taken: AtomicUsize,
    /// Quanta that may be taken: those of the first pieces.
    // INVARIANT: the pieces that they belong to have a region, whose bytes are theirs.
    open: AtomicUsize,
    /// How many there are.
    quanta: usize,
    /// The slices.
    _borrow: PhantomData<&'a mut [u8]>,
}

/// What one copy of the driver's moves.
struct Piece {
    // INVARIANT: `len` bytes that are borrowed for as long as the share lives: exclusively, or, if
    // bytes go in, shared and only read. No other piece has them.
    slice: *mut u8,
    len: usize,
    /// The first of its quanta.
    first: usize,
    /// Its region.
    staged: AtomicPtr<u8>,
    /// Quanta that are not copied yet.
    left: AtomicUsize,
}

// SAFETY: the pointers stand for borrows of bytes, which any thread may have, and each quantum is
// copied by whoever has taken it, who is one thread.
unsafe impl Sync for Share<'_> {}

impl<'a> Share<'a> {
    /// Pieces that go into chunks of this size; so many threads may copy them.
    pub(crate) fn of(pieces: impl Iterator<Item = &'a [u8]>, chunk: usize, threads: usize) -> Self {
        let mut share = Self::empty(Way::In, plan::quantum(chunk));
        for slice in pieces {
            share.add(slice.as_ptr().cast_mut(), slice.len());
        }
        share.path = share.path_in(threads.min(share.quanta), copying::can_demote());
        share
    }

    /// Pieces that come out of chunks of this size.
    pub(crate) fn of_mut(pieces: impl Iterator<Item = &'a mut [u8]>, chunk: usize) -> Self {
        let mut share = Self::empty(Way::Out, plan::quantum(chunk));
        for slice in pieces {
            share.add(slice.as_mut_ptr(), slice.len());
        }
        share
    }

    fn empty(way: Way, quantum: usize) -> Self {
        Self {
            way,
            path: Path::PastCaches,
            quantum,
            pieces: Vec::new(),
            taken: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            quanta: 0,
            _borrow: PhantomData,
        }
    }

    fn add(&mut self, slice: *mut u8, len: usize) {
        let quanta = len.div_ceil(self.quantum);
        self.pieces.push(Piece {
            slice,
            len,
            first: self.quanta,
            staged: AtomicPtr::new(ptr::null_mut()),
            left: AtomicUsize::new(quanta),
        });
        self.quanta += quanta;
    }

    /// How so many threads fill chunks best.
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

    /// How many pieces there are.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// How many quanta there are.
    pub(crate) fn quanta(&self) -> usize {
        self.quanta
    }

    /// Lets threads copy `piece`, the next one, from or to its region.
    ///
    /// # Safety
    /// The pieces before it are open, and this one is not. `region` has as many bytes; they are
    /// initialised if they come out of it, the caller keeps it, and neither he nor the device
    /// touches it, until the piece [is done](Self::is_done) or no thread can be at it any more.
    pub(crate) unsafe fn open(&self, piece: usize, region: &Region) {
        let Some(opened) = self.pieces.get(piece) else {
            return;
        };
        opened.staged.store(region.as_ptr(), Ordering::Relaxed);
        let end = opened.first + opened.len.div_ceil(self.quantum);
        self.open.store(end, Ordering::Release);
    }

    /// Quanta that could be taken at this moment.
    pub(crate) fn waiting(&self) -> usize {
        let open = self.open.load(Ordering::Relaxed);
        open.saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Whether the piece has been copied.
    pub(crate) fn is_done(&self, piece: usize) -> bool {
        let piece = self.pieces.get(piece);
        piece.is_none_or(|piece| piece.left.load(Ordering::Acquire) == 0)
    }

    /// Copies what can be copied, or waits until the piece, which others are at, has been.
    pub(crate) fn help_or_await(&self, piece: usize, help: &Help<'_>) -> Result<()> {
        let mut spins = 0_u32;
        loop {
            if self.step() || self.is_done(piece) {
                return Ok(());
            }
            if let Some(gone) = driver::gone() {
                return Err(gone);
            }
            if help.has_failed() {
                // The helper's panic goes on when the help ends.
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

    /// Takes a quantum that is open.
    fn take(&self) -> Option<usize> {
        let mut next = self.taken.load(Ordering::Relaxed);
        while next < self.open.load(Ordering::Acquire) {
            let taken = self.taken.compare_exchange_weak(
                next,
                next + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match taken {
                Ok(quantum) => return Some(quantum),
                Err(other) => next = other,
            }
        }
        None
    }

    fn copy(&self, quantum: usize) {
        let at = self.pieces.partition_point(|piece| piece.first <= quantum);
        let Some(piece) = at.checked_sub(1).and_then(|at| self.pieces.get(at)) else {
            return;
        };
        let start = (quantum - piece.first) * self.quantum;
        let len = self.quantum.min(piece.len - start);
        let slice = piece.slice.wrapping_add(start);
        let staged = piece.staged.load(Ordering::Relaxed).wrapping_add(start);
        let (from, to) = match self.way {
            Way::In => (slice, staged),
            Way::Out => (staged, slice),
        };
        // SAFETY: a quantum of a piece that is open: `len` bytes of the slice, by the piece's
        // invariant, and of its region, by that of `open`; whoever takes a quantum is the only one
        // that does. A borrowed slice does not overlap a chunk of ours.
        unsafe { copying::copy(self.path, from.cast_const(), to, len) };
        piece.left.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Work for Share<'_> {
    fn step(&self) -> bool {
        if self.waiting() == 0 {
            return false;
        }
        let Some(_pass) = Pass::enter() else {
            return false;
        };
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
        // So small that all that are in use stay in the caches of the cores.
        assert_eq!(path(0, CHUNK / 8, DEMOTERS, true), Path::PastCaches);
        assert_eq!(
            Share::of_mut(slice.chunks_mut(CHUNK), CHUNK).path,
            Path::PastCaches
        );
    }
}
