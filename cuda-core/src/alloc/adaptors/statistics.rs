//! Counters of allocated bytes and blocks: present, peak and total.

use std::sync::Mutex;

use cuda_sys::CUdeviceptr;

use super::{Around, Ask, Given};
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::util::{debug_by, lock};

/// One quantity over time.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use std::sync::Arc;
///
/// use cuda_core::Allocator;
/// use cuda_core::adaptors::Statistics;
///
/// let statistics = Arc::new(Statistics::new(Allocator::cache()));
/// let allocator = Allocator::new(Arc::clone(&statistics));
/// for _ in 0..3 {
///     stream.alloc_with::<u8>(&allocator, 1000)?; // and drops it
/// }
/// let bytes = statistics.counters().bytes;
/// assert_eq!((bytes.value, bytes.peak, bytes.total), (0, 1000, 3000));
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Counter {
    /// The present amount. Negative if frees of older blocks exceed the allocations since
    /// [`Statistics::push`].
    pub value: i64,
    /// The most at any time since the counter began, or since [`Statistics::reset_peaks`].
    pub peak: i64,
    /// The sum of everything added; frees do not reduce it.
    pub total: u64,
}

/// Counters of bytes and of blocks.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use std::sync::Arc;
///
/// use cuda_core::{Allocator, CachingPool, adaptors::Statistics};
///
/// let statistics = Arc::new(Statistics::new(CachingPool::shared()?.allocator()));
/// let allocator = Allocator::new(Arc::clone(&statistics));
/// let buffer = stream.alloc_with::<f32>(&allocator, 1000)?;
/// let counters = statistics.counters();
/// assert_eq!((counters.blocks.value, counters.bytes.value), (1, 4000));
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Bytes, as requested.
    pub bytes: Counter,
    /// Blocks.
    pub blocks: Counter,
}

impl Counter {
    fn add(&mut self, amount: usize) {
        self.value = self.value.saturating_add_unsigned(amount as u64);
        self.peak = self.peak.max(self.value);
        self.total = self.total.saturating_add(amount as u64);
    }

    fn take(&mut self, amount: usize) {
        self.value = self.value.saturating_sub_unsigned(amount as u64);
    }

    /// Includes the peak of an inner counter that began when this one had its present value.
    fn take_up_peak(&mut self, inner: Self) {
        self.peak = self.peak.max(self.value.saturating_add(inner.peak));
    }

    /// Includes everything that an inner counter saw.
    fn take_up(&mut self, inner: Self) {
        self.take_up_peak(inner);
        self.value = self.value.saturating_add(inner.value);
        self.total = self.total.saturating_add(inner.total);
    }
}

/// An allocator that counts what the inner allocator hands out.
///
/// Bytes are counted as requested, whatever size the inner allocator uses; a block counts from when
/// it is allocated until the inner allocator has taken it back. Failed calls are not counted. Counters nest:
/// [`push`](Self::push) begins new ones at zero; [`pop`](Self::pop) ends them and adds them to the counters
/// around them. All threads share them.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use cuda_core::adaptors::Statistics;
/// use cuda_core::{Allocator, Device, with_allocator};
///
/// let stream = Device::get(0)?.create_stream()?;
/// let statistics = Arc::new(Statistics::new(Allocator::driver_pool()));
/// let counted = Allocator::new(Arc::clone(&statistics));
/// let buffer = with_allocator(&counted, || stream.alloc::<f32>(1024))?;
/// assert_eq!(statistics.counters().bytes.value, 4096);
/// drop(buffer);
/// assert_eq!(statistics.counters().blocks.value, 0);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct Statistics<A> {
    inner: A,
    counters: Mutex<Stack>,
}

/// The counters: the innermost, and those around it.
#[derive(Default)]
struct Stack {
    innermost: Counters,
    outer: Vec<Counters>,
}

impl<A> Statistics<A> {
    /// Counts what `inner` hands out from now on.
    pub fn new(inner: A) -> Self {
        Self { inner, counters: Mutex::default() }
    }

    /// The innermost counters, which are the only ones unless [`push`](Self::push) was called.
    pub fn counters(&self) -> Counters {
        lock(&self.counters).innermost
    }

    /// Begins new counters inside the present ones, and returns the present ones.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # use std::sync::Arc;
    /// # use cuda_core::Allocator;
    /// # use cuda_core::adaptors::Statistics;
    /// let statistics = Arc::new(Statistics::new(Allocator::cache()));
    /// let allocator = Allocator::new(Arc::clone(&statistics));
    /// let kept = stream.alloc_with::<u8>(&allocator, 1000)?;
    /// statistics.push();
    /// let scratch = stream.alloc_with::<u8>(&allocator, 24)?;
    /// assert_eq!(statistics.pop()?.bytes.value, 24); // since the push
    /// assert_eq!(statistics.counters().bytes.value, 1024);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn push(&self) -> Counters {
        let mut counters = lock(&self.counters);
        let present = std::mem::take(&mut counters.innermost);
        counters.outer.push(present);
        present
    }

    /// Ends the innermost counters, adds them and their peaks to the counters around them, and
    /// returns them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if these are the outermost counters, which then continue.
    pub fn pop(&self) -> Result<Counters> {
        let mut counters = lock(&self.counters);
        let outer = counters.outer.pop();
        let outer = outer.ok_or_else(|| {
            Error::invalid("Statistics::pop", "there are no inner counters to end")
        })?;
        let inner = std::mem::replace(&mut counters.innermost, outer);
        counters.innermost.bytes.take_up(inner.bytes);
        counters.innermost.blocks.take_up(inner.blocks);
        Ok(inner)
    }

    /// Sets the innermost counters' peaks to the present values, and returns the counters as they
    /// were before. The peaks of the counters around them include the earlier peaks.
    pub fn reset_peaks(&self) -> Counters {
        let mut counters = lock(&self.counters);
        let before = counters.innermost;
        if let Some(outer) = counters.outer.last_mut() {
            outer.bytes.take_up_peak(before.bytes);
            outer.blocks.take_up_peak(before.blocks);
        }
        let counters = &mut counters.innermost;
        counters.bytes.peak = counters.bytes.value;
        counters.blocks.peak = counters.blocks.value;
        before
    }
}

// Formats a copy of the counters: the formatter may be code of the program, and may use the allocator.
debug_by! {
    [A: std::fmt::Debug] Statistics<A>: |it| "Statistics" {
        inner: it.inner, counters: it.counters(); ..
    }
}

adaptor!(Statistics);

impl<A> Around for Statistics<A> {
    fn allocating(&self, _: &Stream, bytes: usize, ask: Ask<'_>) -> Result<CUdeviceptr> {
        let address = ask()?;
        let counters = &mut lock(&self.counters).innermost;
        counters.bytes.add(bytes);
        counters.blocks.add(1);
        Ok(address)
    }

    fn deallocating(&self, block: Given<'_>, give: impl FnOnce(usize) -> Result<()>) -> Result<()> {
        give(block.bytes)?;
        let counters = &mut lock(&self.counters).innermost;
        counters.bytes.take(block.bytes);
        counters.blocks.take(1);
        Ok(())
    }
}
