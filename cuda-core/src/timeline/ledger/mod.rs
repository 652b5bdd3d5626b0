//! The ledger of an allocation: which streams use which bytes, up to which points.
//!
//! An access waits for the entries that conflict with it and overlap its range; then it leaves an entry of
//! its own. A write replaces the entries that its own range covers, since it waited for them. Views carry
//! their range, so two halves used on two streams keep their entries and do not wait for each other.

mod entries;
mod fences;
mod many;
mod shared;

use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::{Error, Result};
use crate::process::driver;
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

/// A range of bytes of an allocation.
pub(crate) type Bytes = Range<usize>;

/// The one byte of an object that streams use only as a whole: a semaphore, a module's code, a communicator.
pub(crate) const WHOLE: Bytes = 0..1;

/// The ledger of an allocation; see the module.
#[derive(Default)]
pub(crate) struct Ledger {
    /// The stream that all entries belong to, [`NO_STREAM`], [`SEVERAL`] or [`SHARED`].
    ///
    /// Changed under the lock, and read without it. An access that conflicts with the reading thread's has
    /// made its entry before that thread got its borrow, and the entry stays until it is superseded. So the
    /// thread sees a value that counts the entry. Entries that other threads add or remove meanwhile concern
    /// other bytes, or are reads beside a read.
    only: AtomicU64,
    /// The first stream that read a part through a shared borrow; [`Ledger::reads_again`] raises
    /// its point without the lock.
    // INVARIANT: once set, it is removed only through `&mut self`, and `only` counts its stream.
    reader: OnceLock<Reader>,
    // INVARIANT: empty once `shared` is set, which happens under the lock.
    entries: Mutex<Entries>,
    /// Set once graphs use the memory: the entries are there.
    // INVARIANT: other threads find all entries there as soon as it is set, the reader's among them.
    shared: OnceLock<Arc<SharedLedger>>,
}

/// An entry of reads that is raised without the lock: the stream, the bytes, and the last point.
struct Reader {
    timeline: Arc<Timeline>,
    range: Bytes,
    seq: AtomicU64,
}

const NO_STREAM: u64 = 0;
const SEVERAL: u64 = u64::MAX;
/// The entries are in a [`SharedLedger`].
const SHARED: u64 = u64::MAX - 1;

/// Returns the key of a ledger that graphs share, unique while the ledger lives.
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

/// How a graph holds the memory that its operations use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum InGraphs {
    /// The graph keeps the memory allocated.
    Kept,
    /// The graph keeps the memory allocated. The host can access it, so each launch must borrow it.
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

