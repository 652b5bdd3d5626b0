//! Reserved addresses, and the physical memory that is mapped at their beginning.

use std::mem;
use std::sync::{Arc, Mutex};

use cuda_sys::{CUdeviceptr, CUmemAccess_flags, symbol as cu};

use super::physical::{PhysicalMemory, round_up};
use super::properties;
use crate::alloc::MemoryOwner;
use crate::context::Context;
use crate::device::{Device, mem_location};
use crate::error::{Error, OutOfBounds, Result, asked, check};
use crate::memory::NOWHERE;
use crate::process::{Failed, FailedRelease, attempt, deferred, released};
use crate::timeline::ledger::Access;
use crate::types::ShareableHandle;
use crate::util::lock;

/// See the module. Only whole chunks are mapped and unmapped, in order.
pub(super) struct VirtualMapping {
    context: Context,
    // INVARIANT: the first of `reserved` bytes of address space that this value owns, unless that
    // is zero.
    pub(super) address: CUdeviceptr,
    pub(super) reserved: usize,
    granularity: usize,
    chunks: Vec<PhysicalChunk>,
    /// Bytes from the first address on that are mapped and open to the devices of `access`.
    pub(super) accessible: usize,
    /// The memory's own device and its peers.
    access: Vec<(Device, CUmemAccess_flags)>,
}

/// Physical memory for a part of the addresses.
struct PhysicalChunk {
    memory: PhysicalMemory,
    start: usize,
    state: MapState,
}

/// Whether a chunk's memory is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MapState {
    Mapped,
    /// `cuMemMap` or `cuMemUnmap` failed, but may have taken effect.
    Unknown,
    Unmapped,
}

impl PhysicalChunk {
    /// `cuMemUnmap`, unless that was done, for a chunk of the mapping at `base`. No work uses it.
    fn unmap(&mut self, base: CUdeviceptr) -> Result<()> {
        if self.state == MapState::Unmapped {
            return Ok(());
        }
        let at = base + self.start as CUdeviceptr;
        // The driver may wait for the device.
        deferred::hand_over();
        // SAFETY: mapped by one call of cuMemMap at this place and with this size, unless that has
        // failed, or an earlier call here has unmapped it: this value owns the addresses, so there
        // is nothing else to unmap there. No work uses it, by this function's contract.
        let code = unsafe { cu::cuMemUnmap(at, self.memory.size()) };
        let is_nothing_there = code == cuda_sys::CUDA_ERROR_INVALID_VALUE;
        match attempt("cuMemUnmap", code) {
            Err(failed) if !(is_nothing_there && self.state == MapState::Unknown) => {
                Err(failed.undo(|| self.state = MapState::Unknown))
            }
            _ => {
                self.state = MapState::Unmapped;
                Ok(())
            }
        }
    }
}

impl VirtualMapping {
    /// Reserves `bytes`, rounded up to `granularity`: `cuMemAddressReserve`. For zero bytes nothing
    /// is reserved.
    pub(super) fn reserve(context: &Context, bytes: usize, granularity: usize) -> Result<Self> {
        let reserved = round_up(bytes, granularity)?;
        let mut address = NOWHERE;
        if reserved > 0 {
            address = context.call("cuMemAddressReserve", address, |address| {
                // SAFETY: the call writes one address, to an exclusive borrow; zeroes leave alignment
                // and place to the driver; flags must be zero.
                unsafe { cu::cuMemAddressReserve(address, reserved, 0, 0, 0) }
            })?;
        }
        let own = (context.device(), cuda_sys::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        Ok(Self {
            context: context.clone(),
            address,
            reserved,
            granularity,
            chunks: Vec::new(),
            accessible: 0,
            access: vec![own],
        })
    }

    /// The offset at which the chunks begin that [`VirtualMapping::truncate`] releases.
    pub(super) fn cut(&self, bytes: usize) -> usize {
        let beyond = self.chunks.iter().find(|chunk| chunk.start >= bytes);
        beyond.map_or(self.accessible, |chunk| chunk.start)
    }

    /// Makes at least `bytes` accessible, in one new chunk if needed. Nothing changes if it fails.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<()> {
        if bytes <= self.accessible {
            return Ok(());
        }
        // Chunks that an earlier failure left behind are in the way.
        self.truncate(self.accessible)?;
        let size = round_up(bytes - self.accessible, self.granularity)?;
        let private = properties(self.context.device(), ShareableHandle::None.as_raw());
        let memory = PhysicalMemory::create(&self.context, size, &private)?;
        self.append(memory)
    }

