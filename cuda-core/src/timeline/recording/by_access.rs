//! The order of a capture's operations by their accesses to memory.
//!
//! Before each operation, its stream's dependencies are set to the nodes that it conflicts with; after it,
//! they are its own node. So it makes no difference on which of the capture's streams, and devices, the
//! operations are.

use std::collections::HashMap;
use std::mem;

use super::PlacedUse;
use super::dependencies::{
    EMPTY, Node, Nodes, add, add_empty, dependencies, set, set_dependencies, state,
};
use crate::error::{Error, Result};
use crate::timeline::core::Bound;
use crate::timeline::ledger::{Access, Bytes, overlap, within};

/// The node, if there is exactly one.
fn only(nodes: &[Node]) -> Option<Node> {
    nodes.first().copied().filter(|_| nodes.len() == 1)
}

/// The nodes of the operations so far, by their accesses.
#[derive(Default)]
pub(super) struct ByAccess {
    /// By the index of the memory.
    memory: HashMap<usize, Vec<Earlier>>,
    /// The nodes that every later operation comes after.
    barrier: Nodes,
    /// The nodes without dependents so far.
    leaves: Nodes,
    /// By the id of the stream.
    streams: HashMap<u64, Followed>,
    step: Option<Step>,
}

/// The state of one stream of the capture.
#[derive(Clone, Default)]
struct Followed {
    /// The stream's dependencies when [`ByAccess`] last read them.
    current: Nodes,
    noted: Noted,
    /// Uses that were noted before work of other code, and not yet once more after it.
    open: Vec<PlacedUse>,
    /// Nodes that the noted work comes after, so that later work need not name them again.
    behind: Nodes,
}

/// Whether uses by other code's work were noted after the last operation on a stream.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Noted {
    #[default]
    None,
    /// Noted; the work may not be enqueued yet.
    Before,
    /// Noted, and the work is enqueued.
    After,
}

/// A step: its dependencies, and the nodes of its operations.
struct Step {
    /// [`None`]: the operations' accesses decide.
    after: Option<Nodes>,
    /// The operations' nodes; the last one of an operation of several.
    made: Nodes,
    has_several: bool,
}

/// The nodes that the next captured operation comes after.
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

/// Stands for the memory that work of other code on a stream may share.
fn private(bound: &Bound<'_>) -> PlacedUse {
    // Other memory has small indices.
    let at = usize::MAX - bound.timeline().id() as usize;
    PlacedUse { at, range: 0..1, access: Access::Write }
}

