//! Sets up the thread's context stack around a part of a test.

use cuda_sys::CUcontext;
use support::context;

/// Runs `body` with `handle` pushed by the raw call, asserts that it is the only entry afterwards, and pops
/// it.
#[track_caller]
pub(crate) fn with<R>(handle: CUcontext, body: impl FnOnce() -> R) -> R {
    assert!(context::current().is_null(), "something is current already");
    context::push(handle);
    let result = body();
    assert_eq!(context::pop(), Some(handle), "what was current before");
    assert_eq!(context::pop(), None, "entries below it");
    result
}

/// Pops all entries.
pub(crate) fn clear() {
    while context::pop().is_some() {}
}
