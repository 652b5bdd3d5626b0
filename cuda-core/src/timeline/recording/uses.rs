//! The uses of a graph's operations, and the values that the graph keeps alive for them.

use std::collections::HashMap;
use std::mem;
use std::panic::RefUnwindSafe;
use std::sync::{Arc, Mutex};

use cuda_sys::CUgraph;

use super::{CopiesBetween, Node};
use crate::context::{Context, Crossing};
use crate::error::Result;
use crate::process::{Contained, Handle, deferred};
use crate::timeline::core::Bound;
use crate::timeline::ledger::{
    Access, Bytes, InGraphs, KeptMemory, LastLaunch, Touch, key, within,
};
use crate::timeline::{Mark, Timeline};
use crate::util::{Locks, lock_all};

/// The uses of a graph's operations, and the values that the graph keeps alive for them.
#[derive(Default)]
pub(crate) struct GraphUses {
    pub(crate) memory: Vec<UsedMemory>,
    pub(crate) by_node: Vec<NodeUses>,
    /// The bodies of conditions.
    pub(crate) bodies: Vec<Body>,
    /// Copies between devices.
    pub(crate) copies: Vec<CopiesBetween>,
    pub(crate) owners: GraphOwners,
    pub(crate) traits: GraphTraits,
    /// The ids of the capture's streams, in order of creation; those of conditions' bodies come last.
    pub(crate) streams: Vec<u64>,
    /// Some operation's dependencies are unknown, since the driver did not report them, or an operation is
    /// incomplete.
    pub(crate) is_broken: bool,
}

impl GraphUses {
    /// Notes copies between devices.
    pub(super) fn note_copies(&mut self, copies: CopiesBetween) {
        if !self.copies.contains(&copies) {
            self.copies.push(copies);
            self.traits.add(GraphTraits::MAY_BE_REFUSED);
        }
    }

    /// Notes the uses of an operation that was captured on the stream by `node`, its last node.
    pub(super) fn note_node(&mut self, bound: &Bound<'_>, node: Node, keys: Box<[usize]>) {
        self.note_node_of(bound, node, keys, false);
    }

    /// [`Self::note_node`] for an operation that may be another library's.
    pub(super) fn note_node_of(
        &mut self,
        bound: &Bound<'_>,
        node: Node,
        keys: Box<[usize]>,
        is_foreign: bool,
    ) {
        let context = bound.core().context().clone();
        let stream = (0, self.number_of(bound.timeline()));
        self.by_node.push(NodeUses { node, keys, context, stream, is_foreign });
    }

    /// The node of the last operation that was noted on the stream.
    pub(super) fn last_node(&self, stream: &Timeline) -> Option<Node> {
        let number = self.number_of(stream);
        let mut last_first = self.by_node.iter().rev();
        last_first.find(|known| known.stream.1 == number).map(|known| known.node)
    }

    /// The stream's number, which it got when it was created.
    fn number_of(&self, stream: &Timeline) -> u32 {
        self.streams.iter().position(|known| *known == stream.id()).unwrap_or(0) as u32
    }
}

/// The uses of a complete graph's operations.
#[derive(Clone)]
pub(crate) struct KeptUses {
    pub(crate) memory: Vec<UsedMemory>,
    pub(crate) by_node: KnownNodes,
    pub(crate) bodies: Vec<Body>,
    pub(crate) copies: Vec<CopiesBetween>,
    pub(crate) owners: Arc<GraphOwners>,
    pub(crate) traits: GraphTraits,
}

impl From<GraphUses> for KeptUses {
    fn from(uses: GraphUses) -> Self {
        let GraphUses { memory, by_node, bodies, copies, owners, traits, .. } = uses;
        // A note by hand repeats the node of the operation before it: the first note of a node is the
        // operation's, and wins.
        let by_node = by_node.into_iter().rev().map(|known| (known.node, known)).collect();
        let (by_node, owners) = (Arc::new(by_node), Arc::new(owners));
        Self { memory, by_node, bodies, copies, owners, traits }
    }
}

impl KeptUses {
    /// Merges the uses of both graphs.
    pub(crate) fn with(&self, other: &Self) -> Self {
        let owners = self.owners.0.iter().chain(&other.owners.0).cloned().collect();
        // The streams belong to another capture.
        let captures = self.by_node.values().map(|known| known.stream.0 + 1).max().unwrap_or(0);
        let later = other.by_node.values().cloned().map(|mut known| {
            known.stream.0 += captures;
            (known.node, known)
        });
        let own = self.by_node.iter().map(|(node, known)| (*node, known.clone()));
        let by_node = Arc::new(later.chain(own).collect());
        let bodies = [&*self.bodies, &other.bodies].concat();
        let more = other.copies.iter().filter(|copies| !self.copies.contains(copies));
        let copies = self.copies.iter().chain(more).cloned().collect();
        let (memory, owners) = (self.memory.clone(), GraphOwners(owners).into());
        let mut both = Self { memory, by_node, bodies, copies, owners, traits: self.traits };
        both.traits.add(other.traits);
        other.memory.iter().for_each(|memory| both.add(memory));
        both
    }

