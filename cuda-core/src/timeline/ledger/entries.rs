//! The entries of a ledger, except the one that is raised without its lock.

use std::mem;
use std::sync::Arc;

use super::fences::is_unordered;
use super::many::{EntryKey, Many};
use super::shared::SharedLedger;
use super::{Access, Bytes, Fences, NO_STREAM, SEVERAL, SHARED, Use, key};
use crate::timeline::{Mark, Timeline};

/// A single entry is stored inline: an allocation that one stream uses as a whole needs no heap
/// memory for its ledger.
#[derive(Default)]
pub(super) enum Entries {
    #[default]
    None,
    One(LedgerEntry),
    Many(Box<Many>),
    /// Graphs use the memory: the entries are there.
    Shared(Arc<SharedLedger>),
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
            Self::One(entry) if Arc::ptr_eq(&entry.mark.timeline, timeline) => {}
            _ => return None,
        }
        match mem::take(self) {
            Self::One(entry) => Some(entry.mark.timeline),
            Self::None | Self::Many(_) | Self::Shared(_) => None,
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    pub(super) fn add_conflicts(
        &self,
        range: &Bytes,
        access: Access,
        stream: Option<&Timeline>,
        fences: &mut Fences,
    ) {
        match self {
            Self::None => {}
            Self::One(entry) => {
                let one = access.conflicts(entry.access) && overlap(&entry.range, range);
                if one {
                    fences.add_unless_ordered(stream, &entry.mark.timeline, entry.mark.seq);
                }
            }
            Self::Many(many) => {
                let marks = many.overlapping(range, access).map(|(_, mark)| mark);
                fences.extend(
                    marks.filter(|Mark { timeline, seq }| is_unordered(stream, timeline, *seq)),
                );
            }
            Self::Shared(shared) => shared.add_conflicts(range, access, stream, None, fences),
        }
    }

    /// The value of [`Ledger::only`](super::Ledger::only), given the reader that is kept beside the
    /// entries.
    pub(super) fn only(&self, reader: Option<&Arc<Timeline>>) -> u64 {
        let id = match self {
            Self::None => NO_STREAM,
            Self::One(entry) => entry.mark.timeline.id(),
            Self::Many(many) => many.only().unwrap_or(SEVERAL),
            Self::Shared(shared) => return SHARED | key(shared) as u64,
        };
        match reader.map(|reader| reader.id()) {
            Some(reader) if id == NO_STREAM || id == reader => reader,
            Some(_) => SEVERAL,
            None => id,
        }
    }

    pub(super) fn push(&mut self, entry: LedgerEntry, spent: &mut Vec<Mark>) {
        *self = match mem::take(self) {
            Self::None => Self::One(entry),
            Self::Shared(shared) => {
                shared.push(entry, spent);
                Self::Shared(shared)
            }
            some => {
                let mut many = some.into_many(spent);
                many.put(entry, spent);
                Self::Many(many)
            }
        };
    }

    fn into_many(self, spent: &mut Vec<Mark>) -> Box<Many> {
        match self {
            Self::Many(many) => many,
            Self::One(entry) => {
                let mut many = Box::<Many>::default();
                many.put(entry, spent);
                many
            }
            Self::None | Self::Shared(_) => Box::default(),
        }
    }

    /// See [`Ledger::mark`](super::Ledger::mark). [`None`] if the set of streams that have entries
    /// is the same as before; otherwise the marks to query afterwards, with nothing locked.
    #[inline]
    pub(super) fn mark(&mut self, used: Use<'_>, spent: &mut Vec<Mark>) -> Option<Vec<Mark>> {
        if self.advance(used) || used.range.is_empty() {
            return None;
        }
        self.mark_among_others(used, spent)
    }

    fn mark_among_others(&mut self, used: Use<'_>, spent: &mut Vec<Mark>) -> Option<Vec<Mark>> {
        if let Self::Shared(shared) = self {
            return shared.mark(used, spent);
        }
        let Use { range, access, stream, seq, fences } = used;
        let key = EntryKey::new(range, access, stream.id());
        // A write supersedes the entries it has waited for, the earlier ones of its own stream, and
        // completed ones.
        let ordered = |mark: &Mark| {
            let own = mark.timeline.id() == stream.id() && mark.seq <= seq;
            own || has_completed(mark) || fences.covers(mark)
        };
        let superseded = match self {
            Self::None => true,
            Self::One(entry) => {
                access == Access::Write && within(&entry.range, range) && ordered(&entry.mark)
            }
            Self::Many(_) | Self::Shared(_) => false,
        };
        if superseded {
            if let Self::One(earlier) = mem::replace(self, Self::One(used.into_entry())) {
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

    /// The common case: the only entry is this stream's, and the new access covers all that it
    /// says.
    #[inline]
    pub(super) fn advance(&mut self, Use { range, access, stream, seq, .. }: Use<'_>) -> bool {
        let Self::One(entry) = self else {
            return false;
        };
        if entry.mark.timeline.id() != stream.id()
            || !within(&entry.range, range)
            || (access == Access::Read && entry.access == Access::Write)
        {
            return false;
        }
        entry.range = range.clone();
        entry.access = access;
        entry.mark.seq = entry.mark.seq.max(seq);
        true
    }

    /// Removes the entries about these bytes that are known to have completed.
    pub(super) fn prune(&mut self, range: &Bytes, spent: &mut Vec<Mark>) {
        match mem::take(self) {
            Self::None => {}
            Self::One(entry) if has_completed(&entry.mark) => spent.push(entry.mark),
            Self::One(entry) => *self = Self::One(entry),
            Self::Many(mut many) => {
                many.forget(range, spent);
                *self = many.packed();
            }
            Self::Shared(shared) => {
                shared.change(|entries| entries.prune(range, spent));
                *self = Self::Shared(shared);
            }
        }
    }

    /// Removes the entries of those streams that are known to have completed.
    pub(super) fn prune_of(&mut self, asked: &[Mark], spent: &mut Vec<Mark>) {
        match self {
            Self::Many(many) => {
                for mark in asked {
                    many.forget_of(mark.timeline.id(), spent);
                }
                *self = mem::take(many).packed();
            }
            Self::Shared(shared) => shared.change(|entries| entries.prune_of(asked, spent)),
            Self::None | Self::One(_) => {}
        }
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
