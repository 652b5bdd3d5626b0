//! Host functions.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread::ThreadId;

use cuda_sim::{LeakKind, ViolationKind};
use cuda_sys::*;

use crate::support::*;

/// A host function that blocks until it is released.
#[derive(Default)]
struct Stall {
    started: AtomicBool,
    released: Mutex<bool>,
    changed: Condvar,
}

impl Stall {
    unsafe extern "C" fn run(data: *mut c_void) {
        // SAFETY: the tests pass a stall that outlives the stream's work.
        let stall = unsafe { &*data.cast::<Stall>() };
        stall.started.store(true, Ordering::Release);
        let released = stall.released.lock().unwrap();
        drop(stall.changed.wait_while(released, |released| !*released).unwrap());
    }

    fn enqueue(&self, stream: CUstream) {
        let data = std::ptr::from_ref(self).cast_mut().cast();
        ok!(cuLaunchHostFunc(stream, Some(Self::run), data));
    }

    fn release(&self) {
        *self.released.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

#[test]
fn it_runs_once_on_another_thread_in_stream_order() {
    static RAN_ON: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());
    unsafe extern "C" fn note(_: *mut c_void) {
        RAN_ON.lock().unwrap().push(std::thread::current().id());
    }
    let session = begin();
    bind(0);
    let s = stream();
    ok!(cuLaunchHostFunc(s, Some(note), null_mut()));
    assert!(RAN_ON.lock().unwrap().is_empty(), "lazily");
    ok!(cuStreamSynchronize(s));
    let ran = RAN_ON.lock().unwrap().clone();
    assert_eq!(ran.len(), 1);
    assert_ne!(ran[0], std::thread::current().id());
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn a_stalled_stream_holds_no_other_stream_up() {
    scene(8, |session, [s, t], d| {
        let stall = Stall::default();
        stall.enqueue(s);
        ok!(cuMemsetD8Async(d, 1, 4, s));
        // Querying the stream suffices for the function to start.
        while !stall.started.load(Ordering::Acquire) {
            fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
            std::thread::yield_now();
        }
        ok!(cuMemsetD8Async(d + 4, 2, 4, t));
        ok!(cuStreamSynchronize(t));
        fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
        assert_eq!(session.pending_ops(), 2);
        stall.release();
        ok!(cuStreamSynchronize(s));
    });
}

#[test]
fn it_may_not_call_the_driver() {
    static CODE: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn calls_back(_: *mut c_void) {
        CODE.store(call!(cuDeviceGetCount(&mut 0)).0, Ordering::SeqCst);
    }
    let session = begin();
    bind(0);
    let s = stream();
    ok!(cuLaunchHostFunc(s, Some(calls_back), null_mut()));
    ok!(cuStreamSynchronize(s));
    assert_eq!(CUresult(CODE.load(Ordering::SeqCst)), CUDA_ERROR_NOT_PERMITTED);
    assert_eq!(violations(&session), [ViolationKind::CallInCallback]);
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn one_that_never_ran_is_a_leak() {
    let session = begin();
    bind(0);
    let s = stream();
    let stall = Stall::default();
    stall.release();
    stall.enqueue(s);
    let kinds: Vec<_> = session.leaks().iter().map(|leak| leak.kind).collect();
    assert_eq!(kinds, [LeakKind::Stream, LeakKind::HostFunction]);
    session.settle();
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn its_duration_shows_between_events() {
    unsafe extern "C" fn sleep(_: *mut c_void) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let session = begin();
    bind(0);
    let (s, from, to) = (stream(), event(), event());
    ok!(cuEventRecord(from, s));
    ok!(cuLaunchHostFunc(s, Some(sleep), null_mut()));
    ok!(cuEventRecord(to, s));
    let mut ms = 0.0;
    fails!(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&mut ms, from, to));
    ok!(cuEventSynchronize(to));
    ok!(cuEventElapsedTime(&mut ms, from, to));
    assert!(ms >= 20.0, "{ms}");
    ok!(cuEventDestroy_v2(from));
    ok!(cuEventDestroy_v2(to));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}
