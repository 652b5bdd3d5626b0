//! The ledger of an allocation: which streams use which bytes, and up to which point.
//!
//! An access waits for the entries that conflict with it and overlap its range; then it leaves an
//! entry of its own. A write replaces what its own range covers, since it waited for all of that.
//! Views carry their range, so two halves used on two streams neither lose each other's entries nor
//! wait for each other.

mod entries;
mod fences;
mod many;
mod shared;

use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::Error;
use crate::timeline::{Mark, Timeline};
use crate::util::lock;
use entries::{Entries, LedgerEntry, Spent, thin_out};

pub(crate) use entries::{overlap, within};
pub(crate) use fences::{Fences, NO_FENCES, ONLY_IN_ITS_GRAPH};
pub(crate) use shared::{KeptMemory, LastLaunch, SharedLedger};

/// What an operation does to memory; see [`Buffer::note_use`](crate::Buffer::note_use).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Access {
    /// Reads it: any number of readers may do so at once.
    Read,
    /// Writes it, or reads and writes.
    Write,
}

impl Access {
    pub(crate) fn conflicts(self, earlier: Access) -> bool {
        self == Access::Write || earlier == Access::Write
    }
}

/// Bytes of an allocation.
pub(crate) type Bytes = Range<usize>;

/// The one byte of what streams use only as a whole: a semaphore, the code of a module, a communicator.
pub(crate) const WHOLE: Bytes = 0..1;

/// See the module.
#[derive(Default)]
pub(crate) struct Ledger {
    /// The stream that all entries belong to, [`NO_STREAM`], [`SEVERAL`] or [`SHARED`].
    ///
    /// Changed under the lock, and read without it: an access that conflicts with the reader's has made its
    /// entry before the reader got its borrow, and the entry stays until it is superseded. So the reader sees a
    /// value that counts it. Entries that other threads add or remove meanwhile are of other bytes, or of reads
    /// beside a read.
    only: AtomicU64,
    /// The first stream that read a part through a shared borrow; [`Ledger::reads_again`] raises
    /// its point without the lock.
    // INVARIANT: once set, it is removed only through `&mut self`, and `only` counts its stream.
    reader: OnceLock<Reader>,
    // INVARIANT: none, once there is `shared`, which is set under the lock.
    entries: Mutex<Entries>,
    /// Graphs use the memory: the entries are there.
    shared: OnceLock<Arc<SharedLedger>>,
}

/// An entry of reads: the stream, what it read, and up to which point.
struct Reader {
    timeline: Arc<Timeline>,
    range: Bytes,
    seq: AtomicU64,
}

const NO_STREAM: u64 = 0;
const SEVERAL: u64 = u64::MAX;
/// The entries are in a [`SharedLedger`].
const SHARED: u64 = u64::MAX - 1;

/// What names the ledger that graphs share, for as long as it lives.
pub(crate) fn key(shared: &Arc<SharedLedger>) -> usize {
    Arc::as_ptr(shared).addr()
}

impl Reader {
    fn entry(&self) -> LedgerEntry {
        let mark = self.timeline.at(self.seq.load(Ordering::SeqCst));
        LedgerEntry { range: self.range.clone(), access: Access::Read, mark }
    }
}

/// Bytes that an operation uses, and how.
pub(crate) struct Touch<'a> {
    pub(crate) ledger: LedgerOf<'a>,
    pub(crate) range: Bytes,
    pub(crate) access: Access,
    pub(crate) in_graphs: InGraphs,
}

/// What a graph does with the memory that its operations use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum InGraphs {
    /// It keeps it allocated.
    Kept,
    /// It keeps it allocated. The host can see the memory, so each launch must be lent it.
    Lent,
}

/// The ledger of a view's allocation.
pub(crate) enum LedgerOf<'a> {
    /// The view covers the whole allocation exclusively: no lock needed.
    Sole(&'a mut Ledger),
    /// There may be views of other bytes, or readers of these.
    Shared(&'a Ledger),
}

impl LedgerOf<'_> {
    #[inline]
    pub(crate) fn get(&self) -> &Ledger {
        match self {
            Self::Sole(ledger) => ledger,
            Self::Shared(ledger) => ledger,
        }
    }
}

/// An access to enter: of `stream`, at `seq`, after `stream` was made to wait for `fences`.
#[derive(Clone, Copy)]
pub(crate) struct Use<'a> {
    pub(crate) range: &'a Bytes,
    pub(crate) access: Access,
    pub(crate) stream: &'a Arc<Timeline>,
    pub(crate) seq: u64,
    pub(crate) fences: &'a Fences,
}

