//! A fixed number of streams, handed out round-robin.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::context::Context;
use crate::error::Result;
use crate::stream::Stream;

/// Streams to spread independent work over, handed out round-robin.
///
/// Any number of threads may share a pool; asking it for a stream costs one atomic addition.
///
/// ```no_run
/// use cuda_core::StreamPool;
///
/// # let context = cuda_core::Device::get(0)?.context()?;
/// let pool = StreamPool::new(&context, 4)?;
/// for job in 0..16 {
///     let stream = pool.next_stream(); // the fifth job is on the first stream again
///     stream.launch_host_func(move || println!("job {job}"))?;
/// }
/// for stream in pool.streams() {
///     stream.synchronize()?;
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug)]
pub struct StreamPool {
    // INVARIANT: not empty.
    pub(super) streams: Box<[Stream]>,
    pub(super) turn: AtomicUsize,
}

impl StreamPool {
    /// `len` new non-blocking streams;
    /// [`StreamBuilder::build_pool`](crate::StreamBuilder::build_pool) makes others.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if `len` is zero; the driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::StreamPool;
    ///
    /// let pool = StreamPool::new(&context, 2)?;
    /// let ids: Vec<_> = (0..4).map(|_| pool.next_stream().id()).collect();
    /// assert!(ids[0] != ids[1] && ids[..2] == ids[2..]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn new(context: &Context, len: usize) -> Result<Self> {
        context.stream_builder().build_pool(len)
    }

    /// The next stream in round-robin order.
    pub fn next_stream(&self) -> &Stream {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.streams[turn % self.streams.len()]
    }

    /// All of them.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }
}
