//! Drops that wait for a thread on which the driver can be called, and the end of the process.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::process::{RelaxedCaptureMode, driver, drop_hook};
use crate::util::{lock, thread_number, wait_while};

/// The part of a `Drop` that was deferred.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Runs `job` now, or on a thread of this crate if CUDA must not be called on this one. Leaks `job` if the
/// driver is gone: the process is exiting, or is a fork's child, which may not call the driver.
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

/// The path of [`run_or_defer`] on a thread where `job` must not run.
#[cold]
pub(crate) fn run_elsewhere(job: impl FnOnce() + Send + 'static) {
    if driver::is_gone() {
        mem::forget(job);
    } else {
        defer(Box::new(job));
    }
}

/// The queue of deferred drops, and the threads that run them.
///
/// One thread at a time takes jobs, in order. A job that may wait for the device, or that runs [foreign
/// code](super::contained), first [hands the other jobs over](hand_over).
struct Reaper {
    jobs: VecDeque<Job>,
    /// The thread that takes jobs, including those queued later, until it finds the queue empty.
    taker: Option<u64>,
    /// The taker may wait, and no thread could be started in its place: the next thread that ends a job becomes the
    /// taker.
    waits: bool,
    /// A thread was started and has not yet looked for jobs.
    starting: bool,
    /// The running threads, and some that have ended.
    threads: Vec<JoinHandle<()>>,
}

/// The number of threads that may wait in deferred drops at the same time; beyond it, later drops wait, too.
const MOST: usize = 64;

static REAPER: Mutex<Reaper> = Mutex::new(Reaper {
    jobs: VecDeque::new(),
    taker: None,
    waits: false,
    starting: false,
    threads: Vec::new(),
});

thread_local! {
    /// Whether this thread runs deferred drops.
    static REAPS: Cell<bool> = const { Cell::new(false) };
    /// On a thread that calls a continuation: the rest of its task, unless handed over.
    static BEHIND: Cell<Option<Arc<dyn HandOver>>> = const { Cell::new(None) };
    /// Whether this thread is inside the [`Gate`].
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Reaper {
    /// Makes a thread look for jobs: one that is starting, or a new one.
    fn start(&mut self) -> io::Result<()> {
        if self.starting {
            return Ok(());
        }
        self.threads.retain(|thread| !thread.is_finished());
        let thread = std::thread::Builder::new().name("cuda-core drops".to_owned());
        self.threads.push(thread.spawn(reap)?);
        self.starting = true;
        Ok(())
    }

    /// The next job for this thread, unless another one takes the jobs.
    fn next(&mut self) -> Option<Job> {
        let thread = thread_number();
        if self.taker.is_some_and(|taker| taker != thread) && !self.waits {
            return None;
        }
        let job = self.jobs.pop_front();
        self.taker = job.is_some().then_some(thread);
        self.waits = false;
        job
    }
}

/// Keeps this crate's threads out of the driver once the process is exiting.
struct Gate {
    /// Threads of this crate that are calling the driver: those that run deferred drops, query points or
    /// call continuations.
    inside: usize,
    /// The process is exiting: no thread may enter any more.
    closed: bool,
}

static GATE: Mutex<Gate> = Mutex::new(Gate { inside: 0, closed: false });

static GATE_CHANGED: Condvar = Condvar::new();

impl Gate {
    /// Enters. Does not return once the process is exiting.
    fn enter() {
        wait_while(&GATE_CHANGED, lock(&GATE), |gate| gate.closed).inside += 1;
        INSIDE.set(true);
    }

    fn leave() {
        INSIDE.set(false);
        lock(&GATE).inside -= 1;
        GATE_CHANGED.notify_all();
    }
}

/// Makes a call that only waits for the device. The process can exit during the wait: a deferred drop then
/// stops there.
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

/// Makes a call that does not wait for the device on a thread of this crate. Does not return once the process
/// is exiting.
pub(crate) fn unless_exiting<R>(call: impl FnOnce() -> R) -> R {
    Gate::enter();
    let result = call();
    Gate::leave();
    result
}

/// The rest of a task of one of this crate's threads.
pub(crate) trait HandOver: Send + Sync {
    /// Makes another thread do the rest.
    fn hand_over(self: Arc<Self>);
}

/// [`run`]s `job`. Returns whether this thread still has to do `behind`: false if `job` has handed it over.
pub(crate) fn run_before(behind: Arc<dyn HandOver>, job: impl FnOnce()) -> bool {
    BEHIND.set(Some(behind));
    run(job);
    BEHIND.take().is_some()
}

/// Runs `job` on a thread of this crate, unless the process is exiting.
pub(crate) fn run(job: impl FnOnce()) {
    unless_exiting(|| match driver::is_gone() {
        true => mem::forget(job),
        // The job's panic is caught here; the payload's own drop could panic.
        false => drop(catch_unwind(AssertUnwindSafe(job)).map_err(mem::forget)),
    });
}

/// Hands `job` to a thread that ends when no job is left: drops in host functions are rare, and a permanent
/// thread would have to be kept out of the driver at exit.
fn defer(job: Job) {
    let mut reaper = lock(&REAPER);
    reaper.jobs.push_back(job);
    if reaper.taker.is_none() && reaper.start().is_err() {
        // Dropping the jobs here would call the driver on its own callback thread, so they are leaked.
        drop_hook::count(reaper.jobs.len());
        reaper.jobs.drain(..).for_each(mem::forget);
    }
}

/// Called before a deferred drop or a continuation may wait, perhaps for one of the jobs behind it. Another
/// thread takes these jobs, unless the wait ends before that thread begins.
pub(crate) fn hand_over() {
    if let Ok(Some(behind)) = BEHIND.try_with(Cell::take) {
        return behind.hand_over();
    }
    if !is_reaper() || driver::is_gone() {
        return;
    }
    let mut reaper = lock(&REAPER);
    if reaper.taker != Some(thread_number()) {
        return;
    }
    let running = reaper.threads.iter().filter(|thread| !thread.is_finished()).count();
    // Without jobs now, the next job will start a thread.
    if running < MOST && (reaper.jobs.is_empty() || reaper.start().is_ok()) {
        reaper.taker = None;
    } else {
        reaper.waits = true;
    }
}

fn reap() {
    REAPS.set(true);
    lock(&REAPER).starting = false;
    loop {
        let Some(job) = lock(&REAPER).next() else { return };
        run(move || {
            RelaxedCaptureMode::for_life();
            job();
        });
    }
}

/// Keeps this crate's threads out of the driver from now on; called when the process exits.
#[cfg_attr(any(not(unix), miri), allow(dead_code))]
pub(crate) fn park() {
    /// A job may wait for the device, and the device for a thread that no longer runs.
    const PATIENCE: Duration = Duration::from_secs(1);
    let mut gate = lock(&GATE);
    gate.closed = true;
    // A job, a hook that it called, or a host function ends the process. A job may be waiting for that host
    // function: waiting here would never end.
    if INSIDE.get() || driver::in_callback() {
        return;
    }
    drop(GATE_CHANGED.wait_timeout_while(gate, PATIENCE, |gate| gate.inside > 0));
}

/// Whether this thread runs deferred drops.
pub(crate) fn is_reaper() -> bool {
    REAPS.try_with(Cell::get).unwrap_or(false)
}

/// Joins the threads of deferred drops, including those that start meanwhile.
pub(crate) fn join() {
    loop {
        let threads = mem::take(&mut lock(&REAPER).threads);
        if threads.is_empty() {
            return;
        }
        // These threads catch the panics of their jobs.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}
