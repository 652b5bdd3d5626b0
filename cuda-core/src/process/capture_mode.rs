//! Relaxes a thread's capture mode, so that its calls end no capture.

use std::cell::Cell;
use std::marker::PhantomData;

use cuda_sys::{CUstreamCaptureMode, symbol as cu};

use crate::error::Result;
use crate::process::{Failed, attempt, driver};

/// Lets this thread make potentially unsafe calls, for as long as the value lives, without ending
/// or failing for any capture: `cuThreadExchangeStreamCaptureMode`. See
/// [`crate::timeline::capture`].
pub(crate) struct RelaxedCaptureMode {
    /// [`None`] on a thread that was relaxed already.
    before: Option<CUstreamCaptureMode>,
    _not_send: PhantomData<*const ()>,
}

thread_local! {
    /// This module has relaxed the thread, for a scope or for its life.
    static RELAXED: Cell<bool> = const { Cell::new(false) };
}

impl RelaxedCaptureMode {
    /// Two driver calls together with the drop; none on a thread that is relaxed already.
    pub(crate) fn enter() -> Result<Self> {
        let before = match RELAXED.try_with(Cell::get) {
            Ok(true) => None,
            _ => Some(relax()?),
        };
        Ok(Self { before, _not_send: PhantomData })
    }

    /// For a thread of this crate's own, before it calls the driver: one call, the first time. If
    /// that fails, [`RelaxedCaptureMode::enter`] exchanges the mode each time.
    pub(crate) fn for_life() {
        if !RELAXED.get() && !driver::is_gone() {
            // The mode before is not needed again: the thread ends in this one.
            let _ = relax();
        }
    }
}

/// Makes the thread's mode the relaxed one, and returns the mode before.
fn relax() -> Result<CUstreamCaptureMode> {
    let mut before = cuda_sys::CU_STREAM_CAPTURE_MODE_RELAXED;
    exchange(&mut before).map_err(|failed| {
        failed.undo(|| {
            // If the call has taken effect, `before` is the mode to go back to, otherwise still the
            // one that was requested.
            if before != cuda_sys::CU_STREAM_CAPTURE_MODE_RELAXED {
                let _ = exchange(&mut before.clone());
            }
        })
    })?;
    note(true);
    Ok(before)
}

/// If the thread is ending and its thread-locals are destroyed, nested calls exchange the mode
/// again.
fn note(relaxed: bool) {
    let _ = RELAXED.try_with(|now| now.set(relaxed));
}

impl Drop for RelaxedCaptureMode {
    fn drop(&mut self) {
        let Some(mut before) = self.before else { return };
        note(false);
        // Tried again if it fails; a mode that stays relaxed forbids less, and harms nothing else.
        let _ = exchange(&mut before.clone()).or_else(|_| exchange(&mut before));
    }
}

fn exchange(mode: &mut CUstreamCaptureMode) -> Result<(), Failed> {
    // SAFETY: the call reads and writes one mode, through an exclusive borrow.
    attempt("cuThreadExchangeStreamCaptureMode", unsafe {
        cu::cuThreadExchangeStreamCaptureMode(mode)
    })
}
