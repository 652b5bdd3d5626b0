//! Stream capture by raw calls, as another library would do it.

use std::ptr;

use cuda_core::Stream;
use cuda_sys::{CUstreamCaptureMode, cuGraphDestroy, cuStreamBeginCapture_v2, cuStreamEndCapture};
use support::check;

/// A stream that captures until this is dropped.
pub(crate) struct Capture<'a> {
    stream: &'a Stream,
}

impl<'a> Capture<'a> {
    /// `cuStreamBeginCapture`.
    #[track_caller]
    pub(crate) fn begin(stream: &'a Stream, mode: CUstreamCaptureMode) -> Self {
        // SAFETY: the stream is live, and the test enqueues nothing on it that must run.
        let code = unsafe { cuStreamBeginCapture_v2(stream.as_raw(), mode) };
        check("cuStreamBeginCapture", code);
        Self { stream }
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is live; the pointer is valid for a write. An error says that the
        // capture was invalidated meanwhile, as it may be; the stream has left it all the same.
        let _ = unsafe { cuStreamEndCapture(self.stream.as_raw(), &mut graph) };
        if !graph.is_null() {
            // SAFETY: made by the call above and used by nobody.
            let destroyed = unsafe { cuGraphDestroy(graph) };
            if !std::thread::panicking() {
                check("cuGraphDestroy", destroyed);
            }
        }
    }
}
