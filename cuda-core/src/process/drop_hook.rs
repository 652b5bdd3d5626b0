//! Failures of `Drop`: counted and reported to a hook; no `Drop` panics.
//!
//! An owner whose `Drop` can fail has an explicit twin that returns the error instead: `close`, `restore`,
//! `into_inner`, `wait`. [`crate::process::effect`] describes the state of the resource after a failure.
//!
//! Some owners have no twin. A stream pool and a group consist of streams, each of which has one. The memory
//! of a signal is kept for the next signal. A caching pool returns its memory by `trim`, which returns the
//! error. The values of a `ContextLocal` belong to other libraries, and so do their errors.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::error::Error;
use crate::process::{driver, foreign_code};
use crate::types::Resource;
use crate::util::lock;

/// A failure of a `Drop`.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use cuda_core::Resource;
///
/// let lost = Arc::new(Mutex::new(0));
/// let count = Arc::clone(&lost);
/// cuda_core::drops::set_hook(move |failure| {
///     if failure.resource == Resource::DeviceMemory {
///         *count.lock().unwrap() += failure.bytes;
///     }
/// });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DropFailure {
    /// The resource that was left behind.
    pub resource: Resource,
    /// The resource's address or handle; zero if it has none.
    pub handle: u64,
    /// The resource's size in bytes; zero if it has none.
    pub bytes: usize,
    /// The cause; [`None`] for the panic of a host function.
    pub error: Option<Error>,
}

impl fmt::Display for DropFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.resource == Resource::HostFunction {
            return f.write_str("a host function panicked");
        }
        let restores = self.resource == Resource::Current;
        let undone = if restores { "was not restored" } else { "was not released" };
        write!(f, "{} {undone}", self.resource)?;
        if self.handle != 0 {
            write!(f, " ({:#x})", self.handle)?;
        }
        match &self.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}

/// Called with each failure that [`drops::failures`](crate::drops::failures) counts; see
/// [`drops::set_hook`](crate::drops::set_hook).
///
/// ```
/// // Calls the hook that was there before, too.
/// let before = cuda_core::drops::take_hook();
/// cuda_core::drops::set_hook(move |failure| {
///     eprintln!("{failure}");
///     if let Some(before) = &before {
///         before(failure);
///     }
/// });
/// ```
pub type DropHook = Arc<dyn Fn(&DropFailure) + Send + Sync>;

static FAILURES: AtomicU64 = AtomicU64::new(0);
static HOOK: Mutex<Option<DropHook>> = Mutex::new(None);

/// The number of times since the process began that a `Drop` of this crate failed, or a `close` failed so
/// that the resource may be gone ([`Error::GivenUp`]). Failures while the process is exiting, or in a
/// fork's child, are not counted. Deferred drops for which no thread could be started are counted, but not
/// reported to the hook.
///
/// ```
/// assert_eq!(cuda_core::drops::failures(), 0, "something could not be freed");
/// ```
pub fn drop_failures() -> u64 {
    FAILURES.load(Ordering::Relaxed)
}

/// Sets the hook that is called for each failure that [`drops::failures`](crate::drops::failures) counts from
/// now on. It replaces the former hook; to keep that one, call [`drops::take_hook`](crate::drops::take_hook)
/// first. Does nothing in a fork's child, where nothing is counted.
///
/// The hook runs on the thread that drops or closes the resource, or on the thread of this crate that runs a
/// deferred drop, after this crate has restored that thread's current context. A panic in the hook is caught
/// and ignored.
///
/// ```
/// cuda_core::drops::set_hook(|failure| eprintln!("{failure}"));
/// # cuda_core::drops::take_hook();
/// ```
pub fn set_drop_hook(hook: impl Fn(&DropFailure) + Send + Sync + 'static) {
    // Dropping the old hook's captures may run any code, so it must not happen under the lock.
    drop(replace_hook(Some(Arc::new(hook))));
}

/// Removes the hook of [`drops::set_hook`](crate::drops::set_hook) and returns it, for example for the next
/// hook to call.
///
/// ```
/// let earlier = cuda_core::drops::take_hook();
/// cuda_core::drops::set_hook(move |failure| {
///     eprintln!("{failure}");
///     if let Some(earlier) = &earlier {
///         earlier(failure);
///     }
/// });
/// # cuda_core::drops::take_hook();
/// ```
pub fn take_drop_hook() -> Option<DropHook> {
    replace_hook(None)
}

fn replace_hook(hook: Option<DropHook>) -> Option<DropHook> {
    // In a fork's child, a thread that does not exist there may hold the lock.
    if driver::is_gone() { None } else { std::mem::replace(&mut *lock(&HOOK), hook) }
}

/// Counts a failure and calls the hook, unless the process is exiting or is a fork's child.
pub(crate) fn report(resource: Resource, handle: u64, bytes: usize, error: Option<Error>) {
    if driver::is_gone() || error.as_ref().is_some_and(Error::is_shutdown) {
        return;
    }
    FAILURES.fetch_add(1, Ordering::Relaxed);
    let hook = lock(&HOOK).clone();
    if let Some(hook) = hook {
        let failure = DropFailure { resource, handle, bytes, error };
        foreign_code::after(move || hook(&failure));
    }
}

/// Counts resources that are left behind, without calling the hook.
pub(crate) fn count(failures: usize) {
    FAILURES.fetch_add(failures as u64, Ordering::Relaxed);
}
