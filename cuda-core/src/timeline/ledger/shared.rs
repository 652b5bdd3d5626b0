//! The ledger of memory that graphs use.
//!
//! A graph is launched without a borrow of the memory that it uses, and may outlive the buffers. So when an
//! operation on a buffer is captured, the entries of its ledger move here, to a ledger that the buffer and
//! the graph share. A buffer that is dropped before its graphs leaves its block here; the last graph frees
//! it.
//!
//! A launch of an executable graph enters nothing in the ledgers of its memory: each ledger has one standing
//! [`LaunchUse`], which points to the mark of the executable's last launch.
//!
//! Two threads may use the memory at the same time, one of them by a launch: then their work is not ordered,
//! and may overlap on the device. No entry is lost: a write supersedes only entries that it has waited for,
//! and [`LaunchUse`]s are not superseded.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::entries::{Entries, Spent, has_completed, overlap, thin_out, within};
use super::{Access, Bytes, Fences, NO_STREAM, SEVERAL, Use};
use crate::process::driver;
use crate::timeline::{Mark, Timeline};
use crate::util::lock;

/// The ledger of memory that graphs use; see the module.
pub(crate) struct SharedLedger {
    /// The stream that all entries belong to, [`NO_STREAM`], [`READERS`] or [`SEVERAL`]; changed under the lock.
    only: AtomicU64,
    /// The id of the capture whose graph allocates the memory, [`FREED`] once that graph frees it, or
    /// [`NO_GRAPH`].
    graph: AtomicU64,
    uses: Mutex<Uses>,
}

/// Several streams, which all only read.
const READERS: u64 = u64::MAX - 1;

/// The memory is not allocated by a graph; no capture has this id.
const NO_GRAPH: u64 = 0;
/// The graph has freed the memory; no capture has this id either.
const FREED: u64 = u64::MAX;

struct Uses {
    entries: Entries,
    launches: Vec<LaunchUse>,
    /// Uses by operations of captures, some of which may have ended, of memory that the host can access.
    captured: Vec<CapturedUse>,
    /// The number of [`KeptMemory`] values.
    keepers: usize,
    /// The block of a dropped buffer, or the object of a dropped texture.
    // INVARIANT: `Some` only while there are keepers.
    left: Option<Box<dyn Any + Send>>,
}

/// A use of the memory by every launch of an executable graph.
struct LaunchUse {
    range: Bytes,
    access: Access,
    last: Arc<LastLaunch>,
    /// The [point](point_of) of the last launch when this use was entered. That launch does not include it:
    /// the executable was changed after the launch.
    since: Point,
}

/// The id of a timeline, and a point of it; ([`NO_STREAM`], 0) is before all launches.
type Point = (u64, u64);

fn point_of(last: Option<&Mark>) -> Point {
    last.map_or((NO_STREAM, 0), |mark| (mark.timeline.id(), mark.seq))
}

/// A use of the memory by an operation of a capture.
struct CapturedUse {
    range: Bytes,
    access: Access,
    /// Alive until the capture has ended.
    open: Weak<()>,
}

/// The last launch of an executable graph. Later launches come after it: CUDA orders "each launch
/// … behind both any previous work in hStream and any previous launches of hGraphExec".
#[derive(Default)]
pub(crate) struct LastLaunch {
    timeline: Mutex<Option<Arc<Timeline>>>,
    /// The id of that timeline, or [`NO_STREAM`]; changed under the lock.
    stream: AtomicU64,
    seq: AtomicU64,
}

/// Keeps memory allocated and refers to its ledger.
pub(crate) struct KeptMemory(Arc<SharedLedger>);

impl LastLaunch {
    /// Creates it with `mark` as the point of the last launch, if there was one.
    pub(crate) fn at(mark: Option<Mark>) -> Arc<Self> {
        let new = Arc::<Self>::default();
        if let Some(Mark { timeline, seq }) = mark {
            new.on(&timeline, seq);
        }
        new
    }

