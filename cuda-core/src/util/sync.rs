//! Locks that a panic elsewhere does not take down with it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. No code of this crate leaves a guarded value half changed when it unwinds, so a
/// poisoned lock is as good as any other.
#[inline]
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
