//! One call of the driver for each block: `cuMemAlloc`.

use cuda_sys::{CUdeviceptr, symbol as cu};

use super::DeviceAllocator;
use crate::capture::Relaxed;
use crate::context::Context;
use crate::error::{Result, check};
use crate::memory::device::NOWHERE;
use crate::memory::{explain, plain};
use crate::stream::Stream;

/// `cuMemAlloc_v2` and `cuMemFree_v2`.
pub(crate) struct PlainMemory;

// SAFETY: memory of cuMemAlloc can be used at once, by all streams, and is aligned to 256 bytes.
unsafe impl DeviceAllocator for PlainMemory {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
        allocate(stream.context(), bytes)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: CUdeviceptr, _: usize) -> Result<()> {
        // Other streams' work on the block comes before what this stream has enqueued by now.
        stream.core().wait_for_all()?;
        Ok(plain::free(address)?)
    }

    fn is_in_the_context(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        "plain"
    }
}

/// `cuMemAlloc_v2`.
pub(crate) fn allocate(context: &Context, bytes: usize) -> Result<CUdeviceptr> {
    let op = "cuMemAlloc";
    let mut address = NOWHERE;
    let entered = context.enter_briefly()?;
    let relaxed = Relaxed::enter()?;
    // SAFETY: the call writes one address, to a local that outlives it; a live context is current.
    let result = check(op, unsafe { cu::cuMemAlloc_v2(&mut address, bytes) });
    drop(relaxed);
    drop(entered);
    result.map_err(|error| explain(context, error, op, bytes))?;
    Ok(address)
}
