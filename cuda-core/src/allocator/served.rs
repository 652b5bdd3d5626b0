//! Blocks of allocators behind the interface: what comes from them is looked at, and goes back in
//! order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use super::DeviceAllocator;
use super::handle::Allocator;
use crate::error::{Error, Result};
use crate::memory::device::ALIGNMENT;
use crate::memory::ledger::{Fences, Ledger};
use crate::stream::Stream;
use crate::stream_core::StreamCore;

/// `bytes` of the allocator's for the stream: where, and the ledger of the new block.
pub(crate) fn allocate(
    allocator: &Allocator,
    core: &Arc<StreamCore>,
    bytes: usize,
) -> Result<(CUdeviceptr, Ledger)> {
    let stream = Stream::new(core.clone());
    let address = contain(allocator, || allocator.allocate(&stream, bytes))?;
    let refused = match address {
        0 => Some("it returned null"),
        address if address % ALIGNMENT as u64 != 0 => Some("its memory is not aligned to 256"),
        _ => None,
    };
    if let Some(why) = refused {
        if address != 0 {
            // SAFETY: just allocated by it for this stream, and nobody has used it.
            let given_back = contain(allocator, || unsafe {
                allocator.deallocate(&stream, address, bytes)
            });
            given_back?;
        }
        return Err(failed(allocator, why));
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
) -> Result<()> {
    if !fences.is_empty() {
        let bound = home.bind()?;
        if fences.wait_on(&bound).is_err() {
            // The stream could not be made to wait, so the host does.
            fences.wait_host()?;
        }
        // Who waits for the stream from now on waits for that as well.
        bound.count();
    }
    let stream = Stream::new(home.clone());
    contain(allocator, || {
        // SAFETY: the caller's promise, and the waits above.
        unsafe { allocator.deallocate(&stream, address, bytes) }
    })
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
    // The name is the allocator's own code, too.
    let name = catch_unwind(AssertUnwindSafe(|| allocator.name().to_owned()));
    Error::Allocator {
        allocator: name.unwrap_or_else(|payload| {
            std::mem::forget(payload);
            "an allocator".to_owned()
        }),
        why: why.to_owned(),
    }
}
