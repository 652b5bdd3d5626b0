//! Stream capture.

use std::ptr::null_mut;

use cuda_sys::*;

use crate::support::*;

const GLOBAL: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_GLOBAL;
const RELAXED: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_RELAXED;

#[test]
fn captured_work_does_not_run() {
    scene(4, |_, [s], d| {
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
    });
}

#[test]
fn waiting_invalidates() {
    let session = begin();
    bind(0);
    let s = stream();
    ok!(cuStreamBeginCapture_v2(s, GLOBAL));
    fails!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
    let mut graph = null_mut();
    fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &mut graph));
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
        assert_eq!(call!(cuStreamEndCapture(s, &mut graph)) == CUDA_SUCCESS, allocates);
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
            fails!(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(s, &mut graph));
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
    fails!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(null_mut(), RELAXED));
    ok!(cuStreamBeginCapture_v2(s, RELAXED));
    fails!(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(s, RELAXED));
    // A status query is harmless; any other use of the stream ends the capture.
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    fails!(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(null_mut(), &mut status));
    ok!(cuStreamEndCapture(s, &mut graph));
    ok!(cuGraphDestroy(graph));
    let (d, e) = (alloc(4), event());
    let uses: [&dyn Fn() -> CUresult; 4] = [
        &|| call!(cuStreamQuery(null_mut())),
        &|| call!(cuStreamSynchronize(null_mut())),
        &|| call!(cuMemsetD8Async(d, 0, 4, null_mut())),
        &|| call!(cuEventRecord(e, null_mut())),
    ];
    for used in uses {
        ok!(cuStreamBeginCapture_v2(s, RELAXED));
        assert_eq!(used(), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &mut graph));
    }
    ok!(cuMemFree_v2(d));
    ok!(cuEventDestroy_v2(e));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn an_event_of_a_capture_stands_for_nothing_outside() {
    let session = begin();
    bind(0);
    let (s, t, e) = (stream(), stream(), event());
    let mut graph = null_mut();
    // A query of the event during the capture invalidates the capture.
    ok!(cuStreamBeginCapture_v2(s, RELAXED));
    ok!(cuEventRecord(e, s));
    fails!(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(e));
    fails!(CUDA_ERROR_INVALID_VALUE, cuEventSynchronize(e));
    fails!(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(t, e, 0));
    fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuEventRecord(e, s));
    fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &mut graph));
    // After the capture the event counts as unrecorded until it is recorded again.
    ok!(cuStreamBeginCapture_v2(s, RELAXED));
    ok!(cuEventRecord(e, s));
    ok!(cuStreamEndCapture(s, &mut graph));
    ok!(cuGraphDestroy(graph));
    fails!(CUDA_ERROR_INVALID_VALUE, cuEventQuery(e));
    fails!(CUDA_ERROR_INVALID_VALUE, cuEventSynchronize(e));
    fails!(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(t, e, 0));
    ok!(cuEventRecord(e, s));
    ok!(cuStreamWaitEvent(t, e, 0));
    ok!(cuEventSynchronize(e));
    // Destroying the event does not invalidate a capture.
    ok!(cuStreamBeginCapture_v2(s, RELAXED));
    ok!(cuEventRecord(e, s));
    ok!(cuEventDestroy_v2(e));
    ok!(cuStreamEndCapture(s, &mut graph));
    ok!(cuGraphDestroy(graph));
    for stream in [s, t] {
        ok!(cuStreamDestroy_v2(stream));
    }
    session.assert_clean();
}
