//! Properties of a host thread: its number, its capture mode, and whether it is the callback thread.
//!
//! None has a destructor, so all can be read while a thread's local variables are dropped.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::capture::CaptureMode;

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    static RUNS_CALLBACK: Cell<bool> = const { Cell::new(false) };
    static CAPTURE_MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
}

/// Returns the calling thread's number, never reused.
pub(crate) fn number() -> u64 {
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// Returns whether the calling thread runs a function of the program for the driver.
pub(crate) fn runs_callback() -> bool {
    RUNS_CALLBACK.with(Cell::get)
}

pub(crate) fn mark_callback_thread() {
    RUNS_CALLBACK.with(|mark| mark.set(true));
}

/// Returns the calling thread's capture mode.
pub(crate) fn capture_mode() -> CaptureMode {
    CAPTURE_MODE.with(Cell::get)
}

/// Sets the calling thread's capture mode, and returns the old mode.
pub(crate) fn replace_capture_mode(mode: CaptureMode) -> CaptureMode {
    CAPTURE_MODE.with(|own| own.replace(mode))
}
