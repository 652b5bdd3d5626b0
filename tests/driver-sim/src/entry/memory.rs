//! Device memory: synchronous and stream-ordered allocation.

use cuda_sys::*;

use super::host::unpin;
use crate::call::{Call, Outcome, put, put_if};
use crate::engine::enqueue::Submission;
use crate::engine::work::{Access, AccessKind, Target, Work};
use crate::graph::node::NodeKind;
use crate::handle::Id;
use crate::memory::block::Phase;
use crate::memory::pinned::Origin;
use crate::memory::place::Owner;

/// The alignment of the rows of pitched memory.
const PITCH: usize = 512;

entries! {
    cuMemGetInfo_v2(free, total) |call| {
        let device = call.current_device()?;
        let available = call.free_bytes(device);
        // SAFETY: the caller passes a place for the number.
        unsafe { put(free, available) }?;
        // SAFETY: the caller passes a place for the number.
        unsafe { put(total, call.config.memory) }
    }

    cuMemAlloc_v2(address, bytes) |call| {
        let context = call.current()?;
        if bytes == 0 || address.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.forbid_in_capture()?;
        let device = call.contexts[&context].device;
        call.reserve(device, None, bytes)?;
        let (_, start) = call.allocate(device, Owner::Context(context), bytes)?;
        // SAFETY: the caller passes a place for the address.
        unsafe { put(address, start) }
    }

    cuMemAllocPitch_v2(address, pitch, width, height, access) |call| {
        let context = call.current()?;
        let sizes = width > 0 && height > 0 && matches!(access, 4 | 8 | 16);
        if !sizes || address.is_null() || pitch.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.forbid_in_capture()?;
        let row = width.checked_next_multiple_of(PITCH).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let bytes = row.checked_mul(height).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let device = call.contexts[&context].device;
        call.reserve(device, None, bytes)?;
        let (_, start) = call.allocate(device, Owner::Context(context), bytes)?;
        // SAFETY: not null, so the caller passes a place for the pitch.
        unsafe { put(pitch, row) }?;
        // SAFETY: not null, so the caller passes a place for the address.
        unsafe { put(address, start) }
    }

    cuMemFree_v2(address) |call| {
        if address == 0 {
            return Ok(());
        }
        call.forbid_in_capture()?;
        if call.pinned.starts_at(address as usize).is_some() {
            let pointer = std::ptr::without_provenance_mut(address as usize);
            return unpin(call, pointer, Origin::Managed, CUDA_ERROR_INVALID_VALUE);
        }
        let name = call.name;
        let block = call.block_to_free(name, address)?;
        // The wait below is CUDA's. A program that relies on it stalls the whole device, and cannot rely on
        // it for other devices' work.
        call.check_free(name, block);
        let device = call.space.blocks[&block].device;
        call.synchronize_device(device);
        call.release_block(block, name);
        let block = call.space.blocks.get_mut(&block);
        if let Some(recurring) = block.and_then(|block| block.recurring.as_mut()) {
            recurring.is_held = false;
        }
        Ok(())
    }

    cuMemAllocAsync(address, bytes, stream) |call| {
        let stream = call.stream(stream)?;
        let device = call.streams[&stream].device;
        let pool = call.devices[device].current_pool;
        // SAFETY: the caller passes a place for the address.
        unsafe { alloc_async(call, address, bytes, pool, stream) }
    }

    cuMemAllocFromPoolAsync(address, bytes, pool, stream) |call| {
        let stream = call.stream(stream)?;
        let pool = call.pool(pool)?;
        // SAFETY: the caller passes a place for the address.
        unsafe { alloc_async(call, address, bytes, pool, stream) }
    }

    cuMemFreeAsync(address, stream) |call| {
        let stream = call.stream(stream)?;
        if address == 0 {
            return Ok(());
        }
        if let Some(capture) = call.streams[&stream].capture {
            return capture_free(call, capture, address, stream);
        }
        call.forbid_in_capture()?;
        let name = call.name;
        let id = call.block_to_free(name, address)?;
        let mut submission = Submission::new(stream, NodeKind::Empty, Work::Free { block: id });
        submission.accesses.push(whole(call, id));
        // From here on the block is freed for the program, but not yet for the device.
        call.submit(submission)?;
        if let Some(block) = call.space.blocks.get_mut(&id) {
            if let Some(recurring) = &mut block.recurring {
                recurring.is_held = false;
            } else if block.is_held() {
                block.phase = Phase::Condemned(name);
            }
        }
        Ok(())
    }

    cuMemGetAddressRange_v2(base, size, address) |call| {
        call.current()?;
        let (start, len) = call.allocation(address).ok_or(CUDA_ERROR_NOT_FOUND)?;
        // SAFETY: the caller passes a place for the address, or null.
        unsafe { put_if(base, start) };
        // SAFETY: the caller passes a place for the size, or null.
        unsafe { put_if(size, len) };
        Ok(())
    }
}

/// # Safety
/// `address` is null or valid for a write.
unsafe fn alloc_async(
    call: &mut Call,
    address: *mut CUdeviceptr,
    bytes: usize,
    pool: Id,
    stream: Id,
) -> Outcome {
    if !call.config.memory_pools {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if bytes == 0 || address.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let captures = call.streams[&stream].capture;
    if captures.is_none() {
        call.forbid_in_capture()?;
    }
    if call.pools[&pool].imported {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let device = call.pools[&pool].device;
    if let Some(capture) = captures {
        if !call.captures_still(capture) {
            return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        let name = call.name;
        let (id, start) = call.new_recurring(name, device, bytes)?;
        let task = call.memory_task(name, NodeKind::Alloc(id), id);
        call.capture_task(capture, stream, task);
        // SAFETY: the caller's contract.
        return unsafe { put(address, start) };
    }
    call.reserve(device, Some(pool), bytes)?;
    let (id, start) = call.allocate(device, Owner::Pool(pool), bytes)?;
    let mut submission = Submission::new(stream, NodeKind::Empty, Work::Alloc { block: id });
    submission.accesses.push(whole(call, id));
    call.submit(submission)?;
    // SAFETY: the caller's contract.
    unsafe { put(address, start) }
}

/// Captures a free of memory that a graph allocates.
fn capture_free(call: &mut Call, capture: Id, address: CUdeviceptr, stream: Id) -> Outcome {
    if !call.captures_still(capture) {
        return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    let id = call.space.find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let block = &call.space.blocks[&id];
    let graph = call.captures[&capture].graph;
    let frees = |node: &Id| matches!(call.graphs.nodes[node].task.kind, NodeKind::Free(freed) if freed == id);
    let freed = call.graphs.graphs[&graph].nodes.iter().any(frees);
    if freed || block.recurring.is_none() || block.address != address {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let name = call.name;
    let task = call.memory_task(name, NodeKind::Free(id), id);
    call.capture_task(capture, stream, task);
    Ok(())
}

/// Returns the access of an allocation or a free: a write of the whole block.
fn whole(call: &Call, id: Id) -> Access {
    let size = call.space.blocks[&id].size;
    Access { target: Target::Device(id), range: 0..size, kind: AccessKind::Write }
}

impl Call {
    /// Returns start and size of the device or pinned allocation that contains an address.
    pub(crate) fn allocation(&self, address: CUdeviceptr) -> Option<(CUdeviceptr, usize)> {
        if let Some((id, offset)) = self.pinned.find(address as usize) {
            return Some((address - offset as u64, self.pinned.blocks[&id].size));
        }
        let block = &self.space.blocks[&self.space.find(address)?];
        let held = block.is_held() && block.contains(address);
        held.then_some((block.address, block.size))
    }
}
