//! Free stretches of slabs: the best fit, what is left of it, and neighbours made one again.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

/// Names a slab; never used twice.
pub(super) type SlabId = NonZeroU64;

/// A stretch of a slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) slab: SlabId,
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

impl Span {
    /// The first `bytes`, of which it has at least so many, and the rest.
    pub(super) fn split(self, bytes: usize) -> (Self, Option<Self>) {
        let rest = Self {
            offset: self.offset + bytes,
            bytes: self.bytes - bytes,
            ..self
        };
        (Self { bytes, ..self }, (rest.bytes > 0).then_some(rest))
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Spans {
    /// Sizes by place. No two of them touch.
    places: BTreeMap<(SlabId, usize), usize>,
    /// The same, by size.
    sizes: BTreeSet<(usize, SlabId, usize)>,
}

impl Spans {
    /// Adds a stretch, which becomes one with those beside it.
    pub(super) fn insert(&mut self, span: Span) {
        let Span {
            slab,
            mut offset,
            mut bytes,
        } = span;
        let before = self.places.range(..(slab, offset)).next_back();
        if let Some((&(of, at), &size)) = before {
            if of == slab && at + size == offset {
                self.forget(slab, at, size);
                offset = at;
                bytes += size;
            }
        }
        if let Some(&size) = self.places.get(&(slab, offset + bytes)) {
            self.forget(slab, offset + bytes, size);
            bytes += size;
        }
        self.remember(slab, offset, bytes);
    }

    /// Takes `bytes` out of the smallest stretch that has them.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Span> {
        let smallest = (bytes, SlabId::MIN, 0);
        let &(size, slab, offset) = self.sizes.range(smallest..).next()?;
        self.forget(slab, offset, size);
        let found = Span {
            slab,
            offset,
            bytes: size,
        };
        let (taken, rest) = found.split(bytes);
        if let Some(rest) = rest {
            self.remember(slab, rest.offset, rest.bytes);
        }
        Some(taken)
    }

    /// Takes out just this stretch, if it is one, and says whether it was.
    pub(super) fn take_whole(&mut self, span: Span) -> bool {
        let whole = self.places.get(&(span.slab, span.offset)) == Some(&span.bytes);
        if whole {
            self.forget(span.slab, span.offset, span.bytes);
        }
        whole
    }

    /// Takes out whatever there is of a slab, and says how much that was.
    pub(super) fn take_rest(&mut self, slab: SlabId) -> usize {
        let of_slab = self.places.range((slab, 0)..=(slab, usize::MAX));
        let rest: Vec<_> = of_slab.map(|(&(_, at), &size)| (at, size)).collect();
        rest.into_iter()
            .map(|(at, size)| {
                self.forget(slab, at, size);
                size
            })
            .sum()
    }

    fn remember(&mut self, slab: SlabId, offset: usize, bytes: usize) {
        self.places.insert((slab, offset), bytes);
        self.sizes.insert((bytes, slab, offset));
    }

    fn forget(&mut self, slab: SlabId, offset: usize, bytes: usize) {
        self.places.remove(&(slab, offset));
        self.sizes.remove(&(bytes, slab, offset));
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
        Span {
            slab,
            offset,
            bytes,
        }
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
        assert_eq!(
            (spans.take_rest(slab(1)), spans.take_rest(slab(2))),
            (0, 10)
        );
        assert_eq!(spans.take(1), None);
    }

    /// Random taking and giving against a map of every unit.
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
