//! Drops that wait for the end of a capture.
//!
//! Memory whose last work is on a stream that other code captures cannot be freed in order, nor can the host
//! wait for that work. This module keeps the memory, with everything that its release needs, and tries again
//! later: CUDA does not notify this crate of the end of a capture.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Error;
use crate::process::deferred::Job;
use crate::process::{contain, driver, foreign_code};
use crate::util::lock;

static JOBS: Mutex<Vec<Job>> = Mutex::new(Vec::new());

/// The number of kept jobs.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether a resource could not be released because of a capture.
pub(crate) fn is_held(error: &Error) -> bool {
    matches!(error, Error::Capturing { .. })
}

/// Keeps `job` for [`retry`].
pub(crate) fn keep(job: impl FnOnce() + Send + 'static) {
    COUNT.fetch_add(1, Ordering::AcqRel);
    lock(&JOBS).push(Box::new(job));
}

/// Runs the kept jobs. A job that still finds its stream captured is kept again. Called after memory or a
/// stream was released, when a caching pool is trimmed, and by [`drops::flush`](crate::drops::flush).
#[inline]
pub(crate) fn retry() {
    if COUNT.load(Ordering::Acquire) > 0 && !driver::is_gone() {
        // A job may drop values of the program, which is foreign code.
        foreign_code::after(run);
    }
}

fn run() {
    let jobs = std::mem::take(&mut *lock(&JOBS));
    COUNT.fetch_sub(jobs.len(), Ordering::AcqRel);
    jobs.into_iter().for_each(contain);
}
