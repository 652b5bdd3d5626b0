//! Adaptors: allocators around another one, that count, limit, retry, log, track or call hooks.
//!
//! Each passes the inner allocator's addresses on unchanged, so its memory is as safe as the inner
//! one's. None holds a lock while the inner allocator is called, and none loses count when that
//! fails or panics. They nest: `Statistics<Limiting<Tracking<A>>>`.

/// Methods that an adaptor passes on unchanged.
macro_rules! forward {
    () => {
        fn trim(&self, keep: usize) -> crate::error::Result<usize> {
            self.inner.trim(keep)
        }

        fn is_in_the_context(&self) -> bool {
            self.inner.is_in_the_context()
        }

        fn name(&self) -> &str {
            self.inner.name()
        }
    };
}

mod hooks;
mod limiting;
mod logging;
mod on_failure;
mod snapshot;
mod statistics;
mod tracking;

pub use hooks::{HookEvent, HookPoint, Hooks};
pub use limiting::Limiting;
pub use logging::Logging;
pub use on_failure::{AllocationFailure, OnFailure, Verdict};
pub use snapshot::Snapshot;
pub use statistics::{Counter, Counters, Statistics};
pub use tracking::{Outstanding, OutstandingReport, SizeMismatch, Tracking};

use std::sync::atomic::{AtomicU64, Ordering};

use cuda_sys::CUdeviceptr;

use crate::alloc::DeviceAllocator;
use crate::error::{AllocatorError, Result};
use crate::stream::Stream;
use crate::util::panic::contain;

/// Asks the inner allocator for a block. Null, by which an allocator written in C reports that it
/// has no memory, becomes an error here, so that it is never given back.
fn ask<A: DeviceAllocator>(inner: &A, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
    match inner.allocate(stream, bytes)? {
        0 => Err(AllocatorError::null(inner.name()).into()),
        address => Ok(address),
    }
}

/// What to undo unless the call succeeds: if the inner allocator fails, and if it panics.
struct Rollback<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Rollback<F> {
    fn new(undo: F) -> Self {
        Self(Some(undo))
    }

    /// The call succeeded: nothing is undone.
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for Rollback<F> {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

/// Runs a function of the program's, and catches its panic: that would otherwise unwind through the
/// free of a buffer, or an allocation whose block would be lost.
fn contained<R>(f: impl FnOnce() -> R) -> Option<R> {
    let mut result = None;
    contain(|| result = Some(f()));
    result
}

/// An id of the calling thread that no other thread of the process ever has.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    // A thread whose thread-locals are destroyed gets an id for this one call.
    NUMBER.try_with(|number| *number).unwrap_or_else(|_| NEXT.fetch_add(1, Ordering::Relaxed))
}
