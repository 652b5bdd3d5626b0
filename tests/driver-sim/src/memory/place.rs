//! Resolves addresses to memory, and allocates and frees blocks.

use std::ops::Range;

use cuda_sys::*;

use crate::engine::order::History;
use crate::engine::work::{HostPtr, Place, Target};
use crate::handle::Id;
use crate::memory::block::{Block, Phase, Recurring};
use crate::memory::pages::Pages;
use crate::memory::space::ALIGNMENT;
use crate::report::ViolationKind;
use crate::state::State;

/// The function whose memory only `ncclMemFree` frees.
pub(crate) const NCCL_ALLOC: &str = "ncclMemAlloc";

/// The name of the call that removes memory which the program has leaked.
pub(crate) const DISCARD: &str = "Leak::discard";

impl State {
    /// Resolves `bytes` at `address` to a device block, or to pinned memory under its device address.
    pub(crate) fn device_place(
        &mut self,
        call: &'static str,
        address: CUdeviceptr,
        bytes: usize,
    ) -> Result<Place, CUresult> {
        if let Some((block, offset)) = self.pinned.find(address as usize) {
            self.check_range(call, address, offset, bytes, self.pinned.blocks[&block].size)?;
            return Ok(Place::Pinned { block, offset });
        }
        let Some(id) = self.space.find(address) else {
            return Err(self.unknown(call, address));
        };
        let block = &self.space.blocks[&id];
        let offset = (address - block.address) as usize;
        // A later launch may allocate memory of a graph again.
        if let (Phase::Freed(free), None) = (block.phase, &block.recurring) {
            let message = format!("{address:#x} was freed by {free}");
            self.log.violation(ViolationKind::UseAfterFree, call, message);
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.check_range(call, address, offset, bytes, block.size)?;
        self.check_mapped(call, id, offset..offset + bytes)?;
        // As on driver 580: a copy, unlike a fill, that crosses from one mapping into the next needs a
        // context.
        let crosses = self.crosses_mappings(id, offset..offset + bytes);
        if crosses && call.starts_with("cuMemcpy") && self.is_nothing_current() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Place::Device { block: id, offset })
    }

    /// Resolves a pointer to pinned memory. Any other pointer counts as pageable memory.
    pub(crate) fn host_place(
        &mut self,
        call: &'static str,
        pointer: *mut u8,
        bytes: usize,
    ) -> Result<Place, CUresult> {
        if pointer.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let Some((block, offset)) = self.pinned.find(pointer.addr()) else {
            return Ok(Place::Pageable(HostPtr(pointer)));
        };
        let size = self.pinned.blocks[&block].size;
        self.check_range(call, pointer.addr() as u64, offset, bytes, size)?;
        Ok(Place::Pinned { block, offset })
    }

    /// Reports an address that refers to nothing, and returns CUDA's code for that.
    pub(crate) fn unknown(&mut self, call: &'static str, address: u64) -> CUresult {
        let message = match self.pinned.freed_by(address as usize) {
            Some(free) => format!("{address:#x} was freed by {free}"),
            None => format!("{address:#x} is in no allocation"),
        };
        self.log.violation(ViolationKind::UnknownAddress, call, message);
        CUDA_ERROR_INVALID_VALUE
    }

    fn check_range(
        &mut self,
        call: &'static str,
        address: u64,
        offset: usize,
        bytes: usize,
        size: usize,
    ) -> Result<(), CUresult> {
        if offset.checked_add(bytes).is_some_and(|end| end <= size) {
            return Ok(());
        }
        let message = format!(
            "{bytes} bytes at {address:#x}, which is {offset} bytes into a block of {size}"
        );
        self.log.violation(ViolationKind::OutOfRange, call, message);
        Err(CUDA_ERROR_INVALID_VALUE)
    }

