//! A graph, with its operations.

use std::cell::Cell;
use std::rc::Rc;

use cuda_core::{Condition, Context, Graph, NodeId, Result, Stream};
use cuda_sim::{Fault, Session};
use cuda_sys::CUDA_ERROR_INVALID_VALUE;

use super::memory::{Memories, Op, Views};
use super::program::{How, Inside, Planned};

pub(super) struct Recorded {
    pub(super) graph: Graph,
    pub(super) how: How,
    /// The operations, in the order in which they take effect.
    pub(super) nodes: Vec<Node>,
    /// Shared with the executables, to count them.
    pub(super) executables: Rc<()>,
}

#[derive(Clone)]
pub(super) struct Node {
    /// The node's id, in a graph that was built step by step.
    pub(super) id: Option<NodeId>,
    pub(super) planned: Planned,
    pub(super) op: Op,
}

impl Recorded {
    /// Records a graph, without the operations that lack memory. Returns [`None`] if a call failed, as
    /// planned, whose effect on the graph cannot be known.
    pub(super) fn new(
        session: &Session,
        context: &Context,
        memory: &mut Memories,
        how: How,
        all: &[Planned],
    ) -> Result<Option<Self>> {
        let (mut nodes, has_failed) = (Vec::new(), Cell::new(false));
        let capture =
            |planned: &Planned, streams: [&Stream; 2], views: Views<'_>| -> Result<bool> {
                // Between streams, what was refused behind a wait counts as the graph's.
                let fails = planned.fails.filter(|_| how != How::Streams);
                let is_there = Planned { fails, ..*planned }.capture(session, streams, views)?;
                has_failed.set(has_failed.get() || !is_there);
                Ok(is_there)
            };
        let all_on = |streams: [&Stream; 2]| {
            add_all(memory, all, &mut nodes, |planned, _, views| {
                Ok((capture(planned, streams, views)?, None))
            })
        };
        let graph = match how {
            How::Streams => Graph::capture([context; 2], all_on),
            How::ByAccess => Graph::capture_by_access([context; 2], all_on),
            How::Chain | How::Steps => Graph::build(context, |builder| {
                add_all(memory, all, &mut nodes, |planned, before, views| {
                    let mut is_there = true;
                    let work = |stream: &Stream| {
                        is_there = capture(planned, [stream; 2], views)?;
                        Ok(())
                    };
                    let node = match how {
                        How::Chain => builder.add_after(before, work),
                        _ => builder.add(work),
                    }?;
                    Ok((is_there, Some(node)))
                })
            }),
        };
        match graph {
            Err(_) if has_failed.get() => Ok(None),
            graph => Ok(Some(Self { graph: graph?, how, nodes, executables: Rc::default() })),
        }
    }

    /// Returns whether it allocates memory.
    pub(super) fn allocates(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.planned.inside, Inside::Scratch { .. }))
    }

    /// Returns whether it can have only one executable at a time.
    pub(super) fn is_single(&self) -> bool {
        let has_conditions = |node: &Node| node.planned.inside == Inside::Condition;
        self.allocates() || self.nodes.iter().any(has_conditions)
    }
}

/// Adds operations by `add`, which gets the previous node, if there is one, and returns whether the graph has
/// the operation.
fn add_all(
    memory: &mut Memories,
    all: &[Planned],
    nodes: &mut Vec<Node>,
    mut add: impl FnMut(&Planned, &[NodeId], Views<'_>) -> Result<(bool, Option<NodeId>)>,
) -> Result<()> {
    for planned in all {
        if let Some((op, views)) = memory.choose(planned.work) {
            let before: Vec<_> = nodes.last().and_then(|node: &Node| node.id).into_iter().collect();
            let (is_there, id) = add(planned, &before, views)?;
            if is_there {
                nodes.push(Node { id, planned: *planned, op });
            }
        }
    }
    Ok(())
}

impl Node {
    /// Returns its id, if the node is nothing but the operation.
    pub(super) fn plain(&self) -> Option<NodeId> {
        self.id.filter(|_| self.planned.inside == Inside::Nothing)
    }
}

impl Planned {
    /// Captures the operation. Returns whether the graph has it: not if a call failed, as planned.
    fn capture(&self, session: &Session, streams: [&Stream; 2], views: Views<'_>) -> Result<bool> {
        let [stream, other] = match self.second {
            true => [streams[1], streams[0]],
            false => streams,
        };
        match (self.inside, views) {
            (Inside::Nothing, views) => self.unless_refused(session, || views.enqueue(stream)),
            (Inside::Graph, views) => {
                let inner = Graph::capture(stream.context(), |inner| views.enqueue(inner))?;
                self.unless_refused(session, || inner.include(stream))
            }
            (Inside::Condition, views) => {
                Condition::new(stream, 1)?.if_then(stream, |body| views.enqueue(body))?;
                Ok(true)
            }
            (Inside::Scratch { freed }, Views::Copy(from, to)) => {
                let mut scratch = stream.alloc_in_graph::<u8>(from.len())?;
                stream.copy(from, &mut scratch)?;
                other.copy(&scratch, to)?;
                if freed {
                    stream.free_in_graph(scratch)?;
                }
                Ok(true)
            }
            (Inside::Scratch { .. }, views) => views.enqueue(stream).map(|()| true),
        }
    }

    fn unless_refused(
        &self,
        session: &Session,
        operation: impl FnOnce() -> Result<()>,
    ) -> Result<bool> {
        let Some(nth) = self.fails else {
            return operation().map(|()| true);
        };
        // Only on this thread, since other threads release what was dropped before.
        let fault = Fault::new(CUDA_ERROR_INVALID_VALUE).nth(nth.into());
        session.inject(fault.on_this_thread());
        let done = operation();
        let was_refused = session.fault_fired() && done.is_err();
        session.clear_faults();
        if was_refused { Ok(false) } else { done.map(|()| true) }
    }
}
