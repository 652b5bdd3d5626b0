//! Tracks the allocated blocks, with their threads and backtraces.

use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use cuda_sys::CUdeviceptr;

use super::{Around, Ask, Given};
use crate::device::Device;
use crate::error::{ByteCount, Error, Result, counted};
use crate::stream::Stream;
use crate::util::{OnDrop, debug_by, lock, thread_number};

/// A block that is allocated.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Outstanding {
    /// The number of the allocation, counted from zero.
    pub number: u64,
    /// Its address.
    pub address: CUdeviceptr,
    /// Its size in bytes, as requested.
    pub bytes: usize,
    /// The device that it is on.
    pub device: Device,
    /// The stream in whose order it was allocated: [`Stream::id`].
    pub stream: u64,
    /// The id of the thread that allocated it.
    pub thread: u64,
    /// The backtrace of its allocation, with [`Tracking::with_backtraces`].
    pub backtrace: Option<Arc<Backtrace>>,
}

/// A block that was given back with a wrong size.
///
/// ```
/// use cuda_core::{Allocator, adaptors::Tracking};
///
/// let tracking = Tracking::new(Allocator::driver_pool());
/// for wrong in tracking.report().mismatches {
///     eprintln!("{:#x} has {} bytes, not {}", wrong.address, wrong.allocated, wrong.given);
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SizeMismatch {
    /// Its address.
    pub address: CUdeviceptr,
    /// Its size in bytes.
    pub allocated: usize,
    /// The size it was given back with.
    pub given: usize,
}

/// The most mismatches that are kept; further ones are only counted.
const MISMATCHES: usize = 64;

/// An allocator that remembers the blocks that another one has handed out.
///
/// For finding leaks. A block given back with a wrong size is freed with the size that it was
/// allocated with, and the [report](Self::report) says so; an address that is not outstanding is
/// refused, so that nothing is freed twice.
///
/// ```
/// use cuda_core::Allocator;
/// use cuda_core::adaptors::Tracking;
///
/// # fn work() {}
/// let tracking = Tracking::with_backtraces(Allocator::driver_pool());
/// let before = tracking.allocations();
/// work();
/// let report = tracking.report_since(before);
/// assert!(report.is_empty(), "{report}"); // "Outstanding: 3 blocks, 12 MiB ..."
/// ```
pub struct Tracking<A> {
    inner: A,
    backtraces: bool,
    state: Mutex<TrackingState>,
}

#[derive(Default)]
struct TrackingState {
    live: HashMap<CUdeviceptr, Outstanding>,
    allocations: u64,
    mismatches: Vec<SizeMismatch>,
    mismatched: u64,
}

impl<A> Tracking<A> {
    /// Remembers what `inner` hands out from now on.
    pub fn new(inner: A) -> Self {
        Self { inner, backtraces: false, state: Mutex::default() }
    }

    /// Like [`Tracking::new`], and also records the backtrace of each allocation, whatever `RUST_BACKTRACE`
    /// says. Recording a backtrace takes much longer than an allocation.
    pub fn with_backtraces(inner: A) -> Self {
        Self { backtraces: true, ..Self::new(inner) }
    }

    /// The number of allocations so far: the [number](Outstanding::number) of the next.
    pub fn allocations(&self) -> u64 {
        lock(&self.state).allocations
    }

    /// The allocated blocks, in the order of their allocation.
    pub fn outstanding(&self) -> Vec<Outstanding> {
        self.report().blocks
    }

    /// Returns the allocated blocks, which `Display` writes as a text that begins with "Outstanding".
    pub fn report(&self) -> OutstandingReport {
        self.report_since(0)
    }

    /// Returns the blocks allocated from that [number](Self::allocations) on and not freed since.
    pub fn report_since(&self, number: u64) -> OutstandingReport {
        let state = lock(&self.state);
        let since = state.live.values().filter(|block| block.number >= number);
        let mut blocks: Vec<_> = since.cloned().collect();
        let (mismatches, mismatched) = (state.mismatches.clone(), state.mismatched);
        drop(state);
        blocks.sort_unstable_by_key(|block| block.number);
        OutstandingReport { blocks, mismatches, mismatched }
    }

