//! Calls of custom allocators. This module checks the memory that they return, and frees it in stream order.

use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use super::{Allocator, DeviceAllocator};
use crate::error::{AllocatorError, Error, Rejected, Result};
use crate::memory::ALIGNMENT;
use crate::process::{Failed, caught, unless_panic};
use crate::stream::Stream;
use crate::timeline::StreamCore;
use crate::timeline::ledger::{Fences, Ledger};

/// Allocates `bytes` on the stream: returns the address, and the ledger of the new block.
pub(crate) fn allocate(
    allocator: &Allocator,
    core: &Arc<StreamCore>,
    bytes: usize,
) -> Result<(CUdeviceptr, Ledger)> {
    let stream = Stream::new(core.clone());
    let address = contain(allocator, || allocator.allocate(&stream, bytes))?;
    if address == 0 {
        return Err(AllocatorError::Null { allocator: name_of(allocator) }.into());
    }
    if address % ALIGNMENT as u64 != 0 {
        // SAFETY: the allocator has just allocated it for this stream, and nothing has used it.
        let given_back =
            contain(allocator, || unsafe { allocator.deallocate(&stream, address, bytes) });
        given_back?;
        return Err(failed(allocator, "its memory is not aligned to 256"));
    }
    // Other streams may use the memory only when this stream may: after a new point, since events recorded
    // before do not cover the allocator's work. `cuMemAlloc` enqueues nothing, and needs no new point.
    let timeline = core.timeline();
    let seq = if allocator.is_plain() { timeline.issued() } else { timeline.issue() };
    Ok((address, Ledger::after(0..bytes, timeline.at(seq))))
}

/// Gives a block back to its allocator, after all other streams' work on it.
///
/// # Safety
/// The block came from [`allocate`] for this stream, and the caller gives it up. `fences` are the points of
/// other streams' work on it that is not known to be complete.
pub(crate) unsafe fn free(
    allocator: &Allocator,
    home: &Arc<StreamCore>,
    address: CUdeviceptr,
    bytes: usize,
    fences: &Fences,
) -> Result<(), Failed> {
    if !fences.is_empty() {
        fences.wait_on_or_host(&home.bind("cuStreamWaitEvent")?)?;
    }
    let stream = Stream::new(home.clone());
    let freed = contain(allocator, || {
        // SAFETY: by the caller's promise the allocator returned the block for this stream and it
        // is given up; the work of other streams, `fences`, was waited for above.
        Ok(unsafe { allocator.deallocate(&stream, address, bytes) })
    });
    // By the contract of `deallocate`, a block that an allocator does not free is kept, unless the
    // error is the driver's. After a panic the block's state is unknown.
    match freed {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) if error.code().is_none() => {
            let cause = error.downcast_ref().map(|it: &Rejected<CUdeviceptr>| it.error.clone());
            Err(Failed::Refused(cause.unwrap_or(error)))
        }
        Ok(Err(error)) | Err(error) => {
            keep_context_of_work(allocator, home, fences);
            Err(Failed::Unknown(error))
        }
    }
}

/// Keeps the context of a block that may not have been freed, unless the work of other streams on the block
/// has ended: destroying the context would free the block under that work, for which only the home stream may
/// have waited so far.
#[cold]
fn keep_context_of_work(allocator: &Allocator, home: &StreamCore, fences: &Fences) {
    if !is_in_the_context(allocator) {
        return;
    }
    if let Err(error) = fences.wait_host() {
        home.context().leave_behind(&error);
    }
}

/// Whether the allocator's blocks belong to the context of their stream; `false` if the allocator
/// panics.
pub(crate) fn is_in_the_context(allocator: &Allocator) -> bool {
    unless_panic(|| allocator.is_in_the_context()).unwrap_or(false)
}

/// Runs an allocator's code, and turns a panic into an error.
fn contain<R>(allocator: &Allocator, f: impl FnOnce() -> Result<R>) -> Result<R> {
    caught(f).unwrap_or_else(|payload| {
        let said = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned());
        // The payload's own drop could panic.
        std::mem::forget(payload);
        let why = said.map_or("it panicked".to_owned(), |text| format!("it panicked: {text}"));
        Err(failed(allocator, &why))
    })
}

fn failed(allocator: &Allocator, why: &str) -> Error {
    let failed = AllocatorError::Failed { allocator: name_of(allocator), why: why.to_owned() };
    failed.into()
}

/// Asks the allocator for its name. This runs the allocator's own code, which may panic.
fn name_of(allocator: &Allocator) -> String {
    let name = unless_panic(|| allocator.name().to_owned());
    name.unwrap_or_else(|| "an allocator".to_owned())
}
