//! Waiting on a thread that is capturing a stream of its own.

use std::marker::PhantomData;

use cuda_sys::{CUstreamCaptureMode, symbol as cu};

use crate::effect::{Failed, attempt};
use crate::error::Result;

/// Lets this thread wait and allocate pinned memory although it may be capturing a stream:
/// `cuThreadExchangeStreamCaptureMode`.
///
/// In the other modes the driver refuses such calls on a capturing thread, even for streams that
/// have nothing to do with the capture, and invalidates the capture. What this crate waits for and
/// allocates for itself is no business of the caller's capture.
pub(crate) struct Relaxed {
    before: CUstreamCaptureMode,
    _not_send: PhantomData<*const ()>,
}

impl Relaxed {
    pub(crate) fn enter() -> Result<Self> {
        let mut before = cuda_sys::CU_STREAM_CAPTURE_MODE_RELAXED;
        exchange(&mut before).map_err(|failed| {
            failed.undo(|| {
                // If it has taken effect this is the mode to go back to, and otherwise the one that was
                // asked for.
                if before != cuda_sys::CU_STREAM_CAPTURE_MODE_RELAXED {
                    let _ = exchange(&mut before.clone());
                }
            })
        })?;
        Ok(Self {
            before,
            _not_send: PhantomData,
        })
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // Once more if it fails; a mode that stays relaxed forbids less, and harms nothing else.
        let _ = exchange(&mut self.before.clone()).or_else(|_| exchange(&mut self.before));
    }
}

fn exchange(mode: &mut CUstreamCaptureMode) -> Result<(), Failed> {
    // SAFETY: the call reads and writes one mode, through an exclusive borrow.
    attempt("cuThreadExchangeStreamCaptureMode", unsafe {
        cu::cuThreadExchangeStreamCaptureMode(mode)
    })
}
