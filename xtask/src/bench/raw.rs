//! Raw driver calls and their results.

use anyhow::ensure;
use cuda_core::{Device, Event, Stream};
use cuda_sys::{self as sys, CUDA_SUCCESS, CUresult};

/// Returns an error unless a call succeeded.
pub(crate) fn check(what: &str, code: CUresult) -> anyhow::Result<()> {
    ensure!(code == CUDA_SUCCESS, "{what}: error {}", code.0);
    Ok(())
}

/// Returns the first result that is an error. All calls are made, also after one that fails.
pub(crate) fn first_error(codes: impl IntoIterator<Item = CUresult>) -> CUresult {
    let earlier = |first, code| if first == CUDA_SUCCESS { code } else { first };
    codes.into_iter().fold(CUDA_SUCCESS, earlier)
}

/// Waits for a stream. Returns the first error: that of the earlier enqueue, or of the wait.
pub(crate) fn wait(enqueued: CUresult, stream: &Stream) -> CUresult {
    // SAFETY: the stream is live.
    first_error([enqueued, unsafe { sys::cuStreamSynchronize(stream.as_raw()) }])
}

/// Returns the driver's code for work of the library that stands in for raw calls.
pub(super) fn code_of(done: cuda_core::Result<()>) -> CUresult {
    match done {
        Ok(()) => CUDA_SUCCESS,
        Err(error) => error.code().unwrap_or(sys::CUDA_ERROR_UNKNOWN),
    }
}

/// Retains the primary context of a device.
pub(super) fn retain(device: Device) -> anyhow::Result<()> {
    let mut context = std::ptr::null_mut();
    // SAFETY: the library gave the device's handle; the call writes one context, to a local that
    // outlives it.
    let code = unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device.as_raw()) };
    check("cuDevicePrimaryCtxRetain", code)
}

/// Makes `then` wait for the work on `first` so far, by this event.
pub(super) fn order(event: &Event, first: &Stream, then: &Stream) -> CUresult {
    // SAFETY: the event and the stream are live and of one context.
    let recorded = unsafe { sys::cuEventRecord(event.as_raw(), first.as_raw()) };
    // SAFETY: the stream and the event are live; flags must be zero.
    let waits = unsafe { sys::cuStreamWaitEvent(then.as_raw(), event.as_raw(), 0) };
    first_error([recorded, waits])
}
