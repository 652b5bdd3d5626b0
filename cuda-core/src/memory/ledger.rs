//! The ledger of an allocation: which streams use which bytes, and up to which point.
//!
//! An access waits for the entries that conflict with it and overlap its range; then it leaves an
//! entry of its own. A write replaces what its own range covers, since it waited for all of that.
//! Views carry their range, so two halves used on two streams neither lose each other's entries nor
//! wait for each other.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Result;
use crate::stream_core::Bound;
use crate::sync::lock;
use crate::timeline::{Mark, Timeline};

/// What an operation does to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads it: any number of readers may do so at once.
    Read,
    /// Writes it, or reads and writes.
    Write,
}

impl Access {
    fn conflicts(self, earlier: Access) -> bool {
        self == Access::Write || earlier == Access::Write
    }
}

/// Bytes of an allocation.
pub(crate) type Bytes = Range<usize>;

/// See the module.
#[derive(Default)]
pub(crate) struct Ledger {
    /// The stream that all entries belong to, [`NOBODY`] or [`SEVERAL`].
    ///
    /// Changed under the lock, read without: an entry that conflicts with an access was made
    /// before the access got its borrow, and stays until it is superseded, so whoever holds the
    /// borrow sees a value that counts it. Entries that come and go meanwhile concern other bytes,
    /// or do not conflict.
    only: AtomicU64,
    entries: Mutex<Entries>,
}

const NOBODY: u64 = 0;
const SEVERAL: u64 = u64::MAX;

/// The first entry sits inline: one stream that uses the whole allocation allocates nothing.
#[derive(Default)]
struct Entries {
    first: Option<Entry>,
    rest: Vec<Entry>,
}

struct Entry {
    range: Bytes,
    access: Access,
    mark: Mark,
}

/// Bytes that an operation touches, and what for.
pub(crate) struct Touch<'a> {
    pub(crate) ledger: LedgerOf<'a>,
    pub(crate) range: Bytes,
    pub(crate) access: Access,
}

/// The ledger of a view's allocation.
pub(crate) enum LedgerOf<'a> {
    /// The view is all there is: no lock needed.
    Sole(&'a mut Ledger),
    /// Others may have views of other bytes, or read these.
    Shared(&'a Ledger),
}

impl Touch<'_> {
    /// Nobody but `stream` uses the memory, so there is nothing to wait for.
    #[inline]
    pub(crate) fn is_quiet(&self, stream: &Timeline) -> bool {
        let ledger = match &self.ledger {
            LedgerOf::Sole(ledger) => ledger,
            LedgerOf::Shared(ledger) => *ledger,
        };
        ledger.is_quiet(Some(stream))
    }

    /// Adds to `fences` what the operation has to wait for on `stream`.
    #[inline]
    pub(crate) fn conflicts(&mut self, stream: &Timeline, fences: &mut Fences) {
        let (range, access) = (&self.range, self.access);
        match &mut self.ledger {
            LedgerOf::Sole(ledger) => {
                ledger.conflicts_exclusive(range, access, Some(stream), fences);
            }
            LedgerOf::Shared(ledger) => ledger.conflicts(range, access, Some(stream), fences),
        }
    }

    /// Enters the operation, which is `stream`'s at `seq` and was made to wait for `fences`.
    #[inline]
    pub(crate) fn mark(&mut self, stream: &Arc<Timeline>, seq: u64, fences: &Fences) {
        let (range, access) = (&self.range, self.access);
        match &mut self.ledger {
            LedgerOf::Sole(ledger) => ledger.mark_exclusive(range, access, stream, seq, fences),
            LedgerOf::Shared(ledger) => ledger.mark(range, access, stream, seq, fences),
        }
    }
}

/// Entries of one stream and kind beyond which ranges are merged, at the price of an order that
/// need not be.
const MANY: usize = 32;

/// Points of other streams that an access has to come after.
pub(crate) struct Fences(Vec<Mark>);

