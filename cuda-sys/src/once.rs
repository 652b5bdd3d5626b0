//! A value that a process makes once. A forked child never waits for it forever.

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A [`OnceLock`] that stays usable after a fork. If a thread of the parent was making the value at the fork,
/// no thread of the child can complete it: the child then gets no value instead of waiting.
#[derive(Debug, Default)]
pub struct LoadOnce<T> {
    value: OnceLock<T>,
    /// The id of the process that makes, or made, the value; zero is no process's id.
    maker: AtomicU32,
}

impl<T> LoadOnce<T> {
    /// Creates a cell without a value.
    pub const fn new() -> Self {
        Self { value: OnceLock::new(), maker: AtomicU32::new(0) }
    }

    /// Returns the value, if there is one. Never waits.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Returns the value; calls `make` if there is none. Returns [`None`] in a forked child if a thread of
    /// the parent was making the value.
    #[inline]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> Option<&T> {
        // The value never changes, so it is read without a lock.
        match self.value.get() {
            None if self.is_made_here() => Some(self.value.get_or_init(make)),
            made => made,
        }
    }

    /// Sets the value. Returns it if there is a value already, or one is being made.
    ///
    /// # Errors
    /// The given value.
    pub fn set(&self, value: T) -> Result<(), T> {
        if self.is_made_here() { self.value.set(value) } else { Err(value) }
    }

    /// Whether the value is made by this process; registers the calling process if no process makes it.
    fn is_made_here(&self) -> bool {
        let this = process::id();
        let (before, order) = (0, Ordering::Relaxed);
        match self.maker.compare_exchange(before, this, order, order) {
            Ok(_) => true,
            Err(maker) => maker == this,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once() {
        let once = LoadOnce::new();
        assert_eq!(once.get(), None);
        assert_eq!(once.get_or_init(|| 1), Some(&1));
        assert_eq!(once.get_or_init(|| unreachable!("it is made")), Some(&1));
        assert_eq!(once.set(2), Err(2));
        let set = LoadOnce::new();
        assert_eq!(set.set(3), Ok(()));
        assert_eq!(set.get(), Some(&3));
    }

    #[test]
    #[cfg(all(unix, not(miri)))]
    fn s48_a_child_forked_meanwhile_does_not_wait() {
        /// Seconds after which a hanging child is killed.
        const PATIENCE: u32 = 10;
        let once = LoadOnce::new();
        let (began, has_begun) = std::sync::mpsc::channel();
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let once = &once;
            scope.spawn(move || {
                once.get_or_init(|| {
                    began.send(()).expect("it is waited for");
                    // Blocks until the other end is dropped.
                    let _ = may_end.recv();
                    1
                });
            });
            has_begun.recv().expect("the thread begins");
            // SAFETY: the child takes no lock but the one under test, and ends without unwinding.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: takes a number; the signal's default action ends the child.
                unsafe { libc::alarm(PATIENCE) };
                let none = once.get_or_init(|| 2).is_none() && once.set(3).is_err();
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(if none { 0 } else { 1 }) };
            }
            let mut status = 0;
            // SAFETY: a child that no other thread waits for; `status` is valid for a write.
            let waited = unsafe { libc::waitpid(child, &mut status, 0) };
            drop(end);
            assert!(child > 0 && waited == child, "{child}, {waited}");
            assert!(!libc::WIFSIGNALED(status), "the child hung");
            assert_eq!(libc::WEXITSTATUS(status), 0);
            assert_eq!(once.get_or_init(|| 4), Some(&1), "the parent's value is complete");
        });
    }
}
