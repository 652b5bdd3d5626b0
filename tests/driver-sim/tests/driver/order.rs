//! The ordering checker: what it must report, and what it must not.

use std::sync::mpsc::{Sender, channel};

use crate::support::*;
use cuda_sim::ViolationKind::{Race, UseAfterFree, UseBeforeAllocation};

#[test]
fn two_streams_without_an_event_race() {
    scene(16, |session, [s, t], d| {
        ok!(cuMemsetD8Async(d, 1, 16, s));
        ok!(cuMemsetD8Async(d + 8, 2, 8, t));
        let found = session.take_violations();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].kind, found[0].call), (Race, "cuMemsetD8Async"));
        assert!(found[0].message.contains("by cuMemsetD8Async"), "{}", found[0]);
        ok!(cuCtxSynchronize());
    });
}

#[test]
fn an_event_orders_and_so_does_the_host() {
    scene(16, |_, [s, t], d| {
        let e = event();
        ok!(cuMemsetD8Async(d, 1, 16, s));
        ok!(cuEventRecord(e, s));
        ok!(cuStreamWaitEvent(t, e, 0));
        ok!(cuMemsetD8Async(d, 2, 16, t));
        ok!(cuStreamSynchronize(t));
        ok!(cuMemsetD8Async(d, 3, 16, s));
        ok!(cuStreamSynchronize(s));
        ok!(cuEventDestroy_v2(e));
    });
}

#[test]
fn disjoint_ranges_do_not_race() {
    scene(16, |_, [s, t], d| {
        ok!(cuMemsetD8Async(d, 1, 8, s));
        ok!(cuMemsetD8Async(d + 8, 2, 8, t));
        ok!(cuCtxSynchronize());
    });
}

#[test]
fn a_writer_comes_after_every_reader() {
    scene(16, |session, [s, t], d| {
        let (a, b) = (Pinned::new(&[0; 16]), Pinned::new(&[0; 16]));
        ok!(cuMemsetD8_v2(d, 1, 16));
        for writer in [s, t] {
            ok!(cuCtxSynchronize());
            ok!(cuMemcpyDtoHAsync_v2(a.0, d, 16, s));
            ok!(cuMemcpyDtoHAsync_v2(b.0, d, 16, t));
            assert!(session.violations().is_empty(), "two readers need no order");
            // The fill is ordered after the reader on its own stream, not after the other one.
            ok!(cuMemsetD8Async(d, 1, 16, writer));
            assert_eq!(violations(session), [Race]);
        }
        ok!(cuCtxSynchronize());
    });
}

#[test]
fn pinned_memory_is_checked_too() {
    scene(32, |session, [s, t], d| {
        let p = Pinned::new(&[0; 16]);
        ok!(cuMemsetD8_v2(d, 1, 32));
        ok!(cuCtxSynchronize());
        ok!(cuMemcpyDtoHAsync_v2(p.0, d, 16, s));
        ok!(cuMemcpyHtoDAsync_v2(d + 16, p.0, 16, t));
        assert_eq!(violations(session), [Race]);
        // Freed before the host has waited for the work on it: reported, although the driver waits.
        drop(p);
        assert!(violations(session).iter().all(|&kind| kind == Race));
    });
}

#[test]
fn freeing_pinned_memory_under_a_copy_is_reported() {
    scene(16, |session, [s], d| {
        let p = Pinned::new(&[0; 16]);
        ok!(cuMemcpyHtoDAsync_v2(d, p.0, 16, s));
        drop(p);
        assert_eq!(violations(session), [Race]);
    });
}

#[test]
fn a_block_used_elsewhere_before_its_allocation_ran() {
    let session = begin();
    bind(0);
    let (s, t) = (stream(), stream());
    let d = alloc_async(16, s);
    ok!(cuMemsetD8Async(d, 1, 16, t));
    assert_eq!(violations(&session), [Race]);
    ok!(cuStreamSynchronize(t));
    assert_eq!(violations(&session), [UseBeforeAllocation]);
    ok!(cuCtxSynchronize());
    ok!(cuMemFreeAsync(d, s));
    ok!(cuStreamDestroy_v2(s));
    ok!(cuStreamDestroy_v2(t));
    session.assert_clean();
}

