//! Allocators of device memory: the interface, the implementations, and the choice between them.

use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use crate::error::Result;
use crate::stream::Stream;

// Separated by blank lines, so that rustfmt keeps this order, in which rustdoc shows their `impl`s.
pub(crate) mod plain;

pub(crate) mod pitched;

pub(crate) mod choice;

pub mod adaptors;
pub(crate) mod allocator;
pub(crate) mod backing;
pub(crate) mod caching;
pub(crate) mod custom;
pub(crate) mod driver_pool;
pub(crate) mod functions;

pub use allocator::Allocator;
pub(crate) use allocator::Choice;
pub(crate) use backing::{DeviceBacking, MemoryOwner, OwnerTraits};
pub use caching::pool::CachingPool;
pub use driver_pool::memory_pool::MemoryPool;
pub use pitched::PitchedBuffer;
pub(crate) use plain::{owned, owned_storage};

/// An allocator of device memory in stream order.
///
/// Implement this trait to give [`Stream::alloc`] memory of your own, or to observe another allocator. An
/// [`Allocator`] holds an implementation, and can be made the [default](crate::set_default_allocator), a
/// [device's](crate::Device::set_allocator) or a [scope's](crate::with_allocator). A block keeps its
/// allocator alive, and is given back to it, unless the wait for the block's work fails.
///
/// Zero bytes are never requested. Errors are passed on unchanged; a panic becomes
/// [`AllocatorError::Failed`](crate::AllocatorError::Failed), and a block that was being given back
/// is then neither used nor given back again. An allocator is called from any thread, and never
/// inside a host function. It may itself allocate, but not by a call that uses it as the default.
///
/// # Safety
/// [`allocate`](Self::allocate) returns memory of the stream's device, which its context can access: at least
/// `bytes` bytes, aligned to 256. Until it is given back, any work enqueued on the stream may use it, and
/// nothing else does, not even work that other streams had before. Dropping the allocator frees no memory
/// that was not given back. [`is_in_the_context`](Self::is_in_the_context) is right about whether the memory
/// belongs to the context or to a pool.
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
    /// Allocates `bytes` bytes, which is not zero, to be used in the order of `stream`.
    ///
    /// # Errors
    /// Any error; lack of memory as [`Error::Driver`](crate::Error::Driver) with
    /// `CUDA_ERROR_OUT_OF_MEMORY`, which
    /// [`Error::is_out_of_memory`](crate::Error::is_out_of_memory) recognises. Zero as the address
    /// counts as an error, too.
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr>;

    /// Takes a block back.
    ///
    /// # Errors
    /// Any error; the block then still counts as allocated, and may be given back once more. An
    /// [error of the driver's](crate::Error::code) is the exception: a block that the driver refused to free
    /// may be gone, and a [caching pool](crate::CachingPool) does not touch it again.
    ///
    /// # Safety
    /// `allocate` of this allocator returned `address` for this stream and this number of bytes, and it has
    /// not been deallocated since. Work of other streams on the memory is ordered before whatever is enqueued
    /// on `stream` after this call.
    unsafe fn deallocate(&self, stream: &Stream, address: CUdeviceptr, bytes: usize) -> Result<()>;

    /// Gives unallocated memory back to its source until no more than `keep` bytes are reserved, bytes in use
    /// included, and returns the bytes given back. Does nothing by default.
    ///
    /// # Errors
    /// Any error; what was not given back is kept.
    fn trim(&self, keep: usize) -> Result<usize> {
        let _ = keep;
        Ok(0)
    }

    /// Whether the allocator's memory belongs to the stream's context, as that of `cuMemAlloc` does, rather
    /// than to a pool of the device. For such memory launches need access from context to context, not from a
    /// device to a pool. The answer must not change; an allocator that passes on another one's memory returns
    /// that one's answer.
    fn is_in_the_context(&self) -> bool {
        false
    }

    /// The allocator's name in errors and reports; by default the type's name.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }
}

/// Trims each of `all` so that together they reserve no more than `keep` bytes. Returns the bytes given back.
fn trim_all<T>(
    all: &[T],
    keep: usize,
    reserved: impl Fn(&T) -> usize,
    trim: impl Fn(&T, usize) -> Result<usize>,
) -> Result<usize> {
    let mut together: usize = all.iter().map(&reserved).sum();
    let trimmed = all.iter().map(|one| {
        let elsewhere = together.saturating_sub(reserved(one));
        let trimmed = trim(one, keep.saturating_sub(elsewhere));
        together = elsewhere + reserved(one);
        trimmed
    });
    // Trims each, also after one has failed.
    trimmed.collect::<Vec<_>>().into_iter().sum()
}

// SAFETY: the inner allocator fulfils the conditions.
unsafe impl<A: DeviceAllocator + ?Sized> DeviceAllocator for Arc<A> {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
        (**self).allocate(stream, bytes)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: CUdeviceptr, bytes: usize) -> Result<()> {
        // SAFETY: `allocate` called the same inner allocator, so the caller's promise about this
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
