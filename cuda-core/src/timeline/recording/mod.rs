//! Captures by this crate: what the operations that become a graph use.
//!
//! A capture has streams of its own, which the code that is captured gets as `&Stream`. An
//! operation there is not ordered behind what other streams do with its memory: it does not run
//! now. What it does to the memory is noted here, and each launch of the graph is ordered by that.
//! Only the order within the capture is made while capturing, in one of three ways:
//!
//! * [`Order::Chain`]: there is one stream, which is a chain.
//! * [`Order::Streams`]: as everywhere, each stream is a chain, and streams wait for each other
//!   where they use the same memory. The entries are those of a [`Ledger`] of the capture's own.
//! * [`Order::Access`]: each operation depends on those that it conflicts with, and on nothing
//!   else.

use std::collections::{BTreeMap, HashSet};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::process::driver;
use crate::timeline::core::{Bound, StreamCore};
use crate::timeline::ledger::{
    Access, Bytes, Fences, InGraphs, KeptMemory, LastLaunch, Ledger, SharedLedger, Touch, Use,
    within,
};
use crate::timeline::{Mark, Timeline};
use crate::util::panic::contain;
use crate::util::sync::lock;

mod by_access;
mod dependencies;

pub(crate) use dependencies::{Node, add_child};

use by_access::ByAccess;

/// A capture. Its streams refer to it, also when it has ended.
pub(crate) struct Recording {
    /// [`None`] once the capture has ended.
    recorded: Mutex<Option<OpenRecording>>,
    /// Never reused.
    id: u64,
    /// Ordinary streams, on which memory is allocated for operations of the capture.
    homes: Mutex<Vec<Arc<StreamCore>>>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A number that nothing else of the process ever gets.
pub(crate) fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Relaxed)
}

/// What the index knows an allocation by.
fn key(ledger: &Arc<SharedLedger>) -> usize {
    Arc::as_ptr(ledger).addr()
}

/// What orders the operations of a capture among each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// The order of one stream.
    Chain,
    Streams,
    Access,
}

struct OpenRecording {
    uses: GraphUses,
    /// The code that is kept, by what knows it.
    code: HashSet<usize>,
    /// The index in `uses.memory` by the address of the shared ledger.
    index: BTreeMap<usize, usize>,
    order: CaptureOrder,
}

enum CaptureOrder {
    /// One stream: its operations come one after the other.
    Chain,
    /// One ledger for each of `uses.memory`.
    Streams(Vec<Ledger>),
    Access(ByAccess),
}

/// What the operations of a graph use, and what is kept alive for them.
#[derive(Default)]
pub(crate) struct GraphUses {
    pub(crate) memory: Vec<UsedMemory>,
    pub(crate) owners: GraphOwners,
    /// A function of the host is among the operations: they may take any time.
    pub(crate) may_take_long: bool,
    /// What an operation depends on is unknown, since the driver did not say.
    pub(crate) is_broken: bool,
}

#[derive(Default)]
pub(crate) struct GraphOwners(Vec<Arc<dyn KeptAlive>>);

