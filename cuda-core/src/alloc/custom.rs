//! Blocks of allocators behind the interface: what comes from them is looked at, and goes back in
//! order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use super::DeviceAllocator;
use super::handle::Allocator;
use crate::error::{AllocatorError, Error, Result};
use crate::memory::device::ALIGNMENT;
use crate::process::release::Unreleased;
use crate::stream::Stream;
use crate::timeline::core::StreamCore;
use crate::timeline::ledger::{Fences, Ledger};

/// `bytes` of the allocator's for the stream: where, and the ledger of the new block.
pub(crate) fn allocate(
    allocator: &Allocator,
    core: &Arc<StreamCore>,
    bytes: usize,
) -> Result<(CUdeviceptr, Ledger)> {
    let stream = Stream::new(core.clone());
    let address = contain(allocator, || allocator.allocate(&stream, bytes))?;
    if address == 0 {
        return Err(AllocatorError::null(&name_of(allocator)).into());
    }
    if address % ALIGNMENT as u64 != 0 {
        // SAFETY: just allocated by it for this stream, and nobody has used it.
        let given_back = contain(allocator, || unsafe {
            allocator.deallocate(&stream, address, bytes)
        });
        given_back?;
        return Err(failed(allocator, "its memory is not aligned to 256"));
    }
    // Another stream may touch the memory only when this one may.
    let timeline = core.timeline();
    let ledger = Ledger::allocated(0..bytes, timeline, timeline.issued());
    Ok((address, ledger))
}

/// Gives a block of the allocator's back, behind everybody else's work.
///
/// # Safety
/// The block came from [`allocate`] for this stream, and is given up; `fences` are what work of other
/// streams on it is not known to be complete.
pub(crate) unsafe fn free(
    allocator: &Allocator,
    home: &Arc<StreamCore>,
    address: CUdeviceptr,
    bytes: usize,
    fences: &Fences,
) -> Result<(), Unreleased> {
    if !fences.is_empty() {
        let bound = home.bind("cuStreamWaitEvent")?;
        if fences.wait_on(&bound).is_err() {
            // The stream could not be made to wait, so the host does.
            fences.wait_host()?;
        }
    }
    let stream = Stream::new(home.clone());
    let mut returned = false;
    let freed = contain(allocator, || {
        // SAFETY: by the caller's promise the block came from there for this stream and is given
        // up; the work of other streams, `fences`, was waited for above.
        let freed = unsafe { allocator.deallocate(&stream, address, bytes) };
        returned = true;
        freed
    });
    // As an allocator promises: what it does not free is kept, unless that is an error of the
    // driver's. Of what panicked nobody knows how far it had come.
    freed.map_err(|error| match error.code() {
        None if returned => Unreleased::Kept(error),
        _ => Unreleased::Unknown(error),
    })
}

/// Whether the allocator's blocks are in the context of the stream that they are for. One that panics
/// has not said so.
pub(crate) fn is_in_the_context(allocator: &Allocator) -> bool {
    contain(allocator, || Ok(allocator.is_in_the_context())).unwrap_or(false)
}

/// Runs code of an allocator's, whose panic is an error.
fn contain<R>(allocator: &Allocator, f: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let said = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned());
        // Its own drop could panic.
        std::mem::forget(payload);
        Err(failed(
            allocator,
            &match said {
                Some(text) => format!("it panicked: {text}"),
                None => "it panicked".to_owned(),
            },
        ))
    })
}

fn failed(allocator: &Allocator, why: &str) -> Error {
    let failed = AllocatorError::Failed {
        allocator: name_of(allocator),
        why: why.to_owned(),
    };
    failed.into()
}

/// What the allocator calls itself, which is code of its own, too.
fn name_of(allocator: &Allocator) -> String {
    let name = catch_unwind(AssertUnwindSafe(|| allocator.name().to_owned()));
    name.unwrap_or_else(|payload| {
        std::mem::forget(payload);
        "an allocator".to_owned()
    })
}
