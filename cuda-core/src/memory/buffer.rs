//! Buffers: elements in one allocation, which they own.

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

/// Elements in memory of one kind; [`DeviceBuffer`](crate::DeviceBuffer) and
/// [`PinnedBuffer`](crate::PinnedBuffer) are aliases of it, and so are
/// [`ManagedBuffer`](crate::managed::ManagedBuffer) and
/// [`VirtualBuffer`](crate::virtual_memory::VirtualBuffer): buffers of device memory with a third
/// parameter, which has what their allocation needs beyond that.
///
/// This type has what all of them share: length, views, waiting, freeing. A buffer knows which
/// streams use which of its bytes, on whatever thread the work was enqueued, so it is safe to drop
/// or to forget it meanwhile.
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
    /// The same buffer with another extra part.
    pub(crate) fn into_other<Y>(self, extra: Y) -> Buffer<T, M, Y> {
        Buffer::with_extra(self.storage, self.len, extra)
    }

    /// [`Buffer::from_storage`] with what the allocation needs beyond its memory.
    #[inline]
    pub(crate) fn with_extra(storage: Storage<M>, len: usize, extra: X) -> Self {
        Self { storage, len, extra, _elements: PhantomData }
    }

    /// To be called only if the storage has room for `len` elements.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    lengths!();

    of_context! { "The context that the memory was allocated in.": |it| it.storage.context() }

    /// A view of all elements.
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

    /// An exclusive view of all elements.
    #[inline]
    pub fn as_view_mut(&mut self) -> SliceMut<'_, T, M> {
        SliceMut::whole(&mut self.storage, self.len)
    }

    /// A view of some elements.
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

    /// An exclusive view of some elements.
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

    /// Exclusive views of the elements before `mid` and from it on, usable on two streams at once.
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

    /// Consecutive views of `len` elements each, the last one perhaps shorter; together they are
    /// the buffer.
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

    /// [`Buffer::chunks`] as exclusive views, each usable on a stream of its own. None waits for another while
    /// no more than 32 are in flight: [`SliceMut::chunks_mut`].
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
    /// The driver's, when the stream is made to wait.
    ///
    /// # Safety
    /// Between the two calls no other work uses the buffer, and the work uses it only as `access`
    /// says. On a stream that is captured, other threads enqueue nothing meanwhile;
    /// [`Stream::work`] ensures this; and what the work uses besides stays valid as
    /// [`StreamWork::enqueue`](crate::StreamWork::enqueue) says. It writes [`Registered`](crate::Registered) memory only if
    /// the owner is a [`StableHostMut`](crate::pinned::StableHostMut).
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
    pub unsafe fn note_use<K: StreamKind>(&self, stream: &Stream<K>, access: Access) -> Result<()> {
        self.storage.note_use(stream, &self.storage.block().whole(), access)
    }

    /// Blocks the thread until no stream uses the buffer any more; and until all other work is done that these
    /// streams have by now, unless there is a [checkpoint](crate::Stream::checkpoint) before that.
    ///
    /// # Errors
    /// The driver's errors about the work waited for.
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
        driver::ensure()?;
        self.storage.wait_for(&self.storage.block().whole())
    }

    /// Frees the memory after all work that uses it. Dropping the buffer does the same, but
    /// reports a failure to the hook of [`drops::set_hook`](crate::drops::set_hook).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) while a graph uses the memory, and those of the wait for
    /// that work, with the buffer unchanged; the driver's when the freeing call failed, with a buffer that is empty: see [`Error::GivenUp`](crate::Error::GivenUp).
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
    /// All of `storage`, which has room for `len` elements and is aligned for them.
    #[inline]
    pub(crate) fn from_storage(storage: Storage<M>, len: usize) -> Self {
        Self::with_extra(storage, len, ())
    }

    /// The same bytes as elements of another type, whose size must divide them and whose alignment
    /// must not exceed the memory's. No copy, no driver call.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the bytes are not a whole number of elements of the new
    /// type, or not aligned for them; with the buffer itself.
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
    // For code that has a `&mut` and only reads.
    ['a, T: Pod, M: Memory, X] &'a mut Buffer<T, M, X> => Slice<'a, T, M>: |it| it.as_view();
    ['a, T: Pod, M: Memory, X] &'a mut Buffer<T, M, X> => SliceMut<'a, T, M>: |it| it.as_view_mut();
}

debug_by! {
    [T: Pod, M: Memory, X] Buffer<T, M, X>: |it| "Buffer" {
        address: format_args!("{:#x}", M::number(it.storage.block().address)), len: it.len,
        memory: M::RESOURCE, device: it.device()
    }
}
