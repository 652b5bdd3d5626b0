//! The state of the process and the driver: initialisation, and the states in which the driver must not be
//! called.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use cuda_sys::symbol as cu;

use crate::error::{Error, Result, asked, check};
use crate::types::Version;
use crate::util::OnDrop;

const COLD: u8 = 0;
const READY: u8 = 1;
const FORKED: u8 = 2;
const EXITING: u8 = 3;
/// One thread initialises the driver, and the others wait for it.
const STARTING: u8 = 4;

static STATE: AtomicU8 = AtomicU8::new(COLD);

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// The oldest supported driver.
const FLOOR: Version = Version::new(11, 8);

/// The interval at which a thread checks whether another one has initialised the driver, which takes
/// milliseconds at least.
const POLL: Duration = Duration::from_micros(100);

/// Whether this thread is running a host function of a stream.
#[inline]
pub(crate) fn in_callback() -> bool {
    // A thread whose thread-locals are destroyed is exiting; the driver's callback thread does not exit while
    // it runs a host function.
    IN_CALLBACK.try_with(Cell::get).unwrap_or(false)
}

/// Marks this thread as the driver's callback thread while the value lives.
pub(crate) fn enter_callback() -> OnDrop<impl FnOnce()> {
    let mark = |running| {
        let _ = IN_CALLBACK.try_with(|flag| flag.set(running));
    };
    mark(true);
    OnDrop::new(move || mark(false))
}

/// Initialises the driver once, and returns an error if CUDA cannot be called at all.
///
/// Every operation begins here, before it takes any lock. Costs one thread-local read and one load.
#[inline]
pub(crate) fn ensure() -> Result<()> {
    if in_callback() {
        return Err(Error::InCallback);
    }
    if STATE.load(Ordering::Acquire) == READY {
        return Ok(());
    }
    ensure_slow()
}

/// [`ensure`] for an operation that may need no driver call. Returns `Ok(false)` in a host function, which
/// must not make one.
#[inline]
pub(crate) fn ensure_or_in_callback() -> Result<bool> {
    match ensure() {
        Err(Error::InCallback) => ensure_not_gone().map(|()| false),
        result => result.map(|()| true),
    }
}

/// Whether [`ensure`] would return `Ok` at once.
#[inline]
pub(crate) fn is_ready() -> bool {
    !in_callback() && STATE.load(Ordering::Acquire) == READY
}

#[cold]
fn ensure_slow() -> Result<()> {
    // Changes nothing once the process is exiting.
    let step = |from, to| STATE.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    loop {
        ensure_not_gone()?;
        hooks::watch_forks();
        // A missing driver is final, and is detected here without a lock.
        cuda_sys::load()?;
        // The state itself is the lock, since that survives a fork: the fork handler corrects the state in
        // the child, where a mutex held by another thread would stay locked.
        match step(COLD, STARTING) {
            Ok(_) => {
                let started = start();
                let _ = step(STARTING, if started.is_ok() { READY } else { COLD });
                return started;
            }
            Err(READY) => return Ok(()),
            Err(_) => thread::sleep(POLL),
        }
    }
}

fn start() -> Result<()> {
    // SAFETY: cuInit takes no pointer; flags must be zero.
    check("cuInit", unsafe { cu::cuInit(0) })?;
    let found = ask_version()?;
    if found < FLOOR {
        return Err(Error::DriverTooOld { found });
    }
    hooks::watch_exit();
    Ok(())
}

/// Whether the driver is permanently unreachable: the process is exiting, or is a fork's child.
#[inline]
pub(crate) fn is_gone() -> bool {
    matches!(STATE.load(Ordering::Acquire), FORKED | EXITING)
}

/// Returns an error if the driver [is gone](is_gone); for operations that need no driver call.
pub(crate) fn ensure_not_gone() -> Result<()> {
    match STATE.load(Ordering::Acquire) {
        FORKED => Err(Error::Forked),
        EXITING => Err(Error::Exiting),
        _ => Ok(()),
    }
}

/// The newest CUDA that the driver supports: `cuDriverGetVersion`. Needs no context.
///
/// # Errors
/// [`Error::NoDriver`]; [`Error::DriverTooOld`]; those of `cuInit`, such as `NO_DEVICE`.
///
/// ```no_run
/// use cuda_core::{Version, driver_version};
///
/// if driver_version()? < Version::new(12, 4) {
///     println!("{} has no green contexts", driver_version()?);
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("cuDriverGetVersion", "cudaDriverGetVersion"))]
pub fn driver_version() -> Result<Version> {
    ensure()?;
    ask_version()
}

fn ask_version() -> Result<Version> {
    // SAFETY: the call needs no context and no `cuInit`; it writes one int, to an exclusive borrow.
    asked("cuDriverGetVersion", 0, |version| unsafe { cu::cuDriverGetVersion(version) })
        .map(Version::of)
}

pub(crate) use hooks::watch_exit_first;

/// Process hooks: a child of `fork` and an exiting process must not call the driver.
#[cfg(all(unix, not(miri)))]
mod hooks {
    use std::sync::atomic::{AtomicBool, Ordering};

    extern "C" fn at_exit() {
        let before = super::STATE.swap(super::EXITING, Ordering::AcqRel);
        // A fork's child has no threads to wait for, and this handler may be registered several times.
        if ![super::FORKED, super::EXITING].contains(&before) {
            crate::process::deferred::park();
            crate::process::pinned_pass::park();
        }
    }

    extern "C" fn in_child() {
        // A process that never used the driver may have children that use it.
        if super::STATE.load(Ordering::Acquire) != super::COLD {
            super::STATE.store(super::FORKED, Ordering::Release);
        }
    }

    /// Registers the exit handler; called once, after `cuInit`. Exit handlers run last in, first out, so this
    /// crate's runs before the driver's own.
    pub(super) fn watch_exit() {
        // SAFETY: the handler is a function that lives as long as the process and does not unwind. A
        // failure means only that drops at exit reach a driver that refuses them.
        unsafe { libc::atexit(at_exit) };
    }

    /// Registers this crate's exit handler again, once for each `watched`, so that it runs before the
    /// handlers that a library has registered since `cuInit`: threads of this crate call that library's
    /// functions.
    pub(crate) fn watch_exit_first(watched: &AtomicBool) {
        if !watched.swap(true, Ordering::AcqRel) {
            watch_exit();
        }
    }

    pub(super) fn watch_forks() {
        // Neither a lock nor a `Once`: the child might find it taken. Registering twice is harmless.
        static WATCHED: AtomicBool = AtomicBool::new(false);
        if !WATCHED.load(Ordering::Acquire) {
            // SAFETY: the handler lives as long as the process and does not unwind; it does an
            // atomic load and a store, which are async-signal-safe. A failure means only that a
            // child's calls reach a driver that refuses them.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            WATCHED.store(true, Ordering::Release);
        }
    }
}

#[cfg(not(all(unix, not(miri))))]
mod hooks {
    pub(super) fn watch_exit() {}

    pub(crate) fn watch_exit_first(_: &std::sync::atomic::AtomicBool) {}

    pub(super) fn watch_forks() {}
}
