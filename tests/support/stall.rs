//! Stalls a stream.

use std::ffi::c_void;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use cuda_core::{Result, Stream, StreamKind};
use cuda_sys::{CUstream, cuLaunchHostFunc};

use crate::driver::check;
use crate::sweep;

/// The longest time that a stall lasts after a driver call was made to fail.
pub(crate) const LONGEST: Duration = Duration::from_millis(30);

const STEP: Duration = Duration::from_millis(1);

/// A stalled stream. Dropping this value lets the stream continue, on every way out of a test.
///
/// Load and use beforehand everything that the test calls during the stall: module loading and context-wide
/// calls wait for the stalled stream. Stall one stream at a time: host functions may share one thread.
#[must_use = "dropping it ends the stall"]
pub struct Stall {
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !sweep::fails_a_call() {
            return drop(self.opened.wait_while(open, |open| !*open));
        }
        // Once a failed call has prevented ordering on the device, the library waits on the host, possibly on
        // the very thread that would open the gate.
        let mut left = LONGEST;
        while !*open && !left.is_zero() {
            let waited = self.opened.wait_timeout(open, STEP);
            open = waited.unwrap_or_else(PoisonError::into_inner).0;
            if cuda_sim::fault_fired() {
                left = left.saturating_sub(STEP);
            }
        }
    }
}

/// Enqueues on `stream` a host function that blocks until the returned value is released or dropped.
///
/// Uses the raw handle and the raw call, so that the library under test does not see the stall.
///
/// # Panics
/// If the driver refuses the host function.
#[track_caller]
pub fn stall(stream: CUstream) -> Stall {
    let gate = Arc::new(Gate::default());
    let data = Arc::into_raw(Arc::clone(&gate)).cast_mut().cast::<c_void>();
    // SAFETY: `wait_at_gate` takes over the count after `data` when the driver calls it, which it
    // does once for each successful enqueue.
    let result = unsafe { cuLaunchHostFunc(stream, Some(wait_at_gate), data) };
    if result != cuda_sys::CUDA_SUCCESS {
        // SAFETY: the enqueue failed, so the count that `into_raw` took above still belongs to this
        // function.
        drop(unsafe { Arc::from_raw(data.cast::<Gate>()) });
    }
    check("cuLaunchHostFunc", result);
    Stall { gate }
}

/// Enqueues on `stream`, through the library under test, a host function that returns when the sender is
/// dropped, however the test ends.
///
/// # Errors
/// The driver's.
pub fn blocks<K: StreamKind>(stream: &Stream<K>) -> Result<Sender<()>> {
    let (release, gate) = mpsc::channel::<()>();
    stream.launch_host_func(move || {
        let _ = gate.recv();
    })?;
    Ok(release)
}

unsafe extern "C" fn wait_at_gate(data: *mut c_void) {
    // SAFETY: `stall` passed the pointer of `Arc::into_raw`, and the driver calls this once.
    let gate = unsafe { Arc::from_raw(data.cast::<Gate>()) };
    gate.pass();
}

impl Stall {
    /// Lets the stream continue.
    pub fn release(self) {}

    /// Lets the stream continue after `delay`, from another thread, for tests that block their own thread.
    pub fn release_after(self, delay: Duration) {
        let delay = if sweep::fails_a_call() { delay.min(Duration::from_millis(1)) } else { delay };
        thread::spawn(move || {
            thread::sleep(delay);
            drop(self);
        });
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.gate.open();
    }
}
