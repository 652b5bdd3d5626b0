//! The entries of a ledger, except the reader, which is raised without its lock.

use std::mem;
use std::sync::Arc;

use super::fences::is_unordered;
use super::many::{EntryKey, Many};
use super::{Access, Bytes, Fences, NO_STREAM, SEVERAL, Use};
use crate::process::deferred;
use crate::timeline::{Mark, Timeline};
use crate::util::OwningInlineVec;

/// Marks of entries that were removed under a lock. Dropping the last reference to a timeline calls the
/// driver, so the marks are dropped after unlocking. A write after another stream's write leaves one mark,
/// which needs no heap memory.
pub(super) type Spent = OwningInlineVec<Mark, 2>;

/// The entries. An allocation that one stream uses as a whole needs no heap memory for its ledger.
#[derive(Default)]
pub(super) enum Entries {
    #[default]
    None,
    /// A single entry, and the last point at which its stream has read the same bytes since then, or 0.
    One(LedgerEntry, u64),
    Many(Box<Many>),
}

pub(super) struct LedgerEntry {
    pub(super) range: Bytes,
    pub(super) access: Access,
    pub(super) mark: Mark,
}

impl Entries {
    /// See [`Ledger::take_sole`](super::Ledger::take_sole).
    #[inline]
    pub(super) fn take_sole(&mut self, timeline: &Arc<Timeline>) -> Option<Arc<Timeline>> {
        match self {
            Self::One(entry, _) if Arc::ptr_eq(&entry.mark.timeline, timeline) => {}
            _ => return None,
        }
        match mem::take(self) {
            Self::One(entry, _) => Some(entry.mark.timeline),
            Self::None | Self::Many(_) => None,
        }
    }

    #[inline]
    pub(super) fn add_conflicts(
        &self,
        range: &Bytes,
        access: Access,
        stream: Option<&Timeline>,
        fences: &mut Fences,
    ) {
        match self {
            Self::None => {}
            Self::One(LedgerEntry { range: used, access: earlier, mark }, read) => {
                let seq = match access {
                    Access::Write => mark.seq.max(*read),
                    Access::Read => mark.seq,
                };
                if access.conflicts(*earlier) && overlap(used, range) {
                    fences.add_unless_ordered(stream, &mark.timeline, seq);
                }
            }
            Self::Many(many) => {
                let marks = many.overlapping(range, access).map(|(_, mark)| mark);
                fences.extend(
                    marks.filter(|Mark { timeline, seq }| is_unordered(stream, timeline, *seq)),
                );
            }
        }
    }

    /// The value of [`Ledger::only`](super::Ledger::only), given the ledger's reader.
    pub(super) fn only(&self, reader: Option<&Arc<Timeline>>) -> u64 {
        let id = match self {
            Self::None => NO_STREAM,
            Self::One(entry, _) => entry.mark.timeline.id(),
            Self::Many(many) => many.only().unwrap_or(SEVERAL),
        };
        match reader.map(|reader| reader.id()) {
            Some(reader) if id == NO_STREAM || id == reader => reader,
            Some(_) => SEVERAL,
            None => id,
        }
    }

    /// Whether all entries are reads, or writes that are known to have completed, as for weights that were
    /// uploaded once. Returns false for many entries without a search.
    pub(super) fn are_reads(&self) -> bool {
        match self {
            Self::None => true,
            Self::One(entry, _) => entry.access == Access::Read || has_completed(&entry.mark),
            Self::Many(_) => false,
        }
    }

    pub(super) fn push(&mut self, entry: LedgerEntry, spent: &mut Spent) {
        *self = match mem::take(self) {
            Self::None => Self::One(entry, 0),
            some => {
                let mut many = some.into_many(spent);
                many.put(entry, spent);
                Self::Many(many)
            }
        };
    }

    fn into_many(self, spent: &mut Spent) -> Box<Many> {
        match self {
            Self::Many(many) => many,
            Self::One(entry, read) => {
                let mut many = Box::<Many>::default();
                if read > 0 {
                    let (range, mark) = (entry.range.clone(), entry.mark.timeline.at(read));
                    many.put(LedgerEntry { range, access: Access::Read, mark }, spent);
                }
                many.put(entry, spent);
                many
            }
            Self::None => Box::default(),
        }
    }

