//! Free stretches of slabs: best fit, split and merge.

use std::num::NonZeroU64;

use crate::util::tree::Tree;

/// Id of a slab; never reused.
pub(super) type SlabId = NonZeroU64;

/// A stretch of a slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) slab: SlabId,
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

impl Span {
    /// The first `bytes`, which it must have, and the rest.
    pub(super) fn split(self, bytes: usize) -> (Self, Option<Self>) {
        let rest = Self { offset: self.offset + bytes, bytes: self.bytes - bytes, ..self };
        (Self { bytes, ..self }, (rest.bytes > 0).then_some(rest))
    }

    fn numbers(self) -> SpanKey {
        (self.slab.get(), self.offset as u64, self.bytes as u64)
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Spans {
    /// By slab, offset and size. No two of them touch.
    places: Tree<SpanKey, ()>,
    /// The same by size, slab and offset.
    sizes: Tree<SpanKey, ()>,
}

type SpanKey = (u64, u64, u64);

impl Spans {
    /// Adds a stretch, and merges it with its neighbours.
    pub(super) fn insert(&mut self, span: Span) {
        let mut whole = span;
        if let Some(before) = self.last_before(span.slab, span.offset) {
            if before.offset + before.bytes == span.offset {
                self.forget(before);
                whole.offset = before.offset;
                whole.bytes += before.bytes;
            }
        }
        if let Some(behind) = self.at(span.slab, span.offset + span.bytes) {
            self.forget(behind);
            whole.bytes += behind.bytes;
        }
        self.remember(whole);
    }

    /// Takes `bytes` out of the smallest stretch that has them.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Span> {
        let ((size, slab, offset), ()) = self.sizes.first_from((bytes as u64, 0, 0))?;
        let found =
            Span { slab: SlabId::new(slab)?, offset: offset as usize, bytes: size as usize };
        self.forget(found);
        let (taken, rest) = found.split(bytes);
        if let Some(rest) = rest {
            self.remember(rest);
        }
        Some(taken)
    }

    /// Removes exactly this stretch, if it is one; returns whether it was.
    pub(super) fn take_whole(&mut self, span: Span) -> bool {
        let whole = self.at(span.slab, span.offset) == Some(span);
        if whole {
            self.forget(span);
        }
        whole
    }

    /// Removes all stretches of a slab, and returns their bytes.
    pub(super) fn take_rest(&mut self, slab: SlabId) -> usize {
        let mut bytes = 0;
        while let Some(last) = self.last_before(slab, usize::MAX) {
            self.forget(last);
            bytes += last.bytes;
        }
        bytes
    }

    /// The last stretch of a slab that begins before `offset`.
    fn last_before(&self, slab: SlabId, offset: usize) -> Option<Span> {
        let ((of, offset, bytes), ()) = self.places.last_before((slab.get(), offset as u64, 0))?;
        let span = Span { slab, offset: offset as usize, bytes: bytes as usize };
        (of == slab.get()).then_some(span)
    }

    /// The stretch of a slab that begins at `offset`.
    fn at(&self, slab: SlabId, offset: usize) -> Option<Span> {
        let place = (slab.get(), offset as u64);
        let ((of, at, bytes), ()) = self.places.first_from((place.0, place.1, 0))?;
        (place == (of, at)).then_some(Span { slab, offset, bytes: bytes as usize })
    }

    fn remember(&mut self, span: Span) {
        let (slab, offset, bytes) = span.numbers();
        self.places.insert((slab, offset, bytes), ());
        self.sizes.insert((bytes, slab, offset), ());
    }

    fn forget(&mut self, span: Span) {
        let (slab, offset, bytes) = span.numbers();
        self.places.remove((slab, offset, bytes));
        self.sizes.remove((bytes, slab, offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slab(id: u64) -> SlabId {
        SlabId::new(id).expect("not zero")
    }

    fn span(id: u64, offset: usize, bytes: usize) -> Span {
        let slab = slab(id);
        Span { slab, offset, bytes }
    }

    #[test]
    fn the_smallest_that_fits_is_split() {
        let mut spans = Spans::default();
        spans.insert(span(1, 0, 1000));
        spans.insert(span(2, 0, 300));
        assert_eq!(spans.take(301), Some(span(1, 0, 301)));
        assert_eq!(spans.take(300), Some(span(2, 0, 300)));
        assert_eq!(spans.take(700), None);
        assert_eq!(spans.take(699), Some(span(1, 301, 699)));
        assert_eq!(spans.take(1), None);
    }

    #[test]
    fn neighbours_become_one_and_slabs_stay_apart() {
        let mut spans = Spans::default();
        for at in [0, 2, 1] {
            spans.insert(span(1, at * 10, 10));
        }
        // Where the first slab would go on.
        spans.insert(span(2, 30, 10));
        assert!(!spans.take_whole(span(1, 0, 40)));
        assert!(spans.take_whole(span(1, 0, 30)));
        assert_eq!((spans.take_rest(slab(1)), spans.take_rest(slab(2))), (0, 10));
        assert_eq!(spans.take(1), None);
    }

    /// Random taking and giving, checked against a map of all units.
    #[test]
    fn nothing_is_given_twice_or_lost() {
        const UNITS: usize = 64;
        let mut spans = Spans::default();
        spans.insert(span(1, 0, UNITS));
        let mut taken = [false; UNITS];
        let mut held: Vec<Span> = Vec::new();
        let mut seed = 1_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
            if random(2) == 0 {
                let bytes = 1 + random(12);
                match spans.take(bytes) {
                    Some(got) => {
                        assert_eq!(got.bytes, bytes);
                        for unit in &mut taken[got.offset..got.offset + bytes] {
                            assert!(!std::mem::replace(unit, true), "given twice");
                        }
                        held.push(got);
                    }
                    // Then there is no such hole.
                    None => assert!(taken.windows(bytes).all(|hole| hole.contains(&true))),
                }
            } else if !held.is_empty() {
                let back = held.swap_remove(random(held.len()));
                taken[back.offset..back.offset + back.bytes].fill(false);
                spans.insert(back);
            }
        }
        held.into_iter().for_each(|back| spans.insert(back));
        assert!(spans.take_whole(span(1, 0, UNITS)));
    }
}
