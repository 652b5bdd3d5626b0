//! Locks that ignore poisoning, and numbers of threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. No code of this crate leaves a guarded value half changed when it unwinds, so a
/// poisoned lock is still usable.
#[inline]
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An id of the calling thread that no other thread of the process ever has.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    // A thread whose thread-locals are destroyed gets an id for this one call.
    NUMBER.try_with(|number| *number).unwrap_or_else(|_| NEXT.fetch_add(1, Ordering::Relaxed))
}