impl Fences {
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    fn add(&mut self, mark: &Mark) {
        let same = |known: &&mut Mark| known.timeline.id() == mark.timeline.id();
        match self.0.iter_mut().find(same) {
            Some(known) => known.seq = known.seq.max(mark.seq),
            None => self.0.push(mark.clone()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn marks(&self) -> &[Mark] {
        &self.0
    }

    /// Makes the stream wait for all of them.
    pub(crate) fn wait_on(&self, stream: &Bound<'_>) -> Result<()> {
        self.0.iter().try_for_each(|mark| stream.wait_for(mark))
    }

    /// Blocks the thread until all of them have been reached.
    pub(crate) fn wait_host(&self) -> Result<()> {
        let wait = |mark: &Mark| mark.timeline.wait_host(mark.seq);
        self.0.iter().try_for_each(wait)
    }

    /// Whether all of them have been reached.
    pub(crate) fn query(&self) -> Result<bool> {
        for mark in &self.0 {
            if !mark.timeline.query(mark.seq)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn covers(&self, mark: &Mark) -> bool {
        let waited =
            |known: &Mark| known.timeline.id() == mark.timeline.id() && known.seq >= mark.seq;
        self.0.iter().any(waited)
    }
}

impl Ledger {
    /// The ledger of a new allocation, which `stream` makes at `seq`.
    pub(crate) fn allocated(range: Bytes, stream: &Arc<Timeline>, seq: u64) -> Self {
        let timeline = stream.clone();
        let first = Entry {
            range,
            access: Access::Write,
            mark: Mark { timeline, seq },
        };
        Self {
            only: AtomicU64::new(stream.id()),
            entries: Mutex::new(Entries {
                first: Some(first),
                rest: Vec::new(),
            }),
        }
    }

    /// Adds to `fences` what an access to `range` on `stream` has to wait for; [`None`] is the
    /// host. Work of the same stream is in order already.
    #[inline]
    pub(crate) fn conflicts(
        &self,
        range: &Bytes,
        access: Access,
        stream: Option<&Timeline>,
        fences: &mut Fences,
    ) {
        if self.is_quiet(stream) {
            return;
        }
        lock(&self.entries).conflicts(range, access, stream, fences);
    }

    /// The common case, told without the lock: nobody but `stream` uses the memory.
    #[inline]
    fn is_quiet(&self, stream: Option<&Timeline>) -> bool {
        let only = self.only.load(Ordering::Acquire);
        only == NOBODY || stream.is_some_and(|stream| stream.id() == only)
    }

    /// [`Ledger::conflicts`] of somebody who has the allocation for himself: without the lock.
    #[inline]
    pub(crate) fn conflicts_exclusive(
        &mut self,
        range: &Bytes,
        access: Access,
        stream: Option<&Timeline>,
        fences: &mut Fences,
    ) {
        if self.is_quiet(stream) {
            return;
        }
        let entries = self
            .entries
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        entries.conflicts(range, access, stream, fences);
    }

    /// Enters an access to `range` by `stream` at `seq`, after it was made to wait for `fences`.
    pub(crate) fn mark(
        &self,
        range: &Bytes,
        access: Access,
        stream: &Arc<Timeline>,
        seq: u64,
        fences: &Fences,
    ) {
        // Dropping the last reference to a timeline calls the driver: not under the lock.
        let mut spent = Vec::new();
        let mut entries = lock(&self.entries);
        if let Some(only) = entries.mark(range, access, stream, seq, fences, &mut spent) {
            self.only.store(only, Ordering::Release);
        }
        drop(entries);
        drop(spent);
    }

    /// [`Ledger::mark`] of somebody who has the allocation for himself: without the lock.
    #[inline]
    pub(crate) fn mark_exclusive(
        &mut self,
        range: &Bytes,
        access: Access,
        stream: &Arc<Timeline>,
        seq: u64,
        fences: &Fences,
    ) {
        let mut spent = Vec::new();
        let entries = self
            .entries
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(only) = entries.mark(range, access, stream, seq, fences, &mut spent) {
            *self.only.get_mut() = only;
        }
    }

    /// Forgets what is known to have completed.
    pub(crate) fn prune(&self) {
        let mut spent = Vec::new();
        let mut entries = lock(&self.entries);
        entries.prune(&mut spent);
        self.only.store(entries.only(), Ordering::Release);
        drop(entries);
        drop(spent);
    }
}

impl Entries {
    fn conflicts(
        &self,
        range: &Bytes,
        access: Access,
        stream: Option<&Timeline>,
        fences: &mut Fences,
    ) {
        if range.is_empty() {
            return;
        }
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

    /// What [`Ledger::only`] says.
    fn only(&self) -> u64 {
        let Some(first) = &self.first else {
            return NOBODY;
        };
        let id = first.mark.timeline.id();
        if self.rest.iter().all(|entry| entry.mark.timeline.id() == id) {
            id
        } else {
            SEVERAL
        }
    }

    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    fn push(&mut self, entry: Entry) {
        if self.first.is_none() {
            self.first = Some(entry);
        } else {
            self.rest.push(entry);
        }
    }

    /// See [`Ledger::mark`]. Returns what [`Ledger::only`] has to say, if that may have changed.
    #[inline]
    fn mark(
        &mut self,
        range: &Bytes,
        access: Access,
        stream: &Arc<Timeline>,
        seq: u64,
        fences: &Fences,
        spent: &mut Vec<Mark>,
    ) -> Option<u64> {
        if self.advance(range, access, stream, seq) || range.is_empty() {
            return None;
        }
        self.mark_among_others(range, access, stream, seq, fences, spent);
        Some(self.only())
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
            self.prune(spent);
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

    fn prune(&mut self, spent: &mut Vec<Mark>) {
        self.retain(spent, |entry| {
            !entry.mark.timeline.has_completed(entry.mark.seq)
        });
    }
}

fn overlap(a: &Bytes, b: &Bytes) -> bool {
    a.start < b.end && b.start < a.end
}

fn within(inner: &Bytes, outer: &Bytes) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
