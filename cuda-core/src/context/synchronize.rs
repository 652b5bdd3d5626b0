//! Waiting for a whole context.

use cuda_sys::symbol as cu;

use super::{Context, Ref};
use crate::copy::borrowed::staging;
use crate::error::{Result, check};
use crate::host::pinned_pool;
use crate::process::capture_mode::Relaxed;
use crate::{signal, stream};

impl Context {
    /// Waits for all work of the context: `cuCtxSynchronize`. All that was enqueued on its streams
    /// is known to be complete then, as after [`Stream::synchronize`](crate::Stream::synchronize) of
    /// each.
    ///
    /// That call ends every capture of a stream of the context. So it is not made where a stream that
    /// this crate knows of is being captured, a blocking stream whatever code made it, or this thread's
    /// default stream: only a capture of another non-blocking stream, which never came here, is lost with
    /// the driver's error.
    ///
    /// # Errors
    /// [`Error::Capturing`](crate::Error::Capturing); the driver's, where errors of earlier asynchronous
    /// work are reported.
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

/// Has what the process keeps for all contexts forget points that are known to have been reached, with
/// the streams and contexts that they name. No driver call.
pub(super) fn forget_reached() {
    staging::prune();
    pinned_pool::prune();
    signal::prune();
}
