//! Captures by this crate: records which memory the operations of a graph use.
//!
//! A capture has streams of its own, which the captured code gets as `&Stream`. An operation there does not
//! run now, so it is not ordered after other streams' uses of its memory. Its uses are noted here, and they
//! order each launch of the graph. While capturing, only the order within the capture is made, in one of
//! three ways:
//!
//! * [`Order::Chain`]: the capture has one stream, which is a chain.
//! * [`Order::Streams`]: as outside of captures, each stream is a chain, and streams wait for each other if
//!   they use the same memory. The capture has [`Ledger`]s of its own for this.
//! * [`Order::Access`]: each operation depends on the operations that it conflicts with, and on nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::process::{DeferForeignCode, Failed, driver};
use crate::timeline::Timeline;
use crate::timeline::core::{Bound, StreamCore};
use crate::timeline::ledger::{Ledger, ONLY_IN_ITS_GRAPH, Touch, key};
use crate::util::{Tree, lock};

mod alone;
mod by_access;
mod condition;
mod dependencies;
mod keep;
mod memory;
mod order;
mod place;
mod reach;
pub(crate) mod streams;
mod together;
mod uses;

pub(crate) use alone::CapturedAlone;
pub use condition::Condition;
pub(crate) use dependencies::{
    Node, add_child, captured_graph, dependencies, dependents, join, listed,
};
pub(crate) use keep::Notes;
pub(crate) use reach::{CopiesBetween, CopyEnd, Reached};
pub(crate) use together::CapturedPart;
pub(crate) use uses::{
    Body, GraphOwners, GraphTraits, GraphUses, KeptAlive, KeptUses, KnownNodes, NodeUses,
    UsedMemory,
};

use by_access::ByAccess;
use memory::Allocated;
use order::CaptureOrder;
use place::PlacedUse;

/// A capture. Its streams refer to it, even after it has ended.
pub(crate) struct Recording {
    /// [`None`] once the capture has ended.
    recorded: Mutex<Option<OpenRecording>>,
    /// Never reused.
    id: u64,
    /// Ordinary streams on which memory for operations of the capture is allocated.
    homes: Mutex<Vec<Arc<StreamCore>>>,
    /// The capture that contains this one, if this is a body of a [`Condition`].
    outer: Option<Arc<Recording>>,
    /// Ids of the conditions on which no operation depends yet, including those of captures within this one.
    conditions: Mutex<Vec<u64>>,
    /// Notified when [`OpenRecording::alone`] becomes `None`.
    resumed: Condvar,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Returns a number that nothing else in the process ever gets.
pub(crate) fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Relaxed)
}

/// What orders the operations of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// The order of one stream.
    Chain,
    Streams,
    Access,
}

#[derive(Default)]
struct OpenRecording {
    uses: GraphUses,
    /// The keys of the values that [`Recording::keep_once`] keeps: handles of functions and contexts,
    /// addresses of communicators.
    kept_once: Tree<usize, ()>,
    /// Maps a ledger's [`key`] to the index in `uses.memory`.
    index: Tree<usize, usize>,
    order: CaptureOrder,
    /// The number of operations that have [begun](Recording::begin) and are not finished.
    unfinished: usize,
    /// The reason for refusing operations: something is [captured alone](CapturedAlone).
    alone: Option<&'static str>,
    /// Memory that the graph allocates and does not free so far.
    allocated: Vec<Allocated>,
    /// Memory of other devices that kernels reach by peer access.
    reached: Vec<Reached>,
    /// Exists until the outermost capture has ended; until then the host is
    /// [refused](Ledger::conflicts_with_host).
    open: Arc<()>,
}

/// The locked recording of a capture. A drop hook that runs while it is locked may use the capture, so it is
/// deferred until after unlocking.
struct LockedRecording<'a> {
    // Dropped in this order.
    recorded: MutexGuard<'a, Option<OpenRecording>>,
    _quiet: DeferForeignCode,
}

/// The result of capturing an operation.
struct Captured {
    seq: u64,
    /// The operation's last node, if the driver says which one that is.
    node: Result<Option<Node>>,
    /// The graph has the operation, or a part of it, perhaps despite an error.
    is_there: bool,
}

impl Recording {
    /// Creates a capture; `outer` is the capture that contains it, if any.
    pub(crate) fn within(outer: Option<Arc<Self>>, order: Order) -> Arc<Self> {
        let order = match order {
            Order::Chain => CaptureOrder::Chain,
            Order::Streams => CaptureOrder::Streams(Vec::new()),
            Order::Access => CaptureOrder::Access(ByAccess::default()),
        };
        let open = outer.as_ref().and_then(|it| Some(it.lock().recorded.as_ref()?.open.clone()));
        let open = open.unwrap_or_default();
        let recorded = OpenRecording { order, open, ..OpenRecording::default() };
        let (recorded, id) = (Mutex::new(Some(recorded)), next_id());
        let (homes, conditions) = (Mutex::default(), Mutex::default());
        Arc::new(Self { recorded, id, homes, outer, conditions, resumed: Condvar::new() })
    }

