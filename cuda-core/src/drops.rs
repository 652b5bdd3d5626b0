//! What a `Drop` could not do is counted and reported to a hook; it never panics.
//!
//! An owner whose `Drop` can fail has an explicit twin that returns the error instead: `close`,
//! `restore`, `into_inner`, `wait`. [`crate::release`] says what becomes of the resource.
//!
//! Some have no twin. A stream pool and a group consist of streams, each of which has one; the
//! memory of a signal is kept for the next signal; a caching pool gives its memory back by `trim`,
//! which returns the error; the values of a `ContextLocal` are other libraries', and so are their
//! errors.

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

use crate::capture::{Relaxed, held};
use crate::driver;
use crate::error::Error;
use crate::quiet;
use crate::sync::lock;
use crate::waiter;

/// What a failed `Drop` or `close` left behind, or may have left behind if the releasing call
/// failed.
///
/// ```
/// use cuda_core::Resource;
///
/// cuda_core::set_drop_hook(|failure| match failure.resource {
///     Resource::DeviceMemory => eprintln!("{} bytes are lost: {failure}", failure.bytes),
///     _ => eprintln!("{failure}"),
/// });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resource {
    /// Device memory that was not freed.
    DeviceMemory,
    /// Pinned host memory that was not freed.
    PinnedMemory,
    /// Host memory that was given to a copy, still allocated.
    HostMemory,
    /// Physical memory whose handle was not released.
    PhysicalMemory,
    /// Memory of another interface, such as Vulkan, that was not destroyed.
    ExternalMemory,
    /// A CUDA array, mipmapped or not, that was not destroyed.
    Array,
    /// A texture object that was not destroyed.
    Texture,
    /// A surface object that was not destroyed.
    Surface,
    /// A pool of the driver's that was not destroyed.
    MemoryPool,
    /// A stream that was not destroyed.
    Stream,
    /// An event that was not destroyed.
    Event,
    /// A semaphore of another interface, such as Vulkan, that was not destroyed.
    ExternalSemaphore,
    /// A context that was not destroyed; or that is never going to be, since memory in it was left
    /// behind of which it could not be proven that no work uses it.
    Context,
    /// A module, or a library, that was not unloaded.
    Module,
    /// A linker that was not destroyed.
    Linker,
    /// The thread's current context, which a guard could not restore.
    Current,
    /// A profiler's recording that was not ended.
    ProfilerRange,
    /// A value of a [`ContextLocal`](crate::ContextLocal), whose context could not be entered.
    LibraryHandle,
    /// A host function that panicked.
    HostFunction,
}

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
    /// Its address or handle; zero if it has none.
    pub handle: u64,
    /// Its size in bytes; zero if it has none.
    pub bytes: usize,
    /// The cause; [`None`] for the panic of a host function.
    pub error: Option<Error>,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeviceMemory => "device memory",
            Self::PinnedMemory => "pinned memory",
            Self::HostMemory => "host memory given to a copy",
            Self::PhysicalMemory => "physical memory",
            Self::ExternalMemory => "external memory",
            Self::Array => "a CUDA array",
            Self::Texture => "a texture",
            Self::Surface => "a surface",
            Self::MemoryPool => "a memory pool",
            Self::Stream => "a stream",
            Self::Event => "an event",
            Self::ExternalSemaphore => "an external semaphore",
            Self::Context => "a context",
            Self::Module => "a module",
            Self::Linker => "a linker",
            Self::Current => "the thread's current context",
            Self::ProfilerRange => "a profiler's range",
            Self::LibraryHandle => "a library's handle",
            Self::HostFunction => "a host function",
        })
    }
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

/// Called with whatever [`drop_failures`] counts; see [`set_drop_hook`].
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

/// The number of times since the process began that a `Drop` of this crate failed, or a `close`
/// failed so that the resource may be gone ([`Error::GivenUp`]). Failures while the process exits,
/// or in a fork's child, are not counted. Deferred drops for which no thread could be started are
/// counted, but not reported to the hook.
///
/// ```
/// assert_eq!(cuda_core::drop_failures(), 0, "something could not be freed");
/// ```
pub fn drop_failures() -> u64 {
    FAILURES.load(Ordering::Relaxed)
}

