//! How a large slice is cut up.
//!
//! It travels in *pieces*, one copy of the driver's each: small ones at both ends, so that the
//! device starts at once and little is left to do when it ends, and whole chunks between. Threads
//! copy *quanta*: what one of them takes at a time.

/// Quanta of a chunk.
const QUANTA: usize = 32;

/// A quantum that takes no longer than it takes to hand it out many times over.
const LARGEST_QUANTUM: usize = 128 << 10;

const SMALLEST_QUANTUM: usize = 256;

/// Bytes that one copy of the driver's moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) len: usize,
    /// The next piece does not fit the chunk that this one is in.
    pub(super) fills: bool,
}

/// Bytes of a quantum for chunks of this size, which is a power of two.
pub(super) fn quantum(chunk: usize) -> usize {
    (chunk / QUANTA).clamp(SMALLEST_QUANTUM, LARGEST_QUANTUM)
}

/// Pieces that a device is to have one after the other while they are filled: it waits for the last
/// byte of each.
const SENT: usize = 16;

/// The largest piece of `total` bytes that go up. Beside a copy itself the device needs some
/// microseconds for each: no more of them than it takes.
pub(super) fn largest_up(total: usize, chunk: usize) -> usize {
    let largest = (total / SENT).clamp(chunk / 4, chunk);
    1 << largest.ilog2()
}

/// The pieces of `total` bytes, in order. All but the last are a power of two of quanta, and none is
/// more than `largest`, which is one as well.
pub(super) fn spans(total: usize, chunk: usize, largest: usize) -> Vec<Span> {
    let quantum = quantum(chunk);
    let mut spans: Vec<Span> = Vec::new();
    let (mut start, mut claimed) = (0, 0);
    while start < total {
        let rest = total - start;
        // As much as was sent before, and half of what is left.
        let len = start.min(rest / 2).clamp(quantum, largest);
        let len = (1 << len.ilog2()).min(rest);
        if claimed + len > chunk {
            claimed = 0;
            if let Some(last) = spans.last_mut() {
                last.fills = true;
            }
        }
        spans.push(Span {
            start,
            len,
            fills: len == rest,
        });
        start += len;
        claimed += len;
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_once_and_small_at_the_ends() {
        for chunk in [4 << 10, 1 << 20, 4 << 20] {
            let quantum = quantum(chunk);
            let totals = [
                1,
                quantum - 1,
                quantum,
                quantum + 1,
                chunk,
                3 * chunk + 7,
                50 * chunk,
            ];
            let ways = totals.map(|total| [(total, chunk), (total, largest_up(total, chunk))]);
            for (total, largest) in ways.into_iter().flatten() {
                let spans = spans(total, chunk, largest);
                let mut at = 0;
                for span in &spans {
                    assert_eq!(span.start, at);
                    assert!((1..=largest).contains(&span.len));
                    at += span.len;
                }
                assert_eq!(at, total);
                let small = |span: Option<&Span>| span.is_some_and(|span| span.len <= quantum);
                assert!(small(spans.first()), "{total} by {chunk}: {spans:?}");
                assert!(spans.last().is_some_and(|span| span.len <= 2 * quantum));
                // Few more copies than chunks.
                assert!(spans.len() <= total / largest + 16);
            }
        }
    }
}