impl Use<'_> {
    fn into_entry(self) -> LedgerEntry {
        let (range, mark) = (self.range.clone(), self.stream.at(self.seq));
        LedgerEntry { range, access: self.access, mark }
    }
}

impl<'a> Touch<'a> {
    /// An access to memory that other views may refer to, too.
    #[inline]
    pub(crate) fn shared(
        ledger: &'a Ledger,
        range: Bytes,
        access: Access,
        in_graphs: InGraphs,
    ) -> Self {
        Self { ledger: LedgerOf::Shared(ledger), range, access, in_graphs }
    }

    /// The same access, for calls that only look at the ledger.
    pub(crate) fn as_shared(&self) -> Touch<'_> {
        Touch::shared(self.ledger.get(), self.range.clone(), self.access, self.in_graphs)
    }

    /// Whether no stream but `stream` uses the memory in conflict, so there is nothing to wait for.
    #[inline]
    pub(crate) fn is_quiet(&self, stream: &Timeline) -> bool {
        self.ledger.get().is_quiet(Some(stream), self.access)
    }

    /// Adds what the operation has to wait for on `stream`.
    #[inline]
    pub(crate) fn add_conflicts(&self, stream: &Timeline, fences: &mut Fences) {
        self.ledger.get().add_conflicts(&self.range, self.access, Some(stream), fences);
    }

    /// Marks the operation, which `stream` has enqueued at `seq` and which was made to wait for
    /// `fences`.
    #[inline]
    pub(crate) fn mark(&mut self, stream: &Arc<Timeline>, seq: u64, fences: &Fences) {
        let used = Use { range: &self.range, access: self.access, stream, seq, fences };
        match &mut self.ledger {
            LedgerOf::Sole(ledger) => ledger.mark_exclusive(used),
            LedgerOf::Shared(ledger) => ledger.mark(used),
        }
    }
}

impl Ledger {
    /// The ledger of memory that the graph of that capture allocates: only its operations may use it.
    /// No stream finds that there is nothing to wait for.
    pub(crate) fn within(capture: u64) -> Self {
        let shared = OnceLock::from(SharedLedger::within(capture));
        Self { only: AtomicU64::new(SEVERAL), shared, ..Self::default() }
    }

    /// The ledger of an allocation that other streams may use after `mark`.
    #[inline]
    pub(crate) fn after(range: Bytes, mark: Mark) -> Self {
        Self {
            only: AtomicU64::new(mark.timeline.id()),
            reader: OnceLock::new(),
            entries: Mutex::new(Entries::One(
                LedgerEntry { range, access: Access::Write, mark },
                0,
            )),
            shared: OnceLock::new(),
        }
    }

    /// The reference to that timeline, if it is all that the ledger holds: then only its stream
    /// uses the memory, and nothing is left to be dropped.
    #[inline]
    pub(crate) fn take_sole(&mut self, timeline: &Arc<Timeline>) -> Option<Arc<Timeline>> {
        if self.reader.get_mut().is_some() {
            return None;
        }
        let entries = self.entries.get_mut();
        let entries = entries.unwrap_or_else(PoisonError::into_inner);
        entries.take_sole(timeline)
    }

    /// What an access to `range` on `stream` has to wait for; [`None`] is the host.
    pub(crate) fn conflicts(
        &self,
        range: &Bytes,
        access: Access,
        stream: Option<&Timeline>,
    ) -> Fences {
        let mut fences = Fences::none();
        self.add_conflicts(range, access, stream, &mut fences);
        fences
    }

    /// Adds what an access to `range` on `stream` has to wait for; [`None`] is the host. Work of
    /// the same stream is ordered already.
    ///
    /// A caller that is to write what the [reader](Self::reader) reads has the exclusive borrow of
    /// it, so no other thread raises the reader's point meanwhile.
    #[inline]
    pub(crate) fn add_conflicts(
        &self,
        range: &Bytes,
        access: Access,
        stream: Option<&Timeline>,
        fences: &mut Fences,
    ) {
        if !self.is_quiet(stream, access) {
            self.add_conflicts_of_entries(range, access, stream, fences);
        }
    }

