//! User objects that graphs keep, destroyed with their last reference.

use std::collections::BTreeSet;

use crate::engine::work::{HostFn, HostPtr};
use crate::handle::Id;
use crate::state::State;

#[derive(Debug)]
pub(crate) struct UserObject {
    pub(crate) destroy: HostFn,
    pub(crate) data: HostPtr,
    /// Number of references of the program.
    pub(crate) own: u64,
    /// Number of all references: of the program, of graphs, of execs and of launches that have not completed.
    pub(crate) all: u64,
}

impl State {
    pub(crate) fn retain_object(&mut self, id: Id, count: u64) {
        if let Some(object) = self.graphs.objects.get_mut(&id) {
            object.all += count;
        }
    }

    /// Removes references. Without any left, the object is destroyed, on the callback thread.
    pub(crate) fn release_object(&mut self, id: Id, count: u64) {
        let Some(object) = self.graphs.objects.get_mut(&id) else {
            return;
        };
        object.all -= count;
        if object.all > 0 {
            return;
        }
        if let Some(object) = self.graphs.objects.remove(&id) {
            self.call_later(object.destroy, object.data);
        }
    }

    pub(crate) fn release_objects(&mut self, objects: &[Id]) {
        for &id in objects {
            self.release_object(id, 1);
        }
    }

    /// Adds a reference to each object of a graph and of the graphs within it, and returns the objects.
    pub(crate) fn retain_objects_of(&mut self, graph: Id) -> Vec<Id> {
        let mut objects = BTreeSet::new();
        self.collect_objects(graph, &mut objects);
        let objects: Vec<Id> = objects.into_iter().collect();
        for &id in &objects {
            self.retain_object(id, 1);
        }
        objects
    }

    fn collect_objects(&self, graph: Id, objects: &mut BTreeSet<Id>) {
        let graph = &self.graphs.graphs[&graph];
        objects.extend(graph.objects.keys());
        for node in &graph.nodes {
            for inner in self.graphs.nodes[node].task.kind.inner() {
                self.collect_objects(*inner, objects);
            }
        }
    }
}
