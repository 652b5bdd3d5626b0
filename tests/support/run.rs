//! Sets up what a GPU test's body needs, and checks the state that the body leaves.

use std::any::Any;
use std::fmt::Debug;
use std::panic::resume_unwind;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use cuda_core::pinned::PinnedBackend;

use crate::context;
use crate::driver::{
    Driver, allocator_of_environment, choose_allocator, require_devices, simulator, trim_cache,
};
use crate::sweep;
use crate::watchdog::Watchdog;

/// Contexts, pools and the simulated driver belong to the process, so only one test runs at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Number of drops of the running test that are expected to fail.
static EXPECTED_DROP_FAILURES: AtomicU64 = AtomicU64::new(0);

/// Types that the body of a test may return.
pub trait Outcome {
    /// Checks the outcome; panics if the test failed.
    fn check(self);
}

impl Outcome for () {
    fn check(self) {}
}

impl<E: Debug> Outcome for Result<(), E> {
    #[track_caller]
    fn check(self) {
        if let Err(error) = self {
            panic!("the test returned an error: {error:?}");
        }
    }
}

/// Runs the body of the test at `path` where the driver shows at least `needs` devices.
///
/// The body runs on a thread of its own, on which nothing is current at first. Tests of one process run one
/// after the other. Afterwards this function checks, besides the body's own verdict, that:
/// * the thread's current context is the handle that it was before;
/// * no `Drop` failed, or as many as [`expect_drop_failures`] declared;
/// * the simulated driver saw no misuse, and everything made in the test is gone.
///
/// # Panics
/// If the body panics, if any of these conditions does not hold, if the driver shows too few devices, or if a
/// library that a tag of the test names is absent: no test is skipped. If the failure has lost a context of a
/// real driver, the process ends instead, so that the loss does not fail later tests.
pub fn run<O: Outcome + 'static>(needs: u32, path: &'static str, body: fn() -> O) {
    // A failed test poisons the mutex; it guards no data that the next test could find broken.
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if sweep::requested() {
        return sweep::sweep(needs, path, body);
    }
    let _watchdog = Watchdog::start(path);
    let session = match Driver::selected() {
        Driver::Simulated { .. } => {
            refuse_simulator(path);
            let session = simulator();
            cuda_core::PinnedPool::set_backend(PinnedBackend::Slab);
            choose_allocator(&allocator_of_environment());
            Some(session)
        }
        Driver::Loaded => None,
    };
    require_devices(needs);
    require_libraries(path);
    EXPECTED_DROP_FAILURES.store(0, Ordering::Relaxed);
    let failures = cuda_core::drops::failures();
    let thread = thread::Builder::new().name(path.into()).spawn(move || {
        let before = context::current();
        body().check();
        let after = context::current();
        assert!(
            before == after,
            "the thread's current context was {before:?} and is now {after:?}"
        );
    });
    if let Err(panic) = thread.expect("the system starts a thread").join() {
        if session.is_none() && has_lost_a_context(needs) {
            end_process(path, &*panic);
        }
        resume_unwind(panic);
    }
    cuda_core::drops::flush();
    assert_eq!(
        cuda_core::drops::failures() - failures,
        EXPECTED_DROP_FAILURES.load(Ordering::Relaxed),
        "drops that failed, and drops that were expected to"
    );
    if let Some(session) = session {
        session.settle();
        // Memory that the library caches for later copies is no leak.
        cuda_core::staging::trim().expect("the simulated driver frees pinned memory");
        trim_cache(&session).expect("the simulated driver frees memory");
        cuda_core::PinnedPool::shared().trim(0).expect("the simulated driver unregisters memory");
        session.assert_clean();
    }
}

/// Returns whether one of the first `devices` devices has lost its context for good.
fn has_lost_a_context(devices: u32) -> bool {
    let contexts = (0..devices).map(|at| cuda_core::Device::get(at)?.context());
    let mut waits = contexts.map(|context| context?.synchronize());
    waits.any(|wait| wait.is_err_and(|error| error.is_sticky()))
}

/// Ends the process of a test that has lost a context, after printing why the test failed. Runners continue
/// with the other tests in another process.
fn end_process(path: &str, panic: &(dyn Any + Send)) -> ! {
    let text = sweep::message(panic);
    // Not `eprintln!`: libtest would capture it.
    let message = format!("\n{path} has lost a context: {text}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), message.as_bytes());
    process::exit(101);
}

/// Declares, in the body of a GPU test, the exact increase of `cuda_core::drops::failures` by the end of the
/// test.
pub fn expect_drop_failures(count: u64) {
    EXPECTED_DROP_FAILURES.store(count, Ordering::Relaxed);
}

/// Panics for a test tagged `real`, so that a runner which ignored the tag gets no passed test.
fn refuse_simulator(path: &str) {
    assert!(!tagged(path, "real"), "{path} cannot run on the simulated driver");
}

/// Panics if the test's tags name NVRTC or NCCL and it is absent. Tests that need libcudart open it
/// themselves.
fn require_libraries(path: &str) {
    let versions = [
        ("nvrtc", tagged(path, "nvrtc").then(cuda_core::nvrtc::version)),
        ("nccl", tagged(path, "nccl").then(cuda_core::nccl::version)),
    ];
    for (library, version) in versions {
        if let Some(Err(error)) = version {
            let variable = format!("CUDA_CORE_{}", library.to_uppercase());
            panic!("{path} needs {library}; {variable} names one to take: {error}");
        }
    }
}

fn tagged(path: &str, tag: &str) -> bool {
    path.split("::").any(|segment| segment == tag)
}
