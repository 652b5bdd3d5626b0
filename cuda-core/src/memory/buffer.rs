//! Buffers: each owns one allocation of elements.

use std::marker::PhantomData;
use std::ops::RangeBounds;

use crate::context::of_context;
use crate::error::{Rejected, Result};
use crate::memory::view::lengths;
use crate::memory::{Memory, Slice, SliceMut, Storage, views};
use crate::process::driver;
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::Access;
use crate::types::Pod;
use crate::util::debug_by;

/// A buffer of elements in one kind of memory. [`DeviceBuffer`](crate::DeviceBuffer) and
/// [`PinnedBuffer`](crate::PinnedBuffer) are aliases of it. So are
/// [`ManagedBuffer`](crate::managed::ManagedBuffer) and
/// [`VirtualBuffer`](crate::virtual_memory::VirtualBuffer), buffers of device memory whose third
/// parameter holds what their allocation needs in addition.
///
/// This type provides what all of them share: length, views, waiting, freeing. A buffer knows which
/// streams use which of its bytes, whichever thread enqueued the work, so it is safe to drop or forget
/// it while work is pending.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{Buffer, Memory, Pod};
///
/// // Of whatever kind of memory.
/// fn mebibytes<T: Pod, M: Memory>(buffers: &[Buffer<T, M>]) -> usize {
///     buffers.iter().map(Buffer::byte_len).sum::<usize>() >> 20
/// }
/// let buffers = [stream.alloc::<f32>(1 << 20)?, stream.alloc(1 << 18)?];
/// assert_eq!(mebibytes(&buffers), 5);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct Buffer<T: Pod, M: Memory, X = ()> {
    pub(crate) storage: Storage<M>,
    // INVARIANT: the storage has accessible memory for this many elements, aligned for `T`.
    len: usize,
    pub(crate) extra: X,
    _elements: PhantomData<T>,
}

/// # Every buffer
impl<T: Pod, M: Memory, X> Buffer<T, M, X> {
    /// Returns the same buffer with another extra part.
    pub(crate) fn into_other<Y>(self, extra: Y) -> Buffer<T, M, Y> {
        Buffer::with_extra(self.storage, self.len, extra)
    }

    /// [`Buffer::from_storage`] with the extra part that the allocation needs.
    #[inline]
    pub(crate) fn with_extra(storage: Storage<M>, len: usize, extra: X) -> Self {
        Self { storage, len, extra, _elements: PhantomData }
    }

    /// Sets the length. The caller ensures that the storage has room for `len` elements.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    lengths!();

    of_context! { "The context that the memory was allocated in.": |it| it.storage.context() }

