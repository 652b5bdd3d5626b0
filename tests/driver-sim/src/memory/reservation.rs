//! Virtual memory: reserved addresses, physical memory, and mappings.
//!
//! A reservation is a block of the address space whose bytes are those of the memory mapped there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use cuda_sys::*;

use crate::descriptor::FileId;
use crate::engine::order::{History, overlap};
use crate::engine::work::Target;
use crate::handle::{Id, Objects};
use crate::memory::block::{Block, Phase};
use crate::memory::pages::Pages;
use crate::memory::place::DISCARD;
use crate::report::ViolationKind;
use crate::state::State;
use crate::table::Table;

/// The granularity of every size and address.
pub(crate) const GRANULARITY: usize = 2 << 20;

#[derive(Debug)]
pub(crate) struct VirtualMemory {
    /// The chunks of each reservation, by block.
    pub(crate) reservations: Table<Vec<Chunk>>,
    pub(crate) physical: Objects<Physical>,
    /// Exported memory, by the file of its descriptor.
    pub(crate) exported: BTreeMap<FileId, Id>,
}

#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) device: usize,
    pub(crate) size: usize,
    pub(crate) handle_types: CUmemAllocationHandleType,
    /// `CUmemAllocationProp::allocFlags`.
    pub(crate) flags: CUmemAllocationProp_st__bindgen_ty_1,
    /// Number of handles of the memory: the first and those that were imported or retained.
    pub(crate) holders: usize,
    pub(crate) mappings: usize,
    pub(crate) pages: Arc<Mutex<Pages>>,
}

/// A mapping of physical memory in a reservation.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) start: usize,
    pub(crate) size: usize,
    pub(crate) physical: Id,
    pub(crate) device: usize,
    /// The access of each device.
    pub(crate) access: BTreeMap<usize, CUmemAccess_flags>,
}

impl VirtualMemory {
    pub(crate) fn new() -> Self {
        Self {
            reservations: Table::new(),
            physical: Objects::new(0x6400_0000),
            exported: BTreeMap::new(),
        }
    }
}

impl Chunk {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.start + self.size
    }
}

impl State {
    pub(crate) fn new_reservation(
        &mut self,
        call: &'static str,
        device: usize,
        size: usize,
    ) -> Option<u64> {
        let address = self.space.place_aligned(device, size, GRANULARITY)?;
        let id = self.new_id();
        let block = Block {
            address,
            size,
            device,
            context: None,
            pool: None,
            phase: Phase::Live,
            exists: true,
            pages: Pages::new(size),
            history: History::default(),
            recurring: None,
            call,
        };
        self.space.insert(id, block);
        self.virtual_memory.reservations.insert(id, Vec::new());
        Some(address)
    }

    /// Returns the reservation that contains all of these addresses, and their offset in it.
    pub(crate) fn reserved(
        &mut self,
        call: &'static str,
        address: CUdeviceptr,
        size: usize,
    ) -> Result<(Id, usize), CUresult> {
        let id = self.space.find(address);
        let id = id.filter(|id| self.virtual_memory.reservations.contains_key(id));
        let Some(id) = id else {
            return Err(self.unknown(call, address));
        };
        let block = &self.space.blocks[&id];
        let start = (address - block.address) as usize;
        if start.checked_add(size).is_some_and(|end| end <= block.size) {
            Ok((id, start))
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }

    /// Returns the chunks that together are exactly these bytes, in order.
    pub(crate) fn chunks_of(&self, id: Id, range: &Range<usize>) -> Option<Vec<usize>> {
        let chunks = &self.virtual_memory.reservations[&id];
        let (mut at, mut found) = (range.start, Vec::new());
        while at < range.end {
            let index = chunks.iter().position(|chunk| chunk.start == at)?;
            at += chunks[index].size;
            found.push(index);
        }
        (at == range.end).then_some(found)
    }

    /// Reports an access to bytes of a reservation that are not mapped, or that the memory's own device may
    /// not access. Ignores other memory.
    pub(crate) fn check_mapped(
        &mut self,
        call: &'static str,
        id: Id,
        range: Range<usize>,
    ) -> Result<(), CUresult> {
        let Some(chunks) = self.virtual_memory.reservations.get(&id) else {
            return Ok(());
        };
        let mut at = range.start;
        while at < range.end {
            let chunk = chunks.iter().find(|chunk| chunk.range().contains(&at));
            let open = chunk.filter(|chunk| chunk.access.contains_key(&chunk.device));
            let Some(open) = open else {
                let how = if chunk.is_some() { "closed" } else { "not mapped" };
                let message = format!("byte {at} of a reservation is {how}");
                self.log.violation(ViolationKind::UnknownAddress, call, message);
                return Err(CUDA_ERROR_INVALID_VALUE);
            };
            at = open.range().end;
        }
        Ok(())
    }

    /// Returns whether the bytes lie in more than one mapping of a reservation.
    pub(crate) fn crosses_mappings(&self, id: Id, range: Range<usize>) -> bool {
        let chunks = self.virtual_memory.reservations.get(&id);
        let chunks = chunks.into_iter().flatten();
        let touched = chunks.filter(|chunk| overlap(&chunk.range(), &range));
        touched.count() > 1
    }

    /// Removes a chunk from its reservation, and reports work that still uses it.
    pub(crate) fn unmap_chunk(&mut self, call: &'static str, id: Id, index: usize) {
        let Some(chunks) = self.virtual_memory.reservations.get_mut(&id) else {
            return;
        };
        let chunk = chunks.remove(index);
        self.check_host_access(call, Target::Device(id), chunk.range());
        self.check_registered(call, id, &chunk.range());
        if let Some(block) = self.space.blocks.get_mut(&id) {
            block.pages.close_window(chunk.start);
        }
        if let Some(physical) = self.virtual_memory.physical.get_mut(&chunk.physical) {
            physical.mappings -= 1;
        }
        self.settle_physical(chunk.physical);
    }

    /// Releases physical memory without handles and mappings.
    pub(crate) fn settle_physical(&mut self, id: Id) {
        let memory = &mut self.virtual_memory;
        let Some(physical) = memory.physical.get(&id) else {
            return;
        };
        if physical.holders == 0 && physical.mappings == 0 {
            self.devices[physical.device].allocated -= physical.size;
            memory.physical.remove(&id);
        }
    }

    /// Removes a reservation with everything that is mapped in it.
    pub(crate) fn discard_reservation(&mut self, address: u64) {
        let Some(id) = self.space.find(address) else {
            return;
        };
        let chunks = self.virtual_memory.reservations.get(&id).map_or(0, Vec::len);
        (0..chunks).for_each(|_| self.unmap_chunk(DISCARD, id, 0));
        self.end_reservation(DISCARD, id);
    }

    /// Frees the addresses. Nothing may be mapped in them.
    pub(crate) fn end_reservation(&mut self, call: &'static str, id: Id) {
        self.virtual_memory.reservations.remove(&id);
        if let Some(block) = self.space.blocks.get_mut(&id) {
            block.phase = Phase::Freed(call);
            block.pages = Pages::default();
        }
        self.space.quarantine(id, self.config.quarantine);
    }
}
