//! Allocators as values.

use std::mem::discriminant;
use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use super::DeviceAllocator;
use super::driver_pool::memory_pool::MemoryPool;
use super::driver_pool::stream_ordered::DriverPool;
use super::plain::Plain;
use crate::alloc::CachingPool;
use crate::alloc::caching::builder::SHARED;
use crate::alloc::caching::pool;
use crate::error::Result;
use crate::process::{Contained, Handle};
use crate::stream::Stream;
use crate::util::{compare_by, debug_by};

/// An allocator as a value: one of this crate's, or any [`DeviceAllocator`]. A clone is a reference. Two are
/// equal if both get memory from the same source; custom ones, if one is a clone of the other.
///
/// ```no_run
/// use cuda_core::{Allocator, with_allocator};
///
/// let stream = cuda_core::Device::get(0)?.create_stream()?;
/// // From the driver's own pool, in this closure and on this thread.
/// let buffer = with_allocator(&Allocator::driver_pool(), || stream.alloc::<f32>(1024))?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Allocator(pub(crate) Choice);

/// The allocator that an [`Allocator`] stands for.
#[derive(Clone)]
pub(crate) enum Choice {
    /// The shared caching pool.
    Shared,
    /// Another caching pool.
    Pool(CachingPool),
    /// The driver's pool of the stream's device.
    Driver,
    /// Another pool of the driver.
    Memory(MemoryPool),
    /// `cuMemAlloc`.
    Plain,
    /// Any other.
    Custom(Contained<Arc<dyn DeviceAllocator>>),
}

/// # Making and asking
impl Allocator {
    /// Wraps a custom allocator.
    pub fn new(allocator: impl DeviceAllocator) -> Self {
        Self(Choice::Custom(Contained::new(Arc::new(allocator))))
    }

    /// The shared caching pool, [`CachingPool::shared`].
    pub const fn cache() -> Self {
        Self(Choice::Shared)
    }

    /// The driver's pool of the stream's device, which [`Device::memory_pool`](crate::Device::memory_pool)
    /// returns: `cuMemAllocAsync`, `cuMemFreeAsync`.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// use cuda_core::Allocator;
    ///
    /// device.set_allocator(Some(&Allocator::driver_pool()))?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemAllocAsync", "cuMemFreeAsync", "cudaMallocAsync", "cudaFreeAsync"))]
    pub const fn driver_pool() -> Self {
        Self(Choice::Driver)
    }

    /// An allocator that makes a driver call for each allocation, and one that stops the device for each
    /// free: `cuMemAlloc_v2`, `cuMemFree_v2`. For debugging, and for devices without memory pools.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// use cuda_core::Allocator;
    ///
    /// device.set_allocator(Some(&Allocator::plain()))?; // each buffer is an allocation of the driver
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemAlloc", "cuMemFree", "cudaMalloc", "cudaFree"))]
    pub const fn plain() -> Self {
        Self(Choice::Plain)
    }

    /// Returns the pool's id, if this is a caching pool.
    #[inline]
    pub(crate) fn pool(&self) -> Option<u64> {
        match &self.0 {
            Choice::Shared => Some(SHARED),
            Choice::Pool(pool) => Some(pool.id()),
            Choice::Driver | Choice::Memory(_) | Choice::Plain | Choice::Custom(_) => None,
        }
    }

    /// Whether the memory comes from `cuMemAlloc`, with a call for each block.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.0, Choice::Plain)
    }

    fn inner(&self) -> Result<&dyn DeviceAllocator> {
        Ok(match &self.0 {
            Choice::Shared => pool::shared()?,
            Choice::Pool(pool) => pool,
            Choice::Driver => &DriverPool,
            Choice::Memory(pool) => pool,
            Choice::Plain => &Plain,
            Choice::Custom(allocator) => &***allocator,
        })
    }
}

compare_by! {
    Allocator: |it| (discriminant(&it.0), match &it.0 {
        Choice::Custom(custom) => Arc::as_ptr(custom).addr() as u64,
        Choice::Memory(pool) => Handle(pool.as_raw()).number(),
        _ => it.pool().unwrap_or_default(),
    })
}

// SAFETY: the inner allocator fulfils the conditions.
unsafe impl DeviceAllocator for Allocator {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
        self.inner()?.allocate(stream, bytes)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: CUdeviceptr, bytes: usize) -> Result<()> {
        // SAFETY: `allocate` called the same inner allocator, which never changes, so the caller's
        // promise about this one holds for it.
        unsafe { self.inner()?.deallocate(stream, address, bytes) }
    }

    fn trim(&self, keep: usize) -> Result<usize> {
        self.inner()?.trim(keep)
    }

    fn is_in_the_context(&self) -> bool {
        self.inner().is_ok_and(DeviceAllocator::is_in_the_context)
    }

    fn name(&self) -> &str {
        self.inner().map_or("caching pool", DeviceAllocator::name)
    }
}

debug_by! { [] Allocator: |it| "Allocator"(it.name()) }