/// An access to enter: by `stream`, at `seq`, after `stream` was made to wait for `fences`.
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

    /// Whether only `stream` uses the memory in conflict with this access, so that there is nothing to wait
    /// for.
    #[inline]
    pub(crate) fn is_quiet(&self, stream: &Timeline) -> bool {
        self.ledger.get().is_quiet(Some(stream), self.access)
    }

    /// Adds the marks that the operation has to wait for on `stream`.
    #[inline]
    pub(crate) fn add_conflicts(&self, stream: &Timeline, fences: &mut Fences) {
        self.ledger.get().add_conflicts(&self.range, self.access, Some(stream), fences);
    }

    /// Marks the operation, which `stream` has enqueued at `seq` after it was made to wait for `fences`.
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
    /// Creates the ledger of memory that the graph of that capture allocates: only operations of the graph
    /// may use it. [`Touch::is_quiet`] is false for every stream.
    pub(crate) fn within(capture: u64) -> Self {
        let shared = OnceLock::from(SharedLedger::within(capture));
        Self { only: AtomicU64::new(SEVERAL), shared, ..Self::default() }
    }

    /// Creates the ledger of an allocation that other streams may use after `mark`.
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

    /// Takes the reference to that timeline if the ledger holds nothing else: then only that stream uses the
    /// memory, and nothing is left to be dropped.
    #[inline]
    pub(crate) fn take_sole(&mut self, timeline: &Arc<Timeline>) -> Option<Arc<Timeline>> {
        if self.reader.get_mut().is_some() {
            return None;
        }
        let entries = self.entries.get_mut();
        let entries = entries.unwrap_or_else(PoisonError::into_inner);
        entries.take_sole(timeline)
    }

    /// Returns the marks that an access to `range` on `stream` has to wait for; [`None`] is the host.
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

    /// Adds the marks that an access to `range` on `stream` has to wait for; [`None`] is the host. Work of
    /// the same stream is ordered already.
    ///
    /// A caller that will write the [reader](Self::reader)'s bytes has the exclusive borrow of them, so no
    /// other thread raises the reader's point meanwhile.
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

    /// Returns the marks that the host has to wait for before it frees or rewrites all of `range`.
    pub(crate) fn last_uses(&self, range: &Bytes) -> Fences {
        self.conflicts(range, Access::Write, None)
    }

    /// Whether that access of `stream` conflicts with no other stream's. The common case: found without the
    /// lock.
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

    /// Enters a use of [`WHOLE`] at that point: other uses do not wait for it, but the destruction of the
    /// object does.
    #[inline]
    pub(crate) fn mark_whole(&self, stream: &Arc<Timeline>, seq: u64) {
        let (range, access, fences) = (&WHOLE, Access::Read, &NO_FENCES);
        self.mark(Use { range, access, stream, seq, fences });
    }

    /// [`Self::mark_whole`] for an object without a context. Always enters an entry, so that
    /// [`prune`](Self::prune) can remove it, and its reference to a context, once its point is known to be
    /// reached.
    pub(crate) fn mark_whole_apart(&self, stream: &Arc<Timeline>, seq: u64) {
        let (range, access, fences) = (&WHOLE, Access::Read, &NO_FENCES);
        let used = Use { range, access, stream, seq, fences };
        match self.own_entries() {
            Ok(entries) => self.enter(entries, used),
            Err(shared) => shared.mark(used),
        }
    }

    /// Raises the point of the reader entry. The common case of a shared borrow: the stream that read first
    /// reads the same bytes again. Needs no lock.
    ///
    /// The reader entry stays during the caller's borrow of the memory, which no `&mut self` can overlap; so
    /// the next writer of the bytes will look at the raised point. Two threads that enqueue on the stream may
    /// raise it in any order: the later point wins.
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
            // Counted in `only` before other threads can raise its point. Only the holder of the lock sets
            // `reader`.
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
        // Dropped after unlocking: dropping the last reference to a timeline calls the driver.
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

    /// [`Ledger::mark_exclusive`] if some entries may belong to other streams.
    fn mark_among_others(&mut self, used: Use<'_>, read_elsewhere: bool) {
        if let Some(shared) = self.shared.get() {
            return shared.mark(used);
        }
        let entries = self.entries.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut spent = Spent::new();
        if read_elsewhere {
            // Moved to the other entries, where a write can supersede it like them.
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

    /// Locks and returns the entries, or returns the ledger that they have moved to.
    fn own_entries(&self) -> Result<MutexGuard<'_, Entries>, &SharedLedger> {
        if let Some(shared) = self.shared.get() {
            return Err(shared);
        }
        let entries = lock(&self.entries);
        self.shared.get().map_or(Ok(entries), |shared| Err(shared))
    }

    /// Moves the entries to the ledger that graphs share with this one, and returns a value that keeps the
    /// memory allocated. The caller ensures that a graph can keep this ledger's memory.
    pub(crate) fn keep(&self) -> KeptMemory {
        let mut spent = Spent::new();
        let mut entries = lock(&self.entries);
        let shared = self.shared.get_or_init(|| {
            // A thread that raises the reader's point without the lock sees this, or its point is seen below.
            self.only.swap(SHARED, Ordering::SeqCst);
            let mut all = mem::take(&mut *entries);
            if let Some(reader) = self.reader.get() {
                all.push(reader.entry(), &mut spent);
            }
            // Other threads wait for the lock until all entries are there.
            SharedLedger::new(all)
        });
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

    /// Returns the marks that `op`, an access of the host to `range`, has to wait for.
    ///
    /// # Errors
    /// [`Error::NotCapturable`] if the access conflicts with an operation of a capture in progress: the
    /// operation runs when the graph is launched, so there is nothing to wait for.
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

    /// Blocks the thread until an access of the host to these bytes has nothing to wait for.
    pub(crate) fn synchronize(&self, range: &Bytes, access: Access) -> Result<()> {
        driver::ensure()?;
        self.conflicts_with_host(range, access, "synchronize")?.wait_host()?;
        self.prune(range);
        Ok(())
    }

    /// Whether a graph uses the memory.
    pub(crate) fn is_in_graphs(&self) -> bool {
        self.shared().is_some_and(|shared| shared.keepers() > 0)
    }
}
