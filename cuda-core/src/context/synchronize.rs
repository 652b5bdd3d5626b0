//! Waiting for a whole context.

use cuda_sys::symbol as cu;

use super::{Context, Ref};
use crate::capture::Relaxed;
use crate::error::{Result, check};
use crate::slab;
use crate::staging;
use crate::stream::{self, signal};

impl Context {
    /// Waits for all work of the context: `cuCtxSynchronize`. All that was enqueued on its streams
    /// is then known to be complete, as after [`Stream::synchronize`](crate::Stream::synchronize)
    /// of each.
    ///
    /// `cuCtxSynchronize` ends every capture of a stream of the context. So it is not called while
    /// a stream that this crate knows of is being captured, a blocking stream that any code
    /// created, or this thread's default stream. Only a capture of a non-blocking stream that this
    /// crate never saw is lost, with the driver's error.
    ///
    /// # Errors
    /// [`Error::Capturing`](crate::Error::Capturing); the driver's, among them errors of earlier
    /// asynchronous work.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let mut buffer = stream.alloc::<u32>(1 << 20)?;
    /// stream.fill(&mut buffer, 7)?;
    /// context.synchronize()?; // all streams of the context
    /// assert!(stream.query()?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn synchronize(&self) -> Result<()> {
        let op = "cuCtxSynchronize";
        let entered = self.enter_briefly()?;
        stream::refuse_captured_in(self, op)?;
        let relaxed = Relaxed::enter()?;
        let issued = self.timelines().issued();
        // SAFETY: takes nothing; a live context is current.
        check(op, unsafe { cu::cuCtxSynchronize() })?;
        drop((relaxed, entered));
        issued.complete(self.timelines());
        // A primary context lives on in any case.
        if let Ref::Counted(_) = self.0 {
            forget_reached();
        }
        Ok(())
    }
}

/// Removes points that are known to have been reached from the process-wide pools, and with them
/// references to streams and contexts. No driver call.
pub(super) fn forget_reached() {
    staging::prune();
    slab::prune();
    signal::prune();
}
