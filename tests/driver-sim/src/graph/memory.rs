//! Memory that graph nodes allocate and free.

use std::collections::BTreeSet;

use cuda_sys::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY};

use crate::call::Outcome;
use crate::engine::work::{Access, AccessKind, Target, Work};
use crate::graph::exec::ExecNode;
use crate::graph::node::{NodeKind, Task};
use crate::handle::Id;
use crate::state::State;

/// The net effect of a launch on memory that outlives it.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    /// Blocks that the launch allocates and does not free.
    pub(crate) allocates: BTreeSet<Id>,
    /// Blocks that another launch allocated and this one frees.
    pub(crate) frees: BTreeSet<Id>,
}

impl Balance {
    pub(crate) fn of(steps: &[ExecNode]) -> Self {
        let mut balance = Self::default();
        for step in steps {
            match step.task.kind {
                NodeKind::Alloc(block) => drop(balance.allocates.insert(block)),
                NodeKind::Free(block) if balance.allocates.remove(&block) => {}
                NodeKind::Free(block) => drop(balance.frees.insert(block)),
                _ => {}
            }
        }
        balance
    }
}

impl State {
    /// Returns the task that allocates or frees a whole block.
    pub(crate) fn memory_task(&self, call: &'static str, kind: NodeKind, block: Id) -> Task {
        let work = match kind {
            NodeKind::Alloc(_) => Work::Alloc { block },
            _ => Work::Free { block },
        };
        let range = 0..self.space.blocks.get(&block).map_or(0, |block| block.size);
        let access = Access { target: Target::Device(block), range, kind: AccessKind::Write };
        Task { call, kind, work, accesses: vec![access] }
    }

    /// Returns whether a graph, or one within it, allocates or frees memory.
    pub(crate) fn has_memory(&self, graph: Id) -> bool {
        self.graphs.graphs[&graph].nodes.iter().any(|node| {
            match &self.graphs.nodes[node].task.kind {
                NodeKind::Alloc(_) | NodeKind::Free(_) => true,
                kind => kind.inner().iter().any(|inner| self.has_memory(*inner)),
            }
        })
    }

    fn is_held(&self, block: Id) -> bool {
        self.space.blocks.get(&block).is_some_and(|block| block.is_held())
    }

    /// Prepares the memory of a launch. If `frees_first`, the launch first frees what an earlier one
    /// allocated and nothing freed; otherwise such a launch is refused.
    pub(crate) fn admit_memory(&mut self, steps: &mut Vec<ExecNode>, frees_first: bool) -> Outcome {
        let Balance { allocates, frees } = Balance::of(steps);
        let left: Vec<Id> = allocates.iter().copied().filter(|&id| self.is_held(id)).collect();
        if !left.is_empty() && !frees_first || frees.iter().any(|&id| !self.is_held(id)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let blocks = steps.iter().filter_map(|step| match step.task.kind {
            NodeKind::Alloc(block) => self.space.blocks.get(&block),
            _ => None,
        });
        let sizes: Vec<(usize, usize)> = blocks.map(|block| (block.device, block.size)).collect();
        for device in 0..self.devices.len() {
            let sizes = sizes.iter().filter(|(of, _)| *of == device);
            let bytes: usize = sizes.map(|(_, size)| size).sum();
            if bytes > 0 {
                let pool = Some(self.devices[device].graph_pool);
                self.reserve(device, pool, bytes).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
            }
        }
        self.free_before(steps, &left);
        for (blocks, is_held) in [(&allocates, true), (&frees, false)] {
            for block in blocks {
                let block = self.space.blocks.get_mut(block);
                if let Some(recurring) = block.and_then(|block| block.recurring.as_mut()) {
                    recurring.is_held = is_held;
                }
            }
        }
        Ok(())
    }

    /// Makes a launch begin with frees of these blocks.
    fn free_before(&self, steps: &mut Vec<ExecNode>, blocks: &[Id]) {
        for &block in blocks {
            let task = self.memory_task("cuGraphLaunch", NodeKind::Free(block), block);
            ExecNode::prepend(steps, task);
        }
    }
}
