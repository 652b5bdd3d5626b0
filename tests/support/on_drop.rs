//! Values that call a function when they are dropped.

use std::fmt;
use std::ptr::NonNull;

use cuda_core::Pod;
use cuda_core::pinned::{StableHost, StableHostMut};

/// Calls the function when it is dropped.
pub struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Host memory that is passed to a function when it is dropped.
pub struct WatchedHost<T, F: FnMut(&mut [T])> {
    elements: Vec<T>,
    on_drop: F,
}

impl<T, F: FnMut(&mut [T])> WatchedHost<T, F> {
    /// Wraps the elements of a vector.
    pub fn new(elements: Vec<T>, on_drop: F) -> Self {
        Self { elements, on_drop }
    }
}

impl<T, F: FnMut(&mut [T])> Drop for WatchedHost<T, F> {
    fn drop(&mut self) {
        (self.on_drop)(&mut self.elements);
    }
}

impl<T: fmt::Debug, F: FnMut(&mut [T])> fmt::Debug for WatchedHost<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.elements.fmt(f)
    }
}

// SAFETY: the vector's own promise holds; only `drop` uses the vector here.
unsafe impl<T: Pod, F: FnMut(&mut [T]) + Send + Sync + 'static> StableHost for WatchedHost<T, F> {
    type Element = T;

    fn elements(&mut self) -> NonNull<[T]> {
        self.elements.elements()
    }
}

// SAFETY: as above.
unsafe impl<T: Pod, F: FnMut(&mut [T]) + Send + Sync + 'static> StableHostMut
    for WatchedHost<T, F>
{
}
