//! Memory from `cuMemAlloc`: one driver call for each block. The blocks belong to no stream.

use cuda_sys::{CUdeviceptr, symbol as cu};

use super::DeviceAllocator;
use crate::alloc::{DeviceBacking, MemoryOwner, OwnerTraits};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::memory::{
    ALIGNMENT, Block, Buffer, DeviceBuffer, DeviceMemory, NOWHERE, Storage, byte_len,
};
use crate::process::{Failed, RelaxedCaptureMode, deferred, released};
use crate::stream::Stream;
use crate::types::Pod;

/// `cuMemAlloc_v2` and `cuMemFree_v2`.
pub(crate) struct Plain;

// SAFETY: memory of cuMemAlloc can be used at once, by all streams, and is aligned to 256 bytes.
unsafe impl DeviceAllocator for Plain {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
        Error::unless(bytes > 0, "cuMemAlloc", "an allocator is asked for no bytes")?;
        allocate(stream.context(), bytes)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: CUdeviceptr, _: usize) -> Result<()> {
        // Other streams' work on the block comes before what this stream has enqueued by now.
        let waited = stream.core().wait_for_all().map_err(Failed::Refused);
        // SAFETY: `allocate` returned it, it is given up, by the caller's promise, and no work uses it.
        let freed = waited.and_then(|()| unsafe { free(address) });
        freed.map_err(|why| why.of_block(address))
    }

    fn is_in_the_context(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        "plain"
    }
}

impl MemoryOwner for Plain {
    fn release(&mut self, address: CUdeviceptr) -> Result<(), Failed> {
        // SAFETY: memory of `allocate`, which is released once, when no work uses it.
        unsafe { free(address) }
    }

    fn traits(&self) -> OwnerTraits {
        OwnerTraits { plain: true, in_the_context: true, ..OwnerTraits::default() }
    }
}

/// `cuMemAlloc_v2`.
pub(crate) fn allocate(context: &Context, bytes: usize) -> Result<CUdeviceptr> {
    context.allocate("cuMemAlloc", bytes, NOWHERE, |address| {
        // SAFETY: the call writes one address, to an exclusive borrow; a live context is current.
        unsafe { cu::cuMemAlloc_v2(address, bytes) }
    })
}

/// `cuMemFree_v2`, which waits for the device.
///
/// # Safety
/// `cuMemFree` frees memory at this address, the caller gives it up, and no work uses it.
pub(crate) unsafe fn free(address: CUdeviceptr) -> Result<(), Failed> {
    deferred::hand_over();
    let _relaxed = RelaxedCaptureMode::enter()?;
    // SAFETY: by the caller's promise. Needs no current context.
    released("cuMemFree", unsafe { cu::cuMemFree_v2(address) })
}

/// # Allocating without a stream
impl Context {
    /// Allocates `len` elements of unspecified value that belong to no stream: `cuMemAlloc_v2`. Makes no
    /// driver call if `len` is zero.
    ///
    /// Use it on devices without memory pools, and for memory that other processes are to open
    /// ([`DeviceBuffer::ipc_handle`]). Otherwise use [`Stream::alloc`](crate::Stream::alloc): this call takes
    /// much longer, and freeing waits for the whole device.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`] and [`Error::Invalid`] before any driver call; [`Error::OutOfMemory`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut buffer = stream.context().alloc::<f32>(1 << 20)?;
    /// stream.fill(&mut buffer, 1.0)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemAlloc", "cudaMalloc"))]
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let bytes = byte_len::<T>(len, ALIGNMENT)?;
        Ok(owned(self, allocate(self, bytes)?, bytes, Plain, len))
    }
}

/// Makes a buffer of `len` elements in memory that `owner` frees. Nothing uses it yet.
pub(crate) fn owned<T: Pod>(
    context: &Context,
    address: CUdeviceptr,
    bytes: usize,
    owner: impl MemoryOwner + 'static,
    len: usize,
) -> DeviceBuffer<T> {
    Buffer::from_storage(owned_storage(context, address, bytes, owner), len)
}

/// Makes storage that `owner` frees, for a buffer that holds more than its elements.
pub(crate) fn owned_storage(
    context: &Context,
    address: CUdeviceptr,
    bytes: usize,
    owner: impl MemoryOwner + 'static,
) -> Storage<DeviceMemory> {
    let backing = DeviceBacking::Owned { context: context.clone(), owner: Box::new(owner) };
    Storage::new(Block::unused(address, bytes, backing))
}
