//! Drops that wait for a thread on which the driver can be called, and the end of the process.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::process::capture_mode::Relaxed;
use crate::process::{driver, drop_hook};
use crate::util::panic::contain;
use crate::util::sync::lock;

type Job = Box<dyn FnOnce() + Send>;

/// Runs `job` now, or on a host thread of ours where CUDA cannot be called on this one. Forgets it
/// where the driver is gone: the process ends, and everything with it.
pub(crate) fn run_or_defer(job: impl FnOnce() + Send + 'static) {
    if must_not_run_here() {
        run_elsewhere(job);
    } else {
        job();
    }
}

/// Whether what a `Drop` has to ask of the driver cannot be asked on this thread.
#[inline]
pub(crate) fn must_not_run_here() -> bool {
    driver::in_callback() || driver::is_gone()
}

/// [`run_or_defer`] where it must not run here.
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
    /// A thread runs jobs, and will see whatever is queued before it finds the queue empty.
    running: bool,
    /// The last thread started, until somebody waits for it.
    thread: Option<JoinHandle<()>>,
}

static REAPER: Mutex<Reaper> = Mutex::new(Reaper {
    jobs: VecDeque::new(),
    running: false,
    thread: None,
});

thread_local! {
    /// This thread runs deferred drops.
    static REAPS: Cell<bool> = const { Cell::new(false) };
}

/// Between threads of this crate and the end of the process.
struct Gate {
    /// Threads of this crate that are calling the driver: the one whose job runs, and those that ask for
    /// points.
    inside: usize,
    /// The process exits: none may.
    closed: bool,
}

static GATE: Mutex<Gate> = Mutex::new(Gate {
    inside: 0,
    closed: false,
});

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

/// Makes a call that does nothing but wait for the device, and so one that the process need not wait
/// for in order to exit: a deferred drop goes no further then.
pub(crate) fn while_waiting<R>(wait: impl FnOnce() -> R) -> R {
    if !is_reaper() {
        return wait();
    }
    Gate::leave();
    let waited = wait();
    Gate::enter();
    waited
}

/// Makes a call on a thread of this crate that does not wait for the device. Does not return once the
/// process exits.
pub(crate) fn unless_exiting<R>(call: impl FnOnce() -> R) -> R {
    Gate::enter();
    let result = call();
    Gate::leave();
    result
}

/// Hands `job` to a thread that ends when there is nothing left to do: drops in host functions are
/// rare, and a thread that idles for good is one more to keep out of the driver at exit.
fn defer(job: Job) {
    let mut reaper = lock(&REAPER);
    reaper.jobs.push_back(job);
    if reaper.running {
        return;
    }
    let started = std::thread::Builder::new()
        .name("cuda-core drops".to_owned())
        .spawn(reap);
    match started {
        Ok(thread) => {
            reaper.running = true;
            // The one before has nothing left to do, and is let go.
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
            Relaxed::for_life();
            contain(job);
        }
        Gate::leave();
    }
}

/// Keeps threads of this crate out of the driver from now on; called as the process exits.
#[cfg_attr(any(not(unix), miri), allow(dead_code))]
pub(crate) fn park() {
    /// A job may be in a call that waits for the device, which may wait for what nobody will do any
    /// more.
    const PATIENCE: Duration = Duration::from_secs(1);
    let mut gate = lock(&GATE);
    gate.closed = true;
    // A job, or a hook that it called, ends the process; or a host function does, and a job may be
    // waiting for that very function.
    if is_reaper() || driver::in_callback() {
        return;
    }
    drop(GATE_CHANGED.wait_timeout_while(gate, PATIENCE, |gate| gate.inside > 0));
}

/// Whether this thread is the one of deferred drops.
pub(crate) fn is_reaper() -> bool {
    REAPS.try_with(Cell::get).unwrap_or(false)
}

/// Waits for the thread of deferred drops, as often as there is one.
pub(crate) fn join() {
    loop {
        let thread = lock(&REAPER).thread.take();
        match thread {
            // It contains the panics of its jobs.
            Some(thread) => drop(thread.join()),
            None => return,
        }
    }
}
