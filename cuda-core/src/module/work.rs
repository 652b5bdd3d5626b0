//! Work that names the memory it uses: host functions, and what other libraries enqueue.

use cuda_sys::CUstream;

use crate::error::Result;
use crate::memory::{IntoView, Memory, Slice, SliceMut};
use crate::stream::{Stream, StreamKind};
use crate::timeline::LibraryUse;
use crate::timeline::ledger::Touch;
use crate::types::Pod;
use crate::util::{InlineVec, debug_by};

/// Work of other code as an operation of a stream: the memory that it reads and writes, then a host
/// function or a call of another library. Made by [`Stream::work`].
#[must_use = "`launch_host_func`, `launch_host_func_each` or `enqueue` enqueues it"]
pub struct StreamWork<'a, K: StreamKind> {
    stream: &'a Stream<K>,
    touches: InlineVec<Touch<'a>, 8>,
}

/// # Work of other code
impl<K: StreamKind> Stream<K> {
    /// Begins work of other code. Name the memory that the work reads and writes, then launch [a
    /// host function](StreamWork::launch_host_func), or [enqueue](StreamWork::enqueue) another
    /// library's work, such as a call of cuBLAS. The work comes after what other streams do with
    /// the memory, and they wait for the work, as for a copy; so do the accessors of pinned memory.
    /// A library's call then needs no [`Buffer::note_use`](crate::Buffer::note_use). In a graph [by
    /// access](crate::Graph::capture_by_access) the work comes after what it conflicts with and
    /// after the last such work on the stream, and is a barrier only if it names no memory.
    ///
    /// Naming memory only orders the work: the function must be given the addresses separately, as
    /// below.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # fn gemm(_stream: cuda_core::sys::CUstream, _a: u64, _b: u64, _c: u64) -> i32 { 0 }
    /// let (a, b) = (stream.alloc_zeroed::<f32>(64)?, stream.alloc_zeroed::<f32>(64)?);
    /// let mut c = stream.alloc::<f32>(64)?;
    /// let [from, by, to] = [a.as_raw(), b.as_raw(), c.as_raw()];
    /// let work = stream.work().read(&a).read(&b).write(&mut c);
    /// // SAFETY: it enqueues one kernel on this stream, which reads `a` and `b` and writes `c`.
    /// let status = unsafe { work.enqueue(|raw| gemm(raw, from, by, to)) }?;
    /// assert_eq!(status, 0);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn work(&self) -> StreamWork<'_, K> {
        StreamWork { stream: self, touches: InlineVec::new() }
    }
}

impl<'a, K: StreamKind> StreamWork<'a, K> {
    /// Names memory that the work reads: `&buffer`, or a view.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let x = stream.alloc_zeroed::<f32>(1000)?;
    /// stream.work().read(x.slice(..500)?).launch_host_func(|| println!("the half is there"))?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[inline]
    pub fn read<T: Pod, M: Memory>(mut self, memory: impl IntoView<Slice<'a, T, M>>) -> Self {
        self.touches.push(|| memory.into().read());
        self
    }

    /// Names memory that the work writes, and may read: `&mut buffer`, or an exclusive view.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut y = stream.alloc_zeroed::<f32>(1000)?;
    /// stream.work().write(&mut y).launch_host_func(|| println!("nothing else uses it now"))?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[inline]
    pub fn write<T: Pod, M: Memory>(mut self, memory: impl IntoView<SliceMut<'a, T, M>>) -> Self {
        self.touches.push(|| memory.into().into_touch());
        self
    }

    /// Calls [`Stream::launch_host_func`], with the named memory.
    ///
    /// # Errors
    /// As [`Stream::launch_host_func`].
    #[doc(alias("cuLaunchHostFunc", "cudaLaunchHostFunc"))]
    pub fn launch_host_func(mut self, f: impl FnOnce() + Send + 'static) -> Result<()> {
        self.stream.launch_host_func_with(Box::new(f), self.touches.as_mut_slice())
    }

