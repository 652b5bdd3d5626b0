//! One device allocation.

use crate::engine::order::History;
use crate::handle::Id;
use crate::memory::pages::Pages;

/// The state of a block. A change has two states, enqueued and executed: work is checked when it is enqueued,
/// and again when it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The allocation is queued.
    Promised,
    Live,
    /// The free is queued, by this call.
    Condemned(&'static str),
    Freed(&'static str),
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) size: usize,
    pub(crate) device: usize,
    /// The context that allocated it; pool memory belongs to none.
    pub(crate) context: Option<Id>,
    pub(crate) pool: Option<Id>,
    pub(crate) phase: Phase,
    /// Whether the allocation has been executed.
    pub(crate) exists: bool,
    pub(crate) pages: Pages,
    pub(crate) history: History,
    /// Set for memory of a graph, which a node allocates at each launch.
    pub(crate) recurring: Option<Recurring>,
    /// The call that allocated it.
    pub(crate) call: &'static str,
}

/// Memory that keeps its addresses forever, and has bytes from the node that allocates it to the free.
#[derive(Debug)]
pub(crate) struct Recurring {
    /// Whether, as the program sees it, a launch allocated it without freeing it, and nothing else freed it.
    pub(crate) is_held: bool,
}

impl Block {
    /// Returns whether the block is allocated and not yet freed, as the program sees it.
    pub(crate) fn is_held(&self) -> bool {
        match &self.recurring {
            Some(recurring) => recurring.is_held,
            None => matches!(self.phase, Phase::Promised | Phase::Live),
        }
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        address >= self.address && address - self.address < self.size as u64
    }
}
