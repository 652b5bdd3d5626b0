//! Calls of foreign code: a panic is caught at the call, and code that waits stalls no other deferred drop or
//! continuation.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::thread;

use crate::process::deferred;

/// Runs `f` and catches its panic.
pub(crate) fn contain(f: impl FnOnce()) {
    let _ = unless_panic(f);
}

/// Returns the result of `f`; [`None`] if it panics. The payload is leaked, since its own drop could panic.
pub(crate) fn unless_panic<R>(f: impl FnOnce() -> R) -> Option<R> {
    caught(f).map_err(std::mem::forget).ok()
}

/// Returns the result of `f`, or the payload of its panic.
pub(crate) fn caught<R>(f: impl FnOnce() -> R) -> thread::Result<R> {
    deferred::hand_over();
    catch_unwind(AssertUnwindSafe(f))
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

// Panics of the value's code are caught where the library calls it, and the library reads none of its state.
impl<T> UnwindSafe for Contained<T> {}
impl<T> RefUnwindSafe for Contained<T> {}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        // SAFETY: the field is not touched after this, the only place that takes it.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        contain(|| drop(value));
    }
}

/// Keeps an object of other code alive: a context, a stream, an event or memory.
pub(crate) type ForeignOwner = Contained<Box<dyn Any + Send + Sync>>;
