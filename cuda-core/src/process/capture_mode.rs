//! Calls that no capture minds: the thread's capture mode.

use std::cell::Cell;
use std::marker::PhantomData;

use cuda_sys::{CUstreamCaptureMode, symbol as cu};

use crate::error::Result;
use crate::process::driver;
use crate::process::effect::{Failed, attempt};

/// Lets this thread make potentially unsafe calls, for as long as it lives, without a word from any
/// capture: `cuThreadExchangeStreamCaptureMode`. See [`crate::timeline::capture`].
pub(crate) struct Relaxed {
    /// [`None`] on a thread that was relaxed already.
    before: Option<CUstreamCaptureMode>,
    _not_send: PhantomData<*const ()>,
}

thread_local! {
    /// The thread is relaxed by this module, for a while or for life.
    static RELAXED: Cell<bool> = const { Cell::new(false) };
}

impl Relaxed {
    /// Two driver calls with the drop; none on a thread that is relaxed already.
    pub(crate) fn enter() -> Result<Self> {
        let before = match RELAXED.try_with(Cell::get) {
            Ok(true) => None,
            _ => Some(relax()?),
        };
        Ok(Self {
            before,
            _not_send: PhantomData,
        })
    }

    /// For a thread of this crate's own, before it calls the driver: one call, the first time. Where that
    /// fails, [`Relaxed::enter`] does what it does elsewhere.
    pub(crate) fn for_life() {
        if !RELAXED.get() && !driver::is_gone() {
            // What the mode was before is of no use to a thread that ends with it.
            let _ = relax();
        }
    }
}

/// Makes the thread's mode the relaxed one, and says which it was.
fn relax() -> Result<CUstreamCaptureMode> {
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
    note(true);
    Ok(before)
}

/// Where the thread ends, and its locals are gone, nested calls exchange the mode once more.
fn note(relaxed: bool) {
    let _ = RELAXED.try_with(|now| now.set(relaxed));
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        let Some(mut before) = self.before else {
            return;
        };
        note(false);
        // Once more if it fails; a mode that stays relaxed forbids less, and harms nothing else.
        let _ = exchange(&mut before.clone()).or_else(|_| exchange(&mut before));
    }
}

fn exchange(mode: &mut CUstreamCaptureMode) -> Result<(), Failed> {
    // SAFETY: the call reads and writes one mode, through an exclusive borrow.
    attempt("cuThreadExchangeStreamCaptureMode", unsafe {
        cu::cuThreadExchangeStreamCaptureMode(mode)
    })
}
