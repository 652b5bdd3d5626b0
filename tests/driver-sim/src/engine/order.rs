//! The ordering checker: keeps every access of a block until all later work is known to come after the
//! access.

use std::ops::Range;

use crate::engine::clock::Point;
use crate::engine::work::AccessKind;

/// An access that was enqueued.
#[derive(Debug)]
struct Past {
    range: Range<usize>,
    kind: AccessKind,
    point: Point,
    call: &'static str,
}

/// The accesses of one block that some later access is perhaps not ordered after.
#[derive(Debug, Default)]
pub(crate) struct History {
    past: Vec<Past>,
    /// The number of accesses from which on `add` looks for accesses to forget.
    full: usize,
}

/// The least value of `full`.
const FULL: usize = 8;

/// An earlier access that a new one conflicts with and is not ordered after.
pub(crate) struct Conflict {
    pub(crate) call: &'static str,
    pub(crate) kind: AccessKind,
    pub(crate) range: Range<usize>,
    pub(crate) stream: u64,
}

/// Returns whether ranges have a part in common.
pub(crate) fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

impl History {
    /// Returns the earlier accesses that conflict with this one and that `ordered` does not confirm to have
    /// happened before it.
    pub(crate) fn conflicts(
        &self,
        range: &Range<usize>,
        kind: AccessKind,
        ordered: impl Fn(Point) -> bool,
    ) -> Vec<Conflict> {
        let unordered = self.past.iter().filter(|past| {
            let both_read = past.kind == AccessKind::Read && kind == AccessKind::Read;
            overlap(&past.range, range) && !both_read && !ordered(past.point)
        });
        unordered
            .map(|past| Conflict {
                call: past.call,
                kind: past.kind,
                range: past.range.clone(),
                stream: past.point.stream,
            })
            .collect()
    }

    /// Adds an access. `forever` returns whether an earlier access happened before all work to come. Such an
    /// access may be forgotten: every later access is ordered after it.
    pub(crate) fn add(
        &mut self,
        range: Range<usize>,
        kind: AccessKind,
        point: Point,
        call: &'static str,
        forever: impl Fn(Point) -> bool,
    ) {
        self.past.retain(|past| {
            let inside = range.start <= past.range.start && past.range.end <= range.end;
            // Work that comes after the newer access of this stream also comes after the older one.
            let replaced = inside
                && past.point.stream == point.stream
                && (kind == AccessKind::Write || past.kind == AccessKind::Read);
            !replaced
        });
        if self.past.len() >= self.full.max(FULL) {
            self.past.retain(|past| !forever(past.point));
            self.full = 2 * self.past.len();
        }
        self.past.push(Past { range, kind, point, call });
    }
}
