//! Views: a part of a buffer, borrowed like a slice.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::error::{Error, Result};
use crate::memory::ledger::{Bytes, Ledger};
use crate::memory::pod::Pod;
use crate::memory::{Block, Memory, Storage};

/// A shared view of a buffer's elements; [`DeviceSlice`](crate::DeviceSlice) and
/// [`PinnedSlice`](crate::PinnedSlice) by name.
pub struct Slice<'a, T: Pod, M: Memory> {
    storage: &'a Storage<M>,
    // INVARIANT: `start + len * size_of::<T>()` is at most the storage's size, and `start` a
    // multiple of `align_of::<T>()`.
    start: usize,
    len: usize,
    _elements: PhantomData<&'a [T]>,
}

/// An exclusive view of a buffer's elements; [`DeviceSliceMut`](crate::DeviceSliceMut) and
/// [`PinnedSliceMut`](crate::PinnedSliceMut) by name.
pub struct SliceMut<'a, T: Pod, M: Memory> {
    // INVARIANT: no other view of these elements is in use while this one lives.
    view: Slice<'a, T, M>,
    _exclusive: PhantomData<&'a mut [T]>,
}

impl<'a, T: Pod, M: Memory> Slice<'a, T, M> {
    /// All `len` elements of `storage`, which has room for them.
    pub(crate) fn whole(storage: &'a Storage<M>, len: usize) -> Self {
        Self {
            storage,
            start: 0,
            len,
            _elements: PhantomData,
        }
    }

    /// Elements in the view.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    pub fn byte_len(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// A part of the view.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let (start, end) = bounds(range, self.len)?;
        Ok(Self {
            start: self.start + start * size_of::<T>(),
            len: end - start,
            ..*self
        })
    }

    pub(crate) fn block(&self) -> &'a Block<M> {
        self.storage.block()
    }

    pub(crate) fn ledger(&self) -> &'a Ledger {
        &self.block().ledger
    }

    /// The view's bytes within its allocation.
    pub(crate) fn range(&self) -> Bytes {
        self.start..self.start + self.byte_len()
    }
}

impl<'a, T: Pod, M: Memory> SliceMut<'a, T, M> {
    /// All `len` elements of `storage`, which has room for them.
    pub(crate) fn whole(storage: &'a mut Storage<M>, len: usize) -> Self {
        Self::exclusive(Slice::whole(storage, len))
    }

    /// The caller makes no other view of these elements while this one lives.
    fn exclusive(view: Slice<'a, T, M>) -> Self {
        Self {
            view,
            _exclusive: PhantomData,
        }
    }

    /// Elements in the view.
    pub fn len(&self) -> usize {
        self.view.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    /// Size in bytes.
    pub fn byte_len(&self) -> usize {
        self.view.byte_len()
    }

    /// The same elements, shared for as long as `self` is borrowed.
    pub fn as_view(&self) -> Slice<'_, T, M> {
        self.view
    }

    /// The same elements, exclusive for as long as `self` is borrowed.
    pub fn reborrow(&mut self) -> SliceMut<'_, T, M> {
        SliceMut::exclusive(self.view)
    }

    /// A part of the view, exclusive for as long as `self` is borrowed.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T, M>> {
        self.view.slice(range).map(SliceMut::exclusive)
    }

    /// Two views, of the elements before `mid` and from it on. They can be used on two streams at
    /// once: neither waits for the other.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `mid` is greater than the length.
    pub fn split_at_mut(self, mid: usize) -> Result<(Self, Self)> {
        let head = self.view.slice(..mid)?;
        let tail = self.view.slice(mid..)?;
        Ok((Self::exclusive(head), Self::exclusive(tail)))
    }

    /// [`SliceMut::slice_mut`] for as long as `self` was borrowed.
    pub(crate) fn into_slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        self.view.slice(range).map(Self::exclusive)
    }

    pub(crate) fn view(&self) -> Slice<'a, T, M> {
        self.view
    }
}

/// Start and end of `range` within `len` elements.
fn bounds(range: impl RangeBounds<usize>, len: usize) -> Result<(usize, usize)> {
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(len),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= len => Ok((start, end)),
        (start, end) => Err(Error::OutOfBounds {
            start: start.unwrap_or(usize::MAX),
            end: end.unwrap_or(usize::MAX),
            len,
        }),
    }
}

impl<T: Pod, M: Memory> Clone for Slice<'_, T, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Pod, M: Memory> Copy for Slice<'_, T, M> {}

impl<'a, T: Pod, M: Memory> From<&Slice<'a, T, M>> for Slice<'a, T, M> {
    fn from(view: &Slice<'a, T, M>) -> Self {
        *view
    }
}

impl<'b, T: Pod, M: Memory> From<&'b SliceMut<'_, T, M>> for Slice<'b, T, M> {
    fn from(view: &'b SliceMut<'_, T, M>) -> Self {
        view.as_view()
    }
}

impl<'b, T: Pod, M: Memory> From<&'b mut SliceMut<'_, T, M>> for SliceMut<'b, T, M> {
    fn from(view: &'b mut SliceMut<'_, T, M>) -> Self {
        view.reborrow()
    }
}

impl<T: Pod, M: Memory> fmt::Debug for Slice<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Slice({:?} of {} bytes)",
            self.range(),
            self.block().bytes
        )
    }
}

impl<T: Pod, M: Memory> fmt::Debug for SliceMut<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SliceMut({:?} of {} bytes)",
            self.view.range(),
            self.view.block().bytes
        )
    }
}
