//! Pinned host memory: allocated by the driver, or registered with it.

use std::alloc::Layout;
use std::collections::BTreeMap;

use crate::engine::order::History;
use crate::engine::work::HostPtr;
use crate::handle::Id;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Allocated,
    Registered,
}

#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) base: HostPtr,
    pub(crate) size: usize,
    pub(crate) flags: u32,
    pub(crate) context: Id,
    pub(crate) device: usize,
    pub(crate) origin: Origin,
    pub(crate) history: History,
    pub(crate) call: &'static str,
}

/// All pinned memory. Its device address is its host address, as with unified addressing.
#[derive(Debug, Default)]
pub(crate) struct PinnedMap {
    pub(crate) blocks: BTreeMap<Id, Pinned>,
    by_address: BTreeMap<usize, Id>,
    /// Start addresses of blocks that were freed and not handed out again.
    freed: BTreeMap<usize, &'static str>,
}

const PAGE: usize = 4096;
const POISON: u8 = 0x5A;

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.max(1), PAGE).ok()
}

/// Memory for `cuMemHostAlloc`, filled with a pattern; `None` when the host has none.
pub(crate) fn allocate(size: usize) -> Option<HostPtr> {
    let layout = layout(size)?;
    // SAFETY: the size is not zero.
    let base = unsafe { std::alloc::alloc(layout) };
    if base.is_null() {
        return None;
    }
    // SAFETY: `base` is the start of `size` bytes that were just allocated.
    unsafe { base.write_bytes(POISON, layout.size()) };
    Some(HostPtr(base))
}

impl PinnedMap {
    pub(crate) fn insert(&mut self, id: Id, block: Pinned) {
        let address = block.base.0.addr();
        self.freed.remove(&address);
        self.by_address.insert(address, id);
        self.blocks.insert(id, block);
    }

    /// The block that holds `address`, and the offset in it.
    pub(crate) fn find(&self, address: usize) -> Option<(Id, usize)> {
        let (&start, &id) = self.by_address.range(..=address).next_back()?;
        let offset = address - start;
        (offset < self.blocks[&id].size).then_some((id, offset))
    }

    /// Whether a block overlaps these bytes.
    pub(crate) fn overlaps(&self, address: usize, size: usize) -> bool {
        let before = self.by_address.range(..address + size).next_back();
        before.is_some_and(|(&start, id)| start + self.blocks[id].size > address)
    }

    pub(crate) fn starts_at(&self, address: usize) -> Option<Id> {
        self.by_address.get(&address).copied()
    }

    pub(crate) fn freed_by(&self, address: usize) -> Option<&'static str> {
        self.freed.get(&address).copied()
    }

    /// Takes the block out; memory of ours goes back to the host.
    pub(crate) fn remove(&mut self, id: Id, call: &'static str) {
        let Some(block) = self.blocks.remove(&id) else {
            return;
        };
        let address = block.base.0.addr();
        self.by_address.remove(&address);
        self.freed.insert(address, call);
        if let (Origin::Allocated, Some(layout)) = (block.origin, layout(block.size)) {
            // SAFETY: `allocate` made this block with the same layout, and it has just left the
            // table, so nothing frees it again.
            unsafe { std::alloc::dealloc(block.base.0, layout) };
        }
    }
}
