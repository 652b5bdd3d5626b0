//! A fixed number of streams, handed out round-robin.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::stream::Stream;

/// Streams to spread independent work over, handed out round-robin:
/// [`StreamBuilder::build_pool`](crate::StreamBuilder::build_pool).
///
/// Any number of threads may share a pool; asking it for a stream costs one atomic addition.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// let pool = context.stream_builder().build_pool(4)?;
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
    /// The next stream in round-robin order.
    pub fn next_stream(&self) -> &Stream {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.streams[turn % self.streams.len()]
    }

    /// All streams of the pool.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }
}
