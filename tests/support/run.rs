//! What surrounds the body of a GPU test.

use std::fmt::Debug;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::context;
use crate::driver::{Driver, Session};
use crate::watchdog::Watchdog;

/// Contexts, pools and the simulated driver belong to the process, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// What the body of a test may return.
pub trait Outcome {
    /// Panics if the test failed.
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
/// The body gets a thread of its own, on which nothing is current at first, and tests of one process
/// run one after the other. Afterwards, besides the body's own verdict:
/// * the thread's current context is the handle that it was before;
/// * the simulated driver saw no violation and no leak.
///
/// # Panics
/// If the body does, if any of this does not hold, or if the driver shows too few devices: nothing
/// is skipped.
pub fn run<O: Outcome + 'static>(needs: u32, path: &'static str, body: fn() -> O) {
    // A test that failed leaves nothing in the mutex that the next one could trip over.
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _watchdog = Watchdog::start(path);
    let driver = Driver::selected();
    refuse_wrong_driver(driver, path);
    let session = Session::open(driver, needs);
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
        resume_unwind(panic);
    }
    session.close();
}

/// A runner that let the tags slip must not get a green test out of it.
fn refuse_wrong_driver(driver: Driver, path: &str) {
    let simulated = matches!(driver, Driver::Simulated { .. });
    for tag in path.split("::") {
        assert!(
            !(simulated && tag == "real"),
            "{path} means nothing on the simulated driver"
        );
        assert!(
            simulated || tag != "simulated",
            "{path} needs CUDA_TESTS_SIM=<devices>"
        );
    }
}
