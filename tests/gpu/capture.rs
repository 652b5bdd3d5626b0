//! Stream captures by raw calls, as another library makes them.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::{mem, ptr, result};

use cuda_core::{Context, Error, Result, Stream};
use cuda_sys::{
    CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS, CUresult, CUstream, CUstreamCaptureMode,
    cuGraphDestroy, cuStreamBeginCapture_v2, cuStreamCreate, cuStreamDestroy_v2,
    cuStreamEndCapture, cuStreamIsCapturing,
};
use support::check;

use crate::stack;

pub(crate) const MODES: [CUstreamCaptureMode; 3] = [
    cuda_sys::CU_STREAM_CAPTURE_MODE_RELAXED,
    cuda_sys::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    cuda_sys::CU_STREAM_CAPTURE_MODE_GLOBAL,
];

/// A stream created by a raw call, destroyed with its last reference.
pub(crate) struct Theirs(CUstream);

// SAFETY: any thread may use the handle.
unsafe impl Send for Theirs {}
// SAFETY: a shared reference gives access to the handle alone, which threads may use concurrently.
unsafe impl Sync for Theirs {}

/// `cuStreamCreate`'s flag for a non-blocking stream of [`Theirs`].
pub(crate) const NON_BLOCKING: u32 = cuda_sys::CU_STREAM_NON_BLOCKING.0;

impl Theirs {
    pub(crate) fn create(context: &Context, flags: u32) -> Arc<Self> {
        let mut stream = ptr::null_mut();
        stack::with(context.as_raw(), || {
            // SAFETY: a context is current; the call writes one handle, to a local that outlives it.
            check("cuStreamCreate", unsafe { cuStreamCreate(&mut stream, flags) });
        });
        Arc::new(Self(stream))
    }

    pub(crate) fn handle(&self) -> CUstream {
        self.0
    }

    pub(crate) fn wrap(self: &Arc<Self>, context: &Context) -> Result<Stream> {
        // SAFETY: the stream lives as long as this value does. Nothing is enqueued on it while a
        // capture begins or ends.
        Ok(unsafe { Stream::from_raw(self.0, context, self.clone()) }?)
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        // SAFETY: no copy of the handle exists.
        let destroyed = unsafe { cuStreamDestroy_v2(self.0) };
        if !thread::panicking() {
            check("cuStreamDestroy", destroyed);
        }
    }
}

/// A capture on its own thread, which ends it when this value is dropped.
pub(crate) struct Neighbour(Option<(Sender<()>, JoinHandle<CUresult>)>);

impl Neighbour {
    /// Calls `cuStreamBeginCapture` on a stream that outlives the capture.
    #[track_caller]
    pub(crate) fn begin(stream: CUstream, mode: CUstreamCaptureMode) -> Self {
        struct Handle(CUstream);
        // SAFETY: any thread may use the handle.
        unsafe impl Send for Handle {}
        let handle = Handle(stream);
        let (end, ended) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel();
        let thread = thread::spawn(move || {
            let handle = handle;
            // SAFETY: the stream is live.
            let code = unsafe { cuStreamBeginCapture_v2(handle.0, mode) };
            let _ = began.send(code);
            let _ = ended.recv();
            end_capture(handle.0)
        });
        let neighbour = Self(Some((end, thread)));
        let code = begun.recv().expect("the thread says so");
        check("cuStreamBeginCapture", code);
        neighbour
    }

    /// Calls `cuStreamEndCapture` and returns its result.
    pub(crate) fn end(mut self) -> CUresult {
        self.end_once().expect("it has not ended")
    }

    fn end_once(&mut self) -> Option<CUresult> {
        let (end, thread) = self.0.take()?;
        drop(end);
        thread.join().ok()
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.end_once();
    }
}

/// Ends a capture that this thread began, and returns the driver's code. The graph is destroyed.
pub(crate) fn end_capture(stream: CUstream) -> CUresult {
    let mut graph = ptr::null_mut();
    // SAFETY: the stream is live; the pointer is valid for a write.
    let mut end = || unsafe { cuStreamEndCapture(stream, &mut graph) };
    let code = end();
    if code != CUDA_SUCCESS {
        // The sweep may have made that call fail, but no capture may outlast a test.
        end();
    }
    if !graph.is_null() {
        // SAFETY: the call above made it, and no other code uses it.
        let _ = unsafe { cuGraphDestroy(graph) };
    }
    code
}

/// Returns whether the stream takes part in a capture.
#[track_caller]
pub(crate) fn is_capturing(stream: CUstream) -> bool {
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is live; the pointer is valid for a write.
    check("cuStreamIsCapturing", unsafe { cuStreamIsCapturing(stream, &mut status) });
    status != CU_STREAM_CAPTURE_STATUS_NONE
}

/// Asserts that the operation was refused because a stream captures.
#[track_caller]
pub(crate) fn refused<R>(done: result::Result<R, Error>, what: &str) {
    match done {
        Err(Error::Capturing { .. }) => {}
        Err(other) => panic!("{what}: {other}"),
        Ok(_) => panic!("{what}: done on a stream that is captured"),
    }
}

/// Ends the neighbour's capture, and asserts that it was still valid.
#[track_caller]
pub(crate) fn undisturbed(neighbour: Neighbour, what: &str) {
    assert_eq!(neighbour.end(), CUDA_SUCCESS, "{what}: the capture");
}

/// A stream that captures until this is dropped.
pub(crate) struct Capture<'a> {
    stream: &'a Stream,
}

impl<'a> Capture<'a> {
    /// Calls `cuStreamBeginCapture`.
    #[track_caller]
    pub(crate) fn begin(stream: &'a Stream, mode: CUstreamCaptureMode) -> Self {
        // SAFETY: the stream is live, and the test enqueues nothing on it that must run.
        let code = unsafe { cuStreamBeginCapture_v2(stream.as_raw(), mode) };
        check("cuStreamBeginCapture", code);
        Self { stream }
    }
}

impl Capture<'_> {
    /// Ends the capture, and returns the driver's code.
    pub(crate) fn end(self) -> CUresult {
        let code = end_capture(self.stream.as_raw());
        mem::forget(self);
        code
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        // An error means that the capture was invalidated meanwhile, which is allowed; the stream has left
        // the capture all the same.
        let _ = end_capture(self.stream.as_raw());
    }
}
