//! Vector clocks over streams: the operations that have certainly happened before.

use crate::handle::Id;

/// A point on a stream: its operation number `seq`, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) stream: Id,
    pub(crate) seq: u64,
}

/// For every stream, the last operation known to be complete; sorted by stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock(Vec<Point>);

impl Clock {
    pub(crate) fn covers(&self, point: Point) -> bool {
        match self.0.binary_search_by_key(&point.stream, |p| p.stream) {
            Ok(at) => self.0[at].seq >= point.seq,
            Err(_) => false,
        }
    }

    pub(crate) fn set(&mut self, point: Point) {
        match self.0.binary_search_by_key(&point.stream, |p| p.stream) {
            Ok(at) => self.0[at].seq = self.0[at].seq.max(point.seq),
            Err(at) => self.0.insert(at, point),
        }
    }

    pub(crate) fn join(&mut self, other: &Clock) {
        self.join_unless(other, |_| false);
    }

    /// Joins the points of `other`, except those of streams that `skip` selects.
    pub(crate) fn join_unless(&mut self, other: &Clock, skip: impl Fn(Id) -> bool) {
        // Both clocks are sorted.
        let mut at = 0;
        for &point in other.0.iter().filter(|point| !skip(point.stream)) {
            while self.0.get(at).is_some_and(|p| p.stream < point.stream) {
                at += 1;
            }
            match self.0.get_mut(at) {
                Some(known) if known.stream == point.stream => {
                    known.seq = known.seq.max(point.seq);
                }
                _ => self.0.insert(at, point),
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn forget_all(&mut self, gone: impl Fn(Id) -> bool) {
        self.0.retain(|p| !gone(p.stream));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_keeps_the_later() {
        let mut a = Clock::default();
        a.set(Point { stream: 2, seq: 5 });
        let mut b = Clock::default();
        b.set(Point { stream: 1, seq: 1 });
        b.set(Point { stream: 2, seq: 3 });
        a.join(&b);
        assert!(a.covers(Point { stream: 1, seq: 1 }));
        assert!(a.covers(Point { stream: 2, seq: 5 }));
        assert!(!a.covers(Point { stream: 2, seq: 6 }));
        assert!(!a.covers(Point { stream: 3, seq: 1 }));
    }
}
