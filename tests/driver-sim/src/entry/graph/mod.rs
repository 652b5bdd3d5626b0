//! Graphs and execs.

mod any;
pub(super) mod build;
pub(super) mod copy;
pub(super) mod exec;
pub(super) mod memory;
pub(super) mod object;
pub(super) mod params;
pub(super) mod query;
pub(super) mod set;
mod task;
pub(super) mod update;

use cuda_sys::*;

use crate::call::{Call, Outcome, list};
use crate::handle::Id;

/// Refuses edges with data: the simulator knows only whole dependencies.
///
/// # Safety
/// `data` is null, or points to `len` values.
pub(super) unsafe fn only_default(data: *const CUgraphEdgeData, len: usize) -> Outcome {
    if data.is_null() {
        return Ok(());
    }
    // SAFETY: this function's contract.
    let data = unsafe { list(data, len) }?;
    let default = |edge: &CUgraphEdgeData| (edge.from_port, edge.to_port, edge.type_) == (0, 0, 0);
    if data.iter().all(default) { Ok(()) } else { Err(CUDA_ERROR_NOT_SUPPORTED) }
}

/// Refuses a graph that allocates or frees memory: it cannot be copied, and no part of it removed.
fn refuse_memory(call: &Call, graph: Id) -> Outcome {
    if call.has_memory(graph) { Err(CUDA_ERROR_NOT_SUPPORTED) } else { Ok(()) }
}

impl Call {
    /// Returns the nodes of these handles. All must be nodes of this graph, each given once.
    pub(super) fn nodes_of(&mut self, graph: Id, handles: &[CUgraphNode]) -> Outcome<Vec<Id>> {
        let mut nodes = Vec::new();
        for &handle in handles {
            let id = self.node(handle)?;
            if self.graphs.nodes[&id].graph != graph || nodes.contains(&id) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            nodes.push(id);
        }
        Ok(nodes)
    }
}