    /// Returns a view of all elements.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let buffer = stream.alloc_zeroed::<f32>(100)?;
    /// let (whole, head) = (buffer.as_view(), buffer.slice(..10)?); // of one type
    /// for view in [whole, head] {
    ///     println!("{} elements", view.len());
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[inline]
    pub fn as_view(&self) -> Slice<'_, T, M> {
        Slice::part(&self.storage, 0, self.len)
    }

    /// Returns an exclusive view of all elements.
    #[inline]
    pub fn as_view_mut(&mut self) -> SliceMut<'_, T, M> {
        SliceMut::whole(&mut self.storage, self.len)
    }

    /// Returns a view of the elements in `range`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let buffer = stream.alloc_zeroed::<u32>(1000)?;
    /// let mut some = [1; 3];
    /// stream.download(buffer.slice(10..13)?, &mut some)?;
    /// assert_eq!(some, [0; 3]);
    /// assert!(buffer.slice(990..1001).is_err());
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T, M>> {
        self.as_view().slice(range)
    }

    /// Returns an exclusive view of the elements in `range`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut buffer = stream.alloc_zeroed::<u32>(1000)?;
    /// stream.fill(buffer.slice_mut(..500)?, 7)?; // the other half stays as it is
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T, M>> {
        self.as_view_mut().into_slice(range)
    }

    /// Returns exclusive views of the elements before `mid` and of the rest, usable on two streams at
    /// once.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds) if `mid` is greater than the length.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let (one, two) = (context.create_stream()?, context.create_stream()?);
    /// let mut buffer = one.alloc_zeroed::<f32>(1 << 20)?;
    /// let (mut low, mut high) = buffer.split_at_mut(1 << 19)?;
    /// one.fill(&mut low, 1.0f32)?;
    /// two.fill(&mut high, 2.0f32)?; // beside the other fill
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn split_at_mut(&mut self, mid: usize) -> Result<(SliceMut<'_, T, M>, SliceMut<'_, T, M>)> {
        self.as_view_mut().split_at_mut(mid)
    }

    /// Divides the buffer into consecutive views of `len` elements each; the last one may be shorter.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if `len` is zero.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let source = stream.alloc_zeroed::<f32>(1000)?;
    /// for part in source.chunks(256)? {
    ///     println!("{} elements at {:#x}", part.len(), part.as_raw());
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn chunks(
        &self,
        len: usize,
    ) -> Result<impl ExactSizeIterator<Item = Slice<'_, T, M>> + use<'_, T, M, X>> {
        self.as_view().chunks(len)
    }

    /// [`Buffer::chunks`] as exclusive views, each usable on a stream of its own. Up to 32 chunks in
    /// flight do not wait for each other: see [`SliceMut::chunks_mut`].
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if `len` is zero.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let streams = [context.create_stream()?, context.create_stream()?];
    /// let mut buffer = streams[0].alloc::<f32>(1 << 20)?;
    /// for (stream, part) in streams.iter().cycle().zip(buffer.chunks_mut(1 << 16)?) {
    ///     stream.fill(part, 1.0)?; // the streams do not wait for each other
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn chunks_mut(
        &mut self,
        len: usize,
    ) -> Result<impl ExactSizeIterator<Item = SliceMut<'_, T, M>> + use<'_, T, M, X>> {
        self.as_view_mut().chunks_mut(len)
    }

    /// Notes that work that other code enqueues on `stream` uses the buffer.
    ///
    /// Call it before the work is enqueued, so that the stream waits for other users of the buffer,
    /// and again after, so that other users wait for the work.
    ///
    /// # Errors
    /// The driver's, if making the stream wait fails.
    ///
    /// # Safety
    /// Between the two calls no other work uses the buffer, and the work uses it only as `access` says.
    /// If the stream is being captured, other threads enqueue nothing on it in between;
    /// [`Stream::work`] ensures this. The work also fulfils the conditions of
    /// [`StreamWork::enqueue`](crate::StreamWork::enqueue), where the noted memory is what is named there.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # fn library_call(_stream: cuda_core::sys::CUstream, _address: u64) {}
    /// use cuda_core::Access;
    ///
    /// let buffer = stream.alloc_zeroed::<f32>(1024)?;
    /// // SAFETY: until the second call nothing but the library's kernel uses the buffer.
    /// unsafe { buffer.note_use(&stream, Access::Read) }?; // the stream waits for earlier writes
    /// library_call(stream.as_raw(), buffer.as_raw()); // enqueues a kernel that reads `buffer`
    /// // SAFETY: since the first call nothing else has used it, and the kernel does no more than
    /// // read it.
    /// unsafe { buffer.note_use(&stream, Access::Read) }?; // later writes wait for the kernel
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("record_stream"))]
    pub unsafe fn note_use<K: StreamKind>(&self, stream: &Stream<K>, access: Access) -> Result<()> {
        self.storage.note_use(stream, &self.storage.block().whole(), access)
    }

    /// Blocks the thread until the work that writes the buffer is done: [`ready`](Self::ready), blocking. It
    /// also waits for all other work that the streams of that work have by now, unless a
    /// [checkpoint](crate::Stream::checkpoint) follows that work.
    ///
    /// # Errors
    /// The driver's errors about the work waited for;
    /// [`Error::NotCapturable`](crate::Error::NotCapturable) while that work is being captured.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut buffer = stream.alloc::<u32>(1000)?;
    /// stream.fill(&mut buffer, 7)?;
    /// buffer.synchronize()?; // waits for the fill
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuEventSynchronize", "cudaEventSynchronize"))]
    pub fn synchronize(&self) -> Result<()> {
        self.storage.synchronize(Access::Read)
    }

    /// Blocks the thread until all work that uses the buffer is done:
    /// [`ready_mut`](Self::ready_mut), blocking. To be called before code that does not know the streams
    /// writes the buffer.
    ///
    /// # Errors
    /// Those of [`synchronize`](Self::synchronize).
    pub fn synchronize_mut(&mut self) -> Result<()> {
        self.storage.synchronize(Access::Write)
    }

    /// Frees the memory after all work that uses it. Dropping the buffer does the same, but
    /// reports a failure to the hook of [`drops::set_hook`](crate::drops::set_hook).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) while a graph uses the memory, and the errors of the
    /// wait for that work; the buffer is then unchanged. The driver's if the call that frees the memory
    /// failed; the buffer is then empty: see [`Error::GivenUp`](crate::Error::GivenUp).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let buffer = stream.alloc::<u32>(1000)?;
    /// if let Err(rejected) = buffer.close() {
    ///     eprintln!("not freed: {}", rejected.error);
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemFree", "cudaFree"))]
    pub fn close(mut self) -> Result<(), Rejected<Self>> {
        self.free().map_err(|error| Rejected::new(error, self))
    }

    /// [`Buffer::close`] for a buffer that is part of another value.
    pub(crate) fn free(&mut self) -> Result<()> {
        driver::ensure()?;
        let freed = self.storage.free();
        if self.storage.ensure().is_err() {
            self.len = 0;
        }
        freed
    }
}

/// # Other element types
impl<T: Pod, M: Memory> Buffer<T, M> {
    /// Creates a buffer of all of `storage`, which has room for `len` elements and is aligned for them.
    #[inline]
    pub(crate) fn from_storage(storage: Storage<M>, len: usize) -> Self {
        Self::with_extra(storage, len, ())
    }

    /// Reinterprets the bytes as elements of type `U`. The size of `U` must divide their number, and
    /// the alignment of `U` must not exceed the memory's. No copy, no driver call.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid), with the buffer itself, if the bytes are not a whole
    /// number of elements of the new type, or not aligned for them.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let words = stream.alloc_zeroed::<u32>(256)?;
    /// let bytes = words.cast::<u8>()?;
    /// assert_eq!(bytes.len(), 1024);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn cast<U: Pod>(self) -> Result<Buffer<U, M>, Rejected<Self>> {
        let len = self.as_view().cast::<U>().map(|view| view.len());
        let (len, this) = Rejected::unless(len, self)?;
        Ok(Buffer::from_storage(this.storage, len))
    }
}

views! {
    ['a, T: Pod, M: Memory, X] &'a Buffer<T, M, X> => Slice<'a, T, M>: |it| it.as_view();
    // For code that has a `&mut` but only reads.
    ['a, T: Pod, M: Memory, X] &'a mut Buffer<T, M, X> => Slice<'a, T, M>: |it| it.as_view();
    ['a, T: Pod, M: Memory, X] &'a mut Buffer<T, M, X> => SliceMut<'a, T, M>: |it| it.as_view_mut();
}

debug_by! {
    [T: Pod, M: Memory, X] Buffer<T, M, X>: |it| "Buffer" {
        address: format_args!("{:#x}", M::number(it.storage.block().address)), len: it.len,
        memory: M::RESOURCE, device: it.device()
    }
}