    /// Calls [`Stream::launch_host_func_each`], with the named memory.
    ///
    /// # Errors
    /// As [`Stream::launch_host_func_each`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::{Graph, PinnedBuffer};
    ///
    /// let (x, y) = (stream.alloc_zeroed::<f32>(256)?, stream.alloc_zeroed::<f32>(256)?);
    /// let mut host = [PinnedBuffer::<f32>::new(&context, 256)?, PinnedBuffer::new(&context, 256)?];
    /// let graph = Graph::capture_by_access(&context, |stream| {
    ///     let [first, second] = &mut host;
    ///     stream.download(&x, &mut *first)?;
    ///     stream.work().read(&*first).launch_host_func_each(|| println!("the first has arrived"))?;
    ///     stream.download(&y, second) // beside both
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLaunchHostFunc", "cudaLaunchHostFunc"))]
    pub fn launch_host_func_each(mut self, f: impl Fn() + Send + Sync + 'static) -> Result<()> {
        self.stream.launch_host_func_each_with(Box::new(f), self.touches.as_mut_slice())
    }

    /// Makes the stream wait for what conflicts with the work, calls `work` with the driver's
    /// handle of the stream, then marks the memory as used up to that point, also if `work` panics.
    /// Returns what `work` returns.
    ///
    /// Makes two driver calls for each other stream to wait for, and one that asks whether the
    /// stream is being captured, since other code has its handle. The thread's current context
    /// stays as it is. [`ContextLocal::with`](crate::ContextLocal::with), which keeps handles of
    /// libraries, makes their context current around this call.
    ///
    /// # Errors
    /// Before `work` is called: [`Error::Invalid`](crate::Error::Invalid) while work of another
    /// library is being captured; the driver's, when the stream is made to wait;
    /// [`Error::Capturing`](crate::Error::Capturing) if other code captures the stream. After
    /// `work` was called, in a capture of this crate: errors of noting the use.
    ///
    /// # Safety
    /// * `work` enqueues on that stream, or orders its work between what is on that stream before and
    ///   after the call. It begins and ends no capture of the stream.
    /// * Of buffers, it uses only the named memory, as it was named and within its bounds. It writes
    ///   [`Registered`](crate::Registered) memory only if the owner is a
    ///   [`StableHostMut`](crate::pinned::StableHostMut).
    /// * Access between devices that it needs is not
    ///   [revoked](crate::Context::disable_peer_access) before it has completed.
    /// * On a captured stream, all this holds for each launch of the graph, also if safe code changes
    ///   operations of this crate in an executable or leaves them out. Everything else that it
    ///   uses, such as the code of kernels, stays valid while the graph exists, and until the last
    ///   launch of each executable of the graph has completed. What it writes besides the named
    ///   memory, such as a workspace of the library, is used by no work that may run at the same time:
    ///   launches of other executables, or the library's work on other streams. Within one
    ///   graph, such work on one stream runs in the order of the calls.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # fn library_scale(_stream: cuda_core::sys::CUstream, _address: u64, _len: usize) {}
    /// let mut x = stream.alloc_zeroed::<f32>(1000)?;
    /// let (address, len) = (x.as_raw(), x.len());
    /// let work = stream.work().write(&mut x);
    /// // SAFETY: the library enqueues a kernel that writes `x`, on the stream that it is given.
    /// unsafe { work.enqueue(|raw| library_scale(raw, address, len)) }?;
    /// let back = stream.download_vec(&x)?; // after it
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub unsafe fn enqueue<R>(mut self, work: impl FnOnce(CUstream) -> R) -> Result<R> {
        let mut used = LibraryUse::begin(self.stream.core(), self.touches.as_mut_slice())?;
        let result = work(self.stream.as_raw());
        used.end()?;
        Ok(result)
    }
}

debug_by! {
    [K: StreamKind] StreamWork<'_, K>: |it| "StreamWork" {
        stream: it.stream, memory: it.touches.as_slice().len()
    }
}
