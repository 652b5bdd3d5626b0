//! The entries of an allocation that several streams use, or that is used in parts.

use std::collections::BTreeMap;

use super::entries::{Entries, LedgerEntry, Spent, has_completed, within};
use super::{Access, Bytes};
use crate::timeline::Mark;
use crate::util::Turns;

/// Entries, indexed by their bytes and by their streams: an access looks only at entries of its own bytes, or
/// near them.
#[derive(Default)]
pub(super) struct Many {
    // INVARIANT: `entries` has exactly the keys that `streams` lists.
    entries: BTreeMap<EntryKey, Mark>,
    streams: Turns<Vec<EntryKey>>,
}

/// The key of an entry. Orders entries by size class, then by start; entries of the same bytes and kind by
/// stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryKey {
    /// The logarithm of the size, rounded down.
    scale: u32,
    start: usize,
    end: usize,
    access: Access,
    stream: u64,
}

/// The number of entries of one stream beyond which those of the same kind are merged, at the price of
/// unneeded waits.
const MOST: usize = 32;

/// The number of streams beyond which the driver is queried about two of them, round-robin, whenever another
/// one is added. Operations no longer wait for streams that are gone: without queries, the entries of a
/// long-lived block would pile up.
const CROWD: usize = 64;

const ASKED: usize = 2;

/// Number of entries up to which a full scan is faster than a search.
const FEW: usize = 16;

impl EntryKey {
    pub(super) fn new(range: &Bytes, access: Access, stream: u64) -> Self {
        Self {
            scale: range.len().max(1).ilog2(),
            start: range.start,
            end: range.end,
            access,
            stream,
        }
    }

    /// The smallest possible key of this scale that begins at `start` or later.
    fn first(scale: u32, start: usize) -> Self {
        Self { scale, start, end: 0, access: Access::Read, stream: 0 }
    }

    fn range(&self) -> Bytes {
        self.start..self.end
    }

    /// Whether `other` covers this entry: same stream and kind, and a larger range that includes this one.
    fn is_merged_into(&self, other: &Self) -> bool {
        (self.stream, self.access) == (other.stream, other.access)
            && within(&self.range(), &other.range())
            && self != other
    }

    /// The largest size of an entry of this scale.
    fn longest(&self) -> usize {
        usize::MAX >> (usize::BITS - 1 - self.scale)
    }

    /// The smallest possible key after the keys of the same bytes and kind.
    fn next_kind(self) -> Self {
        Self { stream: u64::MAX, ..self }
    }
}

impl Many {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Stores a single entry inline again.
    pub(super) fn packed(mut self: Box<Self>) -> Entries {
        if self.len() > 1 {
            return Entries::Many(self);
        }
        match self.entries.pop_first() {
            None => Entries::None,
            Some((key, mark)) => {
                Entries::One(LedgerEntry { range: key.range(), access: key.access, mark }, 0)
            }
        }
    }

    /// The number of streams that have entries.
    pub(super) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The only stream that has entries, if exactly one has.
    pub(super) fn only(&self) -> Option<u64> {
        let mut streams = self.streams.iter();
        let (id, _) = streams.next()?;
        streams.next().is_none().then_some(id)
    }

    /// The entries that an access to these bytes conflicts with.
    pub(super) fn overlapping(
        &self,
        range: &Bytes,
        access: Access,
    ) -> impl Iterator<Item = (EntryKey, &Mark)> {
        overlapping(&self.entries, range, access)
    }

    /// Removes the bytes of a write from all other entries that `ordered` selects. `own` is the key
    /// of the write's own entry.
    pub(super) fn supersede(
        &mut self,
        own: EntryKey,
        ordered: impl Fn(&Mark) -> bool,
        spent: &mut Spent,
    ) {
        let range = own.range();
        // Merged entries are not split again.
        let crowded = self.is_crowded(own.stream);
        let stays = |key: &EntryKey| *key == own || (crowded && own.is_merged_into(key));
        for (key, mark) in self.take(&range, |key, mark| !stays(key) && ordered(mark)) {
            let (start, end) = (range.start.max(key.start), range.end.min(key.end));
            for rest in [key.start..start, end..key.end] {
                if !rest.is_empty() {
                    let (access, mark) = (key.access, mark.clone());
                    self.put(LedgerEntry { range: rest, access, mark }, spent);
                }
            }
            spent.push(mark);
        }
    }

