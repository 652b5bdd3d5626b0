//! Occupancy: how many blocks of a kernel a device holds at once.

use std::cell::Cell;
use std::ptr;

use cuda_sys::{CUoccupancyB2DSize, symbol as cu};

use super::Function;
use crate::context::guard;
use crate::error::Result;
use crate::process::driver::CallbackScope;
use crate::process::unless_panic;

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
    /// The least number of blocks that fills the device.
    pub min_grid: u32,
}

/// Returns the dynamic shared memory, in bytes, for a block of the given number of threads.
type SharedOf<'a> = &'a mut dyn FnMut(u32) -> usize;

thread_local! {
    /// The function that the driver's callback calls during the driver call that this thread is in:
    /// the driver passes no user data.
    static ASKED: Cell<*mut SharedOf<'static>> = const { Cell::new(ptr::null_mut()) };
}

/// More than any block can have, so that the driver gives up on the size.
const TOO_MUCH: usize = usize::MAX >> 1;

unsafe extern "C" fn ask(threads: i32) -> usize {
    let asked = ASKED.get();
    // CUDA does not document that the driver calls back on the thread that called it.
    if asked.is_null() {
        return TOO_MUCH;
    }
    let scope = CallbackScope::enter();
    // SAFETY: not null, so set by `block_size_with` around the driver's call, on this thread, to a
    // function that outlives the call and that no other code uses meanwhile.
    let function = unsafe { &mut *asked };
    let threads = u32::try_from(threads).unwrap_or(0);
    // A panic must not unwind into C.
    let answer = unless_panic(|| function(threads));
    drop(scope);
    answer.unwrap_or(TOO_MUCH)
}

/// # Occupancy
impl Function {
    /// How many blocks of `threads` threads, with `dynamic_shared` bytes of shared memory each, one
    /// multiprocessor holds at once: `cuOccupancyMaxActiveBlocksPerMultiprocessor`.
    ///
    /// # Errors
    /// The driver's.
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
        let (kernel, threads) = (self.as_raw(), int(threads));
        let blocks = self.context().ask("cuOccupancyMaxActiveBlocksPerMultiprocessor", 0, |n| {
            // SAFETY: the call writes one number, to an exclusive borrow; the function is loaded while
            // `self` is.
            unsafe {
                cu::cuOccupancyMaxActiveBlocksPerMultiprocessor(n, kernel, threads, dynamic_shared)
            }
        })?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    /// How many bytes of dynamic shared memory each block can have, if one multiprocessor is to
    /// hold `blocks` blocks of `threads` threads at once:
    /// `cuOccupancyAvailableDynamicSMemPerBlock`.
    ///
    /// # Errors
    /// The driver's.
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
        let (kernel, blocks, threads) = (self.as_raw(), int(blocks), int(threads));
        self.context().ask("cuOccupancyAvailableDynamicSMemPerBlock", 0, |bytes| {
            // SAFETY: the call writes one number, to an exclusive borrow; the function is loaded while
            // `self` is.
            unsafe { cu::cuOccupancyAvailableDynamicSMemPerBlock(bytes, kernel, blocks, threads) }
        })
    }

    /// The block size that fills the device best, if every block takes the same dynamic shared
    /// memory, in bytes: `cuOccupancyMaxPotentialBlockSize`. `limit`: the most threads that a block
    /// may have; [`None`] for the kernel's own limit.
    ///
    /// # Errors
    /// The driver's.
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
        // Without a callback all blocks take `dynamic_shared`.
        self.potential_block_size(None, dynamic_shared, limit)
    }

    /// [`Function::block_size`] for dynamic shared memory that depends on the number of threads per
    /// block.
    ///
    /// CUDA cannot be called from `dynamic_shared`: operations of this crate return
    /// [`Error::InCallback`](crate::Error::InCallback), and a [`Guard`](crate::Guard) that is
    /// dropped there ends its scope when this call is over. A size for which the closure panics is
    /// not chosen.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// # let module = cuda_core::Module::from_ptx(&device.context()?, "")?;
    /// let kernel = module.function("reduce")?;
    /// let best = kernel.block_size_with(None, |threads| threads as usize * size_of::<f32>())?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuOccupancyMaxPotentialBlockSize", "cudaOccupancyMaxPotentialBlockSize"))]
    pub fn block_size_with(
        &self,
        limit: Option<u32>,
        mut dynamic_shared: impl FnMut(u32) -> usize,
    ) -> Result<BlockSize> {
        let mut function: SharedOf<'_> = &mut dynamic_shared;
        // `ask` makes operations inside `dynamic_shared` fail, so calls do not nest; if they did,
        // the outer function would be restored.
        let before = ASKED.replace(ptr::from_mut(&mut function).cast());
        // It has the type that the driver calls, on this thread, before it returns.
        let found = self.potential_block_size(Some(ask), 0, limit);
        ASKED.set(before);
        guard::drop_deferred();
        found
    }

    fn potential_block_size(
        &self,
        shared_of: CUoccupancyB2DSize,
        dynamic_shared: usize,
        limit: Option<u32>,
    ) -> Result<BlockSize> {
        let (kernel, limit) = (self.as_raw(), limited(limit));
        let op = "cuOccupancyMaxPotentialBlockSize";
        let (min_grid, threads) = self.context().ask(op, (0, 0), |(grid, threads)| {
            // SAFETY: the call writes two ints, to exclusive borrows; the function is loaded while
            // `self` is; `shared_of` is none or `ask`, which has the type that the driver calls.
            unsafe {
                cu::cuOccupancyMaxPotentialBlockSize(
                    grid,
                    threads,
                    kernel,
                    shared_of,
                    dynamic_shared,
                    limit,
                )
            }
        })?;
        let [threads, min_grid] = [threads, min_grid].map(|n| u32::try_from(n).unwrap_or(0));
        Ok(BlockSize { threads, min_grid })
    }
}

/// A limit for the driver, to which zero means only the kernel's own. No block has zero threads, so
/// a limit of zero becomes the smallest.
fn limited(threads: Option<u32>) -> i32 {
    threads.map_or(0, |threads| int(threads.max(1)))
}

/// A number for the driver, which refuses numbers that are too large.
fn int(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    #[test]
    fn on_a_thread_that_asked_for_nothing_no_size_will_do() {
        // SAFETY: `ask` has no precondition.
        assert_eq!(unsafe { super::ask(32) }, super::TOO_MUCH);
    }

    #[test]
    fn a_limit_of_no_threads_is_not_no_limit() {
        // To the driver, zero means no limit: a caller's zero must not become that.
        assert_eq!([None, Some(0), Some(64)].map(super::limited), [0, 1, 64]);
    }
}