impl ByAccess {
    /// Makes the next operation depend on those that it conflicts with. A barrier depends on all earlier
    /// ones, and all later ones depend on it, except in a step that lists its dependencies.
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
        add(&mut before, self.named().unwrap_or_default());
        uses.iter().for_each(|used| self.add_conflicting(used, &mut before));
        let noted = match self.on(bound).noted {
            Noted::None | Noted::After => Noted::None,
            Noted::Before => {
                // Other code may enqueue the noted work only later: it will depend on this operation, and so
                // come after what this one conflicts with. If the graph has the work already, this operation
                // comes after it.
                add(&mut before, &self.look(bound)?);
                Noted::Before
            }
        };
        set_dependencies(bound.raw(), &before)?;
        Ok(PrecededByAccess { before, noted, is_barrier })
    }

    /// Notes the operation that was captured after [`ByAccess::precede`], or whose capture failed. Returns
    /// the stream's last node, if there is exactly one. Returns an error if the driver does not report the
    /// nodes.
    pub(super) fn captured(
        &mut self,
        bound: &Bound<'_>,
        uses: &[PlacedUse],
        PrecededByAccess { before, noted, is_barrier }: PrecededByAccess,
    ) -> Result<Option<Node>> {
        let (_, nodes) = state(bound.raw())?;
        let followed = self.on(bound);
        (followed.current, followed.noted) = (nodes.clone(), noted);
        if noted == Noted::None {
            followed.behind.clear();
        }
        if nodes == before {
            // The operation has no node, and the stream's last one may be of other code.
            return Ok(None);
        }
        self.follow(&before, &nodes);
        self.add_to_step(&before, &nodes)?;
        self.enter_all(uses.iter().cloned(), is_barrier, &nodes);
        Ok(only(&nodes))
    }

    /// The step's listed dependencies, besides what its operations conflict with.
    fn named(&self) -> Option<&[Node]> {
        self.step.as_ref()?.after.as_deref()
    }

    /// Begins a step whose operations also come after `after`.
    pub(super) fn begin_step(&mut self, after: Option<&[Node]>) -> Result<()> {
        let why = "a step is being added";
        Error::unless(self.step.is_none(), "GraphBuilder::add", why)?;
        let after = after.map(|after| set(after.to_vec()));
        self.step = Some(Step { after, made: Nodes::default(), has_several: false });
        Ok(())
    }

    /// Adds nodes that were captured after `before` to the step, if one has begun.
    fn add_to_step(&mut self, before: &Nodes, nodes: &Nodes) -> Result<()> {
        let Some(step) = &mut self.step else {
            return Ok(());
        };
        add(&mut step.made, nodes);
        let mut after = Nodes::default();
        for node in nodes {
            add(&mut after, &dependencies(*node)?);
        }
        // The last node of an operation of several nodes comes after another node of it.
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
        self.follow(&before, &[node]);
        Ok(node)
    }

    /// Notes uses by work that other code enqueues after this call, or has enqueued before it. Makes the work
    /// depend on everything that conflicts with any use noted for it so far, and on the stream's last such
    /// work: a library may have memory that all its work on a stream shares. Work without uses is a barrier,
    /// like an operation without uses. `ended`: all of the work is enqueued. Returns the node that the next
    /// captured operation depends on, if there is exactly one.
    pub(super) fn note(
        &mut self,
        bound: &Bound<'_>,
        uses: &[PlacedUse],
        ended: bool,
    ) -> Result<Option<Node>> {
        let Followed { current: before, noted, mut open, mut behind } = self.on(bound).clone();
        let now = self.look(bound)?;
        let is_new = now != before;
        let is_barrier = uses.is_empty() && self.named().is_none();
        let begins = noted == Noted::None && !is_new;
        let mut nodes = if begins { self.barrier.clone() } else { now.clone() };
        add(&mut nodes, self.named().unwrap_or_default());
        if is_barrier {
            add(&mut nodes, &self.leaves);
        }
        let uses_and_private = || uses.iter().cloned().chain([private(bound)]);
        uses_and_private().for_each(|used| self.add_conflicting(&used, &mut nodes));
        if is_new {
            add(&mut behind, &before);
        }
        nodes.retain(|node| behind.binary_search(node).is_err() || now.binary_search(node).is_ok());
        set_dependencies(bound.raw(), &nodes)?;
        self.enter_all(uses_and_private(), is_barrier, &nodes);
        for used in uses {
            match open.iter().position(|open| open == used) {
                Some(at) => drop(open.swap_remove(at)),
                None => open.push(used.clone()),
            }
        }
        if ended {
            open.clear();
        }
        let noted = if open.is_empty() { Noted::After } else { Noted::Before };
        let node = only(&nodes);
        *self.on(bound) = Followed { current: nodes, noted, open, behind };
        Ok(node)
    }

    /// Returns the stream's current dependencies, and notes nodes that other code has captured since the last
    /// call.
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
        earlier.filter(conflicts).for_each(|earlier| add(nodes, &earlier.nodes));
    }

    /// Notes that `nodes` were captured after `before`.
    fn follow(&mut self, before: &Nodes, nodes: &[Node]) {
        self.leaves.retain(|node| before.binary_search(node).is_err());
        add(&mut self.leaves, nodes);
    }

    /// Notes the accesses of an operation, or that it is a barrier.
    fn enter_all(
        &mut self,
        uses: impl Iterator<Item = PlacedUse>,
        is_barrier: bool,
        nodes: &Nodes,
    ) {
        if is_barrier {
            self.memory.clear();
            self.barrier = nodes.clone();
        }
        uses.for_each(|used| self.enter(used, nodes));
    }

    /// Notes an access. A write supersedes the accesses that it covers, since it comes after all of them.
    fn enter(&mut self, PlacedUse { at, range, access }: PlacedUse, nodes: &Nodes) {
        let earlier = self.memory.entry(at).or_default();
        if access == Access::Write {
            earlier.retain(|earlier| !within(&earlier.range, &range));
        }
        earlier.push(Earlier { range, access, nodes: nodes.clone() });
    }
}