    #[inline(never)]
    fn add_conflicts_of_entries(
        &self,
        range: &Bytes,
        access: Access,
        stream: Option<&Timeline>,
        fences: &mut Fences,
    ) {
        match self.own_entries() {
            Ok(entries) => entries.add_conflicts(range, access, stream, fences),
            Err(shared) => {
                return shared.add_conflicts(&[(range.clone(), access)], stream, None, fences);
            }
        }
        let reader = self.reader.get().filter(|_| access == Access::Write);
        if let Some(reader) = reader.filter(|reader| overlap(&reader.range, range)) {
            let seq = reader.seq.load(Ordering::Acquire);
            fences.add_unless_ordered(stream, &reader.timeline, seq);
        }
    }

    /// What the host has to wait for before it frees or rewrites all of `range`.
    pub(crate) fn last_uses(&self, range: &Bytes) -> Fences {
        self.conflicts(range, Access::Write, None)
    }

    /// The common case, found without the lock: that access of `stream` conflicts with no other stream's.
    #[inline]
    fn is_quiet(&self, stream: Option<&Timeline>, access: Access) -> bool {
        let only = self.only.load(Ordering::Acquire);
        only == NO_STREAM
            || stream.is_some_and(|stream| {
                stream.id() == only
                    || only == SHARED
                        && self.shared().is_some_and(|shared| shared.is_quiet(stream, access))
            })
    }

    /// Enters an access.
    #[inline]
    pub(crate) fn mark(&self, used: Use<'_>) {
        if used.access == Access::Read && self.reads_again(used) {
            return;
        }
        self.mark_locked(used);
    }

    /// Enters a use of [`WHOLE`] at that point: no other use waits for it, but what destroys the object does.
    #[inline]
    pub(crate) fn mark_whole(&self, stream: &Arc<Timeline>, seq: u64) {
        let (range, access, fences) = (&WHOLE, Access::Read, &NO_FENCES);
        self.mark(Use { range, access, stream, seq, fences });
    }

    /// [`Self::mark_whole`] for an object of no context: as an entry, which [`prune`](Self::prune) removes once it is
    /// known to be reached, and with it the reference to a context.
    pub(crate) fn mark_whole_apart(&self, stream: &Arc<Timeline>, seq: u64) {
        let (range, access, fences) = (&WHOLE, Access::Read, &NO_FENCES);
        let used = Use { range, access, stream, seq, fences };
        match self.own_entries() {
            Ok(entries) => self.enter(entries, used),
            Err(shared) => shared.mark(used),
        }
    }

    /// The common case of a shared borrow: the stream that read first reads the same bytes again.
    /// Needs no lock.
    ///
    /// The reader entry stays for as long as the caller's borrow of the memory, which no `&mut
    /// self` can overlap; so the raised point is that of an entry that the next writer of the bytes
    /// will look at. Two threads that enqueue on the stream may raise it in any order: the later
    /// point wins.
    #[inline]
    fn reads_again(&self, Use { range, stream, seq, .. }: Use<'_>) -> bool {
        let Some(reader) = self.reader.get() else {
            return false;
        };
        let again = Arc::ptr_eq(&reader.timeline, stream) && reader.range == *range;
        if again {
            reader.seq.fetch_max(seq, Ordering::SeqCst);
        }
        // The entries of a shared ledger are elsewhere. Either this load sees that they moved, or
        // `keep` sees the raised point: it stores and loads in the opposite order.
        again && self.only.load(Ordering::SeqCst) != SHARED
    }

    #[cold]
    fn mark_locked(&self, used: Use<'_>) {
        let entries = match self.own_entries() {
            Ok(entries) => entries,
            Err(shared) => return shared.mark(used),
        };
        let Use { range, stream, seq, .. } = used;
        let first_reader = used.access == Access::Read && self.reader.get().is_none();
        if first_reader && !range.is_empty() {
            // Counted in `only` before other threads can raise its point. Only the holder of the
            // lock sets it.
            let only = entries.only(Some(stream));
            self.only.store(only, Ordering::Release);
            let _ = self.reader.set(Reader {
                timeline: stream.clone(),
                range: range.clone(),
                seq: AtomicU64::new(seq),
            });
            return;
        }
        self.enter(entries, used);
    }

    fn enter(&self, mut entries: MutexGuard<'_, Entries>, used: Use<'_>) {
        // Dropped after the lock: dropping the last reference to a timeline calls the driver.
        let mut spent = Spent::new();
        let asked = entries.mark(used, &mut spent);
        if asked.is_some() {
            self.only.store(entries.only(self.reader()), Ordering::Release);
        }
        drop(entries);
        if let Some(asked) = asked {
            thin_out(&asked, |asked| self.prune_of(asked));
        }
    }