    /// Removes and returns the entries about these bytes that `unwanted` selects.
    fn take(
        &mut self,
        range: &Bytes,
        unwanted: impl Fn(&EntryKey, &Mark) -> bool,
    ) -> Vec<(EntryKey, Mark)> {
        let found = self.overlapping(range, Access::Write);
        let unwanted = found.filter(|(key, mark)| unwanted(key, mark));
        let keys: Vec<_> = unwanted.map(|(key, _)| key).collect();
        let taken = keys.into_iter();
        taken.filter_map(|key| Some((key, self.remove(key)?))).collect()
    }

    /// Removes the entries about these bytes that are known to have completed.
    pub(super) fn forget(&mut self, range: &Bytes, spent: &mut Spent) {
        let taken = self.take(range, |_, mark| has_completed(mark));
        taken.into_iter().for_each(|(_, mark)| spent.push(mark));
    }

    /// Removes the entries of a stream that are known to have completed.
    pub(super) fn forget_of(&mut self, stream: u64, spent: &mut Spent) {
        for key in self.keys_of(stream, |_| true) {
            if self.entries.get(&key).is_some_and(has_completed) {
                self.remove(key).into_iter().for_each(|mark| spent.push(mark));
            }
        }
    }

    /// Returns marks to query: the last point of each of the next streams in round-robin order.
    pub(super) fn next_asked(&mut self) -> Vec<Mark> {
        if self.streams.len() <= CROWD {
            return Vec::new();
        }
        let streams = self.streams.in_turn(ASKED).into_iter();
        let last = streams.filter_map(|stream| {
            let keys = self.streams.get(stream)?.iter();
            let marks = keys.filter_map(|key| self.entries.get(key));
            marks.max_by_key(|mark| mark.seq).cloned()
        });
        last.collect()
    }

    /// Raises the point of the entry with this key, or of the one that it would be merged into. Returns
    /// whether there was such an entry.
    pub(super) fn raise(&mut self, key: EntryKey, seq: u64) -> bool {
        let raise = |mark: &mut Mark| mark.seq = mark.seq.max(seq);
        if let Some(mark) = self.entries.get_mut(&key) {
            raise(mark);
            return true;
        }
        if !self.is_crowded(key.stream) {
            return false;
        }
        let mut keys = self.streams.get(key.stream).into_iter().flatten();
        let merged = keys.find(|known| key.is_merged_into(known)).copied();
        let merged = merged.and_then(|key| self.entries.get_mut(&key));
        merged.map(raise).is_some()
    }

    fn is_crowded(&self, stream: u64) -> bool {
        self.streams.get(stream).is_some_and(|keys| keys.len() >= MOST)
    }

    /// Adds an entry for an access that is ordered after everything it conflicts with.
    pub(super) fn enter(&mut self, mut entry: LedgerEntry, spent: &mut Spent) {
        let stream = entry.mark.timeline.id();
        // The new entry covers earlier accesses of the same kind and stream within its bytes.
        let earlier = self.keys_of(stream, |key| {
            key.access == entry.access && within(&key.range(), &entry.range)
        });
        for earlier in earlier {
            if let Some(earlier) = self.remove(earlier) {
                entry.mark.seq = entry.mark.seq.max(earlier.seq);
                spent.push(earlier);
            }
        }
        self.put(entry, spent);
    }

    /// Adds an entry beside the others; merges it with another entry of its stream if the stream has many.
    pub(super) fn put(&mut self, entry: LedgerEntry, spent: &mut Spent) {
        let LedgerEntry { mut range, access, mut mark } = entry;
        if range.is_empty() {
            return spent.push(mark);
        }
        let stream = mark.timeline.id();
        if self.is_crowded(stream) {
            let same = self.keys_of(stream, |key| key.access == access);
            if let Some((key, earlier)) =
                same.first().and_then(|key| Some((*key, self.remove(*key)?)))
            {
                range = range.start.min(key.start)..range.end.max(key.end);
                mark.seq = mark.seq.max(earlier.seq);
                spent.push(earlier);
            }
        }
        let key = EntryKey::new(&range, access, stream);
        match self.entries.get_mut(&key) {
            Some(known) => {
                known.seq = known.seq.max(mark.seq);
                spent.push(mark);
            }
            None => {
                self.entries.insert(key, mark);
                let keys = self.streams.get_or_insert_with(stream, Vec::new);
                keys.push(key);
            }
        }
    }

    fn keys_of(&self, stream: u64, wanted: impl Fn(&EntryKey) -> bool) -> Vec<EntryKey> {
        let keys = self.streams.get(stream).into_iter().flatten();
        keys.copied().filter(wanted).collect()
    }

