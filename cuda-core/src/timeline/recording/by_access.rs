//! The order of a capture's operations by what they do to memory.
//!
//! Before each operation, its stream's dependencies are set to the nodes that it conflicts with;
//! after it, they are its own node. So it makes no difference which of the capture's streams, of whatever
//! devices, the operations are on.

use std::collections::HashMap;
use std::mem;

use super::PlacedUse;
use super::dependencies::{EMPTY, Node, Nodes, add_empty, dependencies, set_dependencies, state};
use crate::error::{Error, Result};
use crate::timeline::core::Bound;
use crate::timeline::ledger::{Access, Bytes, overlap, within};

/// The node, if there is exactly one.
fn only(nodes: &Nodes) -> Option<Node> {
    nodes.first().copied().filter(|_| nodes.len() == 1)
}

/// The nodes of the operations so far, by what they do.
#[derive(Default)]
pub(super) struct ByAccess {
    /// By the index of the memory.
    memory: HashMap<usize, Vec<Earlier>>,
    /// The nodes that every later operation comes after.
    barrier: Nodes,
    /// The nodes on which none depends so far.
    leaves: Nodes,
    /// By the id of the stream.
    streams: HashMap<u64, Followed>,
    step: Option<Step>,
}

/// What is known of a stream of the capture.
#[derive(Default)]
struct Followed {
    /// What its dependencies were when [`ByAccess`] saw them last.
    current: Nodes,
    noted: Noted,
}

/// Whether uses by other code's work were noted since the last operation on a stream.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Noted {
    #[default]
    None,
    /// The work may not be enqueued yet.
    Before,
    /// It is enqueued.
    After,
}

/// What the operations of a step come after, and their nodes.
struct Step {
    /// [`None`]: what the operations do to memory decides.
    after: Option<Nodes>,
    /// Of an operation of several nodes, the last.
    made: Nodes,
    has_several: bool,
}

/// What the next captured operation comes after.
pub(super) struct PrecededByAccess {
    pub(super) before: Nodes,
    noted: Noted,
    is_barrier: bool,
}

/// An access by an earlier operation.
struct Earlier {
    range: Bytes,
    access: Access,
    nodes: Nodes,
}

impl ByAccess {
    /// Makes the next operation depend on those that it conflicts with. A barrier depends on all earlier
    /// ones, and all later ones depend on it; but not in a step that lists its dependencies.
    pub(super) fn precede(
        &mut self,
        bound: &Bound<'_>,
        uses: &[PlacedUse],
        is_barrier: bool,
    ) -> Result<PrecededByAccess> {
        let is_barrier = is_barrier && self.named().is_none();
        let mut before = match (is_barrier, uses.is_empty()) {
            (true, _) => self.leaves.clone(),
            (false, true) => Nodes::default(),
            (false, false) => self.barrier.clone(),
        };
        before.extend(self.named().unwrap_or_default());
        uses.iter().for_each(|used| self.add_conflicting(used, &mut before));
        let noted = match self.on(bound).noted {
            Noted::None | Noted::After => Noted::None,
            Noted::Before => {
                // Other code may enqueue the noted work only later: depending on this operation, it comes
                // after what it conflicts with. If it is in the graph already, this operation comes after it.
                before.extend(&self.look(bound)?);
                Noted::Before
            }
        };
        set_dependencies(bound.raw(), &before)?;
        Ok(PrecededByAccess { before, noted, is_barrier })
    }

    /// Notes the operation that was captured after [`ByAccess::precede`], or that failed to be. Returns its
    /// last node, if that is one. An error if the driver does not say which node it has.
    pub(super) fn captured(
        &mut self,
        bound: &Bound<'_>,
        uses: &[PlacedUse],
        PrecededByAccess { before, noted, is_barrier }: PrecededByAccess,
    ) -> Result<Option<Node>> {
        let (_, nodes) = state(bound.raw())?;
        let followed = Followed { current: nodes.clone(), noted };
        self.streams.insert(bound.timeline().id(), followed);
        if nodes != before {
            self.follow(&before, &nodes);
            self.add_to_step(&before, &nodes)?;
            self.enter_all(uses, is_barrier, &nodes);
        }
        Ok(only(&nodes))
    }

    /// What the operations of the step come after besides what they conflict with.
    fn named(&self) -> Option<&[Node]> {
        self.step.as_ref()?.after.as_deref()
    }

    /// Begins a step, whose operations come after `after`, too.
    pub(super) fn begin_step(&mut self, after: Option<&[Node]>) -> Result<()> {
        let why = "a step is being added";
        Error::unless(self.step.is_none(), "GraphBuilder::add", why)?;
        let after = after.map(|after| after.iter().copied().collect());
        self.step = Some(Step { after, made: Nodes::default(), has_several: false });
        Ok(())
    }