    /// Removes the entries of these streams that are known to have completed.
    fn prune_of(&self, asked: &[Mark]) {
        self.forget(|entries, spent| entries.prune_of(asked, spent));
    }

    /// The stream that [`Ledger::reads_again`] serves.
    fn reader(&self) -> Option<&Arc<Timeline>> {
        self.reader.get().map(|reader| &reader.timeline)
    }

    /// [`Ledger::mark`] for the only user of the allocation: needs no lock.
    #[inline]
    pub(crate) fn mark_exclusive(&mut self, used: Use<'_>) {
        let entries = self.entries.get_mut().unwrap_or_else(PoisonError::into_inner);
        let other = |reader: &Reader| !Arc::ptr_eq(&reader.timeline, used.stream);
        let read_elsewhere = self.reader.get().is_some_and(other);
        if read_elsewhere || !entries.advance(used) {
            self.mark_among_others(used, read_elsewhere);
        }
    }

    /// [`Ledger::mark_exclusive`] where not all entries are the stream's own.
    fn mark_among_others(&mut self, used: Use<'_>, read_elsewhere: bool) {
        if let Some(shared) = self.shared.get() {
            return shared.mark(used);
        }
        let entries = self.entries.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut spent = Spent::new();
        if read_elsewhere {
            // Moved to the other entries, where it can be superseded like them.
            if let Some(reader) = self.reader.take() {
                entries.push(reader.entry(), &mut spent);
            }
        }
        if let Some(asked) = entries.mark(used, &mut spent) {
            *self.only.get_mut() = entries.only(self.reader.get().map(|reader| &reader.timeline));
            thin_out(&asked, |asked| self.prune_of(asked));
        }
    }

    /// Removes the entries about these bytes that are known to have completed.
    pub(crate) fn prune(&self, range: &Bytes) {
        self.forget(|entries, spent| entries.prune(range, spent));
    }

    fn forget(&self, f: impl FnOnce(&mut Entries, &mut Spent)) {
        let mut spent = Spent::new();
        match self.own_entries() {
            Ok(mut entries) => {
                f(&mut entries, &mut spent);
                self.only.store(entries.only(self.reader()), Ordering::Release);
            }
            Err(shared) => shared.change(|entries| f(entries, &mut spent)),
        }
    }

    /// The entries, locked, or the ledger that they have moved to.
    fn own_entries(&self) -> Result<MutexGuard<'_, Entries>, &SharedLedger> {
        if let Some(shared) = self.shared.get() {
            return Err(shared);
        }
        let entries = lock(&self.entries);
        self.shared.get().map_or(Ok(entries), |shared| Err(shared))
    }

    /// Moves the entries to the ledger that graphs share with this one, and returns what keeps the memory
    /// allocated. The caller knows that this is the ledger of what a graph can keep.
    pub(crate) fn keep(&self) -> KeptMemory {
        if let Some(shared) = self.shared().filter(|shared| shared.is_of_a_graph()) {
            return KeptMemory::of(shared);
        }
        let mut spent = Spent::new();
        let mut entries = lock(&self.entries);
        let shared = self.shared.get_or_init(|| SharedLedger::new(mem::take(&mut *entries)));
        if self.only.swap(SHARED, Ordering::SeqCst) != SHARED {
            if let Some(reader) = self.reader.get() {
                shared.change(|entries| entries.push(reader.entry(), &mut spent));
            }
        }
        let kept = KeptMemory::of(shared);
        drop(entries);
        drop(spent);
        kept
    }

    /// The ledger that graphs share with this one, if there is one. Takes no lock.
    #[inline]
    pub(crate) fn shared(&self) -> Option<&Arc<SharedLedger>> {
        self.shared.get()
    }

    /// What `op`, an access of the host to `range`, has to wait for.
    ///
    /// # Errors
    /// [`Error::NotCapturable`] if it conflicts with an operation of a capture that goes on: that runs when the
    /// graph is launched, so there is nothing to wait for.
    pub(crate) fn conflicts_with_host(
        &self,
        range: &Bytes,
        access: Access,
        op: &'static str,
    ) -> Result<Fences, Error> {
        match self.shared() {
            Some(shared) if shared.is_captured(range, access) => Err(Error::NotCapturable { op }),
            _ => Ok(self.conflicts(range, access, None)),
        }
    }

    /// Whether a graph uses the memory.
    pub(crate) fn is_in_graphs(&self) -> bool {
        self.shared().is_some_and(|shared| shared.keepers() > 0)
    }
}