    /// Returns the bytes of a device's memory that are not allocated.
    pub(crate) fn free_bytes(&self, device: usize) -> usize {
        let pools = self.pools.values().filter(|pool| pool.device == device);
        let reserved: usize = pools.map(|pool| pool.reserved.current).sum();
        self.config.memory.saturating_sub(self.devices[device].allocated + reserved)
    }

    /// Finds room for `size` more bytes outside pools, or in this pool.
    pub(crate) fn reserve(
        &mut self,
        device: usize,
        pool: Option<Id>,
        size: usize,
    ) -> Result<(), CUresult> {
        if size > self.config.memory {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        if let Some(pool) = pool.and_then(|id| self.pools.get(&id)) {
            if pool.max_size != 0 && pool.used.current + size > pool.max_size {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
        }
        for attempt in 0..3 {
            match attempt {
                0 => {}
                // First trim what pools cache, then run queued frees.
                1 => self.trim_pools(device),
                _ => {
                    self.advance_all();
                    self.trim_pools(device);
                }
            }
            let grow = pool.and_then(|id| self.pools.get(&id)).map_or(size, |p| p.growth(size));
            if grow <= self.free_bytes(device) {
                return Ok(());
            }
        }
        Err(CUDA_ERROR_OUT_OF_MEMORY)
    }

    fn trim_pools(&mut self, device: usize) {
        for pool in self.pools.values_mut().filter(|pool| pool.device == device) {
            pool.trim(0);
        }
    }

    /// Creates a block, and accounts for it. A pool's block exists once its allocation has run.
    pub(crate) fn new_block(
        &mut self,
        call: &'static str,
        device: usize,
        owner: Owner,
        size: usize,
    ) -> Result<(Id, u64), CUresult> {
        let address = self.space.place_aligned(device, size, ALIGNMENT);
        let address = address.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let (context, pool, recurs) = match owner {
            Owner::Context(context) => (Some(context), None, false),
            Owner::Pool(pool) => (None, Some(pool), false),
            Owner::Graphs(pool) => (None, Some(pool), true),
        };
        match pool.and_then(|id| self.pools.get_mut(&id)) {
            Some(_) if recurs => {}
            Some(pool) => pool.take(size),
            None => self.devices[device].allocated += size,
        }
        let id = self.new_id();
        let exists = pool.is_none();
        let block = Block {
            address,
            size,
            device,
            context,
            pool,
            phase: if exists { Phase::Live } else { Phase::Promised },
            exists,
            pages: Pages::new(size),
            history: History::default(),
            recurring: recurs.then_some(Recurring { is_held: false }),
            call,
        };
        self.space.insert(id, block);
        Ok((id, address))
    }

    /// Creates memory of a device's graphs. It takes no room until a launch allocates it.
    pub(crate) fn new_recurring(
        &mut self,
        call: &'static str,
        device: usize,
        size: usize,
    ) -> Result<(Id, u64), CUresult> {
        let pool = self.devices[device].graph_pool;
        self.new_block(call, device, Owner::Graphs(pool), size)
    }

    /// Executes the allocation of a block.
    pub(crate) fn begin_block(&mut self, id: Id) {
        let Some(block) = self.space.blocks.get_mut(&id) else {
            return;
        };
        if block.recurring.is_some() && !block.exists {
            // The bytes are new ones at each launch.
            block.pages = Pages::new(block.size);
            block.phase = Phase::Live;
            if let Some(pool) = block.pool.and_then(|id| self.pools.get_mut(&id)) {
                pool.take(block.size);
            }
        }
        block.exists = true;
        if block.phase == Phase::Promised {
            block.phase = Phase::Live;
        }
    }

    /// Executes the free of a block: drops its bytes, and quarantines its addresses.
    pub(crate) fn release_block(&mut self, id: Id, call: &'static str) {
        let recurs = |block: &Block| block.recurring.is_some();
        let recurs = self.space.blocks.get(&id).is_some_and(recurs);
        if self.end_block(id, call) && !recurs {
            self.space.quarantine(id, self.config.quarantine);
        }
    }

    /// Frees the block at the address, and never reuses the address.
    pub(crate) fn discard_block(&mut self, address: CUdeviceptr) {
        if let Some(id) = self.space.find(address) {
            self.end_block(id, DISCARD);
        }
    }

    /// Reports that memory is released while a communicator of NCCL has it registered.
    pub(crate) fn check_registered(&mut self, call: &'static str, id: Id, range: &Range<usize>) {
        if call != DISCARD && self.nccl.knows(id, range) {
            let message = "the memory is registered: ncclCommDeregister comes first".to_owned();
            self.log.violation(ViolationKind::UseAfterFree, call, message);
        }
    }

    /// Releases a block's bytes; returns whether they existed.
    fn end_block(&mut self, id: Id, call: &'static str) -> bool {
        let Some(block) = self.space.blocks.get_mut(&id) else {
            return false;
        };
        let is_absent = block.recurring.is_some() && !block.exists;
        if is_absent || matches!(block.phase, Phase::Freed(_)) {
            return false;
        }
        let whole = 0..block.size;
        self.check_registered(call, id, &whole);
        let Some(block) = self.space.blocks.get_mut(&id) else {
            return false;
        };
        block.exists &= block.recurring.is_none();
        block.phase = Phase::Freed(call);
        block.pages = Pages::default();
        let (device, pool, size) = (block.device, block.pool, block.size);
        match pool {
            Some(id) => {
                if let Some(pool) = self.pools.get_mut(&id) {
                    pool.give(size);
                    if pool.destroyed && pool.used.current == 0 {
                        self.pools.remove(&id);
                    }
                }
            }
            None => self.devices[device].allocated -= size,
        }
        true
    }

    /// Returns the block that a free names. The address must be its start, and it must be allocated.
    pub(crate) fn block_to_free(
        &mut self,
        call: &'static str,
        address: CUdeviceptr,
    ) -> Result<Id, CUresult> {
        let Some(id) = self.space.find(address) else {
            return Err(self.unknown(call, address));
        };
        let block = &self.space.blocks[&id];
        if block.recurring.as_ref().is_some_and(|recurring| !recurring.is_held) {
            let message =
                format!("{address:#x} is not allocated by a launch, or was already freed");
            self.log.violation(ViolationKind::DoubleFree, call, message);
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let free = match block.phase {
            Phase::Freed(free) | Phase::Condemned(free) => Some(free),
            Phase::Promised | Phase::Live => None,
        };
        if let (Some(free), None) = (free, &block.recurring) {
            let message = format!("{address:#x} was already freed by {free}");
            self.log.violation(ViolationKind::DoubleFree, call, message);
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let other = (block.call == NCCL_ALLOC) != (call == "ncclMemFree");
        if other || block.address != address || self.virtual_memory.reservations.contains_key(&id) {
            return Err(self.unknown(call, address));
        }
        Ok(id)
    }

    /// Returns the device of a place in device memory.
    pub(crate) fn device_of(&self, place: &Place) -> Option<usize> {
        let Place::Device { block, offset } = *place else {
            return None;
        };
        let Some(chunks) = self.virtual_memory.reservations.get(&block) else {
            return Some(self.space.blocks.get(&block)?.device);
        };
        let chunk = chunks.iter().find(|chunk| chunk.range().contains(&offset))?;
        Some(self.virtual_memory.physical.get(&chunk.physical)?.device)
    }

    /// Returns the device block of a place, if it has one.
    pub(crate) fn device_block(&self, place: &Place) -> Option<&Block> {
        match place {
            Place::Device { block, .. } => self.space.blocks.get(block),
            _ => None,
        }
    }

    /// Reports queued work on a block that the host frees without having waited for the work.
    pub(crate) fn check_free(&mut self, call: &'static str, block: Id) {
        self.check_host_free(call, Target::Device(block));
    }
}

/// The owner of a device block.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner {
    Context(Id),
    Pool(Id),
    /// The graphs of the pool's device. Each launch allocates the block.
    Graphs(Id),
}