    fn lock(&self) -> LockedRecording<'_> {
        LockedRecording { recorded: lock(&self.recorded), _quiet: DeferForeignCode::begin() }
    }

    /// The outermost capture that contains this one, or else this one.
    fn outermost(&self) -> &Self {
        self.outer.as_ref().map_or(self, |outer| outer.outermost())
    }

    /// Whether the capture with that id is this one or contains it.
    pub(crate) fn is_within(&self, capture: u64) -> bool {
        let outer = || self.outer.as_ref().is_some_and(|outer| outer.is_within(capture));
        self.id == capture || outer()
    }

    /// Returns an error if the graph has conditions on which no operation depends: it could not be
    /// instantiated.
    pub(crate) fn require_used_conditions(&self, op: &'static str) -> Result<()> {
        let all_are_used = lock(&self.conditions).is_empty();
        Error::unless(all_are_used, op, "no operation depends on a condition")
    }

    /// Returns the open recording, for `op` on one of the capture's streams.
    fn open<'g>(
        &self,
        op: &'static str,
        recorded: &'g mut Option<OpenRecording>,
    ) -> Result<&'g mut OpenRecording> {
        let recorded = recorded.as_mut().ok_or_else(|| ended(op))?;
        match recorded.alone {
            Some(why) => Err(Error::invalid(op, why)),
            None => Ok(recorded),
        }
    }

    /// [`Self::open`], but refuses memory that another graph allocates.
    fn open_for<'g>(
        &self,
        op: &'static str,
        touches: &[Touch<'_>],
        recorded: &'g mut Option<OpenRecording>,
    ) -> Result<&'g mut OpenRecording> {
        let recorded = self.open(op, recorded)?;
        for shared in touches.iter().filter_map(|touch| touch.ledger.get().shared()) {
            // Most operations use memory that earlier ones have used.
            let known = recorded.index.get(key(shared)).is_some();
            let is_usable = known || shared.is_for(self.outermost().id());
            Error::unless(is_usable, op, ONLY_IN_ITS_GRAPH)?;
        }
        Ok(recorded)
    }

    /// Whether the capture has ended. Returns false while an operation is being captured.
    pub(crate) fn has_ended(&self) -> bool {
        self.recorded.try_lock().is_ok_and(|recorded| recorded.is_none())
    }

    /// The error of refusing `op`, which no graph can hold, on a stream of the capture.
    pub(crate) fn refusal(&self, op: &'static str) -> Error {
        if self.has_ended() { ended(op) } else { Error::NotCapturable { op } }
    }

    /// A number that no other capture of the process ever has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The stream of `context` on which memory is allocated for operations of the capture; `create` creates
    /// the stream. The allocations are made now, not by the graph.
    pub(crate) fn home(
        &self,
        context: &Context,
        create: impl FnOnce() -> Result<Arc<StreamCore>>,
    ) -> Result<Arc<StreamCore>> {
        driver::ensure()?;
        let known = |homes: &[Arc<StreamCore>]| {
            homes.iter().find(|home| home.context() == context).cloned()
        };
        if let Some(home) = known(&lock(&self.homes)) {
            return Ok(home);
        }
        // Not under the lock: `create` calls the driver. A thread that loses the race drops its stream after
        // unlocking.
        let made = create()?;
        let mut homes = lock(&self.homes);
        let home = known(&homes).unwrap_or_else(|| {
            homes.push(made.clone());
            made.clone()
        });
        drop(homes);
        Ok(home)
    }

    /// Whether no graph but this capture's uses the memory of the ledger.
    pub(crate) fn alone_uses(&self, ledger: &Ledger) -> bool {
        let keepers = ledger.shared().map_or(0, |shared| shared.keepers());
        keepers <= self.keepers_of(ledger)
    }

    /// The number of times that this capture, and those that contain it, keep the memory.
    fn keepers_of(&self, ledger: &Ledger) -> usize {
        let outer = self.outer.as_ref().map_or(0, |outer| outer.keepers_of(ledger));
        let guard = self.lock();
        let known = |recorded: &OpenRecording| {
            ledger.shared().is_some_and(|shared| recorded.index.get(key(shared)).is_some())
        };
        outer + usize::from(guard.recorded.as_ref().is_some_and(known))
    }

    /// Captures an operation on the bound stream. `enqueue` makes the driver's calls; meanwhile no other
    /// operation is captured and the capture does not end. An operation without touches is a barrier, as is
    /// one with the trait [`GraphTraits::BARRIER`]. The notes are dropped after the recording is unlocked.
    // Cold: most operations are on streams that are not captured.
    #[cold]
    pub(crate) fn record(
        &self,
        op: &'static str,
        bound: &Bound<'_>,
        touches: &[Touch<'_>],
        notes: Notes,
        enqueue: impl FnOnce() -> (u64, Result<()>),
    ) -> (u64, Result<()>) {
        let mut guard = self.lock();
        let traits = notes.traits;
        let opened = self.open_for(op, touches, &mut guard.recorded);
        let held = |recorded| self.require_can_hold(op, traits).map(|()| recorded);
        let recorded = match opened.and_then(held) {
            Ok(recorded) => recorded,
            Err(error) => return (0, Err(error)),
        };
        let is_barrier = touches.is_empty() || traits.has(GraphTraits::BARRIER);
        let uses = recorded.place_all(touches);
        let mut captured = recorded.record(bound, uses.as_slice(), is_barrier, enqueue);
        // NCCL may continue a call that has failed.
        captured.is_there |= traits.has(GraphTraits::RANKS);
        recorded.settle(&captured, uses.as_slice(), is_barrier);
        if captured.is_there {
            recorded.keep(notes);
        }
        if let Ok(node) = captured.node {
            recorded.note_node(bound, node, uses.as_slice());
        }
        (captured.seq, captured.node.map(drop))
    }

    /// Captures a graph as one operation, which uses all memory that the graph uses.
    pub(crate) fn include(
        &self,
        op: &'static str,
        bound: &Bound<'_>,
        child: &KeptUses,
        enqueue: impl FnOnce() -> (u64, Result<(), Failed>),
    ) -> Result<()> {
        let mut guard = self.lock();
        let recorded = self.open(op, &mut guard.recorded)?;
        self.require_can_hold(op, child.traits)?;
        recorded.include(bound, child, enqueue)
    }

    /// Captures a step: the operations that `work` enqueues, ordered after `after` and after what they
    /// conflict with. Returns a node that comes after all of them.
    pub(crate) fn step(
        &self,
        bound: &Bound<'_>,
        after: Option<&[Node]>,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<Node> {
        self.with_order(|by_access, _| by_access.begin_step(after))??;
        let worked = catch_unwind(AssertUnwindSafe(work));
        let ended = self.with_order(|by_access, uses| {
            let node = by_access.end_step(bound)?;
            // Unless the node belongs to the last operation, it is an empty node.
            if uses.by_node.last().is_none_or(|last| last.node != node) {
                uses.note_node(bound, node, Box::default());
            }
            Ok(node)
        });
        if let (Err(_), Some(recorded)) = (&ended, self.lock().recorded.as_mut()) {
            // The step has no end, since another thread captures something alone: later operations would be
            // in the step.
            recorded.uses.is_broken = true;
        }
        let worked = worked.unwrap_or_else(|payload| resume_unwind(payload));
        worked.and_then(|()| ended?)
    }

    /// Calls `f` for a capture that is ordered by access.
    fn with_order<R>(&self, f: impl FnOnce(&mut ByAccess, &mut GraphUses) -> R) -> Result<R> {
        driver::ensure()?;
        let (op, mut guard) = ("GraphBuilder::add", self.lock());
        match self.open(op, &mut guard.recorded)? {
            OpenRecording { order: CaptureOrder::Access(order), uses, .. } => Ok(f(order, uses)),
            _ => Err(Error::NotCapturable { op }),
        }
    }

    /// Notes that work of other code, enqueued before or after this call, uses `touches`.
    pub(crate) fn note(
        &self,
        op: &'static str,
        bound: &Bound<'_>,
        touches: &[Touch<'_>],
    ) -> Result<()> {
        let mut guard = self.lock();
        self.open_for(op, touches, &mut guard.recorded)?.note(bound, touches, false)
    }

    /// Runs `calls`, which get the capture's order. Meanwhile no operation is captured and the capture does
    /// not end.
    pub(crate) fn during<R>(
        &self,
        op: &'static str,
        calls: impl FnOnce(Order) -> Result<R>,
    ) -> Result<R> {
        let mut guard = self.lock();
        let order = self.open(op, &mut guard.recorded)?.order.kind();
        calls(order)
    }

    /// Ends the recording. `end` makes the driver's calls; from their begin on nothing is captured.
    pub(crate) fn end<R>(&self, end: impl FnOnce() -> R) -> (R, GraphUses) {
        let mut guard = self.wait_until_resumed();
        let result = end();
        let recorded = guard.recorded.take();
        // Dropping the capture's ledgers may destroy events, so it must not happen under the lock.
        drop(guard);
        let uses = recorded.map(|OpenRecording { mut uses, unfinished, allocated, .. }| {
            uses.is_broken |= unfinished > 0;
            uses.is_broken |= !allocated.is_empty();
            uses
        });
        (result, uses.unwrap_or_default())
    }
}

/// The error for an operation on a stream of a capture that has ended.
fn ended(op: &'static str) -> Error {
    let why = "the capture that this stream was made for has ended: enqueue on another stream";
    Error::invalid(op, why)
}

impl OpenRecording {
    /// Captures a graph as one operation. Does not note the handles of its bodies.
    fn include(
        &mut self,
        bound: &Bound<'_>,
        child: &KeptUses,
        enqueue: impl FnOnce() -> (u64, Result<(), Failed>),
    ) -> Result<()> {
        let mut uses = Vec::new();
        for memory in &child.memory {
            for (range, access) in &memory.uses {
                let at = self.place(&memory.kept, memory.lent);
                uses.push(PlacedUse { at, range: range.clone(), access: *access });
            }
        }
        let is_barrier = uses.is_empty() || child.traits.has(GraphTraits::BARRIER);
        // The child's node is added by a call of its own, and may exist although the stream's dependencies
        // are unchanged. The order of later operations is then unknown.
        let mut is_unknown = false;
        let enqueue = || {
            let (seq, added) = enqueue();
            is_unknown = matches!(added, Err(Failed::Unknown(_)));
            (seq, added.map_err(Error::from))
        };
        // The caller keeps the child alive during the call.
        let mut captured = self.record(bound, &uses, is_barrier, enqueue);
        captured.is_there |= is_unknown;
        self.uses.is_broken |= is_unknown;
        self.settle(&captured, &uses, is_barrier);
        if captured.is_there {
            self.uses.owners.0.extend_from_slice(&child.owners.0);
            child.copies.iter().for_each(|copies| self.uses.note_copies(copies.clone()));
            self.uses.traits.add(child.traits);
        }
        self.note_node(bound, captured.node?, &[]);
        Ok(())
    }

    /// Captures an operation, ordered after those that it conflicts with. `is_barrier`: the memory that it
    /// uses is unknown. Does not enter its uses: see [`OpenRecording::settle`].
    fn record(
        &mut self,
        bound: &Bound<'_>,
        uses: &[PlacedUse],
        is_barrier: bool,
        enqueue: impl FnOnce() -> (u64, Result<()>),
    ) -> Captured {
        let preceded = match self.order.precede(bound, uses, is_barrier) {
            Ok(preceded) => preceded,
            Err(error) => return Captured { seq: 0, node: Err(error), is_there: false },
        };
        let (seq, result) = enqueue();
        let last = || self.uses.last_node(bound.timeline());
        let is_there = result.is_ok() || !preceded.is_unchanged(bound, last);
        let uses = if is_there { uses } else { &[] };
        let noted = self.order.captured(bound, uses, preceded, seq);
        self.uses.is_broken |= noted.is_err();
        Captured { seq, node: result.and(noted), is_there }
    }

    /// Notes that work of other code, before or after this call, uses `touches`. `ended`: all of the work is
    /// enqueued.
    fn note(&mut self, bound: &Bound<'_>, touches: &[Touch<'_>], ended: bool) -> Result<()> {
        let (uses, is_barrier) = (self.place_all(touches), touches.is_empty());
        let uses = uses.as_slice();
        // Entered even if the rest fails: the graph may have that work already.
        self.enter(uses, is_barrier);
        self.uses.traits.add(GraphTraits::FOREIGN);
        let node = match &mut self.order {
            CaptureOrder::Access(by_access) => by_access.note(bound, uses, ended),
            _ => self.record(bound, uses, is_barrier, || (bound.count(), Ok(()))).node,
        }?;
        if let Some(node) = node {
            // The node of the operation before the work was noted as that operation's.
            self.uses.note_node_of(bound, node, Box::default(), true);
        }
        Ok(())
    }

    /// Notes the uses of the operation that was captured last on the stream by `node`, its last node, if that
    /// is known.
    fn note_node(&mut self, bound: &Bound<'_>, node: Option<Node>, uses: &[PlacedUse]) {
        if let Some(node) = node {
            let key = |used: &PlacedUse| self.uses.memory[used.at].key();
            let keys = uses.iter().map(key).collect();
            self.uses.note_node(bound, node, keys);
        }
    }
}

impl Timeline {
    /// Whether both streams belong to the same capture by this crate, or neither belongs to one.
    pub(crate) fn is_captured_with(&self, other: &Timeline) -> bool {
        let key = |timeline: &Timeline| timeline.recording().map(Arc::as_ptr);
        key(self) == key(other)
    }
}
