//! The context stack, which behaves exactly like CUDA's.

use std::ptr::{null, null_mut};

use cuda_sim::{LeakKind, ViolationKind};
use cuda_sys::*;

use crate::images::{array, descriptor, resource};
#[cfg(unix)]
use crate::mapped;
use crate::support::*;

#[test]
fn set_pushes_on_an_empty_stack_and_replaces_otherwise() {
    let session = begin();
    let (a, b) = (primary(0), primary(1));
    ok!(cuCtxSetCurrent(a));
    ok!(cuCtxSetCurrent(b));
    assert_eq!(current(), b);
    ok!(cuCtxPopCurrent_v2(null_mut()));
    assert!(current().is_null());
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(null_mut()));
    session.assert_clean();
}

#[test]
fn setting_null_pops_one_entry() {
    let session = begin();
    let (a, b) = (primary(0), primary(1));
    ok!(cuCtxSetCurrent(a));
    ok!(cuCtxPushCurrent_v2(b));
    ok!(cuCtxSetCurrent(null_mut()));
    assert_eq!(current(), a);
    session.assert_clean();
}

#[test]
fn one_context_may_be_pushed_twice() {
    let session = begin();
    let a = primary(0);
    ok!(cuCtxPushCurrent_v2(a));
    ok!(cuCtxPushCurrent_v2(a));
    for _ in 0..2 {
        let mut popped = null_mut();
        ok!(cuCtxPopCurrent_v2(&mut popped));
        assert_eq!(popped, a);
    }
    assert!(current().is_null());
    session.assert_clean();
}

#[test]
fn a_look_at_the_stack_is_no_call() {
    let session = begin();
    let (a, b) = (primary(0), primary(1));
    ok!(cuCtxPushCurrent_v2(a));
    ok!(cuCtxPushCurrent_v2(b));
    let calls = session.total_calls();
    assert_eq!(cuda_sim::context_stack(), [b.addr(), a.addr()]);
    assert_eq!(session.total_calls(), calls);
    for _ in 0..2 {
        ok!(cuCtxPopCurrent_v2(null_mut()));
    }
    assert_eq!(cuda_sim::context_stack(), [0; 0]);
    session.assert_clean();
}

#[test]
fn stacks_are_per_thread() {
    let session = begin();
    bind(0);
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(current().is_null()));
    });
    session.assert_clean();
}