    /// Maps `memory` after what is there and opens it. If it fails, nothing changes except that
    /// the memory is released.
    pub(super) fn append(&mut self, memory: PhysicalMemory) -> Result<()> {
        self.truncate(self.accessible)?;
        let (start, size) = (self.accessible, memory.size());
        if size > self.reserved - start {
            return Err(
                OutOfBounds { start, end: start.saturating_add(size), len: self.reserved }.into()
            );
        }
        if size == 0 {
            return Ok(());
        }
        let end = start + size;
        let scope = self.context.enter_relaxed()?;
        let at = self.address + start as CUdeviceptr;
        // SAFETY: this value owns the addresses, which are reserved and not mapped: chunks follow
        // each other, and those before end here. The memory has `size` bytes, and its handle is
        // live.
        let code = unsafe { cu::cuMemMap(at, size, 0, memory.as_raw(), 0) };
        let mapped = attempt("cuMemMap", code);
        self.chunks.push(PhysicalChunk {
            memory,
            start,
            state: match mapped {
                Ok(()) => MapState::Mapped,
                Err(Failed::Refused(_)) => MapState::Unmapped,
                Err(Failed::Unknown(_)) => MapState::Unknown,
            },
        });
        let mapped = mapped.map_err(Error::from);
        let opened = mapped.and_then(|()| self.open(start, size, &self.access));
        drop(scope);
        if let Err(error) = opened {
            // A chunk that cannot be unmapped now stays in the list, and is tried again.
            let _ = self.truncate(start);
            return Err(error);
        }
        self.accessible = end;
        Ok(())
    }

    /// `cuMemSetAccess` on mapped addresses.
    fn open(
        &self,
        start: usize,
        bytes: usize,
        access: &[(Device, CUmemAccess_flags)],
    ) -> Result<()> {
        let descriptors: Vec<_> =
            access.iter().map(|&(device, flags)| mem_location::access(device, flags)).collect();
        let at = self.address + start as CUdeviceptr;
        // SAFETY: this value owns the addresses, and they are mapped; the descriptors are as many
        // as counted. A caller that revokes access has waited for the work that needs it.
        check("cuMemSetAccess", unsafe {
            cu::cuMemSetAccess(at, bytes, descriptors.as_ptr(), descriptors.len())
        })
    }

    /// Sets what `device`, another one than the memory's own, may do from now on. No work that
    /// needs the access it loses is queued.
    pub(super) fn set_access(&mut self, device: Device, flags: CUmemAccess_flags) -> Result<()> {
        let none = cuda_sys::CU_MEM_ACCESS_FLAGS_PROT_NONE;
        let (mut set, mut now) = (Ok(()), flags);
        if self.accessible > 0 {
            let own = [(device, flags)];
            set = self.context.relaxed(|| self.open(0, self.accessible, &own)).and_then(|set| set);
        }
        if set.is_err() {
            // The error may be one of earlier work.
            now = self.access(device).ok().flatten().unwrap_or(none);
        }
        self.access.retain(|(known, _)| *known != device);
        if now != none {
            self.access.push((device, now));
        }
        set
    }

    /// What `device` may do: `cuMemGetAccess`; [`None`] if nothing is mapped.
    pub(super) fn access(&self, device: Device) -> Result<Option<CUmemAccess_flags>> {
        if self.accessible == 0 {
            return Ok(None);
        }
        let location = mem_location::of(device);
        // SAFETY: the call reads a location and writes one number, both borrowed for longer than it;
        // the address is mapped.
        let flags = asked("cuMemGetAccess", 0, |flags| unsafe {
            cu::cuMemGetAccess(flags, &location, self.address)
        })?;
        Ok(Some(CUmemAccess_flags(flags as _)))
    }

    /// Unmaps and releases the chunks that begin at `bytes` or after, which no work uses. A chunk
    /// that could not be unmapped stays, no longer accessible, and is tried again by the next call.
    pub(super) fn truncate(&mut self, bytes: usize) -> Result<()> {
        if self.chunks.last().is_none_or(|last| last.start < bytes) {
            return Ok(());
        }
        let _scope = self.context.enter_relaxed()?;
        while let Some(last) = self.chunks.last_mut().filter(|last| last.start >= bytes) {
            self.accessible = self.accessible.min(last.start);
            last.unmap(self.address)?;
            last.memory.release()?;
            self.chunks.pop();
        }
        Ok(())
    }

    /// Releases everything, the addresses last. No work uses them. Memory that cannot be unmapped
    /// is given up, and the addresses with it.
    fn release(&mut self) -> Result<(), FailedRelease> {
        let _scope = self.context.enter_relaxed()?;
        let reserved = mem::take(&mut self.reserved);
        self.accessible = 0;
        let mut unmapped = Ok(());
        for chunk in self.chunks.iter_mut().rev() {
            unmapped = unmapped.and(chunk.unmap(self.address));
        }
        // Memory that is still mapped is freed with its mapping; a failed release is reported for
        // the memory.
        self.chunks.clear();
        unmapped.map_err(FailedRelease::Unknown)?;
        // SAFETY: reserved by this value with this size, nothing is mapped in them, and freed once.
        released("cuMemAddressFree", unsafe { cu::cuMemAddressFree(self.address, reserved) })
    }
}

/// A mapping owns a block of device memory; the buffer shares it, to change it.
impl MemoryOwner for Arc<Mutex<VirtualMapping>> {
    fn release(&mut self, _: CUdeviceptr) -> Result<(), FailedRelease> {
        // The buffer may still refer to the mapping, which is empty from here on.
        lock(self).release()
    }

    fn is_open_to(&self, device: Device, access: Access) -> bool {
        let enough =
            |flags| access == Access::Read || flags == cuda_sys::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        lock(self).access.iter().any(|(known, flags)| *known == device && enough(*flags))
    }
}
