//! The times at which queued work runs.

use std::ptr::null_mut;

use cuda_sim::Mode;
use cuda_sys::*;

use crate::support::*;

#[test]
fn lazy_work_is_invisible_until_the_host_waits() {
    scene(4, |session, [s], d| {
        let (up, down) = (Pinned::new(&[1, 2, 3, 4]), Pinned::new(&[0; 4]));
        ok!(cuMemcpyHtoDAsync_v2(d, up.0, 4, s));
        ok!(cuMemcpyDtoHAsync_v2(down.0, d, 4, s));
        assert_eq!(session.pending_ops(), 2);
        assert_eq!(down.read(), [0; 4]);
        ok!(cuStreamSynchronize(s));
        assert_eq!(down.read(), [1, 2, 3, 4]);
        assert_eq!(session.pending_ops(), 0);
    });
}

#[test]
fn eager_work_runs_at_once() {
    scene(4, |session, [s], d| {
        session.set_mode(Mode::Eager);
        let down = Pinned::new(&[0; 4]);
        ok!(cuMemsetD32Async(d, 0x0403_0201, 1, s));
        ok!(cuMemcpyDtoHAsync_v2(down.0, d, 4, s));
        assert_eq!(down.read(), [1, 2, 3, 4]);
        ok!(cuStreamQuery(s));
    });
}

#[test]
fn what_a_session_sets_ends_with_it() {
    scene(4, |session, [s], d| {
        session.set_polls(u32::MAX);
        ok!(cuMemsetD8Async(d, 1, 4, s));
        for _ in 0..10 {
            fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
        }
        ok!(cuStreamSynchronize(s));
    });
    scene(4, |_, [s], d| {
        ok!(cuMemsetD8Async(d, 1, 4, s));
        // SAFETY: the stream belongs to this scene.
        let polls = (0..10).find(|_| unsafe { cuStreamQuery(s) } == CUDA_SUCCESS);
        assert!(polls.is_some(), "the first session's answers go on");
        ok!(cuStreamSynchronize(s));
    });
}

#[test]
fn waiting_runs_only_what_is_needed() {
    scene(8, |session, [s, t], d| {
        let e = event();
        ok!(cuMemsetD8Async(d, 1, 4, s));
        ok!(cuEventRecord(e, s));
        ok!(cuMemsetD8Async(d, 2, 4, s));
        ok!(cuStreamWaitEvent(t, e, 0));
        ok!(cuMemsetD8Async(d + 4, 3, 4, t));
        ok!(cuStreamSynchronize(t));
        assert_eq!(session.pending_ops(), 1, "the second fill of the other stream");
        ok!(cuCtxSynchronize());
        assert_eq!(session.pending_ops(), 0);
        ok!(cuEventDestroy_v2(e));
    });
}

#[test]
fn queries_answer_not_ready_and_then_make_progress() {
    let session = begin();
    bind(0);
    let (s, e) = (stream(), event());
    ok!(cuEventQuery(e));
    ok!(cuEventSynchronize(e));
    ok!(cuStreamWaitEvent(s, e, 0));
    ok!(cuStreamQuery(s));
    ok!(cuEventRecord(e, s));
    fails!(CUDA_ERROR_NOT_READY, cuEventQuery(e));
    fails!(CUDA_ERROR_NOT_READY, cuEventQuery(e));
    ok!(cuEventQuery(e));
    ok!(cuStreamQuery(s));
    ok!(cuEventDestroy_v2(e));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn a_wait_means_the_record_at_the_time_of_the_call() {
    let session = begin();
    bind(0);
    let (s, t, e) = (stream(), stream(), event());
    ok!(cuEventRecord(e, s));
    ok!(cuStreamWaitEvent(t, e, 0));
    ok!(cuEventRecord(e, s));
    ok!(cuStreamSynchronize(t));
    assert_eq!(session.pending_ops(), 1, "no wait needs the second record");
    ok!(cuEventDestroy_v2(e));
    ok!(cuStreamDestroy_v2(s));
    ok!(cuStreamDestroy_v2(t));
    session.settle();
    session.assert_clean();
}

#[test]
fn events_and_contexts() {
    let session = begin();
    bind(0);
    let (e, plain) = (event(), event());
    let s = stream();
    bind(1);
    let t = stream();
    fails!(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(e, t));
    ok!(cuEventRecord(e, s));
    ok!(cuStreamWaitEvent(t, e, 0));
    let mut ms = -1.0;
    fails!(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&mut ms, e, plain));
    ok!(cuEventRecord(plain, s));
    ok!(cuEventSynchronize(plain));
    ok!(cuEventElapsedTime(&mut ms, e, plain));
    assert!(ms >= 0.0);
    for event in [e, plain] {
        ok!(cuEventDestroy_v2(event));
    }
    for stream in [s, t] {
        ok!(cuStreamDestroy_v2(stream));
    }
    session.assert_clean();
}