    /// Adds uses of memory that is listed already, or lists it.
    pub(crate) fn add(&mut self, new: &UsedMemory) {
        let Some(known) = self.memory.iter_mut().find(|known| known.key() == new.key()) else {
            return self.memory.push(new.clone());
        };
        new.uses.iter().for_each(|(range, access)| known.add(range.clone(), *access));
        known.count += new.count;
    }
}

/// Properties of a graph's operations that matter to its launches: a set of these.
#[derive(Clone, Copy, Default)]
pub(crate) struct GraphTraits(u16);

impl GraphTraits {
    /// An operation that CUDA refuses in the body of a condition: a host function, an event, a signal.
    pub(crate) const EVENT: Self = Self(1);
    /// A host function, or a wait for a record outside of the graph: it may take any time.
    pub(crate) const MAY_TAKE_LONG: Self = Self(1 << 1 | Self::EVENT.0);
    /// An allocation or a free: the graph can have one executable at a time and cannot be part of another
    /// graph.
    pub(crate) const MEMORY: Self = Self(1 << 2 | Self::EVENT.0);
    /// A kernel has a priority of its own.
    pub(crate) const PRIORITIES: Self = Self(1 << 3);
    /// The memory that an operation uses is unknown, so the graph is a barrier when it is included.
    pub(crate) const BARRIER: Self = Self(1 << 4);
    /// A kept value may [refuse a launch](KeptAlive::admits), or copies between devices may.
    pub(crate) const MAY_BE_REFUSED: Self = Self(1 << 5);
    /// An operation of NCCL, which waits for other ranks' operations and is refused after an abort. Its host
    /// functions and events cannot be in the body of a condition.
    pub(crate) const RANKS: Self = Self(1 << 6 | Self::MAY_BE_REFUSED.0 | Self::EVENT.0);
    /// An operation on a condition: destroying an executable waits for its launches.
    pub(crate) const CONDITIONS: Self = Self(1 << 7);
    /// Work of another library, which may rely on each of its own operations.
    pub(crate) const FOREIGN: Self = Self(1 << 8);

    /// Whether all of `other` are among these.
    #[inline]
    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

#[derive(Default)]
pub(crate) struct GraphOwners(pub(crate) Vec<Arc<dyn KeptAlive>>);

impl GraphOwners {
    /// For graphs with operations of NCCL, keeps other threads from enqueuing operations of the same ranks.
    pub(crate) fn take_turn(&self) -> Locks<'_> {
        lock_all(self.0.iter().filter_map(|owner| owner.turn()))
    }
}

impl Drop for GraphOwners {
    /// Drops the owners after the release of the graph, which may be deferred like this drop. In a fork's
    /// child, foreign code is not run.
    fn drop(&mut self) {
        let owners = mem::take(&mut self.0);
        deferred::run_or_defer(move || drop(owners));
    }
}

/// A value besides memory that a graph keeps alive.
pub(crate) trait KeptAlive: Send + Sync + RefUnwindSafe {
    /// Notes the last launch of an executable. Returns whether the value outlives that launch by itself from
    /// now on, so that the graph may drop it.
    fn note_last_launch(&self, _mark: &Mark) -> bool {
        false
    }

    /// Called before `op`, which makes or launches an executable, if the graph [may be
    /// refused](GraphTraits::MAY_BE_REFUSED). Another thread may end some values although the graph keeps
    /// them: this returns the error for a call after such an end, or a guard that prevents the end during the
    /// call.
    fn admits(&self, _op: &'static str) -> Result<Option<Crossing>> {
        Ok(None)
    }

    /// For ranks of NCCL: returns a lock that is held during a launch, so that all ranks get its operations
    /// in the same order.
    fn turn(&self) -> Option<&Mutex<()>> {
        None
    }
}

/// A node belongs to the context of the stream that it was captured on.
impl KeptAlive for Context {}

/// A value from other code: the owner of what that code uses, or a function that each launch calls.
impl<T: Send + Sync> KeptAlive for Contained<T> {}