    /// Returns the point of the last launch, if there was one.
    pub(crate) fn mark(&self) -> Option<Mark> {
        let timeline = lock(&self.timeline);
        timeline.as_ref().map(|timeline| timeline.at(self.seq.load(Ordering::Acquire)))
    }

    /// Adds the last launch's point, unless it is still `since`, or work on `stream` comes after it anyway.
    fn add_to(&self, since: Point, stream: Option<&Timeline>, fences: &mut Fences) {
        let last = self.stream.load(Ordering::Acquire);
        if last == NO_STREAM || stream.is_some_and(|stream| stream.id() == last) {
            return;
        }
        // Only under the lock does `seq` belong to this timeline.
        if let Some(timeline) = &*lock(&self.timeline) {
            let seq = self.seq.load(Ordering::Acquire);
            if (timeline.id(), seq) != since {
                fences.add_unless_ordered(stream, timeline, seq);
            }
        }
    }

    /// Notes a launch on the same stream as the launch before. The caller notes one launch at a time.
    #[inline]
    pub(crate) fn again(&self, seq: u64) {
        self.seq.store(seq, Ordering::Release);
    }

    /// Notes a launch on any stream.
    pub(crate) fn on(&self, timeline: &Arc<Timeline>, seq: u64) {
        let mut last = lock(&self.timeline);
        let before = last.replace(timeline.clone());
        self.stream.store(timeline.id(), Ordering::Release);
        self.seq.store(seq, Ordering::Release);
        // Dropping the last reference to a timeline calls the driver, so it must not happen under the lock.
        drop(last);
        drop(before);
    }
}

impl SharedLedger {
    /// Creates a ledger that takes over the entries so far.
    pub(super) fn new(entries: Entries) -> Arc<Self> {
        let only = AtomicU64::new(entries.only(None));
        let (launches, captured) = (Vec::new(), Vec::new());
        let uses = Uses { entries, launches, captured, keepers: 0, left: None };
        Arc::new(Self { only, graph: AtomicU64::new(NO_GRAPH), uses: Mutex::new(uses) })
    }

    /// Creates the ledger of memory that the graph of that capture allocates.
    pub(super) fn within(capture: u64) -> Arc<Self> {
        let shared = Self::new(Entries::None);
        shared.graph.store(capture, Ordering::Relaxed);
        shared
    }

    /// Whether operations of that capture may use the memory.
    pub(crate) fn is_for(&self, capture: u64) -> bool {
        [NO_GRAPH, capture].contains(&self.graph.load(Ordering::Relaxed))
    }

    /// Whether a graph allocates the memory.
    pub(crate) fn is_of_a_graph(&self) -> bool {
        self.graph.load(Ordering::Relaxed) != NO_GRAPH
    }

    /// Notes that the graph frees the memory: no later operation may use it.
    pub(crate) fn freed_by_graph(&self) {
        self.graph.store(FREED, Ordering::Relaxed);
    }

    /// Whether that access of `stream` conflicts with no other stream's.
    #[inline]
    pub(crate) fn is_quiet(&self, stream: &Timeline, access: Access) -> bool {
        let only = self.only.load(Ordering::Acquire);
        only == NO_STREAM || only == stream.id() || (only == READERS && access == Access::Read)
    }

    /// [`Ledger::add_conflicts`](super::Ledger::add_conflicts) for several accesses. Leaves out launches of
    /// the executable that `but` belongs to.
    // Inlined in its two callers, each of which knows some of the arguments.
    #[inline(always)]
    pub(crate) fn add_conflicts(
        &self,
        accesses: &[(Bytes, Access)],
        stream: Option<&Timeline>,
        but: Option<&Arc<LastLaunch>>,
        fences: &mut Fences,
    ) {
        if stream.is_some() && but.is_none() && self.is_of_a_graph() {
            fences.refuse();
        }
        let uses = lock(&self.uses);
        for (range, access) in accesses {
            uses.entries.add_conflicts(range, *access, stream, fences);
            for launch in &uses.launches {
                let own = but.is_some_and(|own| launch.is_of(own));
                if !own && access.conflicts(launch.access) && overlap(&launch.range, range) {
                    launch.last.add_to(launch.since, stream, fences);
                }
            }
        }
    }

