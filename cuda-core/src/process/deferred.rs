//! Drops that wait for a thread on which the driver can be called, and the end of the process.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::process::capture_mode::RelaxedCaptureMode;
use crate::process::{driver, drop_hook};
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
        mem::forget(job);
    } else {
        defer(Box::new(job));
    }
}

/// Drops that wait for a host thread, and the threads that run them.
///
/// One thread at a time takes jobs, in their order. A job that may wait for the device, or that runs
/// [foreign code](super::contained), first [hands the others over](hand_over).
struct Reaper {
    jobs: VecDeque<Job>,
    /// A thread takes jobs, also those that are queued from now on, until it finds the queue empty.
    running: bool,
    /// A thread was started that has not looked yet whether another one takes jobs.
    starting: bool,
    /// Those that run, and some that have ended.
    threads: Vec<JoinHandle<()>>,
}

/// Threads that wait at the same time in deferred drops; behind so many, later drops wait, too.
const MOST: usize = 64;

static REAPER: Mutex<Reaper> = Mutex::new(Reaper {
    jobs: VecDeque::new(),
    running: false,
    starting: false,
    threads: Vec::new(),
});

thread_local! {
    /// Whether this thread runs deferred drops.
    static REAPS: Cell<bool> = const { Cell::new(false) };
    /// Whether another thread takes the jobs instead; this one takes more if none does after its job.
    static HANDED_OVER: Cell<bool> = const { Cell::new(false) };
    /// On a thread that calls a continuation: what waits behind it, unless that was handed over.
    static BEHIND: Cell<Option<Arc<dyn HandOver>>> = const { Cell::new(None) };
    /// Whether this thread is inside the [`Gate`].
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Reaper {
    /// Has a thread look for jobs: one that is starting, or a new one.
    fn start(&mut self) -> io::Result<()> {
        if self.starting {
            return Ok(());
        }
        self.threads.retain(|thread| !thread.is_finished());
        let thread = std::thread::Builder::new().name("cuda-core drops".to_owned()).spawn(reap)?;
        self.threads.push(thread);
        self.starting = true;
        Ok(())
    }

    /// The next job for a thread that takes jobs, or that no other thread keeps from taking them.
    fn next(&mut self, takes: bool) -> Option<Job> {
        if self.running && !takes {
            return None;
        }
        let job = self.jobs.pop_front();
        self.running = job.is_some();
        job
    }
}

/// Keeps this crate's threads out of the driver once the process exits.
struct Gate {
    /// Threads of this crate that are calling the driver: those that run deferred drops, and those that
    /// query points, or call what was to come then.
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
        INSIDE.set(true);
    }

    fn leave() {
        INSIDE.set(false);
        lock(&GATE).inside -= 1;
        GATE_CHANGED.notify_all();
    }
}

/// Makes a call that only waits for the device, so the process need not wait for it in order to
/// exit: a deferred drop then stops there.
pub(crate) fn while_waiting<R>(wait: impl FnOnce() -> R) -> R {
    if !INSIDE.get() {
        return wait();
    }
    hand_over();
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

/// What a thread of this crate would do next.
pub(crate) trait HandOver: Send + Sync {
    /// Has another thread do it.
    fn hand_over(self: Arc<Self>);
}

/// [`run`]s `job` before what waits `behind` it. Returns whether that is still this thread's to do.
pub(crate) fn run_before(behind: Arc<dyn HandOver>, job: impl FnOnce()) -> bool {
    BEHIND.set(Some(behind));
    run(job);
    BEHIND.take().is_some()
}

/// Runs `job` on a thread of this crate, unless the process exits.
pub(crate) fn run(job: impl FnOnce()) {
    unless_exiting(|| match driver::is_gone() {
        true => mem::forget(job),
        // Its panic ends here; the payload's own drop could panic.
        false => drop(catch_unwind(AssertUnwindSafe(job)).map_err(mem::forget)),
    });
}

/// Hands `job` to a thread that ends when no job is left: drops in host functions are rare, and a
/// thread that idles permanently would be one more to keep out of the driver at exit.
fn defer(job: Job) {
    let mut reaper = lock(&REAPER);
    reaper.jobs.push_back(job);
    if !reaper.running && reaper.start().is_err() {
        // Dropping the jobs here would call the driver on its own callback thread.
        drop_hook::count(reaper.jobs.len());
        reaper.jobs.drain(..).for_each(mem::forget);
    }
}

/// Called where a deferred drop, or a continuation, may begin to wait, perhaps for one of those behind it,
/// which another thread takes from here on. If the wait is over before that thread begins, this one takes
/// them.
pub(crate) fn hand_over() {
    if let Ok(Some(behind)) = BEHIND.try_with(Cell::take) {
        return behind.hand_over();
    }
    if !is_reaper() || HANDED_OVER.get() {
        return;
    }
    let mut reaper = lock(&REAPER);
    if reaper.threads.iter().filter(|thread| !thread.is_finished()).count() >= MOST {
        return;
    }
    // What comes next starts a thread; if none can be started, this one takes the others later.
    if reaper.jobs.is_empty() || reaper.start().is_ok() {
        reaper.running = false;
        HANDED_OVER.set(true);
    }
}

fn reap() {
    REAPS.set(true);
    let mut takes = false;
    lock(&REAPER).starting = false;
    loop {
        let Some(job) = lock(&REAPER).next(takes) else {
            // Destructors of its thread-locals must not take the turn from another thread.
            HANDED_OVER.set(true);
            return;
        };
        HANDED_OVER.set(false);
        run(move || {
            RelaxedCaptureMode::for_life();
            job();
        });
        takes = !HANDED_OVER.get();
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
    if INSIDE.get() || driver::in_callback() {
        return;
    }
    drop(GATE_CHANGED.wait_timeout_while(gate, PATIENCE, |gate| gate.inside > 0));
}

/// Whether this thread runs deferred drops.
pub(crate) fn is_reaper() -> bool {
    REAPS.try_with(Cell::get).unwrap_or(false)
}

/// Waits for the threads of deferred drops, as often as there are some.
pub(crate) fn join() {
    loop {
        let threads = mem::take(&mut lock(&REAPER).threads);
        if threads.is_empty() {
            return;
        }
        // They have caught the panics of their jobs.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}
