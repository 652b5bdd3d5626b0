//! The thread's context stack around a piece of a test.

use cuda_sys::CUcontext;
use support::context;

/// Runs `body` with `handle` pushed by the raw call, and asserts that afterwards it is the only
/// entry again, and takes it off.
#[track_caller]
pub(crate) fn with<R>(handle: CUcontext, body: impl FnOnce() -> R) -> R {
    assert!(context::current().is_null(), "something is current already");
    context::push(handle);
    let result = body();
    assert_eq!(context::pop(), Some(handle), "what was current before");
    assert_eq!(context::pop(), None, "entries below it");
    result
}

/// Pops whatever is there.
pub(crate) fn clear() {
    while context::pop().is_some() {}
}
