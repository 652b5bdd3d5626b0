//! Limits the bytes in use.

use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_sys::CUdeviceptr;

use super::{Around, Ask, Given};
use crate::error::{AllocatorError, Result};
use crate::stream::Stream;
use crate::util::OnDrop;

/// An allocator that limits how many bytes are in use at once, on all devices together.
///
/// Bytes are counted as requested. A block counts from before the inner allocator is called until after it
/// has taken the block back, so the limit holds at every moment, across threads too. Requests that the inner
/// allocator refuses are not counted.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use std::sync::Arc;
///
/// use cuda_core::Allocator;
/// use cuda_core::adaptors::Limiting;
///
/// let limited = Arc::new(Limiting::new(Allocator::cache(), 1 << 20));
/// let allocator = Allocator::new(Arc::clone(&limited));
/// let buffer = stream.alloc_with::<u8>(&allocator, 1 << 20)?;
/// assert!(stream.alloc_with::<u8>(&allocator, 1).is_err());
/// assert_eq!(limited.used(), 1 << 20);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Limiting<A> {
    inner: A,
    used: AtomicUsize,
    limit: AtomicUsize,
}

impl<A> Limiting<A> {
    /// Hands out at most `limit` bytes of `inner`.
    pub fn new(inner: A, limit: usize) -> Self {
        Self { inner, used: AtomicUsize::new(0), limit: AtomicUsize::new(limit) }
    }

    /// The bytes that may be in use at once.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit from now on. Memory already handed out stays, even if it exceeds the limit.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn reserve(&self, bytes: usize) -> Result<()> {
        let limit = self.limit();
        let within = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        // Relaxed, since the counter orders no other memory accesses.
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
            .map_err(|used| AllocatorError::LimitExceeded { requested: bytes, used, limit })?;
        Ok(())
    }

    fn release(&self, bytes: usize) {
        let less = |used: usize| Some(used.saturating_sub(bytes));
        // The closure always returns `Some`.
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

adaptor!(Limiting);

impl<A> Around for Limiting<A> {
    fn allocating(&self, _: &Stream, bytes: usize, ask: Ask<'_>) -> Result<CUdeviceptr> {
        self.reserve(bytes)?;
        let rollback = OnDrop::new(|| self.release(bytes));
        let address = ask()?;
        rollback.disarm();
        Ok(address)
    }

    fn deallocating(&self, block: Given<'_>, give: impl FnOnce(usize) -> Result<()>) -> Result<()> {
        give(block.bytes)?;
        self.release(block.bytes);
        Ok(())
    }
}
