//! Handles of the driver's.

/// A handle of the driver's: the address of something that only the driver looks at, or null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle<H>(pub(crate) H);

// SAFETY: the address is never followed here, and the driver's calls take it on any thread. What a call
// asks for beyond that is argued where the call is made.
unsafe impl<T> Send for Handle<*mut T> {}
// SAFETY: a shared reference gives out the address alone, of which the same holds.
unsafe impl<T> Sync for Handle<*mut T> {}

impl<T> Handle<*mut T> {
    /// As reports name it.
    pub(crate) fn number(self) -> u64 {
        self.0.addr() as u64
    }
}