    /// See [`Ledger::mark`](super::Ledger::mark).
    pub(super) fn mark(&self, used: Use<'_>) {
        // Dropped after unlocking: dropping the last reference to a timeline calls the driver.
        let mut spent = Spent::new();
        let mut uses = lock(&self.uses);
        if used.access == Access::Write && self.only.load(Ordering::Relaxed) == READERS {
            self.only.store(SEVERAL, Ordering::Release);
        }
        if let Some(asked) = uses.entries.mark(used, &mut spent) {
            self.only.store(uses.only(), Ordering::Release);
            drop(uses);
            thin_out(&asked, |asked| self.prune_of(asked));
        }
    }

    /// Removes the entries of these streams that are known to have completed.
    fn prune_of(&self, asked: &[Mark]) {
        let mut spent = Spent::new();
        self.change(|entries| entries.prune_of(asked, &mut spent));
    }

    /// Changes the entries of streams.
    pub(super) fn change<R>(&self, f: impl FnOnce(&mut Entries) -> R) -> R {
        let mut uses = lock(&self.uses);
        let result = f(&mut uses.entries);
        self.only.store(uses.only(), Ordering::Release);
        result
    }

    /// Updates `only`; called when an executable graph that uses the memory was launched on another stream
    /// than before.
    pub(crate) fn launched_elsewhere(&self) {
        self.change(|_| ());
    }

    /// Enters a use by each later launch of an executable graph. Replaces the executable's entries that this
    /// use includes.
    pub(crate) fn enter(&self, range: Bytes, access: Access, last: &Arc<LastLaunch>) {
        let included = |known: &LaunchUse| {
            known.is_of(last) && within(&known.range, &range) && known.access <= access
        };
        self.note_last(last, included, |launches, since| {
            launches.retain(|known| !included(known));
            let (range, last) = (range.clone(), last.clone());
            launches.push(LaunchUse { range, access, last, since });
        });
    }

    /// Enters a use by an operation of a capture that lasts while `open` exists. Replaces the capture's
    /// entries that this use includes, and drops those of captures that have ended.
    pub(crate) fn enter_captured(&self, range: Bytes, access: Access, open: &Arc<()>) {
        let open = Arc::downgrade(open);
        let mut uses = lock(&self.uses);
        uses.captured.retain(|known| {
            let included = within(&known.range, &range) && known.access <= access;
            known.is_open() && !(included && known.open.ptr_eq(&open))
        });
        uses.captured.push(CapturedUse { range, access, open });
    }

    /// Whether an access conflicts with an operation of a capture in progress.
    pub(super) fn is_captured(&self, range: &Bytes, access: Access) -> bool {
        let conflicts = |known: &CapturedUse| {
            known.is_open() && access.conflicts(known.access) && overlap(&known.range, range)
        };
        lock(&self.uses).captured.iter().any(conflicts)
    }

    /// Removes the uses of an executable graph that will not be launched again. Its last launch stays as
    /// entries.
    pub(crate) fn leave(&self, last: &Arc<LastLaunch>) {
        let own = |known: &LaunchUse| known.is_of(last);
        self.note_last(last, own, |launches, _| launches.retain(|known| !own(known)));
    }

    /// Makes entries of the last launch of an executable graph, which stay whatever is launched next.
    pub(crate) fn fix_last(&self, last: &Arc<LastLaunch>) {
        self.note_last(last, |known| known.is_of(last), |_, _| {});
    }

