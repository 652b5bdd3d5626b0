//! Handles of the driver.

/// A handle of the driver: an address that only the driver dereferences, or null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle<H>(pub(crate) H);

// SAFETY: this crate never dereferences the address, and the driver's calls accept it on any thread.
// Further requirements of a call are argued where it is made.
unsafe impl<T> Send for Handle<*mut T> {}
// SAFETY: a shared reference only gives out the address, for which the same holds.
unsafe impl<T> Sync for Handle<*mut T> {}

impl<T> Handle<*mut T> {
    /// The handle as a number, for reports.
    pub(crate) fn number(self) -> u64 {
        self.0.addr() as u64
    }
}
