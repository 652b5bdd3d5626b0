//! Updates execs: what an exec can be changed to.

use std::mem;

use cuda_sys::{CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS};

use crate::engine::work::Work;
use crate::graph::exec::ExecNode;
use crate::graph::node::{NodeKind, Task};
use crate::handle::Id;
use crate::state::State;

/// The reason why an exec cannot become like a graph, and the first node of the graph that differs.
pub(crate) enum Mismatch {
    /// A node with other dependencies, and the dependency that differs, if their number is the same.
    Topology(Option<Id>, Option<Id>),
    Kind(Id),
    Parameters(Id),
    /// A conditional node that uses its condition in another way.
    Unsupported(Id),
}

impl State {
    /// Gives each node of an exec the task of the corresponding node of a graph, or changes nothing.
    pub(crate) fn update_exec(&mut self, exec_id: Id, graph: Id) -> Result<(), Mismatch> {
        let new = self.flatten(graph);
        let ways = self.ways_of(&new);
        let Some(exec) = self.graphs.execs.get_mut(&exec_id) else {
            return Ok(());
        };
        compare(&exec.steps, &new)?;
        for (old, new) in exec.steps.iter_mut().zip(new) {
            old.task = new.task;
        }
        let objects = self.retain_objects_of(graph);
        if let Some(exec) = self.graphs.execs.get_mut(&exec_id) {
            exec.ways.extend(ways);
            let old = mem::replace(&mut exec.objects, objects);
            self.release_objects(&old);
        }
        Ok(())
    }
}

/// Checks that nodes of an exec can be changed to those of a graph.
fn compare(old: &[ExecNode], new: &[ExecNode]) -> Result<(), Mismatch> {
    if new.len() != old.len() {
        return Err(Mismatch::Topology(None, None));
    }
    let source = |at: usize| new[at].source;
    for (old, new) in old.iter().zip(new) {
        if old.task.kind.to_raw() != new.task.kind.to_raw() {
            return Err(Mismatch::Kind(new.source));
        }
        if old.after != new.after {
            let mut pairs = old.after.iter().zip(&new.after);
            let from = pairs.find(|(old, new)| old != new).map(|(_, new)| source(*new));
            let from = from.filter(|_| old.after.len() == new.after.len());
            return Err(Mismatch::Topology(Some(new.source), from));
        }
        if let (Work::Conditional(before), Work::Conditional(after)) =
            (&old.task.work, &new.task.work)
        {
            if !before.can_become(after) {
                return Err(Mismatch::Unsupported(new.source));
            }
            for (before, after) in before.bodies.iter().zip(after.bodies.iter()) {
                compare(before, after)?;
            }
        }
        if !old.task.can_become(&new.task) {
            return Err(Mismatch::Parameters(new.source));
        }
    }
    Ok(())
}

impl Task {
    /// Returns whether a node of an exec can be changed from this task to `other`. The kind must stay. Both
    /// ends of a copy must keep their memory type, and must stay memory of a pool, or other memory. Copies and
    /// fills of more than one row must keep their size.
    pub(crate) fn can_become(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (NodeKind::Memcpy(old), NodeKind::Memcpy(new)) => {
                let size = |copy: &CUDA_MEMCPY3D| [copy.WidthInBytes, copy.Height, copy.Depth];
                let same_pools = old.pooled == new.pooled;
                let (old, new) = (&old.copy, &new.copy);
                let rows = size(old)[1..] != [1, 1] || size(new)[1..] != [1, 1];
                old.srcMemoryType == new.srcMemoryType
                    && old.dstMemoryType == new.dstMemoryType
                    && same_pools
                    && (!rows || size(old) == size(new))
            }
            (NodeKind::Memset(old), NodeKind::Memset(new)) => {
                let rows = old.height != 1 || new.height != 1;
                let size =
                    |fill: &CUDA_MEMSET_NODE_PARAMS| (fill.elementSize, fill.width, fill.height);
                !rows || size(old) == size(new)
            }
            (NodeKind::Alloc(old), NodeKind::Alloc(new))
            | (NodeKind::Free(old), NodeKind::Free(new)) => old == new,
            (old, new) => mem::discriminant(old) == mem::discriminant(new),
        }
    }
}
