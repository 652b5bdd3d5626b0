//! Relaxes a thread's capture mode, so that its calls end no capture.

use std::cell::Cell;
use std::marker::PhantomData;

use cuda_sys::{CUstreamCaptureMode, symbol as cu};

use crate::error::Result;
use crate::process::{Failed, attempt, driver};

/// Lets this thread make potentially unsafe calls without ending a capture or failing because of one, while
/// the value lives: `cuThreadExchangeStreamCaptureMode`. See [`crate::timeline::capture`].
pub(crate) struct RelaxedCaptureMode {
    /// [`None`] if the thread was relaxed already.
    before: Option<CUstreamCaptureMode>,
    _not_send: PhantomData<*const ()>,
}

thread_local! {
    /// This module has relaxed the thread, for a scope or for its life.
    static RELAXED: Cell<bool> = const { Cell::new(false) };
}

impl RelaxedCaptureMode {
    /// Relaxes the thread until the drop. Makes two driver calls, one of them in the drop; none on a thread
    /// that is relaxed already.
    pub(crate) fn enter() -> Result<Self> {
        let before = match RELAXED.try_with(Cell::get) {
            Ok(true) => None,
            _ => Some(relax()?),
        };
        Ok(Self { before, _not_send: PhantomData })
    }

    /// Relaxes a thread of this crate before it calls the driver: one call, the first time. If that fails,
    /// [`RelaxedCaptureMode::enter`] exchanges the mode each time.
    pub(crate) fn for_life() {
        if !RELAXED.get() && !driver::is_gone() {
            // The former mode is not needed again: the thread stays relaxed until it ends.
            let _ = relax();
        }
    }
}

/// Sets the thread's mode to relaxed, and returns the former mode.
fn relax() -> Result<CUstreamCaptureMode> {
    let mut before = cuda_sys::CU_STREAM_CAPTURE_MODE_RELAXED;
    exchange(&mut before).map_err(|failed| {
        failed.undo(|| {
            // If the call has taken effect, `before` is the mode to restore; otherwise it is still the
            // requested one.
            if before != cuda_sys::CU_STREAM_CAPTURE_MODE_RELAXED {
                let _ = exchange(&mut before.clone());
            }
        })
    })?;
    note(true);
    Ok(before)
}

/// Notes the thread's mode. If its thread-locals are destroyed, nested scopes exchange the mode again.
fn note(relaxed: bool) {
    let _ = RELAXED.try_with(|now| now.set(relaxed));
}

impl Drop for RelaxedCaptureMode {
    fn drop(&mut self) {
        let Some(mut before) = self.before else { return };
        note(false);
        // Tried once more if it fails; a mode that stays relaxed only forbids less.
        let _ = exchange(&mut before.clone()).or_else(|_| exchange(&mut before));
    }
}

fn exchange(mode: &mut CUstreamCaptureMode) -> Result<(), Failed> {
    // SAFETY: the call reads and writes one mode, through an exclusive borrow.
    attempt("cuThreadExchangeStreamCaptureMode", unsafe {
        cu::cuThreadExchangeStreamCaptureMode(mode)
    })
}
