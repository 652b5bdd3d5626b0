//! Clones graphs, and prints them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::graph::GraphOwner;
use crate::graph::node::NodeKind;
use crate::handle::Id;
use crate::state::State;

impl State {
    /// Creates a graph with a copy of each node.
    pub(crate) fn clone_graph(&mut self, graph: Id, owner: GraphOwner, call: &'static str) -> Id {
        let copy = self.new_graph(owner, call);
        let mut copies = BTreeMap::new();
        for id in self.sorted(graph) {
            let node = &self.graphs.nodes[&id];
            let before = node.dependencies.iter().map(|id| copies[id]).collect();
            let mut task = node.task.clone();
            if let NodeKind::Child(graph) = &mut task.kind {
                *graph = self.clone_graph(*graph, GraphOwner::Node, call);
            }
            let node = self.add_node(copy, task, before);
            if let Some(node) = self.graphs.nodes.get_mut(&node) {
                node.original = Some(id);
            }
            copies.insert(id, node);
        }
        let graph = &self.graphs.graphs[&graph];
        let (objects, unusable) = (graph.objects.clone(), graph.unusable);
        for (&object, &count) in &objects {
            self.retain_object(object, count);
        }
        if let Some(copy) = self.graphs.graphs.get_mut(&copy) {
            copy.objects = objects;
            copy.unusable = unusable;
        }
        copy
    }

    /// Returns the graph in the language of Graphviz.
    pub(crate) fn dot(&self, graph: Id) -> String {
        let nodes = &self.graphs.graphs[&graph].nodes;
        let place = |id: &Id| nodes.iter().position(|node| node == id).unwrap_or_default();
        let mut text = format!("digraph dot {{\nsubgraph cluster_{graph} {{\n");
        for id in nodes {
            let task = &self.graphs.nodes[id].task;
            let kind = task.kind.name();
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "\"graph_{graph}_node_{at}\"[label=\"{at}\\n{kind}\"];",
                at = place(id)
            );
        }
        for (before, after) in self.edges(graph) {
            let (before, after) = (place(&before), place(&after));
            let _ = writeln!(
                text,
                "\"graph_{graph}_node_{before}\" -> \"graph_{graph}_node_{after}\";"
            );
        }
        text + "}\n}\n"
    }
}
