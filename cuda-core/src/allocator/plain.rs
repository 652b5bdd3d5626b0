//! One call of the driver for each block: `cuMemAlloc`.

use cuda_sys::CUdeviceptr;

use super::DeviceAllocator;
use crate::error::Result;
use crate::memory::plain;
use crate::stream::Stream;

/// `cuMemAlloc_v2` and `cuMemFree_v2`.
pub(crate) struct PlainMemory;

// SAFETY: memory of cuMemAlloc can be used at once, by all streams, and is aligned to 256 bytes.
unsafe impl DeviceAllocator for PlainMemory {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
        plain::allocate(stream.context(), bytes)
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
