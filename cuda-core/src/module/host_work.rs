//! Functions of the host with the memory that they use.

use crate::error::Result;
use crate::memory::Memory;
use crate::memory::into_view::IntoView;
use crate::memory::view::{Slice, SliceMut};
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::Touch;
use crate::types::pod::Pod;
use crate::util::by_parts::debug_by;
use crate::util::inline_vec::InlineVec;

/// A function of the host, as an operation that uses memory: what it reads and writes, then the
/// function. Made by [`Stream::host_work`].
#[must_use = "`launch` or `launch_each` enqueues it"]
pub struct HostWork<'a, K: StreamKind> {
    stream: &'a Stream<K>,
    touches: InlineVec<Touch<'a>, 8>,
}

/// # Host functions that use memory
impl<K: StreamKind> Stream<K> {
    /// Begins a function of the host that uses memory: name what it reads and writes, then
    /// [launch](HostWork::launch) it. It comes after what other streams do with the memory, and they
    /// wait for it, as for a copy; the accessors of pinned memory wait for it, too. In a graph
    /// [by data flow](crate::Graph::capture_by_access) it comes after what it conflicts with, and is
    /// no barrier.
    ///
    /// Naming memory orders the function; it gives it no access. How it gets at the
    /// memory, by addresses of its own for instance, is the caller's concern. One that names nothing is
    /// [`Stream::launch_host_func`].
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
    ///     stream.host_work().read(&*first).launch_each(|| println!("the first has arrived"))?;
    ///     stream.download(&y, second) // beside both
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuLaunchHostFunc", "cudaLaunchHostFunc"))]
    pub fn host_work(&self) -> HostWork<'_, K> {
        HostWork { stream: self, touches: InlineVec::new() }
    }
}

impl<'a, K: StreamKind> HostWork<'a, K> {
    /// The function reads this memory: `&buffer`, or a view.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let x = stream.alloc_zeroed::<f32>(1000)?;
    /// stream.host_work().read(x.slice(..500)?).launch(|| println!("the half is there"))?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[inline]
    pub fn read<T: Pod, M: Memory>(mut self, memory: impl IntoView<Slice<'a, T, M>>) -> Self {
        self.touches.push(|| memory.into().read());
        self
    }

    /// The function writes this memory, or reads and writes it: `&mut buffer`, or an exclusive view.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut y = stream.alloc_zeroed::<f32>(1000)?;
    /// stream.host_work().write(&mut y).launch(|| println!("nothing else uses it now"))?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[inline]
    pub fn write<T: Pod, M: Memory>(mut self, memory: impl IntoView<SliceMut<'a, T, M>>) -> Self {
        self.touches.push(|| memory.into().into_touch());
        self
    }

    /// [`Stream::launch_host_func`] with this memory.
    ///
    /// # Errors
    /// Those of [`Stream::launch_host_func`].
    #[doc(alias("cuLaunchHostFunc", "cudaLaunchHostFunc"))]
    pub fn launch(mut self, f: impl FnOnce() + Send + 'static) -> Result<()> {
        self.stream.launch_host_func_with(Box::new(f), self.touches.as_mut_slice())
    }

    /// [`Stream::launch_host_func_each`] with this memory.
    ///
    /// # Errors
    /// Those of [`Stream::launch_host_func_each`]; [`Error::NotCapturable`](crate::Error::NotCapturable)
    /// for memory that a graph cannot keep.
    #[doc(alias("cuLaunchHostFunc", "cudaLaunchHostFunc"))]
    pub fn launch_each(mut self, f: impl Fn() + Send + Sync + 'static) -> Result<()> {
        self.stream.launch_host_func_each_with(Box::new(f), self.touches.as_mut_slice())
    }
}

debug_by! {
    [K: StreamKind] HostWork<'_, K>: |it| "HostWork" {
        stream: it.stream, memory: it.touches.as_slice().len()
    }
}
