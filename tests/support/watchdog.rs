//! Ends the process if its test hangs.

use std::env;
use std::process;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Names the test and aborts the process, unless it is dropped in time.
///
/// A test that hangs in a driver call cannot be interrupted from outside; without the watchdog the
/// whole run would hang and not say in which test.
pub struct Watchdog {
    /// The sender whose drop wakes the thread.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts a watchdog of two minutes, or `CUDA_TESTS_WATCHDOG` seconds: a sanitizer needs more, a mutant
    /// that hangs less.
    ///
    /// Miri's clock is virtual and runs with the interpreter's steps, so there the watchdog is off;
    /// Miri detects deadlocks itself.
    pub fn start(test: &str) -> Self {
        if cfg!(miri) {
            return Self { alive: None, thread: None };
        }
        let seconds = match env::var("CUDA_TESTS_WATCHDOG") {
            Ok(text) => text.parse().expect("CUDA_TESTS_WATCHDOG is a number of seconds"),
            Err(_) => 120,
        };
        let test = test.to_owned();
        let limit = Duration::from_secs(seconds);
        let (alive, ended) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                // Not `eprintln!`: libtest would capture the message, and it would be lost with the
                // process.
                let message = format!("\nwatchdog: {test} did not end within {limit:?}\n");
                let _ = std::io::Write::write_all(&mut std::io::stderr(), message.as_bytes());
                process::abort();
            }
        });
        Self { alive: Some(alive), thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // The thread only waits and returns; it cannot have panicked.
            let _ = thread.join();
        }
    }
}