    fn remove(&mut self, key: EntryKey) -> Option<Mark> {
        let keys = self.streams.get_mut(key.stream)?;
        if let Some(at) = keys.iter().position(|known| *known == key) {
            keys.swap_remove(at);
        }
        if keys.is_empty() {
            self.streams.remove(key.stream);
        }
        self.entries.remove(&key)
    }
}

/// The entries that an access to these bytes conflicts with. For each scale this looks at few entries without
/// a conflict: of those with the same bytes and kind, only at the first.
fn overlapping<'a, M>(
    entries: &'a BTreeMap<EntryKey, M>,
    range: &Bytes,
    access: Access,
) -> impl Iterator<Item = (EntryKey, &'a M)> + use<'a, M> {
    let range = range.clone();
    let mut rest = entries.range(..);
    std::iter::from_fn(move || {
        while !range.is_empty() {
            #[cfg(test)]
            tests::LOOKS.set(tests::LOOKS.get() + 1);
            let (&key, value) = rest.next()?;
            // Entries of this scale that begin before `first` do not reach the range.
            let first = (range.start + 1).saturating_sub(key.longest());
            let next = if key.start >= range.end {
                EntryKey::first(key.scale + 1, 0)
            } else if key.start < first {
                EntryKey::first(key.scale, first)
            } else if key.end <= range.start || !access.conflicts(key.access) {
                key.next_kind()
            } else {
                return Some((key, value));
            };
            if entries.len() > FEW {
                rest = entries.range(next..);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::timeline::ledger::entries::overlap;

    thread_local! {
        pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    /// Returns the entries that an access conflicts with, and the number of entries it looked at.
    fn found(
        entries: &BTreeMap<EntryKey, ()>,
        range: Bytes,
        access: Access,
    ) -> (Vec<EntryKey>, usize) {
        LOOKS.set(0);
        let found = overlapping(entries, &range, access).map(|(key, ())| key);
        (found.collect(), LOOKS.get())
    }

    #[test]
    fn s03_no_reader_looks_at_the_others() {
        for readers in [100, 1000] {
            let key = |stream| (EntryKey::new(&(0..64), Access::Read, stream), ());
            let mut entries: BTreeMap<_, _> = (2..readers).map(key).collect();
            entries.insert(EntryKey::new(&(0..64), Access::Write, 1), ());
            let (writes, looks) = found(&entries, 0..64, Access::Read);
            assert_eq!(writes.len(), 1);
            assert!(looks <= 3, "{looks} beside {readers}");
            let (none, looks) = found(&entries, 64..128, Access::Write);
            assert!(none.is_empty() && looks <= 3, "{looks} beside {readers}");
            let (all, _) = found(&entries, 63..64, Access::Write);
            assert_eq!(all.len(), entries.len(), "a writer waits for each");
        }
    }

    #[test]
    fn s37_no_part_looks_at_the_others() {
        for parts in [100, if cfg!(miri) { 150 } else { 1000 }] {
            let range = |part: u64| part as usize * 64..(part as usize + 1) * 64;
            let key = |part| (EntryKey::new(&range(part), Access::Write, part), ());
            let mut entries: BTreeMap<_, _> = (1..parts).map(key).collect();
            let whole = 0..parts as usize * 64;
            entries.insert(EntryKey::new(&whole, Access::Read, parts), ());
            for part in 1..parts {
                let (conflicts, looks) = found(&entries, range(part), Access::Write);
                assert_eq!(conflicts.len(), 2, "itself, and the reader of all");
                assert!(looks <= 8, "{looks} beside {parts}");
            }
        }
    }

    #[test]
    fn s37_what_overlaps_is_found_wherever_it_begins() {
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut any = || {
            let start = random(200);
            let longest = [1, 4, 30, 200][random(4)];
            let access = [Access::Read, Access::Write][random(2)];
            (start..start + 1 + random(longest), access, random(5) as u64)
        };
        for _ in 0..if cfg!(miri) { 3 } else { 300 } {
            let entries: BTreeMap<_, _> = (0..40)
                .map(|_| any())
                .map(|(range, access, stream)| (EntryKey::new(&range, access, stream), ()))
                .collect();
            for _ in 0..40 {
                let (range, access, _) = any();
                let (mut found, _) = found(&entries, range.clone(), access);
                let conflicts =
                    |key: &&EntryKey| access.conflicts(key.access) && overlap(&key.range(), &range);
                let mut expected: Vec<_> = entries.keys().filter(conflicts).copied().collect();
                found.sort();
                expected.sort();
                assert!(found == expected, "{range:?}");
            }
        }
    }
}
