//! A graph, with the operations that it has.

use std::rc::Rc;

use cuda_core::{Condition, Context, Graph, NodeId, Result, Stream};

use super::memory::{Memories, Op, Views};
use super::program::{How, Inside, Planned};

pub(super) struct Recorded {
    pub(super) graph: Graph,
    pub(super) how: How,
    /// In the order in which they take effect.
    pub(super) nodes: Vec<Node>,
    /// Shared with its executables.
    pub(super) executables: Rc<()>,
}

#[derive(Clone)]
pub(super) struct Node {
    /// Of a graph that was built step by step.
    pub(super) id: Option<NodeId>,
    pub(super) planned: Planned,
    pub(super) op: Op,
}

impl Recorded {
    /// Leaves out what there is no memory for.
    pub(super) fn new(
        context: &Context,
        memory: &mut Memories,
        how: How,
        all: &[Planned],
    ) -> Result<Self> {
        let mut nodes = Vec::new();
        let capture = |streams: [&Stream; 2]| {
            add_all(memory, all, &mut nodes, |planned, _, views| {
                planned.capture(streams, views).map(|()| None)
            })
        };
        let graph = match how {
            How::Streams => Graph::capture_on([context; 2], capture),
            How::ByAccess => Graph::capture_by_access_on([context; 2], capture),
            How::Chain | How::Steps => Graph::build(context, |builder| {
                add_all(memory, all, &mut nodes, |planned, before, views| {
                    let work = |stream: &Stream| planned.capture([stream; 2], views);
                    let node = match how {
                        How::Chain => builder.add_after(before, work),
                        _ => builder.add(work),
                    };
                    node.map(Some)
                })
            }),
        }?;
        Ok(Self { graph, how, nodes, executables: Rc::default() })
    }

    /// Whether it allocates memory.
    pub(super) fn allocates(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.planned.inside, Inside::Scratch { .. }))
    }

    /// Whether it has one executable at a time.
    pub(super) fn is_single(&self) -> bool {
        let has_conditions = |node: &Node| node.planned.inside == Inside::Condition;
        self.allocates() || self.nodes.iter().any(has_conditions)
    }
}

/// Adds operations by `add`, which gets the node before, if there is one.
fn add_all(
    memory: &mut Memories,
    all: &[Planned],
    nodes: &mut Vec<Node>,
    mut add: impl FnMut(&Planned, &[NodeId], Views<'_>) -> Result<Option<NodeId>>,
) -> Result<()> {
    for planned in all {
        if let Some((op, views)) = memory.choose(planned.work) {
            let before: Vec<_> = nodes.last().and_then(|node: &Node| node.id).into_iter().collect();
            let id = add(planned, &before, views)?;
            nodes.push(Node { id, planned: *planned, op });
        }
    }
    Ok(())
}

impl Node {
    /// Its id, if it is nothing but the operation.
    pub(super) fn plain(&self) -> Option<NodeId> {
        self.id.filter(|_| self.planned.inside == Inside::Nothing)
    }
}

impl Planned {
    fn capture(&self, streams: [&Stream; 2], views: Views<'_>) -> Result<()> {
        let [stream, other] = match self.second {
            true => [streams[1], streams[0]],
            false => streams,
        };
        match (self.inside, views) {
            (Inside::Graph, views) => {
                Graph::capture(stream.context(), |inner| views.enqueue(inner))?.include(stream)
            }
            (Inside::Condition, views) => {
                Condition::new(stream, 1)?.if_then(stream, |body| views.enqueue(body))
            }
            (Inside::Scratch { freed }, Views::Copy(from, to)) => {
                let mut scratch = stream.alloc_in_graph::<u8>(from.len())?;
                stream.copy(from, &mut scratch)?;
                other.copy(&scratch, to)?;
                if freed { stream.free_in_graph(scratch) } else { Ok(()) }
            }
            (_, views) => views.enqueue(stream),
        }
    }
}