    /// Adds nodes that were captured after `before` to the step, if one has begun.
    fn add_to_step(&mut self, before: &Nodes, nodes: &Nodes) -> Result<()> {
        let Some(step) = &mut self.step else {
            return Ok(());
        };
        step.made.extend(nodes);
        let mut after = Nodes::default();
        for node in nodes.iter() {
            after.extend(&dependencies(*node)?);
        }
        // The last node of an operation of several comes after another one.
        step.has_several |= after != *before;
        Ok(())
    }

    /// Ends the step. Returns its node; if the step has none or several, returns a new node that does
    /// nothing and comes after them: `cuGraphAddEmptyNode`.
    pub(super) fn end_step(&mut self, bound: &Bound<'_>) -> Result<Node> {
        let Some(Step { after, made, has_several }) = self.step.take() else {
            return Err(Error::NotCapturable { op: EMPTY });
        };
        if let (Some(node), false) = (only(&made), has_several) {
            return Ok(node);
        }
        let before = if made.is_empty() { after.unwrap_or_default() } else { made };
        let node = add_empty(bound.raw(), &before)?;
        self.leaves.remove(&before);
        self.leaves.extend(&[node]);
        Ok(node)
    }

    /// Notes uses by work that other code enqueues after this call, or has enqueued before it. The work is
    /// made to depend on what conflicts with any of the uses that were noted for it so far. Work without uses is
    /// a barrier, as an operation is. `ended`: all of it is enqueued. Returns the node that what is
    /// captured next depends on, if that is one.
    pub(super) fn note(
        &mut self,
        bound: &Bound<'_>,
        uses: &[PlacedUse],
        ended: bool,
    ) -> Result<Option<Node>> {
        let Followed { current, noted } = self.on(bound);
        let (before, noted) = (current.clone(), *noted);
        let now = self.look(bound)?;
        let is_new = now != before;
        let is_barrier = uses.is_empty() && self.named().is_none();
        let mut nodes = if noted != Noted::None || is_new { now } else { self.barrier.clone() };
        nodes.extend(self.named().unwrap_or_default());
        if is_barrier {
            nodes.extend(&self.leaves);
        }
        uses.iter().for_each(|used| self.add_conflicting(used, &mut nodes));
        set_dependencies(bound.raw(), &nodes)?;
        self.enter_all(uses, is_barrier, &nodes);
        let is_enqueued = ended || is_new || noted == Noted::After;
        let (noted, node) = (if is_enqueued { Noted::After } else { Noted::Before }, only(&nodes));
        *self.on(bound) = Followed { current: nodes, noted };
        Ok(node)
    }

    /// What the next operation on the stream depends on now, and notes what other code has captured
    /// since the last look.
    fn look(&mut self, bound: &Bound<'_>) -> Result<Nodes> {
        let (_, now) = state(bound.raw())?;
        let before = mem::replace(&mut self.on(bound).current, now.clone());
        if now != before {
            self.follow(&before, &now);
            self.add_to_step(&before, &now)?;
        }
        Ok(now)
    }

    fn on(&mut self, bound: &Bound<'_>) -> &mut Followed {
        self.streams.entry(bound.timeline().id()).or_default()
    }

    /// Adds the nodes of earlier operations that conflict with a use.
    fn add_conflicting(&self, used: &PlacedUse, nodes: &mut Nodes) {
        let conflicts = |earlier: &&Earlier| {
            used.access.conflicts(earlier.access) && overlap(&earlier.range, &used.range)
        };
        let earlier = self.memory.get(&used.at).into_iter().flatten();
        earlier.filter(conflicts).for_each(|earlier| nodes.extend(&earlier.nodes));
    }

    /// Notes that `nodes` were captured after `before`.
    fn follow(&mut self, before: &Nodes, nodes: &Nodes) {
        self.leaves.remove(before);
        self.leaves.extend(nodes);
    }

    /// Notes the accesses of an operation, or that it is a barrier.
    fn enter_all(&mut self, uses: &[PlacedUse], is_barrier: bool, nodes: &Nodes) {
        if is_barrier {
            self.memory.clear();
            self.barrier = nodes.clone();
        }
        uses.iter().for_each(|used| self.enter(used, nodes));
    }

    /// Notes an access. A write supersedes what it covers, since it came after all of that.
    fn enter(&mut self, used: &PlacedUse, nodes: &Nodes) {
        let (range, access) = (used.range.clone(), used.access);
        let earlier = self.memory.entry(used.at).or_default();
        if access == Access::Write {
            earlier.retain(|earlier| !within(&earlier.range, &range));
        }
        earlier.push(Earlier { range, access, nodes: nodes.clone() });
    }
}
