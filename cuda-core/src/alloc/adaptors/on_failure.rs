//! Retries allocations that fail.

use cuda_sys::CUdeviceptr;

use super::{Around, Ask};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::process::unless_panic;
use crate::stream::Stream;
use crate::util::debug_by;

/// What [`OnFailure`] does about an allocation that failed.
///
/// ```
/// use cuda_core::Allocator;
/// use cuda_core::adaptors::{OnFailure, Verdict};
///
/// # fn drop_caches() -> bool { true }
/// let allocator = OnFailure::new(Allocator::driver_pool(), |_| {
///     if drop_caches() { Verdict::Retry } else { Verdict::GiveUp }
/// });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Asks the inner allocator again.
    Retry,
    /// Passes the error on.
    GiveUp,
}

/// An allocation that failed.
///
/// ```
/// use cuda_core::adaptors::{AllocationFailure, Verdict};
///
/// fn once_more(failure: &AllocationFailure<'_>) -> Verdict {
///     match failure.attempt {
///         1 => Verdict::Retry,
///         _ => Verdict::GiveUp,
///     }
/// }
/// let allocator = cuda_core::adaptors::OnFailure::new(cuda_core::Allocator::plain(), once_more);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationFailure<'a> {
    /// Bytes requested.
    pub bytes: usize,
    /// The device.
    pub device: Device,
    /// How often the allocation has failed so far: 1 the first time.
    pub attempt: u32,
    /// The error.
    pub error: &'a Error,
}

/// The default of [`OnFailure::max_retries`].
const MAX_RETRIES: u32 = 16;

type Callback = dyn Fn(&AllocationFailure<'_>) -> Verdict + Send + Sync;

/// An allocator that asks a callback what to do when the inner allocator has not enough memory.
///
/// The callback may free memory, also through this allocator, and have the allocation tried again. It is
/// called if there is not enough memory, a limit is reached, or an allocator of C functions returns null,
/// whatever adaptors lie between. Other errors, which a retry does not cure, are passed on at once; so is the
/// error of a single request larger than the limit. A panic in the callback means [`Verdict::GiveUp`].
///
/// Below a caching pool the callback must not wait for another thread that allocates from the pool: see
/// [`upstream`](crate::pools::CachingPoolBuilder::upstream).
///
/// ```
/// use cuda_core::Allocator;
/// use cuda_core::adaptors::{OnFailure, Verdict};
///
/// # fn spare_some() -> bool { false }
/// let allocator = OnFailure::new(Allocator::driver_pool(), |failure| {
///     eprintln!("no {} bytes on {}", failure.bytes, failure.device);
///     if spare_some() { Verdict::Retry } else { Verdict::GiveUp }
/// });
/// # let _ = allocator;
/// ```
pub struct OnFailure<A> {
    inner: A,
    callback: Box<Callback>,
    max_retries: u32,
}

impl<A> OnFailure<A> {
    /// Calls `callback` when `inner` has not enough memory.
    pub fn new(
        inner: A,
        callback: impl Fn(&AllocationFailure<'_>) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        Self { inner, callback: Box::new(callback), max_retries: MAX_RETRIES }
    }

    /// Sets the most times that an allocation is tried again, whatever the callback returns: 16 by default.
    ///
    /// ```
    /// use cuda_core::adaptors::{OnFailure, Verdict};
    /// use cuda_core::{Allocator, CachingPool};
    ///
    /// let trim = |_: &cuda_core::adaptors::AllocationFailure<'_>| {
    ///     match CachingPool::shared().and_then(|pool| pool.trim(0)) {
    ///         Ok(1..) => Verdict::Retry,
    ///         _ => Verdict::GiveUp,
    ///     }
    /// };
    /// let allocator = OnFailure::new(Allocator::driver_pool(), trim).max_retries(1);
    /// ```
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = retries;
        self
    }

    /// The most times that an allocation is [tried again](Self::max_retries).
    pub fn get_max_retries(&self) -> u32 {
        self.max_retries
    }
}

debug_by! {
   [A: std::fmt::Debug] OnFailure<A>: |it| "OnFailure" { inner: it.inner, max_retries: it.max_retries; .. }
}

adaptor!(OnFailure);

impl<A> Around for OnFailure<A> {
    fn allocating(&self, stream: &Stream, bytes: usize, ask: Ask<'_>) -> Result<CUdeviceptr> {
        let mut attempt = 0;
        loop {
            let error = match ask() {
                Err(error) if error.is_out_of_memory() && !error.is_beyond_a_limit() => error,
                other => return other,
            };
            attempt += 1;
            if attempt > self.max_retries {
                return Err(error);
            }
            let failure =
                AllocationFailure { bytes, device: stream.device(), attempt, error: &error };
            if unless_panic(|| (self.callback)(&failure)) != Some(Verdict::Retry) {
                return Err(error);
            }
        }
    }
}
