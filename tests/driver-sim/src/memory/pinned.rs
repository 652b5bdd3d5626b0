//! Pinned host memory: allocated by the driver, or registered with it.

use std::alloc::Layout;
use std::ops::Range;
use std::sync::Arc;

use crate::engine::order::{History, overlap};
use crate::engine::work::HostPtr;
use crate::handle::Id;
use crate::table::Table;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Allocated,
    Registered,
    /// Managed memory, treated as pinned memory.
    Managed,
}

/// A property of a range of managed memory that the program sets or the driver changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    ReadMostly,
    Preferred,
    Prefetch,
    /// The last use was by this device, or by the host.
    User(i32),
}

#[derive(Debug)]
pub(crate) struct Advised {
    pub(crate) range: Range<usize>,
    pub(crate) subject: Subject,
    pub(crate) value: i32,
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
    /// Shared with the threads that move the block's bytes.
    // INVARIANT: the bytes stay where they are while another count exists.
    pub(crate) users: Arc<()>,
    pub(crate) call: &'static str,
    /// Advice for managed memory, the newest last.
    pub(crate) advice: Vec<Advised>,
}

impl Pinned {
    /// Returns the last value set for all these bytes; `None` if none was set, or not the same for all.
    pub(crate) fn last_advice(&self, subject: Subject, range: &Range<usize>) -> Option<i32> {
        let about =
            |advised: &&Advised| advised.subject == subject && overlap(&advised.range, range);
        let last = self.advice.iter().rev().find(about)?;
        let all = last.range.start <= range.start && range.end <= last.range.end;
        all.then_some(last.value)
    }
}

/// All pinned memory. A block's device address is its host address, as with unified addressing.
#[derive(Debug, Default)]
pub(crate) struct PinnedMap {
    pub(crate) blocks: Table<Pinned>,
    by_address: Table<Id>,
    /// Start addresses of blocks that were freed and not reused.
    freed: Table<&'static str>,
}

/// The driver packs small blocks at steps of 512 bytes, so programs can rely on no greater alignment. So
/// every block starts at an odd multiple of this step.
const STEP: usize = 512;
const POISON: u8 = 0x5A;

/// Returns the layout of a block's host allocation: one step longer, at the front.
fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(STEP)?, 2 * STEP).ok()
}

/// Allocates memory for `cuMemHostAlloc`, filled with a pattern; `None` if the host has none.
pub(crate) fn allocate(size: usize) -> Option<HostPtr> {
    let layout = layout(size)?;
    // SAFETY: the size is at least a step, so not zero.
    let start = unsafe { std::alloc::alloc(layout) };
    if start.is_null() {
        return None;
    }
    // SAFETY: `start` is the start of that many bytes that were just allocated.
    unsafe { start.write_bytes(POISON, layout.size()) };
    // SAFETY: the allocation is longer than a step, or, for a `size` of 0, as long.
    Some(HostPtr(unsafe { start.add(STEP) }))
}

impl PinnedMap {
    pub(crate) fn insert(&mut self, id: Id, block: Pinned) {
        let address = block.base.0.addr() as u64;
        self.freed.remove(&address);
        self.by_address.insert(address, id);
        self.blocks.insert(id, block);
    }

    /// Returns the block that holds `address`, and the offset in it.
    pub(crate) fn find(&self, address: usize) -> Option<(Id, usize)> {
        let (start, &id) = self.by_address.last_to(address as u64)?;
        let offset = address - start as usize;
        (offset < self.blocks[&id].size).then_some((id, offset))
    }

    /// Returns whether a block overlaps these bytes.
    pub(crate) fn overlaps(&self, address: usize, size: usize) -> bool {
        let last = (address + size - 1) as u64;
        let before = self.by_address.last_to(last);
        before.is_some_and(|(start, id)| start as usize + self.blocks[id].size > address)
    }

    pub(crate) fn starts_at(&self, address: usize) -> Option<Id> {
        self.by_address.get(&(address as u64)).copied()
    }

    pub(crate) fn freed_by(&self, address: usize) -> Option<&'static str> {
        self.freed.get(&(address as u64)).copied()
    }

    /// Removes the block, and returns memory from `allocate` to the host.
    pub(crate) fn remove(&mut self, id: Id, call: &'static str) {
        let Some(mut block) = self.blocks.remove(&id) else {
            return;
        };
        // The threads only copy, and end soon. A free during a copy has been reported, or will be.
        while Arc::get_mut(&mut block.users).is_none() {
            std::thread::yield_now();
        }
        let address = block.base.0.addr() as u64;
        self.by_address.remove(&address);
        self.freed.insert(address, call);
        let allocated = matches!(block.origin, Origin::Allocated | Origin::Managed);
        if let (true, Some(layout)) = (allocated, layout(block.size)) {
            // SAFETY: `allocate` left a step in front of the block, in the same allocation.
            let start = unsafe { block.base.0.sub(STEP) };
            // SAFETY: `allocate` got this allocation with the same layout, and the block has just
            // left the table, so nothing frees it again.
            unsafe { std::alloc::dealloc(start, layout) };
        }
    }
}