/// Calls `hook` for whatever [`drop_failures`] counts from now on, in place of the hook before,
/// which [`take_drop_hook`] returns. Does nothing in a fork's child, where nothing is counted.
///
/// The hook runs on the thread that drops or closes, after this crate has restored that thread's
/// current context. A panic in the hook is caught and ignored.
///
/// ```
/// cuda_core::set_drop_hook(|failure| eprintln!("{failure}"));
/// # cuda_core::take_drop_hook();
/// ```
pub fn set_drop_hook(hook: impl Fn(&DropFailure) + Send + Sync + 'static) {
    // Dropping the old hook's captures may run any code: not under the lock.
    drop(replace_hook(Some(Arc::new(hook))));
}

/// Removes the hook of [`set_drop_hook`] and returns it: to end it, or for the next hook to call.
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
    // In a fork's child, a thread that does not exist there may hold the lock.
    if driver::is_gone() {
        return None;
    }
    let mut slot = HOOK.write().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *slot, hook)
}

/// Counts a failure and calls the hook, unless the driver is gone with the process.
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
        quiet::after(move || hook(&failure));
    }
}

/// Runs `f` and catches its panic. The payload is leaked, since its own drop could panic.
pub(crate) fn contain(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        std::mem::forget(payload);
    }
}

/// A value of the caller's whose destructor may panic: the panic is caught where the value is
/// dropped.
#[derive(Clone)]
pub(crate) struct Contained<T>(
    // INVARIANT: taken only by `Drop`.
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
        // SAFETY: the field is not touched after this, the only place that takes it.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        contain(|| drop(value));
    }
}

type Job = Box<dyn FnOnce() + Send>;

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

static REAPER: Mutex<Reaper> = Mutex::new(Reaper {
    jobs: VecDeque::new(),
    running: false,
    thread: None,
});

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
    let started = std::thread::Builder::new()
        .name("cuda-core drops".to_owned())
        .spawn(reap);
    match started {
        Ok(thread) => {
            reaper.running = true;
            // The thread before has no jobs left; dropping its handle detaches it.
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

/// Waits until every drop deferred before this call has run. For tests and orderly shutdowns.
///
/// That includes drops of [`InFlight`](crate::InFlight), which come after their copies: this waits
/// for the device, and for everything else that futures of this crate wait for. Waits that a waker
/// or the `Drop` of an owner begins on a thread of this crate are included, for as long as there
/// are more.
///
/// Drops that found a stream [captured by other code](Error::Capturing) are tried again, once.
///
/// Does nothing inside a host function, since the drops may be waiting for that very function, nor
/// on threads of this crate, for which it would wait: in a hook that a deferred drop calls, in the
/// `Drop` of what an [`InFlight`](crate::InFlight) owned, in a waker.
///
/// ```
/// cuda_core::flush_deferred_drops();
/// ```
pub fn flush_deferred_drops() {
    // Before the first driver call there is nothing to wait for.
    if is_reaper() || waiter::is_waiter() || !driver::is_ready() {
        return;
    }
    // One flush at a time: a second caller must not return before the thread has ended.
    static FLUSH: Mutex<()> = Mutex::new(());
    let _flush = lock(&FLUSH);
    held::retry();
    let mut all = true;
    loop {
        loop {
            let thread = lock(&REAPER).thread.take();
            match thread {
                // The thread has caught the panics of its jobs.
                Some(thread) => drop(thread.join()),
                None => break,
            }
        }
        if !waiter::flush(all) {
            return;
        }
        // A job that has run, or a continuation that was called, may have begun further waits on a
        // thread of this crate: the next round waits for those too, but not for waits that other
        // threads begin from now on.
        all = false;
    }
}

/// Whether this thread runs deferred drops.
pub(crate) fn is_reaper() -> bool {
    REAPS.try_with(Cell::get).unwrap_or(false)
}
