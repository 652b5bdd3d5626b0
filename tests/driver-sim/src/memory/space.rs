//! Device addresses: one range per device, allocated upwards, and reused only after a quarantine.

use std::collections::VecDeque;

use crate::handle::Id;
use crate::memory::block::Block;
use crate::table::Table;

/// The first device address: beyond any host pointer, yet within 49 bits.
const BASE: u64 = 3 << 47;
const DEVICE_SHIFT: u32 = 41;

/// The alignment of every block.
pub(crate) const ALIGNMENT: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct Space {
    pub(crate) blocks: Table<Block>,
    /// Start addresses of live and quarantined blocks.
    by_address: Table<Id>,
    /// The first address never allocated, per device.
    next: Vec<u64>,
    quarantine: VecDeque<(Id, usize)>,
    /// Ranges out of quarantine: (device, size, address), the newest last.
    reusable: Vec<(usize, usize, u64)>,
}

impl Space {
    pub(crate) fn new(devices: usize) -> Self {
        let next = (0..devices as u64).map(|device| BASE + (device << DEVICE_SHIFT) + (1 << 21));
        Self { next: next.collect(), ..Self::default() }
    }

    /// Returns an address at a multiple of `alignment`, followed by an unused unit behind the block, so that
    /// an access beyond the end meets no other block. Prefers a recycled range. Returns [`None`] if the
    /// device's range is exhausted.
    pub(crate) fn place_aligned(
        &mut self,
        device: usize,
        size: usize,
        alignment: usize,
    ) -> Option<u64> {
        let room = size.checked_next_multiple_of(ALIGNMENT);
        let room = room.filter(|room| *room < 1 << DEVICE_SHIFT)?;
        let fits = |&(d, s, address): &(usize, usize, u64)| {
            d == device && s == room && address % alignment as u64 == 0
        };
        if let Some(at) = self.reusable.iter().rposition(fits) {
            return Some(self.reusable.remove(at).2);
        }
        let address = self.next[device].next_multiple_of(alignment as u64);
        let next = address.checked_add((room + ALIGNMENT) as u64)?;
        if next >= BASE + ((device as u64 + 1) << DEVICE_SHIFT) {
            // Quarantined ranges are reused before addresses run out.
            let oldest = self.release_oldest();
            return oldest.and_then(|()| self.place_aligned(device, size, alignment));
        }
        self.next[device] = next;
        Some(address)
    }

    pub(crate) fn insert(&mut self, id: Id, block: Block) {
        self.by_address.insert(block.address, id);
        self.blocks.insert(id, block);
    }

    /// Returns the block, live or quarantined, that contains `address`, its end rounded up to the alignment,
    /// so that the report of an access beyond its bytes can name it.
    pub(crate) fn find(&self, address: u64) -> Option<Id> {
        let (_, &id) = self.by_address.last_to(address)?;
        let block = &self.blocks[&id];
        let end = block.address + (block.size.next_multiple_of(ALIGNMENT) as u64);
        (address < end).then_some(id)
    }

    /// Quarantines a freed block's addresses. The oldest beyond `limit` become reusable.
    pub(crate) fn quarantine(&mut self, id: Id, limit: usize) {
        let size = self.blocks[&id].size.next_multiple_of(ALIGNMENT);
        self.quarantine.push_back((id, size));
        while self.quarantine.len() > limit && self.release_oldest().is_some() {}
    }

    /// Makes the addresses of the oldest quarantined block reusable.
    fn release_oldest(&mut self) -> Option<()> {
        let (old, size) = self.quarantine.pop_front()?;
        if let Some(block) = self.blocks.remove(&old) {
            self.by_address.remove(&block.address);
            self.reusable.push((block.device, size, block.address));
        }
        Some(())
    }
}
