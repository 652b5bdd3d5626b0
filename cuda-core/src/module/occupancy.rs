//! Occupancy: how many blocks of a kernel a device holds at once.

use cuda_sys::symbol as cu;

use super::Function;
use crate::error::{Error, Result};

/// The block size, and the number of blocks, that fill a device with a kernel.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let stream = context.create_stream()?;
/// # const PTX: &str = "";
/// # let mut x = stream.alloc::<f32>(1 << 20)?;
/// let function = cuda_core::Module::from_ptx(&context, PTX)?.function("scale")?;
/// let size = function.block_size(None, 0)?; // no limit, no dynamic shared memory
/// let blocks = (x.len() as u32).div_ceil(size.threads);
/// let launch = stream.kernel(&function).grid(blocks).block(size.threads).arg(&mut x);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct BlockSize {
    /// Threads per block.
    pub threads: u32,
    /// The fewest blocks that fill the device.
    pub min_grid: u32,
}

/// # Occupancy
impl Function {
    /// Returns how many blocks of `threads` threads, with `dynamic_shared` bytes of shared memory
    /// each, one multiprocessor holds at once: `cuOccupancyMaxActiveBlocksPerMultiprocessor`. Zero
    /// if `dynamic_shared` exceeds the kernel's [limit](Function::set_max_dynamic_shared).
    ///
    /// # Errors
    /// [`Error::Invalid`] if `threads` is zero; the driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// # let module = cuda_core::Module::from_ptx(&device.context()?, "")?;
    /// let kernel = module.function("reduce")?;
    /// let multiprocessors = device.attributes().multiprocessor_count()?;
    /// let resident = kernel.max_active_blocks(256, 0)? * multiprocessors;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuOccupancyMaxActiveBlocksPerMultiprocessor"))]
    #[doc(alias("cudaOccupancyMaxActiveBlocksPerMultiprocessor"))]
    pub fn max_active_blocks(&self, threads: u32, dynamic_shared: usize) -> Result<u32> {
        let op = "cuOccupancyMaxActiveBlocksPerMultiprocessor";
        Error::unless(threads > 0, op, "a block has at least one thread")?;
        let (kernel, threads, shared) = (self.as_raw(), int(threads), bytes(dynamic_shared));
        let blocks = self.context().ask(op, 0, |n| {
            // SAFETY: the call writes one number, to an exclusive borrow; the function is loaded
            // while `self` exists.
            unsafe { cu::cuOccupancyMaxActiveBlocksPerMultiprocessor(n, kernel, threads, shared) }
        })?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    /// Returns how many bytes of dynamic shared memory each block can have, if one multiprocessor
    /// is to hold `blocks` blocks of `threads` threads at once:
    /// `cuOccupancyAvailableDynamicSMemPerBlock`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `blocks` or `threads` is zero; the driver's.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// // As much as there is when two blocks of 256 threads share a multiprocessor.
    /// let bytes = function.available_dynamic_shared(2, 256)?;
    /// let mut launch = stream.kernel(&function).grid(64).block(256).dynamic_shared(bytes);
    /// // SAFETY: the kernel has no parameter and touches its shared memory alone.
    /// unsafe { launch.launch() }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuOccupancyAvailableDynamicSMemPerBlock"))]
    #[doc(alias("cudaOccupancyAvailableDynamicSMemPerBlock"))]
    pub fn available_dynamic_shared(&self, blocks: u32, threads: u32) -> Result<usize> {
        let op = "cuOccupancyAvailableDynamicSMemPerBlock";
        Error::unless(blocks > 0 && threads > 0, op, "one block and one thread are the least")?;
        let (kernel, blocks, threads) = (self.as_raw(), int(blocks), int(threads));
        self.context().ask(op, 0, |bytes| {
            // SAFETY: the call writes one number, to an exclusive borrow; the function is loaded
            // while `self` exists.
            unsafe { cu::cuOccupancyAvailableDynamicSMemPerBlock(bytes, kernel, blocks, threads) }
        })
    }

    /// Returns the block size that fills the device best, if every block takes `dynamic_shared`
    /// bytes of shared memory: `cuOccupancyMaxPotentialBlockSize`. `limit` is the most threads that
    /// a block may have; [`None`] for the kernel's own limit.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no block can have that much shared memory; the driver's.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
    /// let best = function.block_size(None, 0)?;
    /// // The fewest blocks that fill the device.
    /// let launch = stream.kernel(&function).grid(best.min_grid).block(best.threads);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuOccupancyMaxPotentialBlockSize", "cudaOccupancyMaxPotentialBlockSize"))]
    #[doc(alias("suggested_launch_configuration"))]
    pub fn block_size(&self, limit: Option<u32>, dynamic_shared: usize) -> Result<BlockSize> {
        let (kernel, limit, shared) = (self.as_raw(), limited(limit), bytes(dynamic_shared));
        let op = "cuOccupancyMaxPotentialBlockSize";
        let (min_grid, threads) = self.context().ask(op, (0, 0), |(grid, threads)| {
            // SAFETY: the call writes two ints, to exclusive borrows; the function is loaded while
            // `self` exists; without a callback all blocks take `shared`.
            unsafe {
                cu::cuOccupancyMaxPotentialBlockSize(grid, threads, kernel, None, shared, limit)
            }
        })?;
        let [threads, min_grid] = [threads, min_grid].map(|n| u32::try_from(n).unwrap_or(0));
        BlockSize { threads, min_grid }.if_any(op)
    }

    /// Works as [`Function::block_size`], for dynamic shared memory that depends on the number of
    /// threads per block.
    ///
    /// Tries the multiples of a warp, from the most threads down, until one fills a multiprocessor:
    /// `cuOccupancyMaxActiveBlocksPerMultiprocessor` for each. Returns the largest of the sizes
    /// that fill it equally.
    ///
    /// # Errors
    /// As [`block_size`](Self::block_size).
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// # let module = cuda_core::Module::from_ptx(&device.context()?, "")?;
    /// let kernel = module.function("reduce")?;
    /// let best = kernel.block_size_with(None, |threads| threads as usize * size_of::<f32>())?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias(
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        "cudaOccupancyMaxPotentialBlockSize"
    ))]
    #[doc(alias("cudaOccupancyMaxActiveBlocksPerMultiprocessor"))]
    pub fn block_size_with(
        &self,
        limit: Option<u32>,
        mut dynamic_shared: impl FnMut(u32) -> usize,
    ) -> Result<BlockSize> {
        let device = self.context().device().attributes();
        let (warp, full) = (device.warp_size()?, device.max_threads_per_multiprocessor()?);
        let most = self.attribute(cuda_sys::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        let most = u32::try_from(most).unwrap_or(0).min(limit.unwrap_or(u32::MAX).max(1));
        // The best threads per block and blocks per multiprocessor, and their product.
        let (mut best, mut resident) = ((0, 0), 0);
        for warps in (1..=most.div_ceil(warp)).rev() {
            let threads = most.min(warps * warp);
            let blocks = self.max_active_blocks(threads, dynamic_shared(threads))?;
            if blocks * threads > resident {
                (best, resident) = ((threads, blocks), blocks * threads);
            }
            if resident >= full {
                break;
            }
        }
        let (threads, blocks) = best;
        let min_grid = blocks * device.multiprocessor_count()?;
        BlockSize { threads, min_grid }.if_any("block_size_with")
    }
}

impl BlockSize {
    /// Refuses the size if no block of the kernel fits the device.
    fn if_any(self, op: &'static str) -> Result<Self> {
        let why = "no block of the kernel can have that much shared memory; \
                   `Function::set_max_dynamic_shared` raises the kernel's limit";
        Error::unless(self.threads > 0 && self.min_grid > 0, op, why).map(|()| self)
    }
}

/// Returns a limit for the driver, for which zero means the kernel's own limit. So a limit of zero
/// becomes 1.
fn limited(threads: Option<u32>) -> i32 {
    threads.map_or(0, |threads| int(threads.max(1)))
}

/// Clamps a number for the driver, which refuses numbers that are too large.
fn int(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Clamps a size for the driver, which reads only the low 32 bits: one that is too large for any
/// block stays too large.
fn bytes(shared: usize) -> usize {
    shared.min(1 << 30)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_limit_of_no_threads_is_not_no_limit() {
        // For the driver zero means no limit, so a caller's zero must not be passed on.
        assert_eq!([None, Some(0), Some(64)].map(super::limited), [0, 1, 64]);
    }
}
