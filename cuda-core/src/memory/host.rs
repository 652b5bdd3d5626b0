//! Owners of host memory that stays where it is.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::memory::pod::Pod;

/// A value that owns elements in host memory, which stay where they are when it moves: a device may
/// read them for as long as the value is kept.
///
/// Implemented for `Vec<T>`, `Box<[T]>`, `Arc<[T]>` and `Arc<Vec<T>>`.
///
/// # Safety
/// From [`elements`](Self::elements) on, for as long as the value is neither used, apart from being
/// moved, nor dropped:
/// * the elements that it names are initialised and stay allocated where they are;
/// * nobody writes them.
pub unsafe trait StableHost: Send + Sync + 'static {
    /// What it holds.
    type Element: Pod;

    /// Where all the elements are.
    fn elements(&mut self) -> NonNull<[Self::Element]>;
}

/// A [`StableHost`] whose elements nobody else reads: a device may write them as well.
///
/// Implemented for `Vec<T>` and `Box<[T]>`.
///
/// # Safety
/// For as long as is said at [`StableHost`], nobody else reads the elements, and they may be written
/// by the pointer that [`elements`](StableHost::elements) returned.
pub unsafe trait StableHostMut: StableHost {}

// SAFETY: a vector's elements are on the heap, which moving it does not touch, and nobody else has
// them.
unsafe impl<T: Pod> StableHost for Vec<T> {
    type Element = T;

    fn elements(&mut self) -> NonNull<[T]> {
        NonNull::from(self.as_mut_slice())
    }
}

// SAFETY: as above; the pointer comes from an exclusive borrow.
unsafe impl<T: Pod> StableHostMut for Vec<T> {}

// SAFETY: a box's elements are on the heap, which moving it does not touch, and nobody else has
// them.
unsafe impl<T: Pod> StableHost for Box<[T]> {
    type Element = T;

    fn elements(&mut self) -> NonNull<[T]> {
        NonNull::from(&mut **self)
    }
}

// SAFETY: as above; the pointer comes from an exclusive borrow.
unsafe impl<T: Pod> StableHostMut for Box<[T]> {}

// SAFETY: the elements are on the heap for as long as one reference is kept. Others can only read
// them, since `Arc::get_mut` wants the only reference and `Pod` has no interior mutability.
unsafe impl<T: Pod> StableHost for Arc<[T]> {
    type Element = T;

    fn elements(&mut self) -> NonNull<[T]> {
        NonNull::from(&**self)
    }
}

// SAFETY: as above; nor does the vector move them, which nobody can reach mutably.
unsafe impl<T: Pod> StableHost for Arc<Vec<T>> {
    type Element = T;

    fn elements(&mut self) -> NonNull<[T]> {
        NonNull::from(self.as_slice())
    }
}

/// A [`StableHost`] that a device may read and not write, whatever its owner may do:
/// [`Registered::read_only`](crate::Registered::read_only) makes it.
#[derive(Debug, Clone)]
pub struct ReadOnly<H>(pub H);

// SAFETY: `H`'s own promise.
unsafe impl<H: StableHost> StableHost for ReadOnly<H> {
    type Element = H::Element;

    fn elements(&mut self) -> NonNull<[H::Element]> {
        self.0.elements()
    }
}
