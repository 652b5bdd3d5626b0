//! Threads of the caller that touch pinned memory, which a process that exits waits for.

use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::error::{Error, Result};
use crate::process::driver;

/// Threads that touch pinned memory at this moment, each counted in one lane or another: many of
/// them at once would be slow in one.
static BUSY: [Lane; 16] = [const { Lane(AtomicUsize::new(0)) }; 16];

/// Has cache lines of its own.
#[repr(align(128))]
struct Lane(AtomicUsize);

impl Lane {
    fn mine() -> &'static Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static LANE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % BUSY.len();
        }
        // A thread whose locals are gone takes the first.
        &BUSY[LANE.try_with(|lane| *lane).unwrap_or(0)]
    }
}

/// Touching pinned memory, which no reference promises for the time when the process exits. Driver 580 keeps
/// it until the process is gone.
pub(crate) struct Pass(&'static Lane);

impl Pass {
    /// [`None`] once the process exits.
    pub(crate) fn enter() -> Option<Self> {
        let lane = Lane::mine();
        lane.0.fetch_add(1, Ordering::SeqCst);
        let pass = Self(lane);
        // Either this sees that the driver is going, or `park` sees this.
        fence(Ordering::SeqCst);
        (!driver::is_gone()).then_some(pass)
    }

    /// [`Pass::enter`], or why not.
    pub(crate) fn or_gone() -> Result<Self> {
        Self::enter().ok_or_else(|| driver::gone().unwrap_or(Error::Exiting))
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// Waits until nobody copies borrowed slices any more; called as the process exits, when nobody can
/// begin. A piece takes some microseconds.
#[cfg_attr(any(not(unix), miri), allow(dead_code))]
pub(crate) fn park() {
    fence(Ordering::SeqCst);
    for lane in &BUSY {
        while lane.0.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}