    /// See [`Ledger::mark`](super::Ledger::mark). Returns [`None`] if the set of streams that have entries is
    /// unchanged; otherwise the marks to query afterwards, without a lock.
    #[inline]
    pub(super) fn mark(&mut self, used: Use<'_>, spent: &mut Spent) -> Option<Vec<Mark>> {
        if self.advance(used) || used.range.is_empty() {
            return None;
        }
        self.mark_among_others(used, spent)
    }

    fn mark_among_others(&mut self, used: Use<'_>, spent: &mut Spent) -> Option<Vec<Mark>> {
        let Use { range, access, stream, seq, fences } = used;
        let key = EntryKey::new(range, access, stream.id());
        // A write supersedes the entries it has waited for, the earlier ones of its own stream, and
        // completed ones.
        let ordered_at = |timeline: &Timeline, earlier: u64| {
            let own = timeline.id() == stream.id() && earlier <= seq;
            own || timeline.has_completed(earlier) || fences.covers(timeline.id(), earlier)
        };
        let ordered = |mark: &Mark| ordered_at(&mark.timeline, mark.seq);
        let superseded = match self {
            Self::None => true,
            Self::One(LedgerEntry { range: used, mark, .. }, read) => {
                let last = mark.seq.max(*read);
                let covered = access == Access::Write && within(used, range);
                (covered && ordered_at(&mark.timeline, last)) || mark.timeline.has_completed(last)
            }
            Self::Many(_) => false,
        };
        if superseded {
            if let Self::One(earlier, _) = mem::replace(self, Self::One(used.into_entry(), 0)) {
                spent.push(earlier.mark);
            }
            return Some(Vec::new());
        }
        let mut many = mem::take(self).into_many(spent);
        let streams = many.streams();
        if access == Access::Write {
            many.supersede(key, ordered, spent);
        }
        let raised = many.raise(key, seq);
        if !raised {
            many.enter(used.into_entry(), spent);
        }
        let one_more = many.streams() > streams;
        let asked = if one_more { many.next_asked() } else { Vec::new() };
        *self = many.packed();
        // A write may have removed another stream's last entry.
        (access == Access::Write || !raised).then_some(asked)
    }

    /// Updates a single entry in the common cases: it is this stream's, and the new access covers all its
    /// bytes, or reads exactly the bytes that it writes.
    #[inline]
    pub(super) fn advance(&mut self, Use { range, access, stream, seq, .. }: Use<'_>) -> bool {
        let Self::One(entry, read) = self else {
            return false;
        };
        if entry.mark.timeline.id() != stream.id() || !within(&entry.range, range) {
            return false;
        }
        if access == Access::Read && entry.access == Access::Write {
            let same = entry.range == *range;
            if same {
                *read = seq.max(*read);
            }
            return same;
        }
        entry.range = range.clone();
        entry.access = access;
        entry.mark.seq = entry.mark.seq.max(*read).max(seq);
        *read = 0;
        true
    }

    /// Removes the entries about these bytes that are known to have completed.
    pub(super) fn prune(&mut self, range: &Bytes, spent: &mut Spent) {
        match mem::take(self) {
            Self::None => {}
            Self::One(entry, read) => {
                let LedgerEntry { mark: Mark { timeline, seq }, .. } = &entry;
                match timeline.has_completed(read.max(*seq)) {
                    true => spent.push(entry.mark),
                    false => *self = Self::One(entry, read),
                }
            }
            Self::Many(mut many) => {
                many.forget(range, spent);
                *self = many.packed();
            }
        }
    }

    /// Removes the entries of those streams that are known to have completed.
    pub(super) fn prune_of(&mut self, asked: &[Mark], spent: &mut Spent) {
        if let Self::Many(many) = self {
            for mark in asked {
                many.forget_of(mark.timeline.id(), spent);
            }
            *self = mem::take(many).packed();
        }
    }
}

/// Queries the driver about the marks `asked`, then calls `prune` to remove the entries that have completed.
/// Does nothing on a thread that must not call the driver.
pub(super) fn thin_out(asked: &[Mark], prune: impl FnOnce(&[Mark])) {
    if !asked.is_empty() && !deferred::must_not_run_here() {
        for mark in asked {
            mark.timeline.peek(mark.seq);
        }
        prune(asked);
    }
}

pub(super) fn has_completed(mark: &Mark) -> bool {
    mark.timeline.has_completed(mark.seq)
}

/// Whether the two ranges have bytes in common.
pub(crate) fn overlap(a: &Bytes, b: &Bytes) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

pub(crate) fn within(inner: &Bytes, outer: &Bytes) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
