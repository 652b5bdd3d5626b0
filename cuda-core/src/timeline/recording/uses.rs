//! What the operations of a graph use, and what it keeps alive for them.

use std::mem;
use std::panic::RefUnwindSafe;
use std::sync::Arc;

use cuda_sys::CUgraph;

use super::{CopiesBetween, Node};
use crate::context::Context;
use crate::context::peer::Crossing;
use crate::error::Result;
use crate::process::deferred;
use crate::process::handle::Handle;
use crate::timeline::core::Bound;
use crate::timeline::ledger::{
    Access, Bytes, Fences, InGraphs, KeptMemory, LastLaunch, Touch, key, within,
};
use crate::timeline::{Mark, Timeline};

/// What the operations of a graph use, and what is kept alive for them.
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
    /// The ids of the capture's streams, in their order; those of conditions' bodies come after them.
    pub(crate) streams: Vec<u64>,
    /// What an operation depends on is unknown, since the driver did not say, or an operation is not
    /// complete.
    pub(crate) is_broken: bool,
}

impl GraphUses {
    /// Notes copies between devices.
    pub(super) fn note_copies(&mut self, copies: CopiesBetween) {
        if !self.copies.contains(&copies) {
            self.copies.push(copies);
        }
    }

    /// Notes what an operation uses that was captured on the stream, by its last node.
    pub(super) fn note_node(&mut self, bound: &Bound<'_>, node: Node, keys: Box<[usize]>) {
        let context = bound.core().context().clone();
        let stream = (0, self.number_of(bound.timeline()));
        let on = CapturedOn { device: context.device().ordinal(), stream };
        self.by_node.push(NodeUses { node, keys, context, on });
    }

    /// The node of the last operation that was noted on the stream.
    pub(super) fn last_node(&self, stream: &Timeline) -> Option<Node> {
        let number = self.number_of(stream);
        let mut last_first = self.by_node.iter().rev();
        last_first.find(|known| known.on.stream.1 == number).map(|known| known.node)
    }

    /// Each stream is numbered when it is made.
    fn number_of(&self, stream: &Timeline) -> u32 {
        self.streams.iter().position(|known| *known == stream.id()).unwrap_or(0) as u32
    }
}

/// What some operation of a graph makes its launches.
#[derive(Clone, Copy, Default)]
pub(crate) struct GraphTraits {
    /// A function of the host is among the operations: they may take any time.
    pub(crate) may_take_long: bool,
    /// CUDA has no such operation in the body of a condition: a function of the host, an event.
    pub(crate) is_not_for_bodies: bool,
    /// A kernel has a priority of its own.
    pub(crate) has_priorities: bool,
    /// Memory is allocated: there is one executable at a time, and the graph is not part of another.
    pub(crate) has_memory: bool,
    /// What is kept alive may [refuse a launch](KeptAlive::admits), or copies between devices may.
    pub(crate) may_be_refused: bool,
    /// Which memory an operation uses is unknown, so that a graph is a barrier where it is included.
    pub(crate) is_barrier: bool,
}

impl GraphTraits {
    /// Host functions, and waits for what is recorded outside of the graph.
    pub(crate) const MAY_TAKE_LONG: Self = Self { may_take_long: true, ..Self::EVENT };

    pub(crate) const EVENT: Self = Self {
        may_take_long: false,
        is_not_for_bodies: true,
        has_priorities: false,
        has_memory: false,
        may_be_refused: false,
        is_barrier: false,
    };

    /// Allocations and frees.
    pub(crate) const MEMORY: Self = Self { has_memory: true, ..Self::EVENT };

    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            may_take_long: self.may_take_long || other.may_take_long,
            is_not_for_bodies: self.is_not_for_bodies || other.is_not_for_bodies,
            has_priorities: self.has_priorities || other.has_priorities,
            has_memory: self.has_memory || other.has_memory,
            may_be_refused: self.may_be_refused || other.may_be_refused,
            is_barrier: self.is_barrier || other.is_barrier,
        }
    }
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
    /// Behind the release of the graph, which may be deferred as this is. In a fork's child, foreign code
    /// is not run.
    fn drop(&mut self) {
        let owners = mem::take(&mut self.0);
        deferred::run_or_defer(move || drop(owners));
    }
}

/// What a graph keeps alive besides memory.
pub(crate) trait KeptAlive: Send + Sync + RefUnwindSafe {
    /// Notes the last launch of an executable. Returns whether what is kept outlives that launch by
    /// itself from now on, so that the graph may let go of it.
    fn note_last_launch(&self, _mark: &Mark) -> bool {
        false
    }

