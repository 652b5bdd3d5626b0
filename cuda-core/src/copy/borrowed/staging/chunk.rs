//! The memory of a staging chunk.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::{POOL, prune};
use crate::context::kept;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::host::{HostAddress, pinned_pool};
use crate::process::{Failed, drop_hook};
use crate::timeline::ledger::Fences;
use crate::types::Resource;
use crate::util::lock;

/// Alignment of pageable chunks: that of pages.
const PAGE: usize = 4096;

/// A block of memory that copies of borrowed slices go through.
#[derive(Clone, Copy)]
pub(super) struct StagingChunk {
    memory: StagingMemory,
    /// The requested size.
    // INVARIANT: at most the size of the memory, which is this chunk's until it is given back.
    pub(super) bytes: usize,
}

#[derive(Clone, Copy)]
enum StagingMemory {
    /// A chunk from the slabs.
    Pinned(pinned_pool::PinnedChunk),
    /// Used when no pinned memory is available: the driver then copies it through pinned memory of its
    /// own.
    // INVARIANT: allocated with the layout of the chunk's bytes.
    Pageable(HostAddress),
}

impl StagingChunk {
    /// Takes pinned memory in the device's primary context, which outlives all chunks.
    pub(super) fn pinned(device: Device, bytes: usize) -> Result<Self> {
        let memory = StagingMemory::Pinned(pinned_pool::take(device.primary()?, bytes)?);
        Ok(Self { memory, bytes }.counted())
    }

    /// Allocates memory that is not pinned; [`None`] if that fails too.
    pub(super) fn pageable(bytes: usize) -> Option<Self> {
        let layout = layout(bytes).filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout is not of size zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let memory = StagingMemory::Pageable(HostAddress(base));
        Some(Self { memory, bytes }.counted())
    }

    fn counted(self) -> Self {
        let _ = kept::STAGING.set(prune);
        *lock(&POOL).allocated(self.bytes) += self.bytes;
        self
    }

    /// Subtracts the chunk from the pool's count.
    pub(super) fn uncount(&self) {
        *lock(&POOL).allocated(self.bytes) -= self.bytes;
    }

    pub(super) fn base(&self) -> *mut u8 {
        match self.memory {
            StagingMemory::Pinned(memory) => memory.base.0.as_ptr(),
            StagingMemory::Pageable(base) => base.0.as_ptr(),
        }
    }

    /// Whether the chunk is part of a slab, which takes it back without a driver call.
    pub(super) fn is_cached(&self) -> bool {
        matches!(self.memory, StagingMemory::Pinned(memory) if memory.is_cached())
    }

    /// Whether the chunk is pageable, to be used only if no other chunk is available.
    pub(super) fn is_pageable(&self) -> bool {
        matches!(self.memory, StagingMemory::Pageable(_))
    }

    /// Returns how many bytes giving the chunk back returns to the system.
    pub(super) fn released_bytes(&self) -> usize {
        match self.memory {
            StagingMemory::Pinned(memory) if memory.is_cached() => 0,
            StagingMemory::Pinned(memory) => memory.bytes,
            StagingMemory::Pageable(_) => self.bytes,
        }
    }

    /// Gives the memory back once the fences are reached; see
    /// [`Slabs::give`](pinned_pool::Slabs::give).
    pub(super) fn give(self, fences: Fences) -> Result<(), Failed> {
        let base = match self.memory {
            StagingMemory::Pinned(memory) => return pinned_pool::SHARED.give(memory, fences),
            StagingMemory::Pageable(base) => base,
        };
        fences.wait_host()?;
        if let Some(layout) = layout(self.bytes) {
            // SAFETY: allocated with this layout, by the invariant; neither the host nor a device
            // uses it any more.
            unsafe { dealloc(base.0.as_ptr(), layout) };
        }
        Ok(())
    }

    /// Frees a chunk that no work uses, and that is pageable or part of a slab.
    pub(super) fn discard(self) {
        self.uncount();
        // For such a chunk, `give` makes no driver call and does not fail.
        let _ = self.give(Fences::none());
    }

    /// Reports that the chunk is lost, and why.
    pub(super) fn report_lost(&self, why: Error) {
        let resource = match self.memory {
            StagingMemory::Pinned(_) => Resource::PinnedMemory,
            StagingMemory::Pageable(_) => Resource::HostMemory,
        };
        let address = self.base().addr() as u64;
        drop_hook::report(resource, address, self.bytes, Some(why));
    }
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, PAGE).ok()
}
