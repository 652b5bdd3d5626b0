//! Adaptors: allocators around another one, that count, limit, retry, log, track or tell.
//!
//! Each passes the inner allocator's addresses on as they are, so one is as good as the other. None
//! holds a lock while the inner allocator is called, and none loses count when that fails or
//! panics. They nest: `Statistics<Limiting<Tracking<A>>>`.

/// What passes through an adaptor unchanged.
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

/// Asks the inner allocator for a block. Null, with which one written in C says that it has none,
/// is an error here already: nobody gives it back.
fn ask<A: DeviceAllocator>(inner: &A, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
    match inner.allocate(stream, bytes)? {
        0 => Err(AllocatorError::null(inner.name()).into()),
        address => Ok(address),
    }
}

/// What has to be undone unless all goes well: when the inner allocator fails, and when it panics.
struct Rollback<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Rollback<F> {
    fn new(undo: F) -> Self {
        Self(Some(undo))
    }

    /// All went well.
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

/// Runs a function of the program's. A panic ends here, since what it would pass through is the
/// free of a buffer, or an allocation whose block would be lost.
fn contained<R>(f: impl FnOnce() -> R) -> Option<R> {
    let mut result = None;
    contain(|| result = Some(f()));
    result
}

/// A number of the calling thread that no other thread of the process ever has.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    // A thread that has lost its locals gets a number for the one call.
    NUMBER
        .try_with(|number| *number)
        .unwrap_or_else(|_| NEXT.fetch_add(1, Ordering::Relaxed))
}
