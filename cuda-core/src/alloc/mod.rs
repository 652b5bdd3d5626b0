//! Who gives streams their memory: the interface, the allocators there are, and which one is asked.

use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use crate::error::Result;
use crate::stream::Stream;

pub mod adaptors;
pub(crate) mod caching;
pub(crate) mod choice;
pub(crate) mod custom;
pub(crate) mod driver_pool;
pub(crate) mod functions;
pub(crate) mod handle;
pub(crate) mod origin;
pub(crate) mod plain;

/// An allocator of device memory, in the order of streams.
///
/// Implement it to give [`Stream::alloc`] memory of your own, or to look at what another allocator
/// does; an [`Allocator`](crate::Allocator) holds one, and is what can be made the
/// [default](crate::set_default_allocator), a [device's](crate::Device::set_allocator) or a
/// [scope's](crate::with_allocator). A block is given back to the allocator that it came from,
/// which it keeps alive.
///
/// Zero bytes are never asked for. Errors are passed on as they are; a panic becomes
/// [`AllocatorError::Failed`](crate::AllocatorError::Failed), and a block that was being given back is
/// then neither used nor given back again. An allocator is called from any thread, and never
/// inside a host function. It may itself allocate, but not through what it was made the default of.
///
/// # Safety
/// What [`allocate`](Self::allocate) returns is memory of the stream's device, which its context can
/// access, with room for as many bytes, aligned to 256 of them. From then on whatever is enqueued
/// on the stream may use it, and nothing else does, work already enqueued elsewhere included, until
/// it is given back.
///
/// ```no_run
/// use cuda_core::{Allocator, DeviceAllocator, Result, Stream, with_allocator};
///
/// /// Says what is asked for.
/// struct Loud(Allocator);
///
/// // SAFETY: the inner allocator does all that has to be done.
/// unsafe impl DeviceAllocator for Loud {
///     fn allocate(&self, stream: &Stream, bytes: usize) -> Result<u64> {
///         eprintln!("{bytes} bytes");
///         self.0.allocate(stream, bytes)
///     }
///
///     unsafe fn deallocate(&self, stream: &Stream, address: u64, bytes: usize) -> Result<()> {
///         // SAFETY: it came from there, and the caller gives it up.
///         unsafe { self.0.deallocate(stream, address, bytes) }
///     }
///
///     fn is_in_the_context(&self) -> bool {
///         self.0.is_in_the_context()
///     }
/// }
///
/// let stream = cuda_core::Device::get(0)?.create_stream()?;
/// let loud = Allocator::new(Loud(Allocator::driver_pool()));
/// let buffer = with_allocator(&loud, || stream.alloc::<f32>(1024))?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub unsafe trait DeviceAllocator: Send + Sync + 'static {
    /// `bytes`, which is not zero, to be used in the order of `stream`.
    ///
    /// # Errors
    /// Whatever stands in the way; want of memory as [`Error::Driver`](crate::Error::Driver) with
    /// `CUDA_ERROR_OUT_OF_MEMORY`, which is what
    /// [`Error::is_out_of_memory`](crate::Error::is_out_of_memory) knows. Zero for an address is an
    /// error, too.
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr>;

    /// Takes a block back.
    ///
    /// # Errors
    /// Whatever stands in the way; the block then counts as allocated still, and may be given back
    /// once more. Not so with an [error of the driver's](crate::Error::code): what it refused to free
    /// may be gone all the same, and a [caching pool](crate::CachingPool) leaves it alone.
    ///
    /// # Safety
    /// `allocate` of this allocator returned the address for this stream and as many bytes, and it
    /// was not given back since. All work on it that is not on `stream` comes before what is
    /// enqueued on `stream` from now on.
    unsafe fn deallocate(&self, stream: &Stream, address: CUdeviceptr, bytes: usize) -> Result<()>;

    /// Gives memory that nobody has allocated back to whoever it came from, until no more than
    /// `keep` bytes are kept, and says how many bytes went. Nothing, unless the allocator keeps any.
    ///
    /// # Errors
    /// Whatever stands in the way; what was not given back is kept.
    fn trim(&self, keep: usize) -> Result<usize> {
        let _ = keep;
        Ok(0)
    }

    /// Whether its memory is in the stream's context, as `cuMemAlloc`'s is, rather than in a pool of the
    /// device: launches then want access of context to context for it, and not that of a device to a
    /// pool. Always the same; what passes another allocator's memory on answers as that one does.
    fn is_in_the_context(&self) -> bool {
        false
    }

    /// What it is called in errors and reports: the type's name, unless it says otherwise.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }
}

// SAFETY: the allocator behind it does all that has to be done.
unsafe impl<A: DeviceAllocator + ?Sized> DeviceAllocator for Arc<A> {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
        (**self).allocate(stream, bytes)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: CUdeviceptr, bytes: usize) -> Result<()> {
        // SAFETY: `allocate` asked the same inner allocator, so what the caller promised of this
        // one holds for it.
        unsafe { (**self).deallocate(stream, address, bytes) }
    }

    fn trim(&self, keep: usize) -> Result<usize> {
        (**self).trim(keep)
    }

    fn is_in_the_context(&self) -> bool {
        (**self).is_in_the_context()
    }

    fn name(&self) -> &str {
        (**self).name()
    }
}