#[test]
fn a_wait_for_a_context_is_one_for_the_streams_that_it_had() {
    for mode in [Mode::Lazy, Mode::Eager] {
        let session = begin();
        session.set_mode(mode);
        bind(0);
        let (gone, later) = (stream(), stream());
        let d = alloc(4);
        ok!(cuMemsetD8Async(d, 1, 4, gone));
        ok!(cuStreamDestroy_v2(gone));
        ok!(cuCtxSynchronize());
        ok!(cuMemsetD8Async(d, 2, 4, later));
        ok!(cuStreamSynchronize(later));
        ok!(cuMemFree_v2(d));
        ok!(cuStreamDestroy_v2(later));
        session.assert_clean();
    }
}

#[test]
fn the_legacy_stream_stands_between_blocking_streams() {
    let session = begin();
    bind(0);
    let mut blocking = null_mut();
    ok!(cuStreamCreate(&mut blocking, 0));
    let free = stream();
    let d = alloc(4);
    ok!(cuMemsetD8Async(d, 1, 4, blocking));
    ok!(cuMemsetD8_v2(d, 2, 4));
    ok!(cuMemsetD8Async(d, 3, 4, blocking));
    let mut back = [0_u8; 4];
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), d, 4));
    assert_eq!(back, [3; 4]);
    assert!(session.violations().is_empty());
    // A non-blocking stream is not part of that order.
    ok!(cuMemsetD8_v2(d, 4, 4));
    ok!(cuMemsetD8Async(d, 5, 4, free));
    assert_eq!(violations(&session), [cuda_sim::ViolationKind::Race]);
    ok!(cuCtxSynchronize());
    ok!(cuMemFree_v2(d));
    ok!(cuStreamDestroy_v2(blocking));
    ok!(cuStreamDestroy_v2(free));
    session.assert_clean();
}

#[test]
fn the_per_thread_stream_is_another_on_every_thread() {
    let session = begin();
    let context = bind(0);
    let per_thread = CU_STREAM_PER_THREAD;
    let id = || {
        let mut id = 0;
        ok!(cuStreamGetId(per_thread, &mut id));
        id
    };
    let here = id();
    assert_eq!(here, id());
    let handle = context.addr();
    let there = std::thread::spawn(move || {
        ok!(cuCtxSetCurrent(std::ptr::without_provenance_mut(handle)));
        let mut id = 0;
        ok!(cuStreamGetId(CU_STREAM_PER_THREAD, &mut id));
        id
    });
    assert_ne!(here, there.join().unwrap());
    session.assert_clean();
}

#[test]
fn handles_are_recycled_and_identities_are_not() {
    let session = begin();
    bind(0);
    let s = stream();
    let mut first = 0;
    ok!(cuStreamGetId(s, &mut first));
    ok!(cuStreamDestroy_v2(s));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(s));
    assert_eq!(violations(&session), [cuda_sim::ViolationKind::DanglingHandle]);
    let t = stream();
    assert_eq!(s, t);
    let mut second = 0;
    ok!(cuStreamGetId(t, &mut second));
    assert_ne!(first, second);
    ok!(cuStreamDestroy_v2(t));
    session.assert_clean();
}

#[test]
fn work_of_a_destroyed_stream_goes_on() {
    let session = begin();
    bind(0);
    let (s, e, d) = (stream(), event(), alloc(4));
    ok!(cuMemsetD8Async(d, 9, 4, s));
    ok!(cuEventRecord(e, s));
    ok!(cuStreamDestroy_v2(s));
    ok!(cuEventSynchronize(e));
    let mut back = [0_u8; 4];
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), d, 4));
    assert_eq!(back, [9; 4]);
    ok!(cuMemFree_v2(d));
    ok!(cuEventDestroy_v2(e));
    session.assert_clean();
}

#[test]
fn priorities_are_clamped() {
    let session = begin();
    bind(0);
    let (mut least, mut greatest) = (1, 1);
    ok!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    for (asked, given) in [(100, least), (-100, greatest), (least - 1, least - 1)] {
        let (mut s, mut priority) = (null_mut(), 0);
        ok!(cuStreamCreateWithPriority(&mut s, 1, asked));
        ok!(cuStreamGetPriority(s, &mut priority));
        assert_eq!(priority, given);
        ok!(cuStreamDestroy_v2(s));
    }
    session.assert_clean();
}

#[test]
fn a_value_arrives_from_another_stream() {
    scene(8, |_, [s, t], d| {
        ok!(cuMemsetD32Async(d, 0, 2, s));
        ok!(cuStreamSynchronize(s));
        ok!(cuStreamWaitValue32_v2(s, d, 5, 1));
        ok!(cuStreamWriteValue32_v2(t, d, 5, 0));
        ok!(cuStreamSynchronize(s));
        ok!(cuStreamSynchronize(t));
    });
}
