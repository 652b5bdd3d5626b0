//! Memory created by another interface to the device; exported physical memory stands in for it.

use std::sync::{Arc, Mutex};

use crate::engine::work::{Op, Place, Work};
use crate::handle::{Id, Objects};
use crate::memory::block::Block;
use crate::memory::pages::Pages;
use crate::state::State;

#[derive(Debug)]
pub(crate) struct ExternalMemory {
    pub(crate) imported: Objects<Imported>,
    pub(crate) semaphores: Objects<Semaphore>,
}

#[derive(Debug)]
pub(crate) struct Semaphore {
    /// The block whose first eight bytes are the semaphore's value.
    pub(crate) block: Id,
    /// Whether a wait resets the semaphore.
    pub(crate) is_binary: bool,
}

#[derive(Debug)]
pub(crate) struct Imported {
    pub(crate) context: Id,
    pub(crate) size: usize,
    pub(crate) physical: Id,
    pub(crate) pages: Arc<Mutex<Pages>>,
    /// Blocks that are mapped from the memory.
    pub(crate) mapped: Vec<Id>,
}

impl ExternalMemory {
    pub(crate) fn new() -> Self {
        Self { imported: Objects::new(0xb000_0000), semaphores: Objects::new(0xc000_0000) }
    }
}

impl State {
    /// Returns whether a block belongs to a semaphore, which is reported itself.
    pub(crate) fn is_semaphore(&self, block: Id) -> bool {
        let mut semaphores = self.external.semaphores.from(0);
        semaphores.any(|(_, semaphore)| semaphore.block == block)
    }

    /// Returns a stream with a queued signal of the semaphore or wait for it.
    pub(crate) fn user_of(&self, semaphore: Id) -> Option<Id> {
        let block = self.external.semaphores.get(&semaphore)?.block;
        let uses = |op: &Op| match &op.work {
            Work::WriteValue { dst: at, .. } | Work::WaitValue { src: at, .. } => {
                matches!(at, Place::Device { block: of, .. } if *of == block)
            }
            _ => false,
        };
        let mut streams = self.streams.from(0);
        let found = streams.find(|(_, stream)| stream.queue.iter().any(uses));
        found.map(|(&id, _)| id)
    }

    /// Removes imported memory. Blocks mapped from it stay until they are freed.
    pub(crate) fn forget_imported(&mut self, id: Id) {
        let Some(imported) = self.external.imported.remove(&id) else {
            return;
        };
        if let Some(physical) = self.virtual_memory.physical.get_mut(&imported.physical) {
            physical.mappings -= 1;
        }
        self.settle_physical(imported.physical);
    }

    /// Removes what was imported in a context. The semaphores' values are blocks of the context.
    pub(crate) fn forget_all_imported(&mut self, context: Id) {
        let imported = self.external.imported.iter();
        let imported = imported.filter(|(_, imported)| imported.context == context);
        for memory in imported.map(|(&memory, _)| memory).collect::<Vec<_>>() {
            self.forget_imported(memory);
        }
        let Self { external, space, .. } = self;
        external.semaphores.retain(|semaphore| {
            let block = space.blocks.get(&semaphore.block);
            block.is_none_or(|block| block.context != Some(context))
        });
    }

    /// Returns the address of a block that is still mapped from the memory.
    pub(crate) fn still_mapped(&self, id: Id) -> Option<u64> {
        let blocks = self.external.imported.get(&id)?.mapped.iter();
        let mut blocks = blocks.filter_map(|block| self.space.blocks.get(block));
        let block = blocks.find(|block: &&Block| block.is_held())?;
        Some(block.address)
    }
}
