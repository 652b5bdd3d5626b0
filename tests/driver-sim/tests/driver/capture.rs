//! Stream capture.

use std::ffi::c_void;
use std::ptr::null_mut;

use cuda_sys::*;

use crate::support::*;

const GLOBAL: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_RELAXED;

#[test]
fn captured_work_does_not_run() {
    let session = begin();
    bind(0);
    let (s, d) = (stream(), alloc(4));
    ok!(cuMemsetD8Async(d, 1, 4, s));
    ok!(cuStreamSynchronize(s));
    ok!(cuStreamBeginCapture_v2(s, RELAXED));
    ok!(cuMemsetD8Async(d, 2, 4, s));
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    ok!(cuStreamIsCapturing(s, &mut status));
    assert_eq!(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    let mut graph = null_mut();
    ok!(cuStreamEndCapture(s, &mut graph));
    let mut back = [0_u8; 4];
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), d, 4));
    assert_eq!(back, [1; 4]);
    ok!(cuGraphDestroy(graph));
    ok!(cuMemFree_v2(d));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn waiting_invalidates() {
    let session = begin();
    bind(0);
    let s = stream();
    ok!(cuStreamBeginCapture_v2(s, GLOBAL));
    fails!(
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        cuStreamSynchronize(s)
    );
    let mut graph = null_mut();
    fails!(
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        cuStreamEndCapture(s, &mut graph)
    );
    assert!(graph.is_null());
    ok!(cuStreamSynchronize(s));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn a_global_capture_forbids_unsafe_calls_on_every_thread() {
    let session = begin();
    bind(0);
    let (s, handle) = (stream(), current().addr());
    for (mode, allocates) in [(GLOBAL, false), (RELAXED, true)] {
        ok!(cuStreamBeginCapture_v2(s, mode));
        let other = std::thread::spawn(move || {
            ok!(cuCtxSetCurrent(std::ptr::without_provenance_mut(handle)));
            let mut d = 0;
            let code = call!(cuMemAlloc_v2(&mut d, 4));
            if code == CUDA_SUCCESS {
                ok!(cuMemFree_v2(d));
            }
            code
        });
        assert_eq!(other.join().unwrap() == CUDA_SUCCESS, allocates);
        let mut graph = null_mut();
        assert_eq!(
            call!(cuStreamEndCapture(s, &mut graph)) == CUDA_SUCCESS,
            allocates
        );
        if allocates {
            ok!(cuGraphDestroy(graph));
        }
    }
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn forked_streams_must_join() {
    let session = begin();
    bind(0);
    let (s, t, e, f) = (stream(), stream(), event(), event());
    for joins in [true, false] {
        ok!(cuStreamBeginCapture_v2(s, RELAXED));
        ok!(cuEventRecord(e, s));
        ok!(cuStreamWaitEvent(t, e, 0));
        ok!(cuEventRecord(f, t));
        let mut graph = null_mut();
        if joins {
            ok!(cuStreamWaitEvent(s, f, 0));
            ok!(cuStreamEndCapture(s, &mut graph));
            ok!(cuGraphDestroy(graph));
        } else {
            fails!(
                CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                cuStreamEndCapture(s, &mut graph)
            );
        }
        ok!(cuStreamQuery(t));
    }
    for stream in [s, t] {
        ok!(cuStreamDestroy_v2(stream));
    }
    for event in [e, f] {
        ok!(cuEventDestroy_v2(event));
    }
    session.assert_clean();
}

#[test]
fn the_legacy_stream_beside_a_capture() {
    let session = begin();
    bind(0);
    let mut s = null_mut();
    ok!(cuStreamCreate(&mut s, 0));
    let mut graph = null_mut();
    fails!(
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        cuStreamBeginCapture_v2(null_mut(), RELAXED)
    );
    ok!(cuStreamBeginCapture_v2(s, RELAXED));
    fails!(
        CUDA_ERROR_ILLEGAL_STATE,
        cuStreamBeginCapture_v2(s, RELAXED)
    );
    fails!(
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        cuStreamQuery(null_mut())
    );
    ok!(cuStreamEndCapture(s, &mut graph));
    ok!(cuGraphDestroy(graph));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

/// What a test of capture works with, beside the stream that captures.
struct Beside {
    stream: CUstream,
    event: CUevent,
    /// Freed by a call under test; a new one takes its place.
    block: CUdeviceptr,
    pinned: *mut c_void,
}

impl Beside {
    fn new() -> Self {
        let (stream, event) = (stream(), event());
        let block = alloc_async(8, stream);
        ok!(cuMemsetD8Async(block, 0, 8, stream));
        ok!(cuEventRecord(event, stream));
        ok!(cuStreamSynchronize(stream));
        let mut pinned = null_mut();
        ok!(cuMemHostAlloc(&mut pinned, 8, 0));
        Self {
            stream,
            event,
            block,
            pinned,
        }
    }

    fn alloc(&self) -> CUresult {
        let mut address = 0;
        let code = call!(cuMemAllocAsync(&mut address, 8, self.stream));
        if code == CUDA_SUCCESS {
            ok!(cuMemFreeAsync(address, self.stream));
        }
        code
    }

    fn free(&self) -> CUresult {
        call!(cuMemFreeAsync(self.block, self.stream))
    }

    fn pin(&self) -> CUresult {
        let mut pointer = null_mut();
        let code = call!(cuMemHostAlloc(&mut pointer, 8, 0));
        if code == CUDA_SUCCESS {
            ok!(cuMemFreeHost(pointer));
        }
        code
    }

    fn unpin(&self) -> CUresult {
        call!(cuMemFreeHost(self.pinned))
    }

    fn query(&self) -> CUresult {
        call!(cuStreamQuery(self.stream))
    }

    fn wait(&self) -> CUresult {
        call!(cuStreamSynchronize(self.stream))
    }

    fn query_event(&self) -> CUresult {
        call!(cuEventQuery(self.event))
    }

    fn wait_event(&self) -> CUresult {
        call!(cuEventSynchronize(self.event))
    }

    /// What every capture permits.
    fn permitted(&self) -> CUresult {
        let (s, d, p) = (self.stream, self.block, self.pinned);
        ok!(cuEventRecord(self.event, s));
        ok!(cuStreamWaitEvent(s, self.event, 0));
        ok!(cuMemcpyHtoDAsync_v2(d, p, 8, s));
        ok!(cuMemcpyDtoHAsync_v2(p, d, 8, s));
        ok!(cuMemcpyDtoDAsync_v2(d + 4, d, 4, s));
        ok!(cuMemsetD8Async(d, 0, 8, s));
        ok!(cuEventDestroy_v2(event()));
        ok!(cuStreamDestroy_v2(stream()));
        ok!(cuMemGetInfo_v2(&mut 0, &mut 0));
        ok!(cuCtxSetCurrent(current()));
        let mut kind = 0_u32;
        ok!(cuPointerGetAttribute(
            (&raw mut kind).cast(),
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            d
        ));
        // The legacy stream, on which this is, is not ordered with the one that `d` is used on.
        let own = alloc_before_captures();
        call!(cuMemcpyHtoD_v2(own, [1_u8; 8].as_ptr().cast(), 8))
    }

    fn close(self) {
        // What a test freed is gone; the codes say so of the rest.
        call!(cuMemFreeAsync(self.block, self.stream));
        ok!(cuStreamSynchronize(self.stream));
        call!(cuMemFreeHost(self.pinned));
        ok!(cuEventDestroy_v2(self.event));
        ok!(cuStreamDestroy_v2(self.stream));
    }
}
