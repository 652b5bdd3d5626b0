//! Drops that wait for a thread on which the driver can be called, and the end of the process.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::process::capture_mode::RelaxedCaptureMode;
use crate::process::{driver, drop_hook};
use crate::util::panic::contain;
use crate::util::sync::lock;

/// What is left to do of a `Drop`.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Runs `job` now, or on a thread of this crate if CUDA must not be called on this one. Forgets it
/// if the driver is gone: the process ends, and everything with it.
pub(crate) fn run_or_defer(job: impl FnOnce() + Send + 'static) {
    if must_not_run_here() {
        run_elsewhere(job);
    } else {
        job();
    }
}

/// Whether this thread must not make the driver calls of a `Drop`.
#[inline]
pub(crate) fn must_not_run_here() -> bool {
    driver::in_callback() || driver::is_gone()
}

/// [`run_or_defer`] if it must not run here.
#[cold]
pub(crate) fn run_elsewhere(job: impl FnOnce() + Send + 'static) {
    if driver::is_gone() {
        std::mem::forget(job);
    } else {
        defer(Box::new(job));
    }
}

/// Drops that wait for a host thread, and the thread that runs them.
struct Reaper {
    jobs: VecDeque<Job>,
    /// The thread is running jobs, and will see whatever is queued before it finds the queue empty.
    running: bool,
    /// The last thread started, until a flush joins it.
    thread: Option<JoinHandle<()>>,
}

static REAPER: Mutex<Reaper> =
    Mutex::new(Reaper { jobs: VecDeque::new(), running: false, thread: None });

thread_local! {
    /// Whether this thread runs deferred drops.
    static REAPS: Cell<bool> = const { Cell::new(false) };
}

/// Keeps this crate's threads out of the driver once the process exits.
struct Gate {
    /// Threads of this crate that are calling the driver: the one that runs deferred drops, and
    /// those that query points.
    inside: usize,
    /// The process exits: no thread may enter any more.
    closed: bool,
}

static GATE: Mutex<Gate> = Mutex::new(Gate { inside: 0, closed: false });

static GATE_CHANGED: Condvar = Condvar::new();

impl Gate {
    /// Does not return once the process exits.
    fn enter() {
        let gate = GATE_CHANGED.wait_while(lock(&GATE), |gate| gate.closed);
        gate.unwrap_or_else(PoisonError::into_inner).inside += 1;
    }

    fn leave() {
        lock(&GATE).inside -= 1;
        GATE_CHANGED.notify_all();
    }
}

/// Makes a call that only waits for the device, so the process need not wait for it in order to
/// exit: a deferred drop then stops there.
pub(crate) fn while_waiting<R>(wait: impl FnOnce() -> R) -> R {
    if !is_reaper() {
        return wait();
    }
    Gate::leave();
    let waited = wait();
    Gate::enter();
    waited
}

/// Makes a call on a thread of this crate that does not wait for the device. Does not return once
/// the process exits.
pub(crate) fn unless_exiting<R>(call: impl FnOnce() -> R) -> R {
    Gate::enter();
    let result = call();
    Gate::leave();
    result
}

/// Hands `job` to a thread that ends when no job is left: drops in host functions are rare, and a
/// thread that idles permanently would be one more to keep out of the driver at exit.
fn defer(job: Job) {
    let mut reaper = lock(&REAPER);
    reaper.jobs.push_back(job);
    if reaper.running {
        return;
    }
    let started = std::thread::Builder::new().name("cuda-core drops".to_owned()).spawn(reap);
    match started {
        Ok(thread) => {
            reaper.running = true;
            // The thread before has no jobs left; dropping its handle detaches it.
            reaper.thread = Some(thread);
        }
        // Dropping the jobs here would call the driver on its own callback thread.
        Err(_) => {
            drop_hook::count(reaper.jobs.len());
            reaper.jobs.drain(..).for_each(std::mem::forget);
        }
    }
}

fn reap() {
    REAPS.set(true);
    loop {
        let job = {
            let mut reaper = lock(&REAPER);
            let Some(job) = reaper.jobs.pop_front() else {
                reaper.running = false;
                return;
            };
            job
        };
        Gate::enter();
        if driver::is_gone() {
            std::mem::forget(job);
        } else {
            RelaxedCaptureMode::for_life();
            contain(job);
        }
        Gate::leave();
    }
}

/// Keeps this crate's threads out of the driver from now on; called as the process exits.
#[cfg_attr(any(not(unix), miri), allow(dead_code))]
pub(crate) fn park() {
    /// A job may be in a call that waits for the device, which may wait for what no thread will do
    /// any more.
    const PATIENCE: Duration = Duration::from_secs(1);
    let mut gate = lock(&GATE);
    gate.closed = true;
    // The process was ended by a job, by a hook that it called, or by a host function, for which a
    // job may be waiting: waiting here would not end.
    if is_reaper() || driver::in_callback() {
        return;
    }
    drop(GATE_CHANGED.wait_timeout_while(gate, PATIENCE, |gate| gate.inside > 0));
}

/// Whether this thread runs deferred drops.
pub(crate) fn is_reaper() -> bool {
    REAPS.try_with(Cell::get).unwrap_or(false)
}

/// Waits for the thread of deferred drops, as often as there is one.
pub(crate) fn join() {
    loop {
        let thread = lock(&REAPER).thread.take();
        match thread {
            // The thread has caught the panics of its jobs.
            Some(thread) => drop(thread.join()),
            None => return,
        }
    }
}
