//! Waiting for a whole context.

use cuda_sys::symbol as cu;

use super::registry;
use crate::context::Context;
use crate::context::kept::forget_reached;
use crate::error::{Result, check};
use crate::process::capture_mode::Relaxed;

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
        registry::refuse_captured_in(self, op)?;
        let relaxed = Relaxed::enter()?;
        let issued = self.timelines().issued();
        // SAFETY: takes nothing; a live context is current.
        check(op, unsafe { cu::cuCtxSynchronize() })?;
        drop((relaxed, entered));
        issued.complete(self.timelines());
        // A primary context lives on in any case.
        if !self.is_primary() {
            forget_reached();
        }
        Ok(())
    }
}