impl GraphOwners {
    pub(crate) fn push(&mut self, owner: Arc<dyn KeptAlive>) {
        self.0.push(owner);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn KeptAlive>> {
        self.0.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Drop for GraphOwners {
    fn drop(&mut self) {
        for owner in mem::take(&mut self.0) {
            // In a fork's child, foreign code is not run.
            match driver::is_gone() {
                true => mem::forget(owner),
                false => contain(|| drop(owner)),
            }
        }
    }
}

/// What a graph keeps alive besides memory.
pub(crate) trait KeptAlive: Send + Sync {
    /// Notes the last launch of an executable. Returns whether what is kept outlives that launch by
    /// itself from now on, so that the graph may let go of it.
    fn note_last_launch(&self, _mark: &Mark) -> bool {
        false
    }
}

/// A use of the memory at an index of [`GraphUses::memory`].
struct PlacedUse {
    at: usize,
    range: Bytes,
    access: Access,
}

/// An allocation that a graph uses.
#[derive(Clone)]
pub(crate) struct UsedMemory {
    pub(crate) kept: KeptMemory,
    pub(crate) uses: Vec<(Bytes, Access)>,
    /// The host can see it, so each launch must be lent it.
    pub(crate) lent: bool,
}

impl Recording {
    pub(crate) fn new(order: Order) -> Arc<Self> {
        let order = match order {
            Order::Chain => CaptureOrder::Chain,
            Order::Streams => CaptureOrder::Streams(Vec::new()),
            Order::Access => CaptureOrder::Access(ByAccess::default()),
        };
        let recorded = OpenRecording {
            uses: GraphUses::default(),
            index: BTreeMap::new(),
            code: HashSet::new(),
            order,
        };
        let id = next_id();
        Arc::new(Self { recorded: Mutex::new(Some(recorded)), id, homes: Mutex::default() })
    }

    /// A number that no other capture of the process ever has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The stream of `context` on which memory is allocated for operations of the capture; `create`
    /// creates it. What is allocated is allocated now, not by the graph.
    pub(crate) fn home(
        &self,
        context: &Context,
        create: impl FnOnce() -> Result<Arc<StreamCore>>,
    ) -> Result<Arc<StreamCore>> {
        let mut homes = lock(&self.homes);
        if let Some(home) = homes.iter().find(|home| home.context() == context) {
            return Ok(home.clone());
        }
        let home = create()?;
        homes.push(home.clone());
        Ok(home)
    }

    /// Captures an operation on the stream that is bound: `enqueue` makes the driver's calls, during
    /// which no other operation is captured, and the capture does not end.
    pub(crate) fn record(
        &self,
        op: &'static str,
        bound: &Bound<'_>,
        touches: &[Touch<'_>],
        enqueue: impl FnOnce() -> (u64, Result<()>),
    ) -> (u64, Result<()>) {
        let mut guard = lock(&self.recorded);
        let refused = touches.iter().any(|touch| touch.in_graphs == InGraphs::Refused);
        let Some(recorded) = guard.as_mut().filter(|_| !refused) else {
            return (0, Err(Error::NotCapturable { op }));
        };
        let uses = recorded.place_all(touches);
        recorded.record(bound, &uses, enqueue)
    }

    /// Captures a graph as one operation, which uses all that it uses.
    pub(crate) fn include(
        &self,
        op: &'static str,
        bound: &Bound<'_>,
        memory: &[UsedMemory],
        owners: &GraphOwners,
        may_take_long: bool,
        enqueue: impl FnOnce() -> (u64, Result<()>),
    ) -> Result<()> {
        let mut guard = lock(&self.recorded);
        let recorded = guard.as_mut().ok_or_else(|| Error::NotCapturable { op })?;
        // Kept before the driver knows of it.
        owners.iter().for_each(|owner| recorded.uses.owners.push(owner.clone()));
        recorded.uses.may_take_long |= may_take_long;
        let mut uses = Vec::new();
        for memory in memory {
            for (range, access) in &memory.uses {
                uses.push(recorded.place(&memory.kept, memory.lent, range.clone(), *access));
            }
        }
        recorded.record(bound, &uses, enqueue).1
    }

    /// Captures a step: what `work` enqueues, behind `after` and what it conflicts with. Returns a
    /// node that is behind all of it.
    pub(crate) fn step(
        &self,
        bound: &Bound<'_>,
        after: Option<&[Node]>,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<Node> {
        self.with_order(|by_access| by_access.begin_step(after))??;
        let worked = work();
        let ended = self.with_order(|by_access| by_access.end_step(bound))?;
        worked.and(ended)
    }

    /// Calls `f` for a capture that is ordered by access.
    fn with_order<R>(&self, f: impl FnOnce(&mut ByAccess) -> R) -> Result<R> {
        match lock(&self.recorded).as_mut().map(|recorded| &mut recorded.order) {
            Some(CaptureOrder::Access(by_access)) => Ok(f(by_access)),
            _ => Err(Error::NotCapturable { op: "GraphBuilder::add" }),
        }
    }

    /// Notes that work of other code, enqueued before or after this call, uses `touches`.
    pub(crate) fn note(
        &self,
        op: &'static str,
        bound: &Bound<'_>,
        touches: &[Touch<'_>],
    ) -> Result<()> {
        let mut guard = lock(&self.recorded);
        let refused = touches.iter().any(|touch| touch.in_graphs == InGraphs::Refused);
        let recorded = guard.as_mut().filter(|_| !refused);
        let recorded = recorded.ok_or_else(|| Error::NotCapturable { op })?;
        let uses = recorded.place_all(touches);
        match &mut recorded.order {
            CaptureOrder::Access(by_access) => {
                uses.iter().try_for_each(|used| by_access.note(bound, used))
            }
            _ => recorded.record(bound, &uses, || (bound.count(), Ok(()))).1,
        }
    }

    /// Runs `calls`, during which no operation is captured, and the capture does not end.
    pub(crate) fn during<R>(
        &self,
        op: &'static str,
        calls: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let guard = lock(&self.recorded);
        if guard.is_none() {
            return Err(Error::NotCapturable { op });
        }
        calls()
    }

    /// Keeps a function of the host for as long as the graph may run.
    pub(crate) fn keep_function(&self, function: Arc<dyn KeptAlive>) {
        if let Some(recorded) = lock(&self.recorded).as_mut() {
            recorded.uses.owners.push(function);
            recorded.uses.may_take_long = true;
        }
    }

    /// Keeps a value for as long as the graph may run: one for each key.
    pub(crate) fn keep_once<T>(&self, key: usize, owner: impl FnOnce() -> T)
    where
        T: KeptAlive + 'static,
    {
        if let Some(recorded) = lock(&self.recorded).as_mut() {
            if recorded.code.insert(key) {
                recorded.uses.owners.push(Arc::new(owner()));
            }
        }
    }

    /// Ends the recording: `end` makes the driver's calls, before which nothing more is captured.
    pub(crate) fn end<R>(&self, end: impl FnOnce() -> R) -> (R, GraphUses) {
        let mut guard = lock(&self.recorded);
        let result = end();
        let recorded = guard.take();
        // Dropping the capture's ledgers may destroy events: not under the lock.
        drop(guard);
        (result, recorded.map(|recorded| recorded.uses).unwrap_or_default())
    }
}

impl OpenRecording {
    fn record(
        &mut self,
        bound: &Bound<'_>,
        uses: &[PlacedUse],
        enqueue: impl FnOnce() -> (u64, Result<()>),
    ) -> (u64, Result<()>) {
        match &mut self.order {
            CaptureOrder::Chain => enqueue(),
            CaptureOrder::Access(by_access) => {
                let recorded = by_access.record(bound, uses, enqueue);
                self.uses.is_broken |= by_access.is_broken;
                recorded
            }
            CaptureOrder::Streams(ledgers) => {
                let timeline = bound.timeline();
                let mut fences = Fences::none();
                for PlacedUse { at, range, access } in uses {
                    ledgers[*at].add_conflicts(range, *access, Some(timeline), &mut fences);
                }
                if let Err(error) = fences.wait_on(bound) {
                    return (0, Err(error));
                }
                let (seq, result) = enqueue();
                for PlacedUse { at, range, access } in uses {
                    let (access, stream, fences) = (*access, timeline, &fences);
                    ledgers[*at].mark(Use { range, access, stream, seq, fences });
                }
                (seq, result)
            }
        }
    }

    /// Notes uses of memory, which is kept from now on.
    fn place_all(&mut self, touches: &[Touch<'_>]) -> Vec<PlacedUse> {
        touches.iter().map(|touch| self.place_touch(touch)).collect()
    }

    fn place_touch(&mut self, touch: &Touch<'_>) -> PlacedUse {
        let ledger = touch.ledger.get();
        // Found first: most operations use memory that earlier ones have used.
        let known = ledger.shared().and_then(|shared| self.index.get(&key(&shared)).copied());
        if let Some(at) = known {
            let (range, access) = (touch.range.clone(), touch.access);
            self.uses.memory[at].add(range.clone(), access);
            return PlacedUse { at, range, access };
        }
        let is_lent = touch.in_graphs == InGraphs::Lent;
        self.place(&ledger.keep(), is_lent, touch.range.clone(), touch.access)
    }

    fn place(&mut self, kept: &KeptMemory, lent: bool, range: Bytes, access: Access) -> PlacedUse {
        let at = *self.index.entry(key(kept.ledger())).or_insert(self.uses.memory.len());
        if at == self.uses.memory.len() {
            let kept = kept.clone();
            self.uses.memory.push(UsedMemory { kept, uses: Vec::new(), lent });
            if let CaptureOrder::Streams(ledgers) = &mut self.order {
                ledgers.push(Ledger::default());
            }
        }
        self.uses.memory[at].add(range.clone(), access);
        PlacedUse { at, range, access }
    }
}

impl Timeline {
    /// Whether both streams belong to one capture of this crate's, or neither to any.
    pub(crate) fn is_captured_with(&self, other: &Timeline) -> bool {
        let key = |timeline: &Timeline| timeline.recording().map(Arc::as_ptr);
        key(self) == key(other)
    }
}

impl UsedMemory {
    /// The use that an operation makes; [`None`] if a graph cannot keep the memory.
    pub(crate) fn keep(touch: &Touch<'_>) -> Option<Self> {
        let lent = touch.in_graphs == InGraphs::Lent;
        let uses = vec![(touch.range.clone(), touch.access)];
        let kept = (touch.in_graphs != InGraphs::Refused).then(|| touch.ledger.get().keep());
        kept.map(|kept| Self { kept, uses, lent })
    }

    /// Whether these uses include that one, of the allocation that has the ledger.
    pub(crate) fn covers(&self, ledger: &Arc<SharedLedger>, touch: &Touch<'_>) -> bool {
        let new = (touch.range.clone(), touch.access);
        let same = Arc::ptr_eq(self.kept.ledger(), ledger);
        same && self.uses.iter().any(|known| includes(known, &new))
    }

    /// Enters what each launch of an executable graph does to the memory.
    pub(crate) fn enter(&self, last: &Arc<LastLaunch>) {
        for (range, access) in &self.uses {
            self.kept.ledger().enter(range.clone(), *access, last);
        }
    }

    /// Adds what a launch on `stream` has to wait for, of the executable that `last` belongs to.
    pub(crate) fn add_conflicts_of_launch(
        &self,
        stream: &Timeline,
        last: &Arc<LastLaunch>,
        fences: &mut Fences,
    ) {
        for (range, access) in &self.uses {
            self.kept.ledger().add_conflicts_of_launch(range, *access, stream, last, fences);
        }
    }

    /// Adds a use, unless one that is known covers it; removes those that it covers.
    pub(crate) fn add(&mut self, range: Bytes, access: Access) {
        let new = (range, access);
        if self.uses.iter().any(|known| includes(known, &new)) {
            return;
        }
        self.uses.retain(|known| !includes(&new, known));
        self.uses.push(new);
    }
}

/// Whether one use is part of another.
fn includes(outer: &(Bytes, Access), inner: &(Bytes, Access)) -> bool {
    within(&inner.0, &outer.0) && inner.1 <= outer.1
}
