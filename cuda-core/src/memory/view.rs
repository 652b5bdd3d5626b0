//! Views: parts of a buffer, borrowed like slices.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::context::{Confined, Context, of_context};
use crate::device::Device;
use crate::error::{Error, OutOfBounds, Result};
use crate::memory::{Block, Memory, Place, Storage, elements, views};
use crate::stream::{Stream, StreamKind};
use crate::timeline::StreamCore;
use crate::timeline::ledger::{Access, Bytes, Ledger, LedgerOf, Touch};
use crate::types::Pod;
use crate::util::debug_by;

/// A shared view of a buffer's elements; [`DeviceSlice`](crate::DeviceSlice) and
/// [`PinnedSlice`](crate::PinnedSlice) are aliases of it.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// let buffer = stream.alloc_zeroed::<f32>(100)?;
/// let part = buffer.slice(10..30)?; // borrows; no driver call
/// assert_eq!((part.len(), part.byte_len()), (20, 80));
/// let mut back = [1.0; 5];
/// stream.download(part.slice(15..)?, &mut back)?; // elements 25 to 29 of the buffer
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Slice<'a, T: Pod, M: Memory> {
    storage: &'a Storage<M>,
    // INVARIANT: `start + len * size_of::<T>()` is at most the storage's size, and `start` a
    // multiple of `align_of::<T>()`.
    start: usize,
    len: usize,
    _elements: PhantomData<&'a [T]>,
}

/// An exclusive view of a buffer's elements; [`DeviceSliceMut`](crate::DeviceSliceMut) and
/// [`PinnedSliceMut`](crate::PinnedSliceMut) are aliases of it.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// let mut buffer = stream.alloc::<u32>(100)?;
/// let mut all = buffer.as_view_mut();
/// stream.fill(&mut all, 0)?; // lends it
/// stream.fill(all.slice_mut(..10)?, 1)?; // so it can be used again
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct SliceMut<'a, T: Pod, M: Memory> {
    hold: Hold<'a, M>,
    // INVARIANT: as for `Slice`; and no other view of these elements is used while this one lives.
    start: usize,
    len: usize,
    _elements: PhantomData<&'a mut [T]>,
}

