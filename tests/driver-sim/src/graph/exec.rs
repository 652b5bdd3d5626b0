//! Execs: graphs as they were when they were instantiated.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::clock::{Clock, Point};
use crate::graph::node::Task;
use crate::handle::Id;
use crate::state::State;

#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) handle: usize,
    /// Each after all that it depends on.
    pub(crate) steps: Vec<ExecNode>,
    /// The last launch, which the next one runs behind, and what happened before its end.
    pub(crate) last: Option<(Point, Clock)>,
}

#[derive(Debug, Clone)]
pub(crate) struct ExecNode {
    /// The node of the graph that this one was made from.
    pub(crate) source: Id,
    /// A node that is not enabled runs as one that does nothing.
    pub(crate) enabled: bool,
    pub(crate) task: Task,
    /// Positions of the nodes that it runs after.
    pub(crate) after: Vec<usize>,
}

impl State {
    pub(crate) fn instantiate(&mut self, graph: Id) -> Id {
        let steps = self.flatten(graph);
        let id = self.new_id();
        let handle = self.graphs.exec_handles.issue(id);
        self.graphs.execs.insert(id, Exec { handle, steps, last: None });
        id
    }

    /// The nodes of a graph, each after all that it depends on.
    pub(crate) fn flatten(&self, graph: Id) -> Vec<ExecNode> {
        let mut steps = Vec::new();
        let mut positions = BTreeMap::new();
        for id in self.sorted(graph) {
            let node = &self.graphs.nodes[&id];
            let after = node.dependencies.iter().filter_map(|id| positions.get(id).copied());
            let (after, task) = (after.collect(), node.task.clone());
            let step = ExecNode { source: id, enabled: true, task, after };
            positions.insert(id, steps.len());
            steps.push(step);
        }
        steps
    }

    /// The nodes of a graph in an order in which they may run: as early as they were added.
    pub(crate) fn sorted(&self, graph: Id) -> Vec<Id> {
        let mut left = self.graphs.graphs[&graph].nodes.clone();
        let (mut sorted, mut placed) = (Vec::new(), BTreeSet::new());
        while !left.is_empty() {
            let free = |id: &Id| {
                let mut dependencies = self.graphs.nodes[id].dependencies.iter();
                dependencies.all(|dependency| placed.contains(dependency))
            };
            // Graphs have no cycles, so some node is free.
            let Some(at) = left.iter().position(free) else {
                break;
            };
            placed.insert(left[at]);
            sorted.push(left.remove(at));
        }
        sorted
    }
}
