//! Execs: instantiated graphs, as the graphs were at that time.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::clock::{Clock, Point};
use crate::engine::work::Work;
use crate::graph::node::{NodeKind, Task};
use crate::handle::Id;
use crate::state::State;

#[derive(Debug)]
pub(crate) struct Exec {
    /// The nodes, each after all that it depends on.
    pub(crate) steps: Vec<ExecNode>,
    /// The graph that the exec was made from, which may be gone.
    pub(crate) graph: Id,
    /// The flags that it was instantiated with.
    pub(crate) flags: u64,
    /// Whether a launch first frees what the previous launch allocated and nothing freed.
    pub(crate) frees_first: bool,
    /// User objects that the exec keeps.
    pub(crate) objects: Vec<Id>,
    /// The access that its copies between devices may use.
    pub(crate) ways: BTreeSet<Way>,
    /// Whether access between contexts in `ways` was revoked.
    pub(crate) revoked: bool,
    /// The last launch, which the next one runs after, and the clock of what happened before its end.
    pub(crate) last: Option<(Point, Clock)>,
    /// Uploads since the last launch. The next launch runs after them, too.
    pub(crate) uploads: Vec<Point>,
}

/// Access to another device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// Access of one context to another one.
    Context(Id, Id),
    /// Access of a device to a pool.
    Pool(Id, usize),
}

#[derive(Debug, Clone)]
pub(crate) struct ExecNode {
    /// The node of the graph that this one was made from.
    pub(crate) source: Id,
    /// Whether the node is enabled. A disabled node does nothing.
    pub(crate) enabled: bool,
    pub(crate) task: Task,
    /// Positions of the nodes that it runs after.
    pub(crate) after: Vec<usize>,
}

impl ExecNode {
    /// Inserts a new node that all of these nodes come after.
    pub(crate) fn prepend(steps: &mut Vec<Self>, task: Task) {
        for step in &mut *steps {
            step.after.iter_mut().for_each(|at| *at += 1);
            if step.after.is_empty() {
                step.after.push(0);
            }
        }
        steps.insert(0, Self { source: 0, enabled: true, task, after: Vec::new() });
    }
}

impl State {
    pub(crate) fn instantiate(&mut self, graph: Id, flags: u64, frees_first: bool) -> Id {
        let (steps, objects) = (self.flatten(graph), self.retain_objects_of(graph));
        let ways = self.ways_of(&steps);
        let id = self.new_id();
        let exec = Exec {
            steps,
            graph,
            flags,
            frees_first,
            objects,
            ways,
            revoked: false,
            last: None,
            uploads: Vec::new(),
        };
        self.graphs.execs.add(id, exec);
        id
    }

    /// Returns the existing access that copies between devices among the steps may use. Driver 580 chooses
    /// one such way when the graph is instantiated, or, for pools, when the copy is captured.
    pub(crate) fn ways_of(&self, steps: &[ExecNode]) -> BTreeSet<Way> {
        let steps = steps.iter().flat_map(ExecNode::with_bodies);
        let copies = steps.flat_map(|step| step.task.work.parts());
        let mut ways = BTreeSet::new();
        for work in copies {
            let Work::Copy { dst, src, .. } = work else { continue };
            let (Some(dst), Some(src)) = (self.device_block(dst), self.device_block(src)) else {
                continue;
            };
            for (near, far) in [(src, dst), (dst, src)] {
                if near.device == far.device {
                    continue;
                }
                match far.pool {
                    Some(pool)
                        if self.pools.get(&pool).is_some_and(|it| it.is_open_to(near.device)) =>
                    {
                        ways.insert(Way::Pool(pool, near.device));
                    }
                    Some(_) => {}
                    None => ways.extend(self.access_between(near.device, far.device)),
                }
            }
        }
        ways
    }

    /// Returns the access of a device's contexts to contexts of another device.
    pub(crate) fn access_between(&self, device: usize, peer: usize) -> impl Iterator<Item = Way> {
        let own = self.contexts.iter().filter(move |(_, context)| context.device == device);
        let all = own.flat_map(|(&id, own)| own.peers.iter().map(move |&peer| (id, peer)));
        let there = all.filter(move |(_, far)| self.contexts[far].device == peer);
        there.map(|(id, far)| Way::Context(id, far))
    }

    /// Records that access of a context to another one was revoked.
    pub(crate) fn revoke(&mut self, context: Id, peer: Id) {
        for exec in self.graphs.execs.values_mut() {
            exec.revoked |= exec.ways.contains(&Way::Context(context, peer));
        }
    }

    /// Returns whether access that copies of the exec may use is revoked. Even once access between contexts
    /// is enabled again, a launch on driver 580 fails, crashes the process, or copies something else.
    pub(crate) fn is_cut_off(&self, exec: &Exec) -> bool {
        let is_closed = |way: &Way| match way {
            Way::Context(..) => false,
            Way::Pool(pool, device) => {
                self.pools.get(pool).is_some_and(|pool| !pool.is_open_to(*device))
            }
        };
        exec.revoked || exec.ways.iter().any(is_closed)
    }

    pub(crate) fn destroy_exec(&mut self, id: Id) {
        if let Some(exec) = self.graphs.execs.remove(&id) {
            self.release_objects(&exec.objects);
        }
    }

    /// Returns the nodes of a graph and of the graphs within it, each after all that it depends on.
    pub(crate) fn flatten(&self, graph: Id) -> Vec<ExecNode> {
        let mut steps = Vec::new();
        self.flatten_into(&mut steps, graph, &[]);
        steps
    }

    /// Appends the nodes of a graph that runs after the nodes `first`, and returns their positions.
    fn flatten_into(&self, steps: &mut Vec<ExecNode>, graph: Id, first: &[usize]) -> Vec<usize> {
        let mut positions = BTreeMap::new();
        for id in self.sorted(graph) {
            let node = &self.graphs.nodes[&id];
            let after = node.dependencies.iter().filter_map(|id| positions.get(id).copied());
            let mut after: Vec<usize> = after.collect();
            if after.is_empty() {
                after.extend(first);
            }
            let mut task = node.task.clone();
            if let NodeKind::Child(graph) = task.kind {
                // The node itself stands for the end of the graph.
                let inner = self.flatten_into(steps, graph, &after);
                after = if inner.is_empty() { after } else { inner };
                task = Task::nothing();
            }
            if let NodeKind::Conditional(node) = &task.kind {
                (task.work, task.accesses) = self.rounds(node);
            }
            positions.insert(id, steps.len());
            steps.push(ExecNode { source: id, enabled: true, task, after });
        }
        positions.into_values().collect()
    }

    /// Returns the nodes of a graph in an order in which they may run, otherwise in the order in which they
    /// were added. Nodes in or behind a cycle are left out.
    pub(crate) fn sorted(&self, graph: Id) -> Vec<Id> {
        let mut left = self.graphs.graphs[&graph].nodes.clone();
        let (mut sorted, mut placed) = (Vec::new(), BTreeSet::new());
        while !left.is_empty() {
            let free = |id: &Id| {
                let mut dependencies = self.graphs.nodes[id].dependencies.iter();
                dependencies.all(|dependency| placed.contains(dependency))
            };
            // A node is free, unless the dependencies form a cycle.
            let Some(at) = left.iter().position(free) else {
                break;
            };
            placed.insert(left[at]);
            sorted.push(left.remove(at));
        }
        sorted
    }
}
