//! Free memory of a device, and usage of a caching pool.

/// Free and total memory of a device, in bytes.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// let memory = context.memory_info()?;
/// println!("{} of {} MiB are free", memory.free >> 20, memory.total >> 20);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Bytes that are free.
    pub free: usize,
    /// Bytes that the device has.
    pub total: usize,
}

/// Bytes that a [`CachingPool`](crate::CachingPool) holds of one device's memory.
///
/// `used + free + pending` is `reserved`: blocks tile the segments.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::CachingPool;
///
/// let pool = CachingPool::new();
/// let buffer = stream.alloc_with::<u8>(&pool.allocator(), 1 << 20)?;
/// let usage = pool.usage(stream.device());
/// assert_eq!(usage.used, 1 << 20);
/// assert_eq!(usage.used + usage.free + usage.pending, usage.reserved);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheUsage {
    /// Taken from the device, in segments of at least 2 MiB.
    pub reserved: usize,
    /// The most that was reserved since the peaks were reset; the sum over its contexts, if the
    /// device has several.
    pub reserved_peak: usize,
    /// In blocks that are in use, after rounding.
    pub used: usize,
    /// An upper bound of what was in use at once since the peaks were reset: the sum of the peaks
    /// of all streams, or the most that was reserved. Exact if a single stream allocates. One
    /// counter for all streams would cost each allocation more than all the rest;
    /// [`Statistics`](crate::adaptors::Statistics) has one.
    pub used_peak: usize,
    /// Free, kept for later allocations.
    pub free: usize,
    /// Freed, while streams other than the one it was allocated on still used it.
    pub pending: usize,
    /// The largest block that can be allocated without asking the device.
    pub largest_free: usize,
    /// The number of blocks allocated so far.
    pub allocations: u64,
    /// The bytes allocated so far, after rounding.
    pub allocated: u64,
    /// The most that may be taken in each context of the device; [`None`] without a limit.
    pub limit: Option<usize>,
}

impl CacheUsage {
    /// The usage of two parts of a pool together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            reserved: self.reserved + other.reserved,
            reserved_peak: self.reserved_peak + other.reserved_peak,
            used: self.used + other.used,
            used_peak: self.used_peak + other.used_peak,
            free: self.free + other.free,
            pending: self.pending + other.pending,
            largest_free: self.largest_free.max(other.largest_free),
            allocations: self.allocations + other.allocations,
            allocated: self.allocated + other.allocated,
            limit: self.limit.or(other.limit),
        }
    }
}
