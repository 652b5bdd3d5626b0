//! Work that another library enqueues, ordered like this crate's own.

use cuda_sys::CUstream;

use crate::error::Result;
use crate::memory::Memory;
use crate::memory::into_view::IntoView;
use crate::memory::view::{Slice, SliceMut};
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::Touch;
use crate::timeline::submit::LibraryUse;
use crate::types::pod::Pod;
use crate::util::by_parts::debug_by;
use crate::util::inline_vec::InlineVec;

/// Work of another library on a stream: what it reads and writes, then the call that enqueues it.
/// Made by [`Stream::library_work`].
#[must_use = "`enqueue` runs it"]
pub struct LibraryWork<'a, K: StreamKind> {
    stream: &'a Stream<K>,
    touches: InlineVec<Touch<'a>, 8>,
}

/// # Work of other libraries
impl<K: StreamKind> Stream<K> {
    /// Begins work that another library enqueues on the stream, such as a call of cuBLAS: name the
    /// memory that it uses, then [enqueue](LibraryWork::enqueue) it. In place of
    /// [`Buffer::note_use`](crate::Buffer::note_use) for each buffer before and after. In a capture
    /// of this crate's the work is captured with the others.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # fn gemm(_stream: cuda_core::sys::CUstream, _a: u64, _b: u64, _c: u64) -> i32 { 0 }
    /// let (a, b) = (stream.alloc_zeroed::<f32>(64)?, stream.alloc_zeroed::<f32>(64)?);
    /// let mut c = stream.alloc::<f32>(64)?;
    /// let [from, by, to] = [a.as_raw(), b.as_raw(), c.as_raw()];
    /// let work = stream.library_work().read(&a).read(&b).write(&mut c);
    /// // SAFETY: it enqueues one kernel on this stream, which reads `a` and `b` and writes `c`.
    /// let status = unsafe { work.enqueue(|raw| gemm(raw, from, by, to)) }?;
    /// assert_eq!(status, 0);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn library_work(&self) -> LibraryWork<'_, K> {
        LibraryWork { stream: self, touches: InlineVec::new() }
    }
}

impl<'a, K: StreamKind> LibraryWork<'a, K> {
    /// The work reads this memory: `&buffer`, or a view.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let x = stream.alloc_zeroed::<f32>(1000)?;
    /// let work = stream.library_work().read(x.slice(..500)?);
    /// # let _ = work;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[inline]
    pub fn read<T: Pod, M: Memory>(mut self, memory: impl IntoView<Slice<'a, T, M>>) -> Self {
        self.touches.push(|| memory.into().read());
        self
    }

    /// The work writes this memory, or reads and writes it: `&mut buffer`, or an exclusive view.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut y = stream.alloc_zeroed::<f32>(1000)?;
    /// let work = stream.library_work().write(&mut y);
    /// # let _ = work;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[inline]
    pub fn write<T: Pod, M: Memory>(mut self, memory: impl IntoView<SliceMut<'a, T, M>>) -> Self {
        self.touches.push(|| memory.into().into_touch());
        self
    }

    /// Makes the stream wait for what conflicts with the work, calls `work` with the driver's handle
    /// of the stream, and marks the memory as used up to then, also if `work` panics. Returns what
    /// `work` returns.
    ///
    /// Two driver calls for each other stream to wait for, and one that asks whether the stream is
    /// being captured: other code has its handle. What is current on the thread is left as it is:
    /// [`ContextLocal::with`](crate::ContextLocal::with), which has the handles of libraries, makes
    /// their context current around this call.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) while work of another library is being captured; the
    /// driver's, when the stream is made to wait; [`Error::Capturing`](crate::Error::Capturing) if other
    /// code captures the stream. `work` is not called then. Those of noting the use in a capture of
    /// this crate's, also after `work`.
    ///
    /// # Safety
    /// What `work` enqueues, it enqueues on that stream, or orders between what is on that stream
    /// before and after the call; it uses no memory of buffers but what was named, as it was named,
    /// and within the bounds of that. It begins and ends no capture of the stream. It writes
    /// [`Registered`](crate::Registered) memory only if the owner is a
    /// [`StableHostMut`](crate::pinned::StableHostMut).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # fn library_scale(_stream: cuda_core::sys::CUstream, _address: u64, _len: usize) {}
    /// let mut x = stream.alloc_zeroed::<f32>(1000)?;
    /// let (address, len) = (x.as_raw(), x.len());
    /// let work = stream.library_work().write(&mut x);
    /// // SAFETY: the library enqueues a kernel that writes `x`, on the stream that it is given.
    /// unsafe { work.enqueue(|raw| library_scale(raw, address, len)) }?;
    /// let back = stream.download_vec(&x)?; // after it
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub unsafe fn enqueue<R>(mut self, work: impl FnOnce(CUstream) -> R) -> Result<R> {
        let used = LibraryUse::begin(self.stream.core(), self.touches.as_mut_slice())?;
        let result = work(self.stream.as_raw());
        used.end()?;
        Ok(result)
    }
}

debug_by! {
    [K: StreamKind] LibraryWork<'_, K>: |it| "LibraryWork" {
        stream: it.stream, memory: it.touches.as_slice().len()
    }
}