/// The uses of one operation.
#[derive(Clone)]
pub(crate) struct NodeUses {
    /// The operation's last node.
    pub(crate) node: Node,
    /// The [keys](UsedMemory::key) of the memory that it uses, one for each use. Empty if its uses are
    /// unknown.
    pub(crate) keys: Box<[usize]>,
    /// The context of the stream that the operation was captured on.
    pub(crate) context: Context,
    /// The index of the capture among the graph's captures, and of the stream among the capture's streams, in
    /// order of creation.
    pub(crate) stream: (u32, u32),
    /// The operation is another library's.
    pub(crate) is_foreign: bool,
}

/// A graph that runs on a condition. It belongs to a node of the graph, or of another such body.
#[derive(Clone, Copy)]
pub(crate) struct Body {
    pub(crate) node: Node,
    pub(crate) graph: Handle<CUgraph>,
}

/// The uses of operations, by their last nodes.
pub(crate) type KnownNodes = Arc<HashMap<Node, NodeUses>>;

/// The number of ranges of an allocation beyond which ranges that changed nodes use are merged.
const MOST_RANGES: usize = 32;

/// An allocation that a graph uses.
#[derive(Clone)]
pub(crate) struct UsedMemory {
    pub(crate) kept: KeptMemory,
    pub(crate) uses: Vec<(Bytes, Access)>,
    /// The host can access the memory, so each launch must borrow it.
    pub(crate) lent: bool,
    /// The number of uses by operations.
    pub(crate) count: usize,
}

impl UsedMemory {
    /// Returns the use by one operation; keeps the memory.
    pub(crate) fn keep(touch: &Touch<'_>) -> Self {
        let (kept, lent) = (touch.ledger.get().keep(), touch.in_graphs == InGraphs::Lent);
        let mut used = Self { kept, uses: Vec::new(), lent, count: 1 };
        used.add(touch.range.clone(), touch.access);
        used
    }

    /// Whether each launch must borrow some of the memory.
    pub(crate) fn must_be_lent(&self) -> bool {
        self.lent && !self.uses.is_empty()
    }

    /// A number that identifies the allocation among all kept ones.
    pub(crate) fn key(&self) -> usize {
        key(self.kept.ledger())
    }

    /// Whether a listed use includes this one.
    pub(crate) fn covers(&self, range: &Bytes, access: Access) -> bool {
        let new = (range.clone(), access);
        self.uses.iter().any(|known| includes(known, &new))
    }

    /// Enters the uses of each launch of an executable graph in the memory's ledger.
    pub(crate) fn enter(&self, last: &Arc<LastLaunch>) {
        for (range, access) in &self.uses {
            self.kept.ledger().enter(range.clone(), *access, last);
        }
    }

    /// Merges the ranges of each kind of access if there are many after changes of nodes: it is unknown which
    /// ranges only former nodes used. This costs unneeded waits.
    pub(crate) fn merge(&mut self, last: &Arc<LastLaunch>) {
        if self.uses.len() <= MOST_RANGES {
            return;
        }
        self.kept.ledger().leave(last);
        let merged = [Access::Write, Access::Read].into_iter().filter_map(|access| {
            let ranges = self.uses.iter().filter(|known| known.1 == access).map(|known| &known.0);
            let all = ranges.cloned().reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
            Some((all?, access))
        });
        self.uses = merged.collect();
        self.enter(last);
    }

    /// Adds a use, unless it has no bytes or a known use covers it; removes the uses that it covers.
    pub(crate) fn add(&mut self, range: Bytes, access: Access) {
        if !range.is_empty() && !self.covers(&range, access) {
            let new = (range, access);
            self.uses.retain(|known| !includes(&new, known));
            self.uses.push(new);
        }
    }
}

/// Whether `inner` is part of `outer`.
fn includes(outer: &(Bytes, Access), inner: &(Bytes, Access)) -> bool {
    within(&inner.0, &outer.0) && inner.1 <= outer.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::ledger::Ledger;

    #[test]
    fn many_ranges_are_merged_by_access() {
        let (ledger, last) = (Ledger::default(), Arc::new(LastLaunch::default()));
        let touch = Touch::shared(&ledger, 100..101, Access::Read, InGraphs::Kept);
        let mut used = UsedMemory::keep(&touch);
        used.enter(&last);
        for at in (0..1000).step_by(2) {
            used.add(at..at + 1, Access::Write);
            used.kept.ledger().enter(at..at + 1, Access::Write, &last);
            used.merge(&last);
            assert!(used.uses.len() <= MOST_RANGES);
        }
        let mut all = (0..1000).step_by(2);
        assert!(all.all(|at| used.covers(&(at..at + 1), Access::Write)));
        assert!(!used.covers(&(0..1000), Access::Read));
    }
}
