//! Counts calls, and makes them fail.

use std::ptr::null_mut;

use cuda_sim::Fault;
use cuda_sys::*;

use crate::support::*;

#[test]
fn calls_are_counted_and_traced() {
    let session = begin();
    bind(0);
    let mark = session.mark();
    let before = session.calls("cuStreamCreate");
    let s = stream();
    ok!(cuStreamDestroy_v2(s));
    assert_eq!(session.calls("cuStreamCreate"), before + 1);
    assert_eq!(session.names_since(mark), ["cuStreamCreate", "cuStreamDestroy_v2"]);
    session.assert_clean();
}

#[test]
fn the_nth_call_fails_and_does_nothing() {
    let session = begin();
    bind(0);
    session.fail_nth(Some("cuMemAlloc_v2"), 2, CUDA_ERROR_OUT_OF_MEMORY);
    let d = alloc(16);
    fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&mut 0, 16));
    assert!(session.fault_fired());
    let e = alloc(16);
    assert_eq!(session.device_bytes_in_use(0), 32);
    ok!(cuMemFree_v2(d));
    ok!(cuMemFree_v2(e));
    session.assert_clean();
}

#[test]
fn any_function_can_fail() {
    let session = begin();
    session.fail_nth(None, 3, CUDA_ERROR_UNKNOWN);
    let mut count = 0;
    ok!(cuDeviceGetCount(&mut count));
    ok!(cuGetErrorName(CUDA_SUCCESS, &mut std::ptr::null()));
    ok!(cuDeviceGetCount(&mut count));
    fails!(CUDA_ERROR_UNKNOWN, cuDeviceGetCount(&mut count));
    ok!(cuDeviceGetCount(&mut count));
    session.assert_clean();
}

#[test]
fn faults_of_one_thread_leave_others_alone() {
    let session = begin();
    session.inject(Fault::new(CUDA_ERROR_UNKNOWN).on_this_thread().from_then_on());
    let mut count = 0;
    fails!(CUDA_ERROR_UNKNOWN, cuDeviceGetCount(&mut count));
    std::thread::scope(|scope| {
        scope.spawn(|| ok!(cuDeviceGetCount(&mut 0)));
    });
    fails!(CUDA_ERROR_UNKNOWN, cuDeviceGetCount(&mut count));
    session.clear_faults();
    ok!(cuDeviceGetCount(&mut count));
    session.assert_clean();
}

#[test]
fn a_lost_context_stays_lost() {
    let session = begin();
    bind(0);
    let s = stream();
    let lost = Fault::new(CUDA_ERROR_ILLEGAL_ADDRESS).function("cuStreamSynchronize").sticky();
    session.inject(lost);
    fails!(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(s));
    fails!(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&mut 0, 16));
    ok!(cuCtxPopCurrent_v2(null_mut()));
    fails!(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(s));
    bind(1);
    ok!(cuCtxSynchronize());
    session.clear_faults();
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn a_call_that_took_effect_and_says_that_it_failed() {
    let session = begin();
    bind(0);
    let (s, d) = (stream(), alloc(16));
    let p = Pinned::new(&[0; 16]);
    ok!(cuMemsetD8Async(d, 3, 16, s));
    let fault =
        Fault::new(CUDA_ERROR_LAUNCH_FAILED).function("cuMemcpyDtoHAsync_v2").takes_effect();
    session.inject(fault);
    fails!(CUDA_ERROR_LAUNCH_FAILED, cuMemcpyDtoHAsync_v2(p.0, d, 16, s));
    assert!(session.fault_fired());
    assert_eq!(session.pending_ops(), 2);
    ok!(cuStreamSynchronize(s));
    assert_eq!(p.read(), [3; 16]);
    // With a sticky fault the context is lost as well.
    let lost = Fault::new(CUDA_ERROR_ILLEGAL_ADDRESS).sticky().takes_effect();
    session.inject(lost);
    fails!(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree_v2(d));
    fails!(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(s));
    assert_eq!(session.device_bytes_in_use(0), 0);
    session.clear_faults();
    drop(p);
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}