/// How an exclusive view borrows its allocation.
enum Hold<'a, M: Memory> {
    /// Exclusive borrow of the whole allocation: its ledger needs no lock.
    Sole(&'a mut Storage<M>),
    /// Shared borrow for a part of the allocation; other views may have the rest.
    // INVARIANT: no other view of this storage includes this view's elements.
    Part(&'a Storage<M>),
}

/// Defines the methods for the length of a buffer or a view.
macro_rules! lengths {
    () => {
        /// The number of elements.
        pub fn len(&self) -> usize {
            self.len
        }

        /// Whether there are no elements.
        pub fn is_empty(&self) -> bool {
            self.len == 0
        }

        /// Size in bytes.
        pub fn byte_len(&self) -> usize {
            self.len * size_of::<T>()
        }
    };
}

pub(crate) use lengths;

/// # The view
impl<'a, T: Pod, M: Memory> Slice<'a, T, M> {
    /// Creates a view of `len` elements of `storage` from byte `start` on, which is aligned for them.
    #[inline]
    pub(crate) fn part(storage: &'a Storage<M>, start: usize, len: usize) -> Self {
        Self { storage, start, len, _elements: PhantomData }
    }

    lengths!();

    /// Returns a view of the elements in `range`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let buffer = stream.alloc_zeroed::<f32>(1000)?;
    /// let half = buffer.slice(500..)?;
    /// assert_eq!(half.slice(..10)?.len(), 10); // of the half
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let (start, end) = bounds(range, self.len)?;
        Ok(Self { start: self.start + start * size_of::<T>(), len: end - start, ..*self })
    }

    /// Returns views of the elements before `mid` and of the rest.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `mid` is greater than the length.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let buffer = stream.alloc_zeroed::<f32>(100)?;
    /// let (head, tail) = buffer.as_view().split_at(10)?;
    /// assert_eq!((head.len(), tail.len()), (10, 90));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn split_at(&self, mid: usize) -> Result<(Self, Self)> {
        Ok((self.slice(..mid)?, self.slice(mid..)?))
    }

    /// Divides the view into consecutive views of `len` elements each; the last one may be shorter.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `len` is zero.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let buffer = stream.alloc_zeroed::<u8>(10)?;
    /// let lens: Vec<_> = buffer.as_view().chunks(4)?.map(|part| part.len()).collect();
    /// assert_eq!(lens, [4, 4, 2]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn chunks(
        &self,
        len: usize,
    ) -> Result<impl ExactSizeIterator<Item = Self> + use<'a, T, M>> {
        Error::unless(len != 0, "chunks", "a chunk has at least one element")?;
        let view = *self;
        let part = move |index| {
            // `before` is at most the view's length, so neither computation overflows.
            let before = index * len;
            Self {
                start: view.start + before * size_of::<T>(),
                len: len.min(view.len - before),
                ..view
            }
        };
        Ok((0..view.len.div_ceil(len)).map(part))
    }

    /// Reinterprets the bytes as elements of type `U`. The size of `U` must divide their number, and
    /// the alignment of `U` must not exceed that of their address.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let pairs = stream.alloc_zeroed::<[f32; 2]>(128)?;
    /// assert_eq!(pairs.as_view().cast::<f32>()?.len(), 256);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn cast<U: Pod>(&self) -> Result<Slice<'a, U, M>> {
        let bytes = self.byte_len();
        let address = M::number(self.block().address) + self.start as u64;
        let len = elements::<U>("cast", bytes, address)?;
        Ok(Slice { storage: self.storage, start: self.start, len, _elements: PhantomData })
    }

    /// Notes that work that other code enqueues on `stream` uses these elements:
    /// [`Buffer::note_use`](crate::Buffer::note_use) for a part of a buffer. This orders nothing with
    /// work on other parts.
    ///
    /// # Errors
    /// The driver's, if making the stream wait fails.
    ///
    /// # Safety
    /// That of [`Buffer::note_use`](crate::Buffer::note_use), for these elements.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # fn library_call(_stream: cuda_core::sys::CUstream, _address: u64) {}
    /// use cuda_core::Access;
    ///
    /// let mut buffer = stream.alloc_zeroed::<f32>(1024)?;
    /// let half = buffer.slice_mut(..512)?;
    /// let (noted, access) = (half.as_view(), Access::Write);
    /// // SAFETY: until the second call nothing but the library's kernel uses this half.
    /// unsafe { noted.note_use(&stream, access) }?;
    /// library_call(stream.as_raw(), noted.as_raw()); // enqueues a kernel that writes the half
    /// // SAFETY: since the first call nothing else has used it.
    /// unsafe { noted.note_use(&stream, access) }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub unsafe fn note_use<K: StreamKind>(&self, stream: &Stream<K>, access: Access) -> Result<()> {
        self.storage.note_use(stream, &self.range(), access)
    }

    /// The context that the memory belongs to.
    pub fn context(&self) -> &'a Context {
        self.storage.context()
    }

    /// The device of that context.
    pub fn device(&self) -> Device {
        self.context().device()
    }

    pub(crate) fn storage(&self) -> &'a Storage<M> {
        self.storage
    }

    pub(crate) fn block(&self) -> &'a Block<M> {
        self.storage.block()
    }

    pub(crate) fn ledger(&self) -> &'a Ledger {
        &self.block().ledger
    }

    /// Returns the access of an operation that reads the elements.
    #[inline]
    pub(crate) fn read(&self) -> Touch<'a> {
        Touch::shared(self.ledger(), self.range(), Access::Read, M::in_graphs(self.block()))
    }

    /// The view's bytes within its allocation.
    pub(crate) fn range(&self) -> Bytes {
        self.start..self.start + self.byte_len()
    }

    /// The address of the first element.
    #[inline]
    pub(crate) fn place(&self) -> Place {
        M::place(self.block(), self.range().start)
    }

    /// The context that the elements belong to; [`None`] for host memory.
    #[inline]
    pub(crate) fn owner(&self) -> Option<&'a Context> {
        match self.place() {
            Place::Host(_) => None,
            Place::Device(_) => Some(M::context_of(&self.block().backing)),
        }
    }

    /// Returns the device or context of the elements, if others need to be given access.
    pub(crate) fn confined(&self) -> Option<Confined> {
        M::confined_to(self.block())
    }

    /// The device that the elements are on; [`None`] for host memory.
    #[inline]
    pub(crate) fn on(&self) -> Option<Device> {
        self.owner().map(Context::device)
    }

    /// Returns the context that the elements count as belonging to for `stream`: the stream's own context
    /// for managed memory that every device uses as its own.
    #[inline]
    pub(crate) fn owner_for<'s>(&self, stream: &'s StreamCore) -> Option<&'s Context>
    where
        'a: 's,
    {
        let owner = self.owner()?;
        if owner.device() == stream.device() || !M::is_everywhere(self.block()) {
            return Some(owner);
        }
        Some(stream.context())
    }

    /// Returns the only device whose streams may use the elements; [`None`] for memory that every
    /// device uses as its own, and for host memory.
    pub(crate) fn only_on(&self) -> Option<Device> {
        self.on().filter(|_| !M::is_everywhere(self.block()))
    }
}

