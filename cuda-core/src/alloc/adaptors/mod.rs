//! Adaptors: allocators around another one, that count, limit, retry, log, track or call hooks.
//!
//! An adaptor passes the inner allocator's addresses on unchanged, so its memory is as safe as the inner
//! one's. It holds no lock while it calls the inner allocator, and its counts stay right if that call fails
//! or panics. Adaptors nest: `Statistics<Limiting<Tracking<A>>>`.

/// Defines an adaptor's access to its inner allocator, and implements `DeviceAllocator` by its [`Around`].
macro_rules! adaptor {
    ($adaptor:ident) => {
        impl<A> $adaptor<A> {
            /// The inner allocator.
            pub fn inner(&self) -> &A {
                &self.inner
            }
        }

        // SAFETY: the inner allocator's memory is passed on unchanged.
        unsafe impl<A: crate::alloc::DeviceAllocator> crate::alloc::DeviceAllocator
            for $adaptor<A>
        {
            fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
                self.allocating(stream, bytes, &mut || super::ask(&self.inner, stream, bytes))
            }

            unsafe fn deallocate(
                &self,
                stream: &Stream,
                address: CUdeviceptr,
                bytes: usize,
            ) -> Result<()> {
                // SAFETY: the inner allocator returned it with as many bytes as an adaptor passes
                // on, and the caller's promise is the same. A `FnOnce` runs once.
                let give = |bytes| unsafe { self.inner.deallocate(stream, address, bytes) };
                self.deallocating(super::Given { stream, address, bytes }, give)
            }

            fn trim(&self, keep: usize) -> Result<usize> {
                self.inner.trim(keep)
            }

            fn is_in_the_context(&self) -> bool {
                self.inner.is_in_the_context()
            }

            fn name(&self) -> &str {
                self.inner.name()
            }
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

use cuda_sys::CUdeviceptr;

use crate::alloc::DeviceAllocator;
use crate::error::{AllocatorError, Result};
use crate::stream::Stream;

/// What an adaptor does around the calls of its inner allocator.
trait Around {
    /// Allocates: asks the inner allocator for `bytes`, once or more.
    fn allocating(&self, stream: &Stream, bytes: usize, ask: Ask<'_>) -> Result<CUdeviceptr>;

    /// Gives a block back: calls `give` with the bytes that it was allocated with.
    fn deallocating(&self, block: Given<'_>, give: impl FnOnce(usize) -> Result<()>) -> Result<()> {
        give(block.bytes)
    }
}

type Ask<'a> = &'a mut dyn FnMut() -> Result<CUdeviceptr>;

/// A block that is given back.
struct Given<'a> {
    stream: &'a Stream,
    address: CUdeviceptr,
    bytes: usize,
}

/// Asks the inner allocator for a block. An allocator written in C returns null if it has no memory. This
/// function returns an error for null, so that null is never passed to `deallocate`.
fn ask<A: DeviceAllocator>(inner: &A, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
    match inner.allocate(stream, bytes)? {
        0 => Err(AllocatorError::Null { allocator: inner.name().to_owned() }.into()),
        address => Ok(address),
    }
}
