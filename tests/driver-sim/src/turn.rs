//! Mutual exclusion of sessions.

use std::panic::Location;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// The thread that has a session.
#[derive(Clone, Copy)]
struct Holder {
    thread: ThreadId,
    begun: &'static Location<'static>,
}

static HOLDER: Mutex<Option<Holder>> = Mutex::new(None);
static ENDED: Condvar = Condvar::new();

/// The time after which a waiting thread prints what it waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Exclusive right to a session, held until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(());

impl Turn {
    /// Waits until no thread has a session.
    ///
    /// # Panics
    /// If this thread has a session already.
    #[track_caller]
    pub(crate) fn take() -> Self {
        let (thread, begun) = (thread::current().id(), Location::caller());
        let mut holder = HOLDER.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(other) = *holder {
            if other.thread == thread {
                drop(holder);
                panic!(
                    "this thread has a session already, begun at {}: drop it first",
                    other.begun
                );
            }
            let waited =
                ENDED.wait_timeout(holder, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            holder = waited.0;
            if waited.1.timed_out() {
                let other = other.begun;
                eprintln!(
                    "cuda-driver-sim: {begun} waits for the end of the session begun at {other}"
                );
            }
        }
        *holder = Some(Holder { thread, begun });
        Self(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *HOLDER.lock().unwrap_or_else(PoisonError::into_inner) = None;
        ENDED.notify_one();
    }
}
