//! The entries of a ledger, all but those that are made without its lock.

use std::sync::Arc;

use super::{Access, Bytes, Fences, NOBODY, SEVERAL};
use crate::timeline::{Mark, Timeline};

/// The first entry sits inline: one stream that uses the whole allocation allocates nothing.
#[derive(Default)]
pub(super) struct Entries {
    first: Option<Entry>,
    rest: Vec<Entry>,
    /// How many there have to be before the driver is asked about them again.
    crowd: usize,
}

pub(super) struct Entry {
    pub(super) range: Bytes,
    pub(super) access: Access,
    pub(super) mark: Mark,
}

/// Entries beyond which those of one stream and kind are merged, at the price of an order that need
/// not be.
const MANY: usize = 32;

impl Entries {
    pub(super) fn of(entry: Entry) -> Self {
        Self {
            first: Some(entry),
            rest: Vec::new(),
            crowd: 0,
        }
    }

    /// See [`Ledger::take_sole`](super::Ledger::take_sole).
    #[inline]
    pub(super) fn take_sole(&mut self, timeline: &Arc<Timeline>) -> Option<Arc<Timeline>> {
        let first = &self.first.as_ref()?.mark.timeline;
        if !Arc::ptr_eq(first, timeline) || self.rest.capacity() > 0 {
            return None;
        }
        self.first.take().map(|entry| entry.mark.timeline)
    }

