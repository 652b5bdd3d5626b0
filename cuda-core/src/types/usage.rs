//! Free memory of a device, and usage of a pool.

/// Free and total memory of a device, in bytes.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// let memory = context.memory_info()?;
/// println!("{memory}"); // 12 GiB of 139 GiB free
/// assert!(memory.free <= memory.total);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Bytes that are free.
    pub free: usize,
    /// Bytes that the device has.
    pub total: usize,
}

/// What a pool holds: a [`CachingPool`](crate::CachingPool) of one device's memory, a
/// [`MemoryPool`](crate::MemoryPool), or a [`PinnedPool`](crate::PinnedPool). In bytes; a quantity that a
/// pool does not count is zero.
///
/// `used + free + pending` is `reserved`.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct PoolUsage {
    /// Bytes taken from the device or the system: a caching pool takes segments of at least 2 MiB.
    pub reserved: usize,
    /// The most that was reserved since the peaks were reset. For a caching pool, the sum over the device's
    /// contexts.
    pub reserved_peak: usize,
    /// Bytes in buffers, after rounding: pinned memory is rounded by up to an eighth, or beyond 32 MiB by up
    /// to 2 MiB.
    pub used: usize,
    /// The most that was in buffers at once since the peaks were reset. For a caching pool, an upper bound:
    /// the smaller of the sum of all streams' peaks and the most that was reserved; exact if a single stream
    /// allocates. One counter for all streams would cost each allocation more than all the rest;
    /// [`Statistics`](crate::adaptors::Statistics) has one.
    pub used_peak: usize,
    /// Bytes that are free for the stream that freed them, and kept for later allocations; `trim` may have to
    /// keep them while that stream still works.
    pub free: usize,
    /// Bytes that were freed while other streams, or copies, still used them, as of the last check. The
    /// driver's pools do not count them.
    pub pending: usize,
    /// The largest block that a caching pool can allocate without asking the device.
    pub largest_free: usize,
    /// The number of blocks that a caching pool has allocated so far.
    pub allocations: u64,
    /// The bytes that a caching pool has allocated so far, after rounding.
    pub allocated: u64,
    /// The most that may be reserved, for a caching pool in each context of the device; [`None`] without a
    /// limit, and for the driver's pools.
    pub limit: Option<usize>,
}

impl PoolUsage {
    /// The usage of a pool that holds nothing.
    pub(crate) const NONE: Self = Self {
        reserved: 0,
        reserved_peak: 0,
        used: 0,
        used_peak: 0,
        free: 0,
        pending: 0,
        largest_free: 0,
        allocations: 0,
        allocated: 0,
        limit: None,
    };

    /// Counts a block of `bytes` as used.
    #[inline]
    pub(crate) fn hand_out(&mut self, bytes: usize) {
        self.used += bytes;
        self.used_peak = self.used_peak.max(self.used);
    }

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
