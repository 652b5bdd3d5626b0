//! Locks and waits that ignore poisoning, values that are made once, and numbers of threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::{mem, ptr};

use super::inline_vec::{InlineVec, OwningInlineVec};

/// Locks `mutex`. No code of this crate leaves a guarded value half changed when it unwinds, so a
/// poisoned lock is still usable.
#[inline]
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Guards of the mutexes that [`lock_all`] locks.
pub(crate) type Locks<'a> = OwningInlineVec<MutexGuard<'a, ()>, 2>;

/// Locks all mutexes, each once, in an order that all threads follow: that of their addresses.
pub(crate) fn lock_all<'a>(all: impl Iterator<Item = &'a Mutex<()>>) -> Locks<'a> {
    let mut listed = InlineVec::<_, 8>::new();
    all.for_each(|mutex| listed.push(|| mutex));
    let listed = listed.as_mut_slice();
    listed.sort_unstable_by_key(|mutex| ptr::from_ref(*mutex));
    let (mut held, mut last) = (OwningInlineVec::new(), ptr::null());
    for mutex in listed {
        if !ptr::eq(mem::replace(&mut last, *mutex), *mutex) {
            held.push(lock(mutex));
        }
    }
    held
}

/// Waits while `condition` holds. Checks it again after each wait even if the lock is poisoned:
/// [`Condvar::wait_while`] then returns early.
pub(crate) fn wait_while<'a, T>(
    changed: &Condvar,
    mut guard: MutexGuard<'a, T>,
    condition: impl Fn(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    while condition(&mut guard) {
        guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    guard
}

/// [`OnceLock::get_or_init`] with a `make` that may fail; the next call then tries again.
#[inline]
pub(crate) fn get_or_try_init<T, E>(
    cell: &OnceLock<T>,
    make: impl FnOnce() -> Result<T, E>,
) -> Result<&T, E> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

/// Returns an id of the calling thread that no other thread of the process ever has.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    // A thread whose thread-locals are destroyed gets an id for this one call.
    NUMBER.try_with(|number| *number).unwrap_or_else(|_| NEXT.fetch_add(1, Ordering::Relaxed))
}
