//! The segments that a pool has taken from its devices.

use std::collections::HashMap;

use cuda_sys::CUdeviceptr;

use super::pool::CachingPool;
use crate::device::Device;

/// Memory that a [`CachingPool`] has taken from a device in one piece.
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// use cuda_core::{CachingPool, pools::CacheSegment};
///
/// let segments: Vec<CacheSegment> = CachingPool::shared()?.segments(device);
/// let reserved: usize = segments.iter().map(|segment| segment.bytes).sum();
/// println!("{} MiB in {} segments", reserved >> 20, segments.len());
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CacheSegment {
    /// The device that it is on.
    pub device: Device,
    /// Its first address.
    pub address: CUdeviceptr,
    /// Its size in bytes.
    pub bytes: usize,
    /// Its blocks, by address and without a gap.
    pub blocks: Vec<CacheBlock>,
}

/// A part of a [`CacheSegment`].
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// use cuda_core::{CachingPool, pools::CacheBlockState};
///
/// for segment in CachingPool::shared()?.segments(device) {
///     let free = segment.blocks.iter().filter(|block| block.state == CacheBlockState::Free);
///     println!("largest hole: {:?} bytes", free.map(|block| block.bytes).max());
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CacheBlock {
    /// Its first address.
    pub address: CUdeviceptr,
    /// Its size in bytes; for a used block, the requested size rounded up.
    pub bytes: usize,
    /// What holds the block.
    pub state: CacheBlockState,
}

/// What holds a [`CacheBlock`].
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// use cuda_core::{CachingPool, pools::CacheBlockState};
///
/// let segments = CachingPool::shared()?.segments(device);
/// let blocks = segments.iter().flat_map(|segment| &segment.blocks);
/// let free = blocks.filter(|block| block.state == CacheBlockState::Free);
/// println!("{} holes", free.count());
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheBlockState {
    /// A buffer.
    Used,
    /// The pool, for later allocations.
    Free,
    /// The pool; but streams may still be using the block, or the allocator that it came from refused to take
    /// it back.
    Pending,
}

/// # Segments
impl CachingPool {
    /// Returns the segments that the pool holds of a device's memory, by address; none in a fork's child.
    /// Makes no driver call.
    ///
    /// While other threads allocate and free, a block that changes hands may be listed as either
    /// used or free.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let pool = cuda_core::CachingPool::shared()?;
    /// for segment in pool.segments(device) {
    ///     println!("{} bytes in {} blocks", segment.bytes, segment.blocks.len());
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn segments(&self, device: Device) -> Vec<CacheSegment> {
        let mut segments = Vec::new();
        for heap in self.heaps_of(device) {
            // The state of blocks that the space counts as allocated, but that stream caches or pending lists
            // hold.
            let mut kept = HashMap::new();
            for core in heap.served() {
                core.stream_cache.with(&heap, |bins| bins.list(&mut kept));
            }
            segments.extend(heap.with(|state| {
                let pending = state.pending.iter();
                let pending = pending.map(|(_, pending, _)| pending.address);
                kept.extend(pending.map(|address| (address, CacheBlockState::Pending)));
                state.space.list(device, &kept)
            }));
        }
        segments.sort_unstable_by_key(|segment| segment.address);
        segments
    }
}