    pub(super) fn conflicts(
        &self,
        range: &Bytes,
        access: Access,
        stream: Option<&Timeline>,
        fences: &mut Fences,
    ) {
        for entry in self.iter() {
            let same = stream.is_some_and(|stream| stream.id() == entry.mark.timeline.id());
            if !same
                && access.conflicts(entry.access)
                && overlap(&entry.range, range)
                && !entry.mark.timeline.has_completed(entry.mark.seq)
            {
                fences.add(&entry.mark);
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.first.iter().chain(&self.rest)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.first.iter_mut().chain(&mut self.rest)
    }

    /// What [`Ledger::only`](super::Ledger::only) says, where there is such a reader beside the entries.
    pub(super) fn only(&self, reader: Option<&Arc<Timeline>>) -> u64 {
        let entries = self.iter().map(|entry| entry.mark.timeline.id());
        let mut streams = entries.chain(reader.map(|reader| reader.id()));
        let Some(id) = streams.next() else {
            return NOBODY;
        };
        if streams.all(|other| other == id) {
            id
        } else {
            SEVERAL
        }
    }

    /// What to ask the driver about, with nothing locked, where there are twice as many entries as were
    /// left when that was done last. Streams that are gone are waited for by nobody any more: without
    /// asking, the entries of a long-lived block would pile up.
    pub(super) fn crowd(&self) -> Vec<Mark> {
        if self.len() < self.crowd.max(2 * MANY) {
            return Vec::new();
        }
        self.iter().map(|entry| entry.mark.clone()).collect()
    }

    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    pub(super) fn push(&mut self, entry: Entry) {
        if self.first.is_none() {
            self.first = Some(entry);
        } else {
            self.rest.push(entry);
        }
    }

    /// See [`Ledger::mark`](super::Ledger::mark). Returns whether the streams that have entries are the same as before.
    #[inline]
    pub(super) fn mark(
        &mut self,
        range: &Bytes,
        access: Access,
        stream: &Arc<Timeline>,
        seq: u64,
        fences: &Fences,
        spent: &mut Vec<Mark>,
    ) -> bool {
        if self.advance(range, access, stream, seq) || range.is_empty() {
            return true;
        }
        self.mark_among_others(range, access, stream, seq, fences, spent);
        false
    }

    fn mark_among_others(
        &mut self,
        range: &Bytes,
        access: Access,
        stream: &Arc<Timeline>,
        seq: u64,
        fences: &Fences,
        spent: &mut Vec<Mark>,
    ) {
        if access == Access::Write {
            self.supersede(range, stream, fences, spent);
        }
        self.enter(range, access, stream, seq, spent);
    }

    /// The common case: the only entry is this stream's and says less than the new one.
    #[inline]
    fn advance(&mut self, range: &Bytes, access: Access, stream: &Arc<Timeline>, seq: u64) -> bool {
        let only = self.first.as_mut().filter(|_| self.rest.is_empty());
        let Some(entry) = only.filter(|entry| {
            entry.mark.timeline.id() == stream.id()
                && within(&entry.range, range)
                && (access == Access::Write || entry.access == Access::Read)
        }) else {
            return false;
        };
        entry.range = range.clone();
        entry.access = access;
        entry.mark.seq = entry.mark.seq.max(seq);
        true
    }

    /// Removes every entry that `keep` refuses.
    fn retain(&mut self, spent: &mut Vec<Mark>, mut keep: impl FnMut(&Entry) -> bool) {
        let mut at = 0;
        while at < self.rest.len() {
            if keep(&self.rest[at]) {
                at += 1;
            } else {
                spent.push(self.rest.swap_remove(at).mark);
            }
        }
        if self.first.as_ref().is_some_and(|entry| !keep(entry)) {
            let replacement = self.rest.pop();
            spent.extend(std::mem::replace(&mut self.first, replacement).map(|e| e.mark));
        }
    }

    /// Takes `range` out of the entries that a write to it has waited for, or follows in order.
    fn supersede(
        &mut self,
        range: &Bytes,
        stream: &Arc<Timeline>,
        fences: &Fences,
        spent: &mut Vec<Mark>,
    ) {
        let ordered = |entry: &Entry| {
            entry.mark.timeline.id() == stream.id()
                || entry.mark.timeline.has_completed(entry.mark.seq)
                || fences.covers(&entry.mark)
        };
        let mut tails = Vec::new();
        for entry in self.iter_mut() {
            if !overlap(&entry.range, range) || !ordered(entry) || within(&entry.range, range) {
                continue;
            }
            let head = entry.range.start..range.start.max(entry.range.start);
            let tail = range.end.min(entry.range.end)..entry.range.end;
            if head.is_empty() {
                entry.range = tail;
            } else {
                if !tail.is_empty() {
                    tails.push(Entry {
                        range: tail,
                        access: entry.access,
                        mark: entry.mark.clone(),
                    });
                }
                entry.range = head;
            }
        }
        self.retain(spent, |entry| {
            !(within(&entry.range, range) && ordered(entry))
        });
        tails.into_iter().for_each(|tail| self.push(tail));
    }

    fn enter(
        &mut self,
        range: &Bytes,
        access: Access,
        stream: &Arc<Timeline>,
        seq: u64,
        spent: &mut Vec<Mark>,
    ) {
        // A later access of the same kind by the same stream says all that the earlier one said.
        let earlier = self.iter_mut().find(|entry| {
            entry.access == access
                && entry.mark.timeline.id() == stream.id()
                && within(&entry.range, range)
        });
        if let Some(entry) = earlier {
            entry.range = range.clone();
            entry.mark.seq = entry.mark.seq.max(seq);
            return;
        }
        if self.len() >= MANY {
            self.forget_completed(spent);
        }
        if self.len() >= MANY {
            let mergeable = self
                .iter_mut()
                .find(|entry| entry.access == access && entry.mark.timeline.id() == stream.id());
            if let Some(entry) = mergeable {
                entry.range = entry.range.start.min(range.start)..entry.range.end.max(range.end);
                entry.mark.seq = entry.mark.seq.max(seq);
                return;
            }
        }
        self.push(Entry {
            range: range.clone(),
            access,
            mark: Mark {
                timeline: stream.clone(),
                seq,
            },
        });
    }

    /// Forgets what is known to have completed, after the driver was asked.
    pub(super) fn prune(&mut self, spent: &mut Vec<Mark>) {
        self.forget_completed(spent);
        self.crowd = 2 * self.len();
    }

    fn forget_completed(&mut self, spent: &mut Vec<Mark>) {
        self.retain(spent, |entry| {
            !entry.mark.timeline.has_completed(entry.mark.seq)
        });
    }
}

/// Whether they have bytes in common.
pub(super) fn overlap(a: &Bytes, b: &Bytes) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

fn within(inner: &Bytes, outer: &Bytes) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
