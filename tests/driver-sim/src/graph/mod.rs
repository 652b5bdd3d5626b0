//! Graphs: operations with dependencies between them, and their execs.

pub(crate) mod condition;
pub(crate) mod copy;
pub(crate) mod exec;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod node;
pub(crate) mod object;
pub(crate) mod update;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::graph::condition::Condition;
use crate::graph::exec::Exec;
use crate::graph::node::{Node, Task};
use crate::graph::object::UserObject;
use crate::handle::{Id, Objects};
use crate::state::State;

/// All graphs, their nodes, and the execs.
#[derive(Debug)]
pub(crate) struct Graphs {
    pub(crate) graphs: Objects<Graph>,
    pub(crate) nodes: Objects<Node>,
    pub(crate) execs: Objects<Exec>,
    pub(crate) objects: Objects<UserObject>,
    /// The conditions, by handle. Graphs and launches keep them alive.
    pub(crate) conditions: BTreeMap<u64, Weak<Condition>>,
}

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) owner: GraphOwner,
    /// The nodes, in the order in which they were added.
    pub(crate) nodes: Vec<Id>,
    /// The user objects that the graph keeps, with the number of its references.
    pub(crate) objects: BTreeMap<Id, u64>,
    /// The conditions of the graph and of its bodies.
    pub(crate) conditions: Vec<Arc<Condition>>,
    /// Whether the graph has an operation that cannot be instantiated.
    pub(crate) unusable: bool,
    /// The call that made the graph.
    pub(crate) call: &'static str,
}

/// The owner, which destroys the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GraphOwner {
    Program,
    /// The capture that records the graph, until the capture ends.
    Capture,
    /// The node that runs the graph as a part of another graph.
    Node,
    /// The conditional node, in this graph, that runs it.
    Body(Id),
}

impl Graphs {
    pub(crate) fn new() -> Self {
        Self {
            graphs: Objects::new(0x5000_0000),
            nodes: Objects::new(0x5400_0000),
            execs: Objects::new(0x5800_0000),
            objects: Objects::new(0x5c00_0000),
            conditions: BTreeMap::new(),
        }
    }
}

impl State {
    pub(crate) fn new_graph(&mut self, owner: GraphOwner, call: &'static str) -> Id {
        let id = self.new_id();
        let (nodes, objects, conditions) = (Vec::new(), BTreeMap::new(), Vec::new());
        let graph = Graph { owner, nodes, objects, conditions, unusable: false, call };
        self.graphs.graphs.add(id, graph);
        id
    }

    /// Adds a node to an existing graph.
    pub(crate) fn add_node(&mut self, graph: Id, task: Task, dependencies: Vec<Id>) -> Id {
        let id = self.new_id();
        self.graphs.nodes.add(id, Node { graph, task, dependencies, original: None });
        if let Some(graph) = self.graphs.graphs.get_mut(&graph) {
            graph.nodes.push(id);
        }
        id
    }

    /// Removes a graph with its nodes. Execs that were made from it stay.
    pub(crate) fn destroy_graph(&mut self, id: Id) {
        let Some(graph) = self.graphs.graphs.remove(&id) else {
            return;
        };
        for node in graph.nodes {
            self.forget_node(node);
        }
        for (object, count) in graph.objects {
            self.release_object(object, count);
        }
    }

    /// Removes a node, and its dependents' dependencies on it.
    pub(crate) fn destroy_node(&mut self, id: Id) {
        let graph = self.graphs.nodes[&id].graph;
        self.forget_node(id);
        let Graphs { graphs, nodes, .. } = &mut self.graphs;
        if let Some(graph) = graphs.get_mut(&graph) {
            graph.nodes.retain(|node| *node != id);
            for node in &graph.nodes {
                if let Some(node) = nodes.get_mut(node) {
                    node.dependencies.retain(|before| *before != id);
                }
            }
        }
    }

    fn forget_node(&mut self, id: Id) {
        if let Some(node) = self.graphs.nodes.remove(&id) {
            for graph in node.task.kind.inner() {
                self.destroy_graph(*graph);
            }
        }
    }

    /// Makes the second node of each pair depend on the first. Changes nothing and returns `false` if an edge
    /// exists already, or if the edges would close a cycle.
    pub(crate) fn add_edges(&mut self, graph: Id, edges: &[(Id, Id)]) -> bool {
        let mut known = self.edges(graph);
        for edge in edges {
            if known.contains(edge) {
                return false;
            }
            known.push(*edge);
        }
        for (before, after) in edges {
            self.change_dependencies(*after, |all| all.push(*before));
        }
        let sound = self.sorted(graph).len() == self.graphs.graphs[&graph].nodes.len();
        if !sound {
            self.drop_edges(edges);
        }
        sound
    }

    /// Removes edges. Changes nothing and returns `false` if one does not exist.
    pub(crate) fn remove_edges(&mut self, graph: Id, edges: &[(Id, Id)]) -> bool {
        let mut known = self.edges(graph);
        for edge in edges {
            let Some(at) = known.iter().position(|known| known == edge) else {
                return false;
            };
            known.swap_remove(at);
        }
        self.drop_edges(edges);
        true
    }

    fn drop_edges(&mut self, edges: &[(Id, Id)]) {
        for (before, after) in edges {
            self.change_dependencies(*after, |all| all.retain(|known| known != before));
        }
    }

    fn change_dependencies(&mut self, node: Id, change: impl FnOnce(&mut Vec<Id>)) {
        if let Some(node) = self.graphs.nodes.get_mut(&node) {
            change(&mut node.dependencies);
        }
    }

    /// Returns the edges of a graph: pairs of nodes of which the second depends on the first.
    pub(crate) fn edges(&self, graph: Id) -> Vec<(Id, Id)> {
        let nodes = self.graphs.graphs[&graph].nodes.iter();
        let edges = nodes.flat_map(|&after| {
            let before = self.graphs.nodes[&after].dependencies.iter();
            before.map(move |&before| (before, after))
        });
        edges.collect()
    }
}