#[test]
fn a_created_context_is_pushed_and_its_end_is_seen_elsewhere() {
    let session = begin();
    let mut context = null_mut();
    ok!(cuCtxCreate_v2(&mut context, 0, 1));
    assert_eq!(current(), context);
    ok!(cuCtxPushCurrent_v2(context));
    ok!(cuCtxDestroy_v2(context));
    // One entry was removed with the context; the other still names it.
    assert_eq!(current(), context);
    fails!(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    fails!(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSetCurrent(context));
    assert_eq!(violations(&session), [ViolationKind::DanglingHandle]);
    // The handle is reused at once for another context; the old entry does not mean that one.
    let mut next = null_mut();
    ok!(cuCtxCreate_v2(&mut next, 0, 2));
    assert_eq!(next, context);
    ok!(cuCtxDestroy_v2(next));
    fails!(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    session.assert_clean();
}

#[test]
fn a_forgotten_context_is_a_leak() {
    let session = begin();
    let mut context = null_mut();
    ok!(cuCtxCreate_v2(&mut context, 0, 1));
    assert_eq!(session.leaks().len(), 1);
    ok!(cuCtxDestroy_v2(context));
    assert!(session.finish().is_clean());
}

#[test]
fn what_needs_a_current_context() {
    let session = begin();
    bind(0);
    let (s, e, p) = (stream(), event(), Pinned::new(&[1; 16]));
    let d = alloc(16);
    ok!(cuCtxPopCurrent_v2(null_mut()));

    for other in [null_mut(), primary(1)] {
        ok!(cuCtxSetCurrent(other));
        let a = alloc_async(8, s);
        ok!(cuMemFreeAsync(a, s));
        ok!(cuMemcpyHtoDAsync_v2(d, p.0, 16, s));
        ok!(cuMemsetD8Async(d, 0, 16, s));
        ok!(cuEventRecord(e, s));
        ok!(cuStreamWaitEvent(s, e, 0));
        ok!(cuEventSynchronize(e));
        ok!(cuStreamSynchronize(s));
    }
    ok!(cuCtxPopCurrent_v2(null_mut()));

    let mut out = [0_u8; 16];
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), d, 16));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuMemsetD8_v2(d, 0, 16));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(null_mut()));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&mut 0, 16));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuMemHostAlloc(&mut null_mut(), 16, 0));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuMemHostGetFlags(&mut 0, null_mut()));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&mut null_mut(), 0));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuEventCreate(&mut null_mut(), 0));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo_v2(&mut 0, &mut 0));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());

    ok!(cuMemFree_v2(d));
    drop(p);
    ok!(cuEventDestroy_v2(e));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn images_and_linkers_go_with_their_context() {
    let session = begin();
    let mut context = null_mut();
    ok!(cuCtxCreate_v2(&mut context, 0, 0));
    let (drawn, plain) = (array(2), descriptor(0));
    let (mut mipmap, mut level, mut linker) = (null_mut(), null_mut(), null_mut());
    ok!(cuMipmappedArrayCreate(&mut mipmap, &plain, 2));
    ok!(cuMipmappedArrayGetLevel(&mut level, mipmap, 1));
    let (mut sampled, mut surface) = (0, 0);
    ok!(cuTexObjectCreate(&mut sampled, &resource(drawn), &CUDA_TEXTURE_DESC::default(), null()));
    ok!(cuSurfObjectCreate(&mut surface, &resource(drawn)));
    ok!(cuLinkCreate_v2(0, null_mut(), null_mut(), &mut linker));
    ok!(cuCtxDestroy_v2(context));
    let kinds: Vec<_> = session.leaks().iter().map(|leak| leak.kind).collect();
    assert_eq!(kinds, [LeakKind::Array; 0]);
    bind(0);
    let gone = CUDA_ERROR_INVALID_HANDLE;
    fails!(gone, cuArray3DGetDescriptor_v2(&mut CUDA_ARRAY3D_DESCRIPTOR::default(), drawn));
    fails!(gone, cuArrayDestroy(drawn));
    fails!(gone, cuArrayDestroy(level));
    fails!(gone, cuMipmappedArrayDestroy(mipmap));
    fails!(gone, cuTexObjectDestroy(sampled));
    fails!(gone, cuSurfObjectDestroy(surface));
    fails!(gone, cuLinkComplete(linker, &mut null_mut(), null_mut()));
    fails!(gone, cuLinkDestroy(linker));
    assert_eq!(violations(&session), [ViolationKind::DanglingHandle; 8]);
    // The next array has the first one's handle.
    let next = array(0);
    assert!([drawn, level].contains(&next));
    ok!(cuArrayDestroy(next));
    session.assert_clean();
}

#[test]
#[cfg(unix)]
#[cfg_attr(miri, ignore = "opens files")]
fn what_is_imported_goes_with_its_context() {
    let session = begin();
    let mut context = null_mut();
    ok!(cuCtxCreate_v2(&mut context, 0, 0));
    let (step, s) = (mapped::step(), stream());
    let (memory, fd) = mapped::exported(step);
    let mut handle = CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
        type_: CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
        size: step as u64,
        ..Default::default()
    };
    handle.handle.fd = fd;
    let (mut imported, mut address) = (null_mut(), 0);
    ok!(cuImportExternalMemory(&mut imported, &handle));
    let whole = CUDA_EXTERNAL_MEMORY_BUFFER_DESC { size: step as u64, ..Default::default() };
    ok!(cuExternalMemoryGetMappedBuffer(&mut address, imported, &whole));
    let mut handle = CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
        type_: CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,
        ..Default::default()
    };
    handle.handle.fd = mapped::exported_again(memory);
    let mut semaphore = null_mut();
    ok!(cuImportExternalSemaphore(&mut semaphore, &handle));
    ok!(cuStreamDestroy_v2(s));
    ok!(cuMemRelease(memory));
    ok!(cuCtxDestroy_v2(context));
    let kinds: Vec<_> = session.leaks().iter().map(|leak| leak.kind).collect();
    assert_eq!(kinds, [LeakKind::External; 0]);
    assert_eq!(session.device_bytes_in_use(0), 0, "nothing else holds the physical memory");
    bind(0);
    let s = stream();
    let gone = CUDA_ERROR_INVALID_HANDLE;
    fails!(gone, cuExternalMemoryGetMappedBuffer(&mut address, imported, &whole));
    fails!(gone, cuDestroyExternalMemory(imported));
    let signal = CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS::default();
    fails!(gone, cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, s));
    fails!(gone, cuDestroyExternalSemaphore(semaphore));
    assert_eq!(violations(&session), [ViolationKind::DanglingHandle; 4]);
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}
