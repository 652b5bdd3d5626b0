//! User objects that graphs keep.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use cuda_sim::{LeakKind, ViolationKind};
use cuda_sys::*;

use super::*;
use crate::support::*;

static DESTROYED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn destroy_object(number: *mut c_void) {
    // A driver refuses every call here.
    assert_eq!(call!(cuCtxGetCurrent(&mut null_mut())), CUDA_ERROR_NOT_PERMITTED);
    DESTROYED.fetch_add(number.addr() as u64, Ordering::SeqCst);
}

fn object(count: u32) -> CUuserObject {
    let (mut object, number) = (null_mut(), std::ptr::without_provenance_mut(1));
    ok!(cuUserObjectCreate(&mut object, number, Some(destroy_object), count, 1));
    object
}

/// Returns the sum of the objects destroyed since the last call.
fn destroyed(session: &Session) -> u64 {
    session.settle();
    DESTROYED.swap(0, Ordering::SeqCst)
}

/// Returns the number of objects that exist.
fn kept(session: &Session) -> usize {
    session.leaks().iter().filter(|leak| leak.kind == LeakKind::UserObject).count()
}

#[test]
fn an_object_goes_with_its_last_reference() {
    scene(4, |session, [s], d| {
        destroyed(session);
        let graph = capture(s, || ok!(cuMemsetD8Async(d, 1, 4, s)));
        let first = object(1);
        ok!(cuGraphRetainUserObject(graph, first, 1, 1));
        assert_eq!(kept(session), 1);
        let exec = instantiate(graph);
        ok!(cuGraphDestroy(graph));
        assert_eq!(destroyed(session), 0, "the exec has it");
        ok!(cuGraphLaunch(exec, s));
        ok!(cuGraphExecDestroy(exec));
        assert_eq!(kept(session), 1, "the launch has it");
        ok!(cuStreamSynchronize(s));
        assert_eq!(destroyed(session), 1);
        assert_eq!(violations(session), [ViolationKind::CallInCallback]);
        fails!(CUDA_ERROR_INVALID_VALUE, cuUserObjectRetain(first, 1));
        assert_eq!(violations(session), [ViolationKind::DanglingHandle]);
    });
}

#[test]
fn references_are_counted() {
    scene(4, |session, [s], d| {
        destroyed(session);
        let graph = capture(s, || ok!(cuMemsetD8Async(d, 1, 4, s)));
        let many = object(2);
        ok!(cuGraphRetainUserObject(graph, many, 2, 0));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphReleaseUserObject(graph, many, 3));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphRetainUserObject(graph, many, 3, 1));
        fails!(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(many, 3));
        fails!(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(many, 0));
        ok!(cuUserObjectRetain(many, 1));
        ok!(cuUserObjectRelease(many, 3));
        ok!(cuGraphReleaseUserObject(graph, many, 1));
        let mut clone = null_mut();
        ok!(cuGraphClone(&mut clone, graph));
        ok!(cuGraphReleaseUserObject(graph, many, 1));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphReleaseUserObject(graph, many, 1));
        assert_eq!(destroyed(session), 0, "the clone has it");
        // An update takes over the objects of the other graph.
        let exec = instantiate(clone);
        ok!(cuGraphDestroy(clone));
        let mut info = CUgraphExecUpdateResultInfo::default();
        assert_eq!(destroyed(session), 0, "the exec has it");
        let next = object(1);
        ok!(cuGraphRetainUserObject(graph, next, 1, 1));
        ok!(cuGraphExecUpdate_v2(exec, graph, &mut info));
        assert_eq!(destroyed(session), 1);
        ok!(cuGraphDestroy(graph));
        assert_eq!(destroyed(session), 0, "the exec has the other");
        ok!(cuGraphExecDestroy(exec));
        assert_eq!(destroyed(session), 1);
        assert_eq!(violations(session), [ViolationKind::CallInCallback; 2]);
        let (mut place, none) = (null_mut(), null_mut());
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuUserObjectCreate(&mut place, none, Some(destroy_object), 1, 0)
        );
        fails!(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(&mut place, none, None, 1, 1));
    });
}
