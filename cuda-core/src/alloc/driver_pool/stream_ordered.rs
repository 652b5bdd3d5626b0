//! The driver's pool: `cuMemAllocAsync`.

use std::sync::Arc;

use cuda_sys::{CUdeviceptr, CUresult, CUstream, symbol as cu};

use super::memory_pool::MemoryPool;
use crate::alloc::{DeviceAllocator, trim_all};
use crate::device::Device;
use crate::error::Result;
use crate::memory::NOWHERE;
use crate::process::{Failed, RelaxedCaptureMode};
use crate::stream::Stream;
use crate::timeline::{Bound, StreamCore};

/// The driver's current pool of a stream's device.
pub(crate) struct DriverPool;

// SAFETY: "the allocation comes from the memory pool current to the stream's device", is aligned to
// 256 bytes as all of CUDA's are, and may be used in stream order.
unsafe impl DeviceAllocator for DriverPool {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
        allocate(stream.core(), bytes).map(|(address, _)| address)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: CUdeviceptr, _: usize) -> Result<()> {
        let bound = stream.core().bind("cuMemFreeAsync").map_err(Failed::Refused);
        // SAFETY: a block of this allocator's came from `cuMemAllocAsync`; by the caller's promise
        // it is given up, and other streams' work on it comes before this point of its stream.
        let freed = bound.and_then(|bound| unsafe { free(&bound, address) });
        freed.map_err(|why| why.of_block(address))
    }

    /// Trims the current pool of each device, but not a pool that other code created.
    fn trim(&self, keep: usize) -> Result<usize> {
        let mut pools = Vec::new();
        for device in Device::all()? {
            if device.attributes().memory_pools_supported()? {
                pools.extend(device.memory_pool()?);
            }
        }
        // A pool whose usage cannot be queried counts as reserving nothing; its trim returns the error.
        let reserved = |pool: &MemoryPool| pool.usage().map_or(0, |usage| usage.reserved);
        trim_all(&pools, keep, reserved, MemoryPool::trim)
    }

    fn name(&self) -> &str {
        "driver pool"
    }
}

/// Calls `cuMemAllocAsync`; returns the address, and the point of the stream from which on the memory may be
/// used.
pub(crate) fn allocate(core: &Arc<StreamCore>, bytes: usize) -> Result<(CUdeviceptr, u64)> {
    let op = "cuMemAllocAsync";
    let bound = core.bind(op)?;
    if core.device().default_pool()?.is_none() {
        return Err(core.device().unsupported("stream-ordered allocation (memory pools)"));
    }
    enqueue(bound, op, bytes, |address, stream| {
        // SAFETY: the call writes one address, to an exclusive borrow; the stream is live while it is
        // bound.
        unsafe { cu::cuMemAllocAsync(address, bytes, stream) }
    })
}

/// Enqueues an allocation; returns its address, and the point of the stream from which on it exists.
pub(super) fn enqueue(
    bound: Bound<'_>,
    op: &'static str,
    bytes: usize,
    call: impl FnOnce(&mut CUdeviceptr, CUstream) -> CUresult,
) -> Result<(CUdeviceptr, u64)> {
    let mut address = NOWHERE;
    let relaxed = RelaxedCaptureMode::enter()?;
    let (seq, result) = bound.enqueue(op, |stream| call(&mut address, stream));
    drop(relaxed);
    let core = bound.core();
    drop(bound);
    result.map_err(|error| core.context().explain(error, op, bytes))?;
    Ok((address, seq))
}

/// `cuMemFreeAsync`.
///
/// # Safety
/// The block was allocated by `cuMemAllocAsync`, and the caller gives it up; all work on it that is not on
/// the stream is ordered before this point of the stream.
pub(crate) unsafe fn free(bound: &Bound<'_>, address: CUdeviceptr) -> Result<(), Failed> {
    let _relaxed = RelaxedCaptureMode::enter()?;
    let (_, freed) = bound.enqueue("cuMemFreeAsync", |stream| {
        // SAFETY: an address of `cuMemAllocAsync`, freed once and after all other work on it, by
        // the caller's promise; the stream is live while it is bound.
        unsafe { cu::cuMemFreeAsync(address, stream) }
    });
    freed.map_err(Failed::Unknown)
}
