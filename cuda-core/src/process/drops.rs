//! What a `Drop` could not do: counted, told to a hook, and never a panic.
//!
//! An owner whose `Drop` can fail has an explicit twin that returns the error instead: `close`,
//! `restore`, `into_inner`, `wait`. [`crate::process::release`] says what becomes of what was owned.
//!
//! Some have none. A stream pool and a group are streams, each of which has one; the memory of a
//! signal is kept for the next; a caching pool gives its memory back by `trim`, which says what it
//! could not; the values of a `ContextLocal` are other libraries', and so are their errors.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::Error;
use crate::process::capture_mode::Relaxed;
use crate::process::driver;
use crate::process::foreign_code;
use crate::process::held;
use crate::types::resource::Resource;
use crate::util::sync::lock;
use crate::wait;

/// One thing that a `Drop` could not do.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use cuda_core::Resource;
///
/// let lost = Arc::new(Mutex::new(0));
/// let count = Arc::clone(&lost);
/// cuda_core::set_drop_hook(move |failure| {
///     if failure.resource == Resource::DeviceMemory {
///         *count.lock().unwrap() += failure.bytes;
///     }
/// });
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DropFailure {
    /// What was left behind.
    pub resource: Resource,
    /// Its address or handle; zero where it has none.
    pub handle: u64,
    /// Its size in bytes; zero where it has none.
    pub bytes: usize,
    /// Why; [`None`] for the panic of a host function.
    pub error: Option<Error>,
}

impl fmt::Display for DropFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.resource == Resource::HostFunction {
            return f.write_str("a host function panicked");
        }
        write!(f, "{} was not released", self.resource)?;
        if self.handle != 0 {
            write!(f, " ({:#x})", self.handle)?;
        }
        match &self.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}

/// Told of whatever [`drop_failures`] counts; see [`set_drop_hook`].
///
/// ```
/// // Calls the hook that was there before, too.
/// let before = cuda_core::take_drop_hook();
/// cuda_core::set_drop_hook(move |failure| {
///     eprintln!("{failure}");
///     if let Some(before) = &before {
///         before(failure);
///     }
/// });
/// ```
pub type DropHook = Arc<dyn Fn(&DropFailure) + Send + Sync>;

static FAILURES: AtomicU64 = AtomicU64::new(0);
static HOOK: RwLock<Option<DropHook>> = RwLock::new(None);

/// How often a `Drop` of this crate failed since the process began, or a `close` so that what it
/// released may be gone ([`Error::GivenUp`]). Failures while the process exits, or in a fork's child,
/// are not counted. Deferred drops that no thread could be started for are counted here, and told to no
/// hook.
///
/// ```
/// assert_eq!(cuda_core::drop_failures(), 0, "something could not be freed");
/// ```
pub fn drop_failures() -> u64 {
    FAILURES.load(Ordering::Relaxed)
}

/// Calls `hook` for whatever [`drop_failures`] counts from now on, in place of the hook before, which
/// [`take_drop_hook`] returns. Does nothing in a fork's child, where nothing is counted.
///
/// The hook runs on the thread that drops or closes, when this crate has brought back what is current
/// there. A panic in it is caught and ignored.
///
/// ```
/// cuda_core::set_drop_hook(|failure| eprintln!("{failure}"));
/// # cuda_core::take_drop_hook();
/// ```
pub fn set_drop_hook(hook: impl Fn(&DropFailure) + Send + Sync + 'static) {
    // What the old hook captured may do anything when dropped: not under the lock.
    drop(replace_hook(Some(Arc::new(hook))));
}

/// Takes the hook of [`set_drop_hook`] out: to end it, or for the next one to call.
///
/// ```
/// let earlier = cuda_core::take_drop_hook();
/// cuda_core::set_drop_hook(move |failure| {
///     eprintln!("{failure}");
///     if let Some(earlier) = &earlier {
///         earlier(failure);
///     }
/// });
/// # cuda_core::take_drop_hook();
/// ```
pub fn take_drop_hook() -> Option<DropHook> {
    replace_hook(None)
}

fn replace_hook(hook: Option<DropHook>) -> Option<DropHook> {
    // A thread that is no more in a fork's child may have the lock.
    if driver::is_gone() {
        return None;
    }
    let mut slot = HOOK.write().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *slot, hook)
}

/// Counts a failure and tells the hook, unless the driver is gone with the process.
pub(crate) fn report(resource: Resource, handle: u64, bytes: usize, error: Option<Error>) {
    if driver::is_gone() || error.as_ref().is_some_and(Error::is_shutdown) {
        return;
    }
    FAILURES.fetch_add(1, Ordering::Relaxed);
    let hook = HOOK.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(hook) = hook {
        let failure = DropFailure {
            resource,
            handle,
            bytes,
            error,
        };
        foreign_code::after(move || hook(&failure));
    }
}

/// Runs `f` and ends a panic of it here. The payload is leaked, since its own drop could panic.
pub(crate) fn contain(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        std::mem::forget(payload);
    }
}

/// A value of the caller's, whose destructor may panic: the panic ends here, where the value is dropped.
#[derive(Clone)]
pub(crate) struct Contained<T>(
    // INVARIANT: taken by `Drop` alone.
    ManuallyDrop<T>,
);

impl<T> Contained<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T> Deref for Contained<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        // SAFETY: the field is not touched after this, the only taking.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        contain(|| drop(value));
    }
}

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
            FAILURES.fetch_add(reaper.jobs.len() as u64, Ordering::Relaxed);
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

/// Waits until every drop deferred before this call has run. For tests and orderly shutdowns.
///
/// That includes drops of [`InFlight`](crate::InFlight), which come after their copies: this waits
/// for the device, and for all else that futures of this crate wait for. What a waker or the `Drop` of an
/// owner begins to wait for on a thread of this crate is waited for as well, for as long as there is more.
///
/// Drops that found a stream [captured by other code](Error::Capturing) are tried again, once.
///
/// Does nothing inside a host function, since the drops may be waiting for that very function, nor
/// on threads of this crate, which it would wait for: in a hook that a deferred drop calls, in the
/// `Drop` of what an [`InFlight`](crate::InFlight) owned, in a waker.
///
/// ```
/// cuda_core::flush_deferred_drops();
/// ```
pub fn flush_deferred_drops() {
    // Before the driver was called there is nothing to wait for.
    if is_reaper() || wait::is_waiter() || !driver::is_ready() {
        return;
    }
    // One at a time: whoever comes second must not return before the thread has ended.
    static FLUSH: Mutex<()> = Mutex::new(());
    let _flush = lock(&FLUSH);
    held::retry();
    let mut all = true;
    loop {
        loop {
            let thread = lock(&REAPER).thread.take();
            match thread {
                // It contains the panics of its jobs.
                Some(thread) => drop(thread.join()),
                None => break,
            }
        }
        if !wait::flush(all) {
            return;
        }
        // A job that has run, or whoever was told, may have begun further waits on a thread of ours:
        // those are waited for too. Waits that other threads begin from now on are not.
        all = false;
    }
}

/// Whether this thread is the one of deferred drops.
pub(crate) fn is_reaper() -> bool {
    REAPS.try_with(Cell::get).unwrap_or(false)
}
