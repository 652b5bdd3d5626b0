//! Reserved addresses, and the physical memory that is mapped from their start on.

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
use crate::process::{Failed, attempt, deferred, released};
use crate::timeline::ledger::Access;
use crate::types::ShareableHandle;
use crate::util::lock;

/// Reserved addresses with mapped chunks. Only whole chunks are mapped and unmapped, in order.
pub(super) struct VirtualMapping {
    context: Context,
    // INVARIANT: unless `reserved` is zero, the first of `reserved` bytes of address space that this
    // value owns.
    pub(super) address: CUdeviceptr,
    pub(super) reserved: usize,
    granularity: usize,
    chunks: Vec<PhysicalChunk>,
    /// The number of bytes from `address` on that are mapped and open to the devices of `access`.
    pub(super) accessible: usize,
    /// The access of the memory's own device and its peers.
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
    /// Unmaps a chunk of the mapping at `base` by `cuMemUnmap`, unless it is unmapped. No work uses the
    /// chunk.
    fn unmap(&mut self, base: CUdeviceptr) -> Result<()> {
        if self.state == MapState::Unmapped {
            return Ok(());
        }
        let at = base + self.start as CUdeviceptr;
        // The driver may wait for the device.
        deferred::hand_over();
        // SAFETY: one call of cuMemMap mapped it at this place and with this size, unless that call
        // failed, or an earlier call here has unmapped it: this value owns the addresses, so there is
        // nothing else to unmap there. No work uses it, by this function's contract.
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
    /// Reserves `bytes`, rounded up to `granularity`: `cuMemAddressReserve`. Reserves nothing for zero
    /// bytes.
    pub(super) fn reserve(context: &Context, bytes: usize, granularity: usize) -> Result<Self> {
        let reserved = round_up(bytes, granularity)?;
        let mut address = NOWHERE;
        if reserved > 0 {
            address = context.call("cuMemAddressReserve", address, |address| {
                // SAFETY: the call writes one address, to an exclusive borrow; zeros leave alignment
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

    /// Returns the offset from which on [`VirtualMapping::truncate`] releases chunks.
    pub(super) fn cut(&self, bytes: usize) -> usize {
        let beyond = self.chunks.iter().find(|chunk| chunk.start >= bytes);
        beyond.map_or(self.accessible, |chunk| chunk.start)
    }

    /// Makes at least `bytes` accessible, in one new chunk if needed. If it fails, nothing changes.
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

    /// Maps `memory` after the mapped chunks and opens it. If it fails, nothing changes except that
    /// `memory` is released.
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
        // SAFETY: this value owns the addresses, which are reserved and not mapped: chunks follow each
        // other, and the earlier ones end at `start`. The memory has `size` bytes, and its handle is
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

    /// Sets access to mapped addresses by `cuMemSetAccess`.
    fn open(
        &self,
        start: usize,
        bytes: usize,
        access: &[(Device, CUmemAccess_flags)],
    ) -> Result<()> {
        let descriptors: Vec<_> =
            access.iter().map(|&(device, flags)| mem_location::access(device, flags)).collect();
        let at = self.address + start as CUdeviceptr;
        // SAFETY: this value owns the addresses, and they are mapped; the count is that of the
        // descriptors. A caller that revokes access has waited for the work that needs it.
        check("cuMemSetAccess", unsafe {
            cu::cuMemSetAccess(at, bytes, descriptors.as_ptr(), descriptors.len())
        })
    }

    /// Sets the access of `device`, not the memory's own, from now on. No queued work needs access that
    /// the call revokes.
    pub(super) fn set_access(&mut self, device: Device, flags: CUmemAccess_flags) -> Result<()> {
        let none = cuda_sys::CU_MEM_ACCESS_FLAGS_PROT_NONE;
        let (mut set, mut now) = (Ok(()), flags);
        if self.accessible > 0 {
            let own = [(device, flags)];
            set = self.context.relaxed(|| self.open(0, self.accessible, &own)).and_then(|set| set);
        }
        if set.is_err() {
            // The error may come from earlier work.
            now = self.mapped().and_then(|at| access_to(at, device).ok()).unwrap_or(none);
        }
        self.access.retain(|(known, _)| *known != device);
        if now != none {
            self.access.push((device, now));
        }
        set
    }

    /// Returns the first address; [`None`] if nothing is mapped.
    pub(super) fn mapped(&self) -> Option<CUdeviceptr> {
        (self.accessible > 0).then_some(self.address)
    }

    /// Unmaps and releases the chunks that begin at `bytes` or later, which no work uses. A chunk that
    /// could not be unmapped stays, no longer accessible, and the next call tries it again.
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

    /// Releases everything, the addresses last. No work uses them. If memory cannot be unmapped, gives
    /// up the memory and the addresses.
    fn release(&mut self) -> Result<(), Failed> {
        let _scope = self.context.enter_relaxed()?;
        let reserved = mem::take(&mut self.reserved);
        self.accessible = 0;
        let mut unmapped = Ok(());
        for chunk in self.chunks.iter_mut().rev() {
            unmapped = unmapped.and(chunk.unmap(self.address));
        }
        // Memory that is still mapped is freed with its mapping; a failed release is reported for the
        // memory.
        self.chunks.clear();
        unmapped.map_err(Failed::Unknown)?;
        // SAFETY: this value reserved them with this size, nothing is mapped there, and they are freed
        // once.
        released("cuMemAddressFree", unsafe { cu::cuMemAddressFree(self.address, reserved) })
    }
}

/// Returns the access of `device` to the mapped memory at an address: `cuMemGetAccess`.
pub(super) fn access_to(address: CUdeviceptr, device: Device) -> Result<CUmemAccess_flags> {
    let location = mem_location::of(device);
    // SAFETY: the call reads a location and writes one number, both borrowed for longer than the call; it
    // looks the address up, and does not access it.
    let flags = asked("cuMemGetAccess", 0, |flags| unsafe {
        cu::cuMemGetAccess(flags, &location, address)
    })?;
    Ok(CUmemAccess_flags(flags as _))
}

/// The mapping owns the buffer's block of device memory; the buffer shares the mapping to change it.
impl MemoryOwner for Arc<Mutex<VirtualMapping>> {
    fn release(&mut self, _: CUdeviceptr) -> Result<(), Failed> {
        // The buffer may still refer to the mapping, which is empty from here on.
        lock(self).release()
    }

    fn is_open_to(&self, device: Device, access: Access) -> bool {
        let enough =
            |flags| access == Access::Read || flags == cuda_sys::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        lock(self).access.iter().any(|(known, flags)| *known == device && enough(*flags))
    }
}
