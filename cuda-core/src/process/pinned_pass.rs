//! Threads of the program that access pinned memory; an exiting process waits for them.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::process::driver;

/// Counts the threads that access pinned memory at this moment. Each thread counts in one of
/// several lanes, since a single counter would be slow under contention.
static BUSY: [Lane; 16] = [const { Lane(AtomicUsize::new(0)) }; 16];

/// A counter on cache lines of its own.
#[repr(align(128))]
struct Lane(AtomicUsize);

impl Lane {
    fn mine() -> &'static Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static LANE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % BUSY.len();
        }
        // A thread whose thread-locals are destroyed takes the first lane.
        &BUSY[LANE.try_with(|lane| *lane).unwrap_or(0)]
    }
}

/// Permission to access pinned memory. CUDA's documentation does not promise that the memory stays mapped
/// while the process is exiting; driver 580 keeps it until the process has ended.
pub(crate) struct Pass(&'static Lane);

impl Pass {
    /// Returns [`None`] once the process is exiting.
    pub(crate) fn enter() -> Option<Self> {
        let lane = Lane::mine();
        lane.0.fetch_add(1, Ordering::SeqCst);
        let pass = Self(lane);
        // Either this thread sees that the driver is gone, or `park` sees this thread in its lane.
        fence(Ordering::SeqCst);
        (!driver::is_gone()).then_some(pass)
    }

    /// [`Pass::enter`], or the error to return once the process is exiting.
    pub(crate) fn or_gone() -> Result<Self> {
        Self::enter().ok_or_else(|| driver::ensure_not_gone().err().unwrap_or(Error::Exiting))
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// Waits until no thread copies borrowed slices any more, for a second at most. Called when the process exits
/// and no thread can begin a copy. Each piece takes some microseconds, unless the system has yet to fetch a
/// page of the slice, from a file on a network for instance.
#[cfg_attr(any(not(unix), miri), allow(dead_code))]
pub(crate) fn park() {
    const PATIENCE: Duration = Duration::from_secs(1);
    let begin = Instant::now();
    fence(Ordering::SeqCst);
    while BUSY.iter().any(|lane| lane.0.load(Ordering::SeqCst) > 0) && begin.elapsed() < PATIENCE {
        thread::yield_now();
    }
}