    fn remember(&self, stream: &Stream, address: CUdeviceptr, bytes: usize) {
        let backtrace = self.backtraces.then(|| Arc::new(Backtrace::force_capture()));
        let (device, stream, thread) = (stream.device(), stream.id(), thread_number());
        let mut state = lock(&self.state);
        let number = state.allocations;
        state.allocations += 1;
        let block = Outstanding { number, address, bytes, device, stream, thread, backtrace };
        state.live.insert(address, block);
    }

    /// Removes a block from the outstanding ones.
    fn take(&self, address: CUdeviceptr, given: usize) -> Result<Outstanding> {
        let mut state = lock(&self.state);
        let block = state.live.remove(&address);
        let block = block.ok_or_else(|| {
            let why = format!("there is no block allocated at {address:#x} to give back");
            Error::invalid("Tracking", why)
        })?;
        if block.bytes != given {
            state.mismatched += 1;
            if state.mismatches.len() < MISMATCHES {
                let allocated = block.bytes;
                state.mismatches.push(SizeMismatch { address, allocated, given });
            }
        }
        Ok(block)
    }
}

/// What a [`Tracking`] allocator has recorded, with a text for people to read.
///
/// ```text
/// Outstanding: 1 block, 4 MiB
///   #7: 4 MiB at 0x7f2c14000000 on device 0, stream 3, by thread 1
/// ```
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use std::sync::Arc;
///
/// use cuda_core::Allocator;
/// use cuda_core::adaptors::Tracking;
///
/// let tracking = Arc::new(Tracking::new(Allocator::cache()));
/// let allocator = Allocator::new(Arc::clone(&tracking));
/// let buffer = stream.alloc_with::<u8>(&allocator, 1000)?;
/// let report = tracking.report();
/// assert_eq!((report.blocks.len(), report.bytes()), (1, 1000));
/// for block in tracking.outstanding() {
///     println!("{} bytes of thread {}", block.bytes, block.thread);
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OutstandingReport {
    /// The allocated blocks, in the order of their allocation.
    pub blocks: Vec<Outstanding>,
    /// The first blocks that were given back with a wrong size.
    pub mismatches: Vec<SizeMismatch>,
    /// The number of mismatches.
    pub mismatched: u64,
}

impl OutstandingReport {
    /// Whether nothing is allocated.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.bytes).sum()
    }
}

impl fmt::Display for OutstandingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = counted(self.blocks.len(), "block", "blocks");
        write!(f, "Outstanding: {blocks}, {}", ByteCount(self.bytes()))?;
        for block in &self.blocks {
            let Outstanding { number, address, device, stream, thread, .. } = block;
            let bytes = ByteCount(block.bytes);
            write!(f, "\n  #{number}: {bytes} at {address:#x} on {device}, stream {stream}")?;
            write!(f, ", by thread {thread}")?;
            if let Some(backtrace) = &block.backtrace {
                for line in backtrace.to_string().lines() {
                    write!(f, "\n    {line}")?;
                }
            }
        }
        if self.mismatched > 0 {
            write!(f, "\nFreed with a wrong size: {}", self.mismatched)?;
        }
        for SizeMismatch { address, allocated, given } in &self.mismatches {
            let (allocated, given) = (ByteCount(*allocated), ByteCount(*given));
            write!(f, "\n  {address:#x}: {allocated}, freed as {given}")?;
        }
        Ok(())
    }
}

// Formats copies: the formatter may be code of the program, and may use the allocator.
debug_by! {
    [A: fmt::Debug] Tracking<A>: |it| "Tracking" {
        inner: it.inner, allocations: it.allocations(), outstanding: it.outstanding().len(); ..
    }
}

adaptor!(Tracking);

impl<A> Around for Tracking<A> {
    fn allocating(&self, stream: &Stream, bytes: usize, ask: Ask<'_>) -> Result<CUdeviceptr> {
        let address = ask()?;
        self.remember(stream, address, bytes);
        Ok(address)
    }

    fn deallocating(&self, block: Given<'_>, give: impl FnOnce(usize) -> Result<()>) -> Result<()> {
        let Given { address, bytes, .. } = block;
        // Removed before the call: after it, another thread may get the address.
        let block = self.take(address, bytes)?;
        let bytes = block.bytes;
        let rollback = OnDrop::new(|| {
            // Despite the error, the block may have been freed and its address allocated again meanwhile.
            lock(&self.state).live.entry(address).or_insert(block);
        });
        give(bytes)?;
        rollback.disarm();
        Ok(())
    }
}
