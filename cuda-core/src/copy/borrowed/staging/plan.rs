//! The division of a large slice into pieces and quanta.
//!
//! The slice is copied in *pieces*, one driver copy each: small pieces at both ends, so that the device
//! starts at once and has little left to do at the end, and whole chunks between. Threads copy
//! *quanta*; a thread takes one quantum at a time.

use std::mem;

use super::ALIGNMENT;
use super::ring::DEPTH;

/// The number of quanta in a chunk.
const QUANTA: usize = 32;

/// For quanta of this size, handing one out takes a small part of the time of its copy.
const LARGEST_QUANTUM: usize = 128 << 10;

const SMALLEST_QUANTUM: usize = 256;

/// The bytes that one driver copy moves, or one driver copy for each device that gets the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// The part of the slice that the piece belongs to.
    pub(crate) part: usize,
    /// The piece's offset in that part.
    pub(crate) start: usize,
    /// The piece's offset in the slice.
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// Whether the piece is the last of its part within its chunk.
    pub(crate) is_last: bool,
}

impl Piece {
    /// Returns the bytes of the slice that the piece covers.
    pub(crate) fn of<'a>(&self, slice: &'a [u8]) -> &'a [u8] {
        let range = self.at..self.at + self.len;
        slice.get(range).unwrap_or_default()
    }
}

/// Divides the slice into the bytes that each of its [`pieces`] covers.
pub(crate) fn cut<'a>(slice: &'a mut [u8], pieces: &[Piece]) -> Vec<&'a mut [u8]> {
    let mut lens = Vec::new();
    for piece in pieces {
        lens.resize(lens.len().max(piece.part + 1), 0);
        lens[piece.part] += piece.len;
    }
    let mut rest = slice;
    let parts = lens.into_iter().map(|len| take_first(&mut rest, len));
    let mut parts: Vec<&mut [u8]> = parts.collect();
    // The pieces of a part are in order.
    let piece = |piece: &Piece| take_first(&mut parts[piece.part], piece.len);
    pieces.iter().map(piece).collect()
}

/// Splits off the first `len` bytes, or all if there are fewer.
fn take_first<'a>(rest: &mut &'a mut [u8], len: usize) -> &'a mut [u8] {
    let len = len.min(rest.len());
    let (first, behind) = mem::take(rest).split_at_mut(len);
    *rest = behind;
    first
}

/// Returns the size of a quantum for a chunk size that is a power of two.
pub(super) fn quantum(chunk: usize) -> usize {
    (chunk / QUANTA).clamp(SMALLEST_QUANTUM, LARGEST_QUANTUM)
}

/// The number of pieces to aim for in each part of an upload: the device cannot start a piece before
/// its last byte is staged.
const SENT: usize = 16;

/// The number of pieces that each of several parts has in the chunks in use at once.
const IN_FLIGHT: usize = 4;

/// The smallest and largest size of pieces: powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    smallest: usize,
    largest: usize,
}

impl Sizes {
    /// Returns sizes that make each part one piece, if it fits a chunk.
    pub(crate) fn whole(chunk: usize) -> Self {
        Self { smallest: chunk, largest: chunk }
    }

    /// Returns sizes for a download of a slice in `parts` parts.
    pub(crate) fn down(parts: usize, chunk: usize) -> Self {
        let smallest = quantum(chunk);
        let largest = (DEPTH * chunk / IN_FLIGHT / parts.max(1)).clamp(smallest, chunk);
        Self { smallest, largest: 1 << largest.ilog2() }
    }

    /// Returns sizes for an upload of `total` bytes in `parts` parts. The device needs some
    /// microseconds for each piece in addition to the copy itself, so there are no more pieces than
    /// useful.
    pub(crate) fn up(total: usize, parts: usize, chunk: usize) -> Self {
        let Self { smallest, largest } = Self::down(parts, chunk);
        let least = (largest / 4).max(smallest);
        let largest = (total / parts.max(1) / SENT).clamp(least, largest);
        Self { smallest, largest: 1 << largest.ilog2() }
    }
}

/// Returns the pieces of consecutive parts of a slice, given by their lengths. Pieces of different
/// parts alternate, so that all devices are busy at the same time. The size of each piece except a
/// part's last is a power of two.
pub(crate) fn pieces(parts: &[usize], chunk: usize, sizes: Sizes) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut base = 0;
    let mut open = Vec::with_capacity(parts.len());
    for (part, &total) in parts.iter().enumerate() {
        open.push((part, base, spans(total, sizes)));
        base += total;
    }
    while !open.is_empty() {
        open.retain_mut(|(part, base, spans)| {
            let next = spans.next().map(|(start, len)| Piece {
                part: *part,
                start,
                at: *base + start,
                len,
                is_last: false,
            });
            pieces.extend(next);
            next.is_some()
        });
    }
    let mut rest = &mut pieces[..];
    while !rest.is_empty() {
        let (in_chunk, behind) = rest.split_at_mut(fitting(rest, chunk));
        for at in 0..in_chunk.len() {
            let part = in_chunk[at].part;
            in_chunk[at].is_last = in_chunk[at + 1..].iter().all(|later| later.part != part);
        }
        rest = behind;
    }
    pieces
}