#[test]
fn a_free_that_passes_a_reader() {
    let session = begin();
    bind(0);
    let (s, t) = (stream(), stream());
    let d = alloc_async(16, s);
    let p = Pinned::new(&[0; 16]);
    ok!(cuStreamSynchronize(s));
    ok!(cuMemcpyDtoHAsync_v2(p.0, d, 16, t));
    ok!(cuMemFreeAsync(d, s));
    assert_eq!(violations(&session), [Race]);
    ok!(cuStreamSynchronize(s));
    ok!(cuStreamSynchronize(t));
    assert_eq!(violations(&session), [UseAfterFree]);
    ok!(cuStreamDestroy_v2(s));
    ok!(cuStreamDestroy_v2(t));
    drop(p);
    session.assert_clean();
}

#[test]
fn a_recycled_stream_handle_inherits_nothing() {
    let session = begin();
    bind(0);
    let (s, d) = (stream(), alloc(16));
    ok!(cuMemsetD8Async(d, 1, 16, s));
    ok!(cuStreamDestroy_v2(s));
    let t = stream();
    assert_eq!(s, t);
    ok!(cuMemsetD8Async(d, 2, 16, t));
    assert_eq!(violations(&session), [Race]);
    ok!(cuCtxSynchronize());
    ok!(cuMemFree_v2(d));
    ok!(cuStreamDestroy_v2(t));
    session.assert_clean();
}

/// The program knows without a call what a host function has signalled; work after the function needs one.
#[test]
fn a_host_function_tells_the_host() {
    unsafe extern "C" fn tell(data: *mut std::ffi::c_void) {
        // SAFETY: the pointer that `launch` made from a box, whose ownership passes to this
        // function.
        let sender = unsafe { Box::from_raw(data.cast::<Sender<()>>()) };
        sender.send(()).expect("the test listens");
    }
    for (freed_first, found) in [(0, None), (1, Some(Race))] {
        let session = begin();
        bind(0);
        let (s, d) = (stream(), alloc(16));
        let mut pinned = [Pinned::new(&[0; 16]), Pinned::new(&[0; 16])];
        let (sender, receiver) = channel::<()>();
        ok!(cuMemsetD8Async(d, 1, 16, s));
        ok!(cuMemcpyDtoHAsync_v2(pinned[0].0, d, 16, s));
        let data = Box::into_raw(Box::new(sender));
        ok!(cuLaunchHostFunc(s, Some(tell), data.cast()));
        ok!(cuMemcpyDtoHAsync_v2(pinned[1].0, d, 16, s));
        session.settle();
        receiver.recv().expect("the function runs");
        // Freeing either one waits for the whole device, and so for the work on the other.
        pinned.swap(0, freed_first);
        drop(pinned);
        assert!(violations(&session).into_iter().eq(found));
        ok!(cuMemFree_v2(d));
        ok!(cuStreamDestroy_v2(s));
        session.assert_clean();
    }
}

#[test]
fn a_context_has_waited_for_what_its_destroyed_streams_waited_for() {
    let session = begin();
    // The work of a stream is complete when it is destroyed, which the host does not know.
    session.set_mode(cuda_sim::Mode::Eager);
    bind(1);
    let t = stream();
    bind(0);
    let (s, u, d, e) = (stream(), stream(), alloc(16), event());
    ok!(cuMemsetD8Async(d, 1, 16, s));
    ok!(cuEventRecord(e, s));
    bind(1);
    ok!(cuStreamWaitEvent(t, e, 0));
    ok!(cuStreamDestroy_v2(t));
    ok!(cuCtxSynchronize());
    bind(0);
    ok!(cuMemsetD8Async(d, 2, 16, u));
    assert_eq!(session.take_violations(), []);
    ok!(cuCtxSynchronize());
    ok!(cuMemFree_v2(d));
    ok!(cuEventDestroy_v2(e));
    ok!(cuStreamDestroy_v2(s));
    ok!(cuStreamDestroy_v2(u));
    session.assert_clean();
}
