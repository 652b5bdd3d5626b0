//! A list that keeps its first elements inline: most launches have few arguments.

use std::mem::{ManuallyDrop, MaybeUninit, needs_drop};
use std::ptr;

/// A list of up to `N` elements inline, or of any number on the heap. The elements have no `Drop`.
pub(crate) struct InlineVec<T, const N: usize> {
    // INVARIANT: while nothing has spilled, the first `len` elements are initialised.
    inline: [MaybeUninit<T>; N],
    len: usize,
    /// All elements, once there are more than `N`.
    spilled: Vec<T>,
}

impl<T, const N: usize> InlineVec<T, N> {
    /// Inline elements are not dropped, so their type must not need it.
    const PLAIN: () = assert!(!needs_drop::<T>());

    /// Makes an empty list. Initialises none of the inline elements.
    #[inline]
    pub(crate) fn new() -> Self {
        let () = Self::PLAIN;
        Self { inline: [const { MaybeUninit::uninit() }; N], len: 0, spilled: Vec::new() }
    }

    /// Appends the element that `make` returns, constructed in place. An element passed by value would go
    /// through memory, written in small pieces and read in large ones, which processors handle slowly.
    #[inline]
    pub(crate) fn push(&mut self, make: impl FnOnce() -> T) {
        match self.inline.get_mut(self.len) {
            Some(place) => _ = place.write(make()),
            None => self.spill(make()),
        }
        self.len += 1;
    }

    /// Moves all elements to the heap, unless they are there already, and appends one.
    #[cold]
    fn spill(&mut self, element: T) {
        if self.spilled.is_empty() {
            self.spilled.reserve(N + 1);
            for place in &self.inline {
                // SAFETY: all `N` elements are initialised, since there is no room for another; each is read
                // once and not accessed again, since `spilled` has elements from now on.
                let moved = unsafe { place.assume_init_read() };
                self.spilled.push(moved);
            }
        }
        self.spilled.push(element);
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        if !self.spilled.is_empty() {
            return &self.spilled;
        }
        let inline = ptr::from_ref(&self.inline[..self.len]);
        // SAFETY: these are initialised, by the invariant, and `MaybeUninit<T>` is laid out as `T`.
        unsafe { &*(inline as *const [T]) }
    }

    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        if !self.spilled.is_empty() {
            return &mut self.spilled;
        }
        let inline = ptr::from_mut(&mut self.inline[..self.len]);
        // SAFETY: these are initialised, by the invariant, and `MaybeUninit<T>` is laid out as `T`;
        // the borrow of `self` is exclusive.
        unsafe { &mut *(inline as *mut [T]) }
    }
}

/// [`InlineVec`] for elements that have a `Drop`. It is a separate type because a list with a `Drop` must not
/// outlive what its elements borrow, and users' lists of arguments do.
pub(crate) struct OwningInlineVec<T, const N: usize>(InlineVec<ManuallyDrop<T>, N>);

impl<T, const N: usize> OwningInlineVec<T, N> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self(InlineVec::new())
    }

    #[inline]
    pub(crate) fn push(&mut self, element: T) {
        self.0.push(|| ManuallyDrop::new(element));
    }

    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        let elements = ptr::from_mut(self.0.as_mut_slice());
        // SAFETY: `ManuallyDrop<T>` is laid out as `T`, and each is dropped only when the list ends; the
        // borrow of `self` is exclusive.
        unsafe { &mut *(elements as *mut [T]) }
    }
}

impl<T, const N: usize> Drop for OwningInlineVec<T, N> {
    #[inline]
    fn drop(&mut self) {
        let elements = ptr::from_mut(self.as_mut_slice());
        // SAFETY: the elements are initialised, and not accessed again, since the list ends here.
        unsafe { ptr::drop_in_place(elements) };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{InlineVec, OwningInlineVec};

    #[test]
    fn drops_each_element_once() {
        struct Counted<'a>(&'a Cell<usize>);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        for count in [0, 1, 3, 4, 9] {
            let dropped = Cell::new(0);
            let mut few = OwningInlineVec::<_, 3>::new();
            (0..count).for_each(|_| few.push(Counted(&dropped)));
            assert_eq!((few.as_mut_slice().len(), dropped.get()), (count, 0));
            drop(few);
            assert_eq!(dropped.get(), count);
        }
    }

    #[test]
    fn keeps_its_order_when_it_spills() {
        let mut few = InlineVec::<_, 3>::new();
        for count in 0..10 {
            assert_eq!(few.as_slice(), (0..count).collect::<Vec<_>>());
            few.push(|| count);
        }
        few.as_mut_slice()[9] = 7;
        assert_eq!(few.as_slice().last(), Some(&7));
    }

    #[test]
    fn moves_what_cannot_be_copied() {
        let mut words = [0; 5];
        let mut few = InlineVec::<_, 2>::new();
        words.iter_mut().for_each(|word| few.push(|| word));
        for (index, word) in few.as_mut_slice().iter_mut().enumerate() {
            **word = index;
        }
        assert_eq!(words, [0, 1, 2, 3, 4]);
    }
}
