//! The default streams, which exist without being created.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};

use crate::context::Context;
use crate::error::Result;
use crate::process::driver;
use crate::stream::{PerThreadStream, Stream};
use crate::timeline::{Flavor, ImplicitOrder, StreamCore};
use crate::util::lock;

/// # Default streams
impl Context {
    /// The legacy default stream, which synchronises with all streams of the context except
    /// non-blocking ones. Each of its calls costs a guard, and a driver call to check whether other
    /// code is [capturing](crate::Error::Capturing) a blocking stream: prefer a created stream.
    ///
    /// # Errors
    /// [`Error::InCallback`](crate::Error::InCallback) inside a host function.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let stream = context.default_stream()?;
    /// let mut buffer = stream.alloc::<u32>(100)?;
    /// stream.fill(&mut buffer, 7)?; // after all that blocking streams have been given
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cudaStreamLegacy"))]
    #[doc(alias("CU_STREAM_LEGACY"))]
    pub fn default_stream(&self) -> Result<Stream> {
        driver::ensure()?;
        let mut slot = lock(&self.timelines().legacy);
        let core = slot.upgrade().unwrap_or_else(|| {
            let (flavor, order) = (Flavor::Legacy, ImplicitOrder::Blocking);
            let core = StreamCore::new(self, flavor, order, CU_STREAM_LEGACY, None, None);
            *slot = Arc::downgrade(&core);
            core
        });
        drop(slot);
        Ok(Stream::new(core))
    }

    /// This thread's default stream in the context; see [`PerThreadStream`]. Every operation on it
    /// costs a guard, a driver call to check whether other code is
    /// [capturing](crate::Error::Capturing) it, and an event's record: prefer a created stream. It
    /// cannot allocate memory.
    ///
    /// # Errors
    /// [`Error::InCallback`](crate::Error::InCallback) inside a host function.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// std::thread::scope(|scope| {
    ///     let work = || context.per_thread_stream()?.synchronize(); // each thread's own
    ///     let (one, two) = (scope.spawn(work), scope.spawn(work));
    ///     one.join().unwrap().and(two.join().unwrap())
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cudaStreamPerThread"))]
    #[doc(alias("CU_STREAM_PER_THREAD"))]
    pub fn per_thread_stream(&self) -> Result<PerThreadStream> {
        driver::ensure()?;
        let (flavor, order) = (Flavor::PerThread, ImplicitOrder::Blocking);
        let new = || StreamCore::new(self, flavor, order, CU_STREAM_PER_THREAD, None, None);
        let core = PER_THREAD.try_with(|streams| {
            let mut streams = streams.borrow_mut();
            let found =
                streams.iter().filter_map(Weak::upgrade).find(|core| core.context() == self);
            found.unwrap_or_else(|| {
                streams.retain(|core| core.strong_count() > 0);
                let core = new();
                streams.push(Arc::downgrade(&core));
                core
            })
        });
        // A thread whose thread-locals are destroyed gets a timeline of its own for the same stream. Two
        // timelines of one stream wait for each other, which is harmless.
        Ok(Stream::new(core.unwrap_or_else(|_| new())))
    }
}

thread_local! {
    /// The thread's default streams, one per context. An entry is dead once all handles of its stream are
    /// gone.
    static PER_THREAD: RefCell<Vec<Weak<StreamCore>>> = const { RefCell::new(Vec::new()) };
}