/// # The view
impl<'a, T: Pod, M: Memory> SliceMut<'a, T, M> {
    /// Creates a view of all `len` elements of `storage`, which has room for them.
    #[inline]
    pub(crate) fn whole(storage: &'a mut Storage<M>, len: usize) -> Self {
        Self { hold: Hold::Sole(storage), start: 0, len, _elements: PhantomData }
    }

    /// Makes an exclusive view of `view`. The caller creates no other view of its elements while this
    /// one lives.
    fn part(view: Slice<'a, T, M>) -> Self {
        Self {
            hold: Hold::Part(view.storage),
            start: view.start,
            len: view.len,
            _elements: PhantomData,
        }
    }

    lengths!();

    of_context! { "The context that the memory belongs to.": |it| it.as_view().context() }

    /// Returns a shared view of the same elements while `self` is borrowed.
    #[inline]
    pub fn as_view(&self) -> Slice<'_, T, M> {
        let storage = match &self.hold {
            Hold::Sole(storage) => storage,
            Hold::Part(storage) => *storage,
        };
        Slice { storage, start: self.start, len: self.len, _elements: PhantomData }
    }

    /// Returns an exclusive view of the same elements while `self` is borrowed.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut buffer = stream.alloc::<f32>(100)?;
    /// let mut view = buffer.as_view_mut();
    /// stream.fill(view.reborrow(), 1.0)?; // `view` itself would be gone then
    /// stream.upload(&[2.0; 100], view)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[inline]
    pub fn reborrow(&mut self) -> SliceMut<'_, T, M> {
        let hold = match &mut self.hold {
            Hold::Sole(storage) => Hold::Sole(storage),
            Hold::Part(storage) => Hold::Part(storage),
        };
        SliceMut { hold, start: self.start, len: self.len, _elements: PhantomData }
    }

    /// [`Slice::cast`] for an exclusive view.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn cast<U: Pod>(self) -> Result<SliceMut<'a, U, M>> {
        self.into_view().cast().map(SliceMut::part)
    }

    /// Returns an exclusive view of the elements in `range` while `self` is borrowed.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T, M>> {
        self.reborrow().into_slice(range)
    }

    /// Splits the view into the elements before `mid` and the rest. The two views can be used on two
    /// streams at once: neither waits for the other.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `mid` is greater than the length.
    pub fn split_at_mut(self, mid: usize) -> Result<(Self, Self)> {
        let (head, tail) = self.into_view().split_at(mid)?;
        Ok((Self::part(head), Self::part(tail)))
    }

    /// [`Slice::chunks`] for an exclusive view. Each chunk can be used on a stream of its own. Up to 32
    /// chunks that are in use at once do not wait for each other. Beyond that, the uses of one stream's
    /// chunks are merged into one range, and a stream may wait for another stream's chunks that lie
    /// between its own.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `len` is zero.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut buffer = stream.alloc::<u32>(10)?;
    /// for (number, part) in (0..).zip(buffer.as_view_mut().chunks_mut(4)?) {
    ///     stream.fill(part, number)?; // 0 0 0 0 1 1 1 1 2 2
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn chunks_mut(
        self,
        len: usize,
    ) -> Result<impl ExactSizeIterator<Item = Self> + use<'a, T, M>> {
        Ok(self.into_view().chunks(len)?.map(Self::part))
    }

    /// [`SliceMut::slice_mut`] with the lifetime of `self`, for functions that return a part of a view.
    ///
    /// # Errors
    /// As [`Slice::slice`].
    ///
    /// ```no_run
    /// use cuda_core::{DeviceSliceMut, Result};
    ///
    /// fn row<'a>(matrix: DeviceSliceMut<'a, f32>, at: usize) -> Result<DeviceSliceMut<'a, f32>> {
    ///     matrix.into_slice(1000 * at..1000 * (at + 1))
    /// }
    /// ```
    pub fn into_slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        self.into_view().slice(range).map(Self::part)
    }

    /// Returns a view with the lifetime of `self`; the caller keeps it exclusive.
    pub(crate) fn into_view(self) -> Slice<'a, T, M> {
        let storage = match self.hold {
            Hold::Sole(storage) => storage,
            Hold::Part(storage) => storage,
        };
        Slice { storage, start: self.start, len: self.len, _elements: PhantomData }
    }

    /// Returns the access of an operation that writes the elements.
    #[inline]
    pub(crate) fn write(&mut self) -> Touch<'_> {
        self.reborrow().into_touch()
    }

    /// [`SliceMut::write`] with the lifetime of `self`.
    #[inline]
    pub(crate) fn into_touch(self) -> Touch<'a> {
        let range = self.start..self.start + self.byte_len();
        let in_graphs = M::in_graphs(self.as_view().block());
        let ledger = match self.hold {
            Hold::Sole(storage) => LedgerOf::Sole(storage.ledger_mut()),
            Hold::Part(storage) => LedgerOf::Shared(&storage.block().ledger),
        };
        Touch { ledger, range, access: Access::Write, in_graphs }
    }
}

/// Returns start and end of `range` within `len` elements.
pub(crate) fn bounds(range: impl RangeBounds<usize>, len: usize) -> Result<(usize, usize)> {
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
        (start, end) => Err(OutOfBounds {
            start: start.unwrap_or(usize::MAX),
            end: end.unwrap_or(usize::MAX),
            len,
        }
        .into()),
    }
}

views! {
    ['a, T: Pod, M: Memory] &Slice<'a, T, M> => Slice<'a, T, M>: |it| *it;
    ['b, T: Pod, M: Memory] &'b SliceMut<'_, T, M> => Slice<'b, T, M>: |it| it.as_view();
    ['b, T: Pod, M: Memory] &'b mut SliceMut<'_, T, M> => Slice<'b, T, M>: |it| it.as_view();
    ['b, T: Pod, M: Memory] &'b mut SliceMut<'_, T, M> => SliceMut<'b, T, M>: |it| it.reborrow();
}

debug_by! {
    [T: Pod, M: Memory] Slice<'_, T, M>:
        |it| "Slice({:?} of {} bytes)", it.range(), it.block().bytes
}

debug_by! { [T: Pod, M: Memory] SliceMut<'_, T, M>: |it| "SliceMut of {:?}", it.as_view() }
