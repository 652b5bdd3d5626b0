//! Graphs: captures, launches, lifetimes.

mod built;
mod captured;
mod conditional;
mod during;
mod memory;
mod objects;
mod order;
mod updates;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use cuda_sim::{LeakKind, Mode, Session, ViolationKind};
use cuda_sys::*;

use crate::support::*;

/// Captures what `body` enqueues on `stream`, and returns the graph.
pub(super) fn capture(stream: CUstream, body: impl FnOnce()) -> CUgraph {
    let mut graph = null_mut();
    ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    body();
    ok!(cuStreamEndCapture(stream, &mut graph));
    graph
}

pub(super) fn instantiate(graph: CUgraph) -> CUgraphExec {
    let mut exec = null_mut();
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    exec
}

pub(super) fn destroy(graph: CUgraph, exec: CUgraphExec) {
    ok!(cuGraphExecDestroy(exec));
    ok!(cuGraphDestroy(graph));
}

pub(super) fn read(address: CUdeviceptr, bytes: usize) -> Vec<u8> {
    let mut back = vec![0_u8; bytes];
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), address, bytes));
    back
}

/// Makes `to` wait for the work that `from` has so far.
pub(super) fn join(from: CUstream, to: CUstream) {
    let e = event();
    ok!(cuEventRecord(e, from));
    ok!(cuStreamWaitEvent(to, e, 0));
    ok!(cuEventDestroy_v2(e));
}

#[test]
fn a_launch_runs_the_captured_work_late_and_each_time() {
    scene(8, |session, [s, t], d| {
        let graph = capture(s, || {
            ok!(cuMemsetD8Async(d, 1, 4, s));
            ok!(cuMemcpyDtoDAsync_v2(d + 4, d, 4, s));
        });
        let exec = instantiate(graph);
        ok!(cuMemsetD8_v2(d, 9, 8));
        ok!(cuStreamSynchronize(null_mut()));
        ok!(cuGraphUpload(exec, s));
        let mark = session.mark();
        ok!(cuGraphLaunch(exec, s));
        assert_eq!((session.pending_ops(), session.names_since(mark)), (2, vec!["cuGraphLaunch"]));
        ok!(cuStreamSynchronize(t));
        assert_eq!(session.pending_ops(), 2, "its stream was not waited for");
        ok!(cuStreamSynchronize(s));
        assert_eq!((session.pending_ops(), read(d, 8)), (0, vec![1; 8]));
        ok!(cuMemsetD8_v2(d, 9, 8));
        ok!(cuStreamSynchronize(null_mut()));
        ok!(cuGraphLaunch(exec, t));
        ok!(cuStreamSynchronize(t));
        assert_eq!(read(d, 8), [1; 8]);
        destroy(graph, exec);
    });
}

/// Captures a graph of two branches after `first`, joined at the end.
pub(super) fn fork(
    s: CUstream,
    t: CUstream,
    first: impl FnOnce(),
    on_t: impl FnOnce(),
    on_s: impl FnOnce(),
) -> CUgraph {
    capture(s, || {
        first();
        join(s, t);
        on_t();
        on_s();
        join(t, s);
    })
}

static CALLS: AtomicU64 = AtomicU64::new(0);

pub(super) unsafe extern "C" fn count(by: *mut c_void) {
    CALLS.fetch_add(by.addr() as u64, Ordering::SeqCst);
}

#[test]
fn host_functions_run_once_a_launch() {
    scene(4, |session, [s, t], d| {
        CALLS.store(0, Ordering::SeqCst);
        let by = std::ptr::without_provenance_mut(7);
        let graph = fork(
            s,
            t,
            || {},
            || ok!(cuLaunchHostFunc(t, Some(count), by)),
            || {
                ok!(cuMemsetD8Async(d, 4, 4, s));
                ok!(cuLaunchHostFunc(s, Some(count), by));
            },
        );
        assert_eq!(CALLS.load(Ordering::SeqCst), 0);
        let exec = instantiate(graph);
        for launches in 1..4 {
            ok!(cuGraphLaunch(exec, s));
            ok!(cuStreamSynchronize(s));
            assert_eq!(CALLS.load(Ordering::SeqCst), 14 * launches);
        }
        // A function that never ran need not be called.
        ok!(cuGraphLaunch(exec, s));
        assert_eq!(session.leaks().iter().filter(|l| l.kind == LeakKind::HostFunction).count(), 0);
        ok!(cuStreamSynchronize(s));
        destroy(graph, exec);
    });
}

#[test]
fn a_pending_launch_survives_graph_and_exec() {
    scene(4, |session, [s], d| {
        let graph = capture(s, || ok!(cuMemsetD8Async(d, 3, 4, s)));
        let exec = instantiate(graph);
        ok!(cuGraphLaunch(exec, s));
        destroy(graph, exec);
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, s));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
        assert_eq!(violations(session), [ViolationKind::DanglingHandle; 2]);
        ok!(cuStreamSynchronize(s));
        assert_eq!(read(d, 4), [3; 4]);
    });
}