    /// Makes entries for the last launch of an executable graph, one for each of its uses that `are_noted`
    /// selects; then calls `change` with the point of that launch.
    fn note_last(
        &self,
        last: &Arc<LastLaunch>,
        are_noted: impl Fn(&LaunchUse) -> bool,
        change: impl FnOnce(&mut Vec<LaunchUse>, Point),
    ) {
        let mark = last.mark();
        let since = point_of(mark.as_ref());
        let (mut spent, mut asked) = (Spent::new(), Vec::new());
        let mut uses = lock(&self.uses);
        let Uses { entries, launches, .. } = &mut *uses;
        if let Some(Mark { timeline, seq }) = mark.as_ref().filter(|mark| !has_completed(mark)) {
            let done = launches.iter().filter(|launch| are_noted(launch) && launch.since != since);
            for LaunchUse { range, access, .. } in done {
                let (access, stream, fences) = (*access, timeline, &Fences::none());
                let used = Use { range, access, stream, seq: *seq, fences };
                asked.extend(entries.mark(used, &mut spent).into_iter().flatten());
            }
        }
        change(launches, since);
        self.only.store(uses.only(), Ordering::Release);
        drop(uses);
        drop(spent);
        // Keeps entries of streams that are gone from piling up.
        thin_out(&asked, |asked| self.prune_of(asked));
    }

    /// The number of [`KeptMemory`] values.
    pub(crate) fn keepers(&self) -> usize {
        lock(&self.uses).keepers
    }

    /// Whether a graph uses memory whose buffer was dropped.
    pub(crate) fn is_left(&self) -> bool {
        lock(&self.uses).left.is_some()
    }

    /// Takes the block of a dropped buffer, or the object of a dropped texture, until no graph uses it.
    pub(crate) fn take_over(&self, block: impl Any + Send) {
        let mut uses = lock(&self.uses);
        // Dropped after unlocking if no graph uses the memory.
        let _free = match uses.keepers {
            0 => Some(block),
            _ => {
                uses.left = Some(Box::new(block));
                None
            }
        };
        drop(uses);
    }
}

impl LaunchUse {
    fn is_of(&self, executable: &Arc<LastLaunch>) -> bool {
        Arc::ptr_eq(&self.last, executable)
    }
}

impl CapturedUse {
    fn is_open(&self) -> bool {
        self.open.strong_count() > 0
    }
}

impl Uses {
    /// See [`SharedLedger::only`].
    fn only(&self) -> u64 {
        let mut only = self.entries.only(None);
        for launch in &self.launches {
            only = match (only, launch.last.stream.load(Ordering::Acquire)) {
                (NO_STREAM, stream) | (stream, NO_STREAM) => stream,
                (one, other) if one == other => one,
                _ => {
                    let read = |launch: &LaunchUse| launch.access == Access::Read;
                    let all_read = self.entries.are_reads() && self.launches.iter().all(read);
                    return if all_read { READERS } else { SEVERAL };
                }
            };
        }
        only
    }
}

impl KeptMemory {
    pub(super) fn of(ledger: &Arc<SharedLedger>) -> Self {
        lock(&ledger.uses).keepers += 1;
        Self(ledger.clone())
    }

    pub(crate) fn ledger(&self) -> &Arc<SharedLedger> {
        &self.0
    }
}

impl Clone for KeptMemory {
    fn clone(&self) -> Self {
        Self::of(&self.0)
    }
}

impl Drop for KeptMemory {
    fn drop(&mut self) {
        // In a fork's child, the lock may be held by a thread that does not exist there.
        if driver::is_gone() {
            return;
        }
        let mut uses = lock(&self.0.uses);
        uses.keepers -= 1;
        let left = match uses.keepers {
            0 => uses.left.take(),
            _ => None,
        };
        // Frees the memory if its buffer is gone; dropped after unlocking.
        drop(uses);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node of an executable may be changed any number of times.
    #[test]
    fn a_use_takes_the_place_of_those_it_includes() {
        let (ledger, last) = (SharedLedger::new(Entries::None), Arc::default());
        for end in 1..100 {
            ledger.enter(0..end, Access::Read, &last);
            assert_eq!(lock(&ledger.uses).launches.len(), 1);
        }
        ledger.enter(0..9, Access::Write, &last);
        ledger.enter(0..99, Access::Read, &Arc::default());
        assert_eq!(lock(&ledger.uses).launches.len(), 3);
    }
}