    /// Whether another thread may end it although the graph keeps it.
    fn may_end(&self) -> bool {
        false
    }

    /// Whether it is a rank of NCCL, whose operations wait for those of other ranks.
    fn is_rank(&self) -> bool {
        false
    }

    /// Asked of what [may end](Self::may_end) before the call `op`, which makes or launches an executable:
    /// the error of a call after that end, or what the call holds so that the end does not come meanwhile.
    fn admits(&self, _op: &'static str) -> Result<Option<Crossing>> {
        Ok(None)
    }
}

/// Nodes are of the context of the stream that they were captured on.
impl KeptAlive for Context {}

/// What is known of an operation.
#[derive(Clone)]
pub(crate) struct NodeUses {
    /// Its last node.
    pub(crate) node: Node,
    /// The [keys](UsedMemory::key) of the memory that it uses, one for each use. None if what it uses
    /// is unknown.
    pub(crate) keys: Box<[usize]>,
    /// The context of the stream that it was captured on.
    pub(crate) context: Context,
    pub(crate) on: CapturedOn,
}

/// A graph that runs on a condition: of a node of the graph, or of one that runs on another condition.
#[derive(Clone, Copy)]
pub(crate) struct Body {
    pub(crate) node: Node,
    pub(crate) graph: Handle<CUgraph>,
}

/// What is known of operations, by their last nodes.
// INVARIANT: sorted by node; each node once.
#[derive(Clone)]
pub(crate) struct KnownNodes(Arc<[NodeUses]>);

impl KnownNodes {
    /// A note by hand names the operation before it again: what was noted first is that operation.
    pub(crate) fn new(mut noted: Vec<NodeUses>) -> Self {
        noted.sort_by_key(|known| known.node);
        noted.dedup_by_key(|known| known.node);
        Self(noted.into())
    }

    pub(crate) fn get(&self, node: Node) -> Option<&NodeUses> {
        let at = self.0.binary_search_by_key(&node, |known| known.node).ok()?;
        Some(&self.0[at])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &NodeUses> {
        self.0.iter()
    }
}

/// The stream that an operation was captured on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CapturedOn {
    /// The ordinal of its device.
    pub(crate) device: u32,
    /// Which of the graph's captures it was, and which of the streams of that, in the order in which they
    /// were made.
    pub(crate) stream: (u32, u32),
}

/// Ranges of an allocation beyond which those that changed nodes use are merged.
const MOST_RANGES: usize = 32;

/// An allocation that a graph uses.
#[derive(Clone)]
pub(crate) struct UsedMemory {
    pub(crate) kept: KeptMemory,
    pub(crate) uses: Vec<(Bytes, Access)>,
    /// The host can see it, so each launch must be lent it.
    pub(crate) lent: bool,
    /// How many uses of operations there are.
    pub(crate) count: usize,
}

impl UsedMemory {
    /// The use that an operation makes; [`None`] if a graph cannot keep the memory.
    pub(crate) fn keep(touch: &Touch<'_>) -> Option<Self> {
        let lent = touch.in_graphs == InGraphs::Lent;
        let kept = (touch.in_graphs != InGraphs::Refused).then(|| touch.ledger.get().keep());
        let mut used = Self { kept: kept?, uses: Vec::new(), lent, count: 1 };
        used.add(touch.range.clone(), touch.access);
        Some(used)
    }

    /// Whether each launch must be lent some of it.
    pub(crate) fn must_be_lent(&self) -> bool {
        self.lent && !self.uses.is_empty()
    }

    /// A number that no other kept allocation has.
    pub(crate) fn key(&self) -> usize {
        key(self.kept.ledger())
    }

    /// Whether these uses include that one.
    pub(crate) fn covers(&self, range: &Bytes, access: Access) -> bool {
        let new = (range.clone(), access);
        self.uses.iter().any(|known| includes(known, &new))
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
            self.kept.ledger().add_conflicts(range, *access, Some(stream), Some(last), fences);
        }
    }

    /// Merges the ranges of each kind of access if there are many, since nodes were changed: which ranges
    /// only they have used before is unknown. This costs waits that are not needed.
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

    /// Adds a use, unless it is of no bytes, or one that is known covers it; removes those that it covers.
    pub(crate) fn add(&mut self, range: Bytes, access: Access) {
        if !range.is_empty() && !self.covers(&range, access) {
            let new = (range, access);
            self.uses.retain(|known| !includes(&new, known));
            self.uses.push(new);
        }
    }
}

/// Whether one use is part of another.
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
        let mut used = UsedMemory::keep(&touch).expect("a graph can keep it");
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