/// Returns how many of the pieces fit into one chunk; at least one.
fn fitting(pieces: &[Piece], chunk: usize) -> usize {
    let mut claimed = 0;
    let fits = |piece: &&Piece| {
        claimed += piece.len.next_multiple_of(ALIGNMENT);
        claimed <= chunk
    };
    pieces.iter().take_while(fits).count().max(1)
}

/// Returns the offsets and lengths of the pieces of one part.
fn spans(total: usize, sizes: Sizes) -> impl Iterator<Item = (usize, usize)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = total - start;
        // As much as all earlier pieces together, but at most half of the rest.
        let len = start.min(rest / 2).clamp(sizes.smallest, sizes.largest);
        let len = (1 << len.ilog2()).min(rest);
        start += len;
        (len > 0).then_some((start - len, len))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_once_and_small_at_the_ends() {
        for chunk in [4 << 10, 1 << 20, 4 << 20] {
            let quantum = quantum(chunk);
            let totals = [1, quantum - 1, quantum, quantum + 1, chunk, 3 * chunk + 7, 50 * chunk];
            let ways = totals.map(|total| {
                let (down, up) = (Sizes::down(1, chunk), Sizes::up(total, 1, chunk));
                assert_eq!(down.largest, chunk);
                [(total, down), (total, up)]
            });
            for (total, sizes) in ways.into_iter().flatten() {
                let pieces = pieces(&[total], chunk, sizes);
                let mut at = 0;
                for piece in &pieces {
                    assert_eq!((piece.start, piece.at), (at, at));
                    assert!((1..=sizes.largest).contains(&piece.len));
                    at += piece.len;
                }
                assert_eq!(at, total);
                let small = |piece: Option<&Piece>| piece.is_some_and(|piece| piece.len <= quantum);
                assert!(small(pieces.first()), "{total} by {chunk}: {pieces:?}");
                assert!(
                    pieces.last().is_some_and(|piece| piece.is_last && piece.len <= 2 * quantum)
                );
                // The number of copies is close to the number of chunks.
                assert!(pieces.len() <= total / sizes.largest + 16);
            }
        }
    }

    #[test]
    fn what_is_small_is_one_piece() {
        let pieces = pieces(&[300, 0, 4096], 4096, Sizes::whole(4096));
        let lens = pieces.iter().map(|piece| (piece.part, piece.len));
        assert_eq!(lens.collect::<Vec<_>>(), [(0, 300), (2, 4096)]);
        assert!(pieces.iter().all(|piece| piece.is_last));
    }

    #[test]
    fn parts_take_turns_and_each_ends_in_each_chunk() {
        const CHUNK: usize = if cfg!(miri) { 4 << 10 } else { 64 << 10 };
        let parts = [5 * CHUNK + 1, 0, 1, 2 * CHUNK];
        let sizes = Sizes::up(parts.iter().sum(), parts.len(), CHUNK);
        let pieces = pieces(&parts, CHUNK, sizes);
        let bases = [0, 5 * CHUNK + 1, 5 * CHUNK + 1, 5 * CHUNK + 2];
        let mut done = [0; 4];
        for piece in &pieces {
            assert_eq!(piece.start, done[piece.part]);
            assert_eq!(piece.at, bases[piece.part] + piece.start);
            done[piece.part] += piece.len;
        }
        assert_eq!(done, parts);
        let mut slice: Vec<u8> = (0..bases[3] + parts[3]).map(|at| (at % 251) as u8).collect();
        let expected = slice.clone();
        for (piece, cut) in pieces.iter().zip(cut(&mut slice, &pieces)) {
            assert!(*cut == *piece.of(&expected));
        }
        let turns: Vec<usize> = pieces.iter().take(5).map(|piece| piece.part).collect();
        assert_eq!(turns, [0, 2, 3, 0, 3]);
        // Chunk by chunk, in the order in which pieces are claimed.
        let (mut claimed, mut open) = (0, [false; 4]);
        for piece in &pieces {
            let room = piece.len.next_multiple_of(ALIGNMENT);
            if claimed + room > CHUNK {
                assert_eq!(open, [false; 4], "a part has its last piece in a chunk");
                claimed = 0;
            }
            claimed += room;
            open[piece.part] = !piece.is_last;
        }
        assert_eq!(open, [false; 4]);
    }
}
