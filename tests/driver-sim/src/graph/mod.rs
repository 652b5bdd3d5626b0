//! Graphs: operations with dependencies between them, and what can be launched of them.

pub(crate) mod copy;
pub(crate) mod exec;
pub(crate) mod launch;
pub(crate) mod node;
pub(crate) mod update;

use crate::graph::exec::Exec;
use crate::graph::node::{Node, Task};
use crate::handle::{Handles, Id};
use crate::state::State;
use crate::table::Table;

/// All graphs, their nodes, and the execs.
#[derive(Debug)]
pub(crate) struct Graphs {
    pub(crate) graphs: Table<Graph>,
    pub(crate) graph_handles: Handles,
    pub(crate) nodes: Table<Node>,
    pub(crate) node_handles: Handles,
    pub(crate) execs: Table<Exec>,
    pub(crate) exec_handles: Handles,
}

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) handle: usize,
    pub(crate) owner: GraphOwner,
    /// In the order in which they were added.
    pub(crate) nodes: Vec<Id>,
    /// The call that made it.
    pub(crate) call: &'static str,
}

/// What destroys a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GraphOwner {
    Program,
    /// The capture that records it, until that ends.
    Capture,
}

impl Graphs {
    pub(crate) fn new() -> Self {
        Self {
            graphs: Table::new(),
            graph_handles: Handles::new(0x5000_0000),
            nodes: Table::new(),
            node_handles: Handles::new(0x5400_0000),
            execs: Table::new(),
            exec_handles: Handles::new(0x5800_0000),
        }
    }
}

impl State {
    pub(crate) fn new_graph(&mut self, owner: GraphOwner, call: &'static str) -> Id {
        let id = self.new_id();
        let handle = self.graphs.graph_handles.issue(id);
        self.graphs.graphs.insert(id, Graph { handle, owner, nodes: Vec::new(), call });
        id
    }

    /// Adds a node to a graph that exists.
    pub(crate) fn add_node(&mut self, graph: Id, task: Task, dependencies: Vec<Id>) -> Id {
        let id = self.new_id();
        let handle = self.graphs.node_handles.issue(id);
        self.graphs.nodes.insert(id, Node { handle, graph, task, dependencies, original: None });
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
        self.graphs.graph_handles.retire(graph.handle);
        for node in graph.nodes {
            if let Some(node) = self.graphs.nodes.remove(&node) {
                self.graphs.node_handles.retire(node.handle);
            }
        }
    }

    /// Pairs of nodes of a graph, of which the second depends on the first.
    pub(crate) fn edges(&self, graph: Id) -> Vec<(Id, Id)> {
        let nodes = self.graphs.graphs[&graph].nodes.iter();
        let edges = nodes.flat_map(|&after| {
            let before = self.graphs.nodes[&after].dependencies.iter();
            before.map(move |&before| (before, after))
        });
        edges.collect()
    }
}
