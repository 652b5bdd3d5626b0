//! Allocators made from closures, and from C functions.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_sys::CUdeviceptr;

use super::{Allocator, DeviceAllocator};
use crate::error::{Error, Result, WrongContext};
use crate::process::{Failed, Handle};
use crate::stream::Stream;

/// A C function that allocates. Arguments: its parameter, bytes, the device's ordinal. Returns null if it
/// cannot allocate.
///
/// ```
/// use std::ffi::{c_int, c_void};
/// use std::ptr;
///
/// /// Refuses every request.
/// unsafe extern "C" fn none(_: *mut c_void, _bytes: usize, _device: c_int) -> *mut c_void {
///     ptr::null_mut()
/// }
/// let allocate: cuda_core::AllocFunction = none;
/// ```
pub type AllocFunction =
    unsafe extern "C" fn(parameter: *mut c_void, bytes: usize, device: c_int) -> *mut c_void;

/// A C function that frees. Arguments: its parameter, the address, the device's ordinal.
///
/// ```
/// use std::ffi::{c_int, c_void};
///
/// /// For a pool that is given back as a whole.
/// unsafe extern "C" fn later(_: *mut c_void, _address: *mut c_void, _device: c_int) {}
/// let free: cuda_core::FreeFunction = later;
/// ```
pub type FreeFunction =
    unsafe extern "C" fn(parameter: *mut c_void, address: *mut c_void, device: c_int);

/// # From closures and C functions
impl Allocator {
    /// Makes an allocator of two closures, which do what [`DeviceAllocator::allocate`] and
    /// [`DeviceAllocator::deallocate`] do.
    ///
    /// # Safety
    /// The closures fulfil the conditions of [`DeviceAllocator`], and the memory does not belong to the
    /// stream's context ([`DeviceAllocator::is_in_the_context`]). Implement the trait for memory that does,
    /// such as that of [`Allocator::plain`].
    ///
    /// ```no_run
    /// use cuda_core::{Allocator, DeviceAllocator, Stream};
    ///
    /// let pool = Allocator::driver_pool();
    /// let same = pool.clone();
    /// let allocate = move |stream: &Stream, bytes| {
    ///     eprintln!("{bytes} bytes");
    ///     pool.allocate(stream, bytes)
    /// };
    /// let deallocate = move |stream: &Stream, address, bytes| {
    ///     // SAFETY: it came from there, and is given up.
    ///     unsafe { same.deallocate(stream, address, bytes) }
    /// };
    /// // SAFETY: the driver's pool does all that has to be done.
    /// let loud = unsafe { Allocator::from_closures(allocate, deallocate) };
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub unsafe fn from_closures<A, F>(allocate: A, deallocate: F) -> Self
    where
        A: Fn(&Stream, usize) -> Result<CUdeviceptr> + Send + Sync + 'static,
        F: Fn(&Stream, CUdeviceptr, usize) -> Result<()> + Send + Sync + 'static,
    {
        Self::new(Closures { allocate, deallocate })
    }