#[test]
fn memory_must_live_until_the_launch_has_ended() {
    scene(4, |session, [s], _| {
        let (d, host) = (alloc(4), Pinned::new(&[1; 4]));
        let graph = capture(s, || ok!(cuMemcpyHtoDAsync_v2(d, host.0, 4, s)));
        let exec = instantiate(graph);
        ok!(cuMemFree_v2(d));
        ok!(cuGraphLaunch(exec, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!(violations(session), [ViolationKind::UseAfterFree]);
        // Memory is freed during a launch.
        let d = alloc(4);
        ok!(cuGraphExecDestroy(exec));
        ok!(cuGraphDestroy(graph));
        let graph = capture(s, || ok!(cuMemcpyHtoDAsync_v2(d, host.0, 4, s)));
        let exec = instantiate(graph);
        ok!(cuGraphLaunch(exec, s));
        ok!(cuMemFree_v2(d));
        assert_eq!(violations(session), [ViolationKind::Race]);
        destroy(graph, exec);
    });
}

#[test]
fn only_instantiation_needs_a_context() {
    scene(4, |_, [s], d| {
        let context = current();
        ok!(cuCtxSetCurrent(null_mut()));
        let graph = capture(s, || ok!(cuMemsetD8Async(d, 3, 4, s)));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuGraphInstantiateWithFlags(&mut null_mut(), graph, 0));
        ok!(cuCtxSetCurrent(context));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&mut null_mut(), graph, 16));
        let exec = instantiate(graph);
        ok!(cuCtxSetCurrent(null_mut()));
        ok!(cuGraphUpload(exec, s));
        ok!(cuGraphLaunch(exec, s));
        destroy(graph, exec);
        ok!(cuCtxSetCurrent(context));
        ok!(cuStreamSynchronize(s));
    });
}

#[test]
fn an_empty_graph_can_be_launched() {
    scene(4, |session, [s, t], _| {
        let graph = fork(s, t, || {}, || {}, || {});
        let exec = instantiate(graph);
        ok!(cuGraphLaunch(exec, s));
        ok!(cuGraphLaunch(exec, null_mut()));
        assert_eq!(session.pending_ops(), 2);
        ok!(cuStreamSynchronize(s));
        ok!(cuStreamSynchronize(null_mut()));
        assert_eq!(session.pending_ops(), 0);
        destroy(graph, exec);
    });
}

#[test]
fn threaded_launches_move_host_memory() {
    let session = begin();
    bind(0);
    let (s, t, d) = (stream(), stream(), alloc(16));
    for seed in 0..8 {
        session.set_mode(Mode::Threaded { seed });
        let (up, down) = (Pinned::new(&[seed as u8; 16]), Pinned::new(&[0; 16]));
        let graph = fork(
            s,
            t,
            || ok!(cuMemcpyHtoDAsync_v2(d, up.0, 16, s)),
            || ok!(cuMemcpyDtoHAsync_v2(down.0, d, 8, t)),
            || ok!(cuMemcpyDtoHAsync_v2(down.0.wrapping_byte_add(8), d + 8, 8, s)),
        );
        let exec = instantiate(graph);
        for _ in 0..2 {
            ok!(cuGraphLaunch(exec, s));
        }
        ok!(cuStreamSynchronize(s));
        assert_eq!(down.read(), [seed as u8; 16]);
        destroy(graph, exec);
    }
    ok!(cuMemFree_v2(d));
    for stream in [s, t] {
        ok!(cuStreamDestroy_v2(stream));
    }
    session.assert_clean();
}

#[test]
fn graphs_and_execs_leak() {
    let session = begin();
    bind(0);
    let s = stream();
    let graph = capture(s, || {});
    let exec = instantiate(graph);
    let kinds = |session: &Session| -> Vec<LeakKind> {
        session.leaks().into_iter().map(|leak| leak.kind).collect()
    };
    assert_eq!(kinds(&session), [LeakKind::Stream, LeakKind::Graph, LeakKind::GraphExec]);
    destroy(graph, exec);
    // A capture's graph is destroyed with it.
    ok!(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_eq!(kinds(&session), [LeakKind::Stream]);
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn a_fault_leaves_a_launch_undone() {
    scene(4, |session, [s], d| {
        let graph = capture(s, || ok!(cuMemsetD8Async(d, 3, 4, s)));
        let exec = instantiate(graph);
        for name in ["cuGraphLaunch", "cuGraphUpload"] {
            session.fail_nth(Some(name), 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        }
        fails!(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, cuGraphLaunch(exec, s));
        fails!(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, cuGraphUpload(exec, s));
        assert_eq!(session.pending_ops(), 0);
        destroy(graph, exec);
    });
}
