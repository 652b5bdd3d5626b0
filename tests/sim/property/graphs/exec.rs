//! An executable graph, and the effect of its launches.

use std::rc::Rc;

use cuda_core::{Error, GraphExec, Stream};
use cuda_sim::Session;
use cuda_sys::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED};

use super::memory::Memories;
use super::program::{How, Operands, Planned, Work};
use super::recorded::{Node, Recorded};
use crate::property::outcome::{Departure, Done, pick};

pub(super) struct Exec {
    exec: GraphExec,
    how: How,
    nodes: Vec<ExecNode>,
    /// Pinned memory that it continues to use, although no node does.
    kept: Vec<usize>,
    _executables: Rc<()>,
}

struct ExecNode {
    node: Node,
    enabled: bool,
    /// Whether it releases memory when the node is changed, and ends its uses when the node is disabled.
    known: bool,
    /// Whether the node's memory need not be lent.
    left_out: bool,
}

impl Exec {
    /// Instantiates a graph. Returns `None` if that must be refused, and was.
    pub(super) fn new(graph: &Recorded, memory: &Memories) -> Result<Option<Self>, Departure> {
        let Recorded { graph: raw, how, nodes, executables } = graph;
        let is_there = |number| memory.pinned.iter().any(|held| held.is(number));
        let is_lost = nodes.iter().filter_map(|node| node.op.pinned()).any(|used| !is_there(used));
        let is_second = graph.is_single() && Rc::strong_count(executables) > 1;
        let exec = unless(is_lost || is_second, raw.instantiate())?;
        let nodes = nodes.iter().cloned();
        Ok(exec.map(|exec| Self {
            exec,
            how: *how,
            nodes: nodes
                .map(|node| ExecNode { node, enabled: true, known: true, left_out: false })
                .collect(),
            kept: Vec::new(),
            _executables: executables.clone(),
        }))
    }

    /// Changes a node of a chain, which is ordered with all others whatever it uses.
    pub(super) fn set(&mut self, memory: &mut Memories, node: u8, on: Operands) -> Done {
        let Some(ExecNode { node, known, .. }) = pick(&mut self.nodes, node) else {
            return Ok(());
        };
        let work = Work { kind: node.op.work.kind, on };
        let id = node.plain().filter(|_| self.how == How::Chain);
        if let (Some(id), Some((op, views))) = (id, memory.choose(work)) {
            let set = views.set(&mut self.exec, id);
            if unless(!memory.can_replace(&node.op, &op), set)?.is_some() {
                // After an update, memory that it used stays in use until the next update.
                self.kept.extend(node.op.pinned().filter(|_| !*known));
                (node.op, *known) = (op, true);
            }
        }
        Ok(())
    }

    pub(super) fn enable(&mut self, node: u8, is_enabled: bool) -> Done {
        let Some(ExecNode { node, enabled, known, left_out }) = pick(&mut self.nodes, node) else {
            return Ok(());
        };
        if let Some(id) = node.plain() {
            self.exec.set_enabled(id, is_enabled)?;
            *enabled = is_enabled;
            *left_out = !is_enabled && (*left_out || *known);
        }
        Ok(())
    }

    /// Updates it to a graph with the same kinds of operations.
    pub(super) fn update(
        &mut self,
        session: &Session,
        memory: &mut Memories,
        all: &[Operands],
    ) -> Done {
        let all = self.nodes.iter().zip(all).map(|(ExecNode { node, .. }, on)| {
            let work = Work { kind: node.op.work.kind, on: *on };
            Planned { work, fails: None, ..node.planned }
        });
        let all: Vec<_> = all.collect();
        let new = Recorded::new(session, self.exec.context(), memory, self.how, &all)?;
        let new = new.expect("no call fails");
        match unless(new.allocates(), self.exec.update(&new.graph)) {
            Ok(Some(())) => {
                for (node, new) in self.nodes.iter_mut().zip(new.nodes) {
                    (node.node.op, node.known, node.left_out) = (new.op, false, false);
                }
                self.kept.clear();
                Ok(())
            }
            // The operations conflict in another way, or some memory no longer exists.
            Ok(None) | Err(Departure::Failed(Error::GraphUpdate(_))) => Ok(()),
            Err(departure) => Err(departure),
        }
    }

    /// Launches it with the pinned memory whose bits are set in `lent`.
    pub(super) fn launch(&mut self, memory: &mut Memories, stream: &Stream, lent: u8) -> Done {
        let all = memory.pinned.iter_mut().enumerate();
        let lent = all.filter(|(at, _)| lent >> at & 1 == 1).map(|(_, held)| held);
        let mut lent: Vec<_> = lent.collect();
        let used = self.nodes.iter().filter(|node| !node.left_out);
        let used = used.filter_map(|node| node.node.op.pinned());
        let mut used = used.chain(self.kept.iter().copied());
        let is_refused = used.any(|used| !lent.iter().any(|held| held.is(used)));
        let launched = match lent.split_first_mut() {
            None => self.exec.launch(stream),
            Some((first, rest)) => {
                let (launch, rest) = (self.exec.lend_mut(&mut first.buffer), rest.iter_mut());
                rest.fold(launch, |launch, held| launch.lend_mut(&mut held.buffer)).launch(stream)
            }
        };
        if unless(is_refused, launched)?.is_some() {
            let enabled = self.nodes.iter().filter(|node| node.enabled);
            enabled.for_each(|node| memory.apply(&node.node.op));
        }
        Ok(())
    }
}

/// Checks that a call was refused if, and only if, it must be, and returns its result.
fn unless<T>(is_refused: bool, result: cuda_core::Result<T>) -> Result<Option<T>, Departure> {
    match result {
        Ok(_) if is_refused => Err(Departure::Wrong("not refused".to_owned())),
        Ok(value) => Ok(Some(value)),
        Err(Error::Invalid(_)) if is_refused => Ok(None),
        Err(error)
            if is_refused
                && matches!(
                    error.code(),
                    Some(CUDA_ERROR_NOT_SUPPORTED | CUDA_ERROR_INVALID_VALUE)
                ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