    /// Makes an allocator of two C functions that are not stream-ordered: memory that the first returns can
    /// be used at once, and the second is called when the host has seen that all work on the memory is done.
    /// Both get `parameter` and the device's ordinal.
    ///
    /// `owner` is dropped after the last block is freed and the last reference to the allocator is
    /// gone; never if a block could not be freed, because the wait for its work failed.
    ///
    /// The allocator serves streams of primary contexts, and of [green](crate::Context::new_green) contexts,
    /// which share the primary ones' memory; other streams get [`Error::WrongContext`].
    ///
    /// # Safety
    /// The first function returns null, or memory of the device's primary context, as `cudaMalloc` does: at
    /// least as many bytes as it is asked for, aligned to 256, which no other code uses until they are passed
    /// to the second. Neither function unwinds. Both may be called from any thread, with `parameter`, until
    /// `owner` is dropped.
    ///
    /// ```no_run
    /// use std::ffi::{c_int, c_void};
    ///
    /// use cuda_core::Allocator;
    ///
    /// unsafe extern "C" {
    ///     fn pool_alloc(pool: *mut c_void, bytes: usize, device: c_int) -> *mut c_void;
    ///     fn pool_free(pool: *mut c_void, address: *mut c_void, device: c_int);
    /// }
    ///
    /// # fn wrap(pool: *mut c_void, library: std::sync::Arc<str>) {
    /// // SAFETY: any thread may call the two, what the first returns is the caller's, and
    /// // `library` keeps `pool` alive.
    /// let allocator = unsafe { Allocator::from_functions(pool_alloc, pool_free, pool, library) };
    /// # }
    /// ```
    pub unsafe fn from_functions(
        allocate: AllocFunction,
        free: FreeFunction,
        parameter: *mut c_void,
        owner: impl Any + Send + Sync,
    ) -> Self {
        let (parameter, owner) = (Handle(parameter), Some(Box::new(owner) as Box<_>));
        Self::new(Functions { allocate, free, parameter, allocated: AtomicUsize::new(0), owner })
    }
}

struct Closures<A, F> {
    allocate: A,
    deallocate: F,
}

// SAFETY: the caller of `from_closures` promised that the closures fulfil this trait's conditions.
unsafe impl<A, F> DeviceAllocator for Closures<A, F>
where
    A: Fn(&Stream, usize) -> Result<CUdeviceptr> + Send + Sync + 'static,
    F: Fn(&Stream, CUdeviceptr, usize) -> Result<()> + Send + Sync + 'static,
{
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
        (self.allocate)(stream, bytes)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: CUdeviceptr, bytes: usize) -> Result<()> {
        (self.deallocate)(stream, address, bytes)
    }

    fn name(&self) -> &str {
        "closures"
    }
}

struct Functions {
    allocate: AllocFunction,
    free: FreeFunction,
    // INVARIANT: the functions may be called with it on any thread, as the caller of `from_functions`
    // promised.
    parameter: Handle<*mut c_void>,
    /// The number of blocks that are not freed.
    allocated: AtomicUsize,
    // INVARIANT: `Some` until this value is dropped.
    owner: Option<Box<dyn Any + Send + Sync>>,
}

impl Drop for Functions {
    /// Leaks `owner` if a block could not be freed: work may still use the block, and dropping `owner` may
    /// free the memory that the block belongs to.
    fn drop(&mut self) {
        if *self.allocated.get_mut() > 0 {
            mem::forget(self.owner.take());
        }
    }
}

// SAFETY: the caller of `from_functions` promised that the functions return memory of the primary
// context, and streams of contexts with other memory are refused; memory that can be used at once can be
// used in the order of any stream.
unsafe impl DeviceAllocator for Functions {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
        let (context, device) = (stream.context(), stream.device().as_raw());
        let primary = stream.device().retained_primary();
        if primary.is_none_or(|primary| primary.raw() != context.address_space()) {
            let what = "the memory of C functions".into();
            return Err(Error::from(WrongContext { op: "Allocator::from_functions", what }));
        }
        // SAFETY: the caller of `from_functions` promised that it may be called with this parameter
        // on any thread while `owner` is kept, and does not unwind.
        let address = unsafe { (self.allocate)(self.parameter.0, bytes, device) };
        self.allocated.fetch_add(usize::from(!address.is_null()), Ordering::Relaxed);
        Ok(address.addr() as CUdeviceptr)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: CUdeviceptr, _: usize) -> Result<()> {
        // Other streams' work on the block is ordered before the work that this stream has by now.
        let waited = stream.core().wait_for_all().map_err(Failed::Refused);
        waited.map_err(|why| why.of_block(address))?;
        let address = std::ptr::without_provenance_mut(address as usize);
        // SAFETY: the first function returned the address, the caller gives it up, and no work uses it any
        // more.
        unsafe { (self.free)(self.parameter.0, address, stream.device().as_raw()) };
        self.allocated.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn is_in_the_context(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        "C functions"
    }
}
