//! Records panics that no injected failure excuses: those outside the tests.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, PanicHookInfo};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Records the panics of all threads without printing them.
pub(super) struct Panics {
    unexcused: Arc<Mutex<Vec<String>>>,
    before: Arc<Hook>,
}

thread_local! {
    static AGAIN: Cell<bool> = const { Cell::new(false) };
}

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync;

impl Panics {
    pub(super) fn watch() -> Self {
        let unexcused = Arc::new(Mutex::new(Vec::new()));
        let own = thread::current().id();
        let before: Arc<Hook> = panic::take_hook().into();
        let shown = Arc::clone(&before);
        let seen = Arc::clone(&unexcused);
        panic::set_hook(Box::new(move |panic| {
            // A second panic on a thread is likely to abort the process, which then cannot report
            // anything.
            let again = AGAIN.replace(true);
            if thread::current().id() == own || again {
                shown(panic);
            } else if !is_of_a_test(panic) {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.push(panic.to_string());
            }
        }));
        Self { unexcused, before }
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.unexcused.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        // A thread that is panicking must not change the hook.
        if !thread::panicking() {
            let before = Arc::clone(&self.before);
            panic::set_hook(Box::new(move |panic| before(panic)));
        }
    }
}

/// Returns the message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    let formatted = panic.downcast_ref::<String>().map(String::as_str);
    let literal = || panic.downcast_ref::<&str>().copied();
    formatted.or_else(literal).unwrap_or("a panic without a text")
}

/// Returns whether the panic is an assertion or `unwrap` in a test, or in the support library.
fn is_of_a_test(panic: &PanicHookInfo<'_>) -> bool {
    let file = panic.location().map(|location| Path::new(location.file()));
    file.is_some_and(|file| file.starts_with("tests/gpu") || file.starts_with("tests/support"))
}
