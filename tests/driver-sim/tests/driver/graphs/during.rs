//! Programs inspect and change captures.

use std::ptr::{null, null_mut};

use cuda_sys::*;

use super::*;
use crate::support::*;

const RELAXED: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_RELAXED;

/// Returns the graph and the dependencies of a capturing stream.
fn info(stream: CUstream) -> (CUgraph, Vec<CUgraphNode>) {
    let (mut graph, mut nodes, mut count) = (null_mut(), null(), 7);
    let (mut status, mut id) = (CU_STREAM_CAPTURE_STATUS_NONE, 0);
    ok!(cuStreamGetCaptureInfo_v2(
        stream,
        &mut status,
        &mut id,
        &mut graph,
        &mut nodes,
        &mut count
    ));
    assert_eq!(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, !graph.is_null());
    if count == 0 {
        return (graph, Vec::new());
    }
    // SAFETY: the driver returned this many nodes, which stay until the next call on the stream.
    (graph, unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec())
}

pub(super) fn nodes(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 64;
    let mut nodes = vec![null_mut(); count];
    ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    nodes.truncate(count);
    nodes
}

pub(super) fn dependencies(node: CUgraphNode) -> Vec<CUgraphNode> {
    let mut count = 64;
    let mut nodes = vec![null_mut(); count];
    ok!(cuGraphNodeGetDependencies(node, nodes.as_mut_ptr(), &mut count));
    nodes.truncate(count);
    nodes
}

#[test]
fn a_capture_shows_its_nodes() {
    scene(4, |session, [s, t], d| {
        assert_eq!(info(s), (null_mut(), vec![]));
        ok!(cuStreamBeginCapture_v2(s, RELAXED));
        let (graph, none) = info(s);
        assert!(none.is_empty());
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
        ok!(cuMemsetD8Async(d, 1, 4, s));
        assert_eq!(info(s), (graph, nodes(graph)));
        join(s, t);
        assert_eq!(info(t), (graph, nodes(graph)));
        ok!(cuMemsetD8Async(d, 1, 4, t));
        ok!(cuMemsetD8Async(d, 1, 4, s));
        let all = nodes(graph);
        for _ in 0..2 {
            join(t, s);
            assert_eq!(info(s), (graph, vec![all[2], all[1]]));
        }
        let (mut of, mut data, mut count) = (null(), null(), 0);
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        ok!(cuStreamGetCaptureInfo_v3(
            s,
            &mut status,
            null_mut(),
            null_mut(),
            &mut of,
            &mut data,
            &mut count
        ));
        assert!(!of.is_null() && !data.is_null() && count == 2);
        // The graph of a failed capture is destroyed with it.
        fails!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
        assert_eq!(info(s), (null_mut(), vec![]));
        let mut ended = null_mut();
        fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &mut ended));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(graph, null_mut(), &mut count));
        assert_eq!(violations(session), [ViolationKind::DanglingHandle]);
        // So is the graph of a capture whose stream is destroyed.
        let u = stream();
        ok!(cuStreamBeginCapture_v2(u, RELAXED));
        let (graph, _) = info(u);
        ok!(cuStreamDestroy_v2(u));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(graph, null_mut(), &mut count));
        assert_eq!(violations(session), [ViolationKind::DanglingHandle]);
    });
}

#[test]
fn dependencies_are_added_and_replaced() {
    scene(4, |session, [s, t], d| {
        fails!(CUDA_ERROR_ILLEGAL_STATE, cuStreamUpdateCaptureDependencies(s, null_mut(), 0, 0));
        ok!(cuStreamBeginCapture_v2(s, RELAXED));
        for value in 0..3 {
            ok!(cuMemsetD8Async(d, value, 4, s));
        }
        let (graph, _) = info(s);
        let mut all = nodes(graph);
        let [first, second, third] = all[..] else { panic!("{all:?}") };
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuStreamUpdateCaptureDependencies(s, all.as_mut_ptr(), 1, 2)
        );
        ok!(cuStreamUpdateCaptureDependencies(s, all.as_mut_ptr(), 1, 0));
        assert_eq!(info(s).1, [third, first]);
        ok!(cuStreamUpdateCaptureDependencies_v2(s, all[1..].as_mut_ptr(), null(), 1, 1));
        assert_eq!(info(s).1, [second]);
        ok!(cuMemsetD8Async(d, 4, 4, s));
        assert_eq!(dependencies(nodes(graph)[3]), [second]);
        // A dependency on its node joins a branch, too.
        join(s, t);
        ok!(cuMemsetD8Async(d, 5, 4, t));
        ok!(cuStreamUpdateCaptureDependencies(s, nodes(graph)[4..].as_mut_ptr(), 1, 1));
        let mut ended = null_mut();
        ok!(cuStreamEndCapture(s, &mut ended));
        assert_eq!(ended, graph);
        // The replaced third node is not ordered with the nodes after the second.
        let exec = instantiate(graph);
        ok!(cuGraphLaunch(exec, s));
        assert_eq!(violations(session), [ViolationKind::Race; 2]);
        ok!(cuStreamSynchronize(s));
        // The node belongs to another graph.
        ok!(cuStreamBeginCapture_v2(s, RELAXED));
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuStreamUpdateCaptureDependencies(s, all.as_mut_ptr(), 1, 0)
        );
        let other = {
            let mut other = null_mut();
            ok!(cuStreamEndCapture(s, &mut other));
            other
        };
        ok!(cuGraphDestroy(other));
        destroy(graph, exec);
    });
}

#[test]
fn a_capture_can_continue_a_graph() {
    scene(8, |session, [s], d| {
        let graph = capture(s, || ok!(cuMemsetD8Async(d, 1, 8, s)));
        let first = nodes(graph);
        ok!(cuStreamBeginCaptureToGraph(s, graph, first.as_ptr(), null(), 1, RELAXED));
        assert_eq!(info(s), (graph, first.clone()));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
        ok!(cuMemsetD8Async(d + 4, 2, 4, s));
        let mut ended = null_mut();
        ok!(cuStreamEndCapture(s, &mut ended));
        assert_eq!((ended, dependencies(nodes(graph)[1])), (graph, first));
        let exec = instantiate(graph);
        ok!(cuGraphLaunch(exec, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!(read(d, 8), [1, 1, 1, 1, 2, 2, 2, 2]);
        // An existing graph stays when a capture into it fails.
        ok!(cuStreamBeginCaptureToGraph(s, graph, null(), null(), 0, RELAXED));
        fails!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
        fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &mut ended));
        assert_eq!(nodes(graph).len(), 2);
        assert_eq!(violations(session), []);
        destroy(graph, exec);
    });
}

#[test]
fn a_clone_has_nodes_of_its_own() {
    scene(8, |_, [s, t], d| {
        let graph = fork(
            s,
            t,
            || ok!(cuMemsetD8Async(d, 1, 8, s)),
            || ok!(cuMemsetD8Async(d, 2, 4, t)),
            || ok!(cuMemsetD8Async(d + 4, 3, 4, s)),
        );
        let mut clone = null_mut();
        ok!(cuGraphClone(&mut clone, graph));
        let (old, new) = (nodes(graph), nodes(clone));
        assert!(old.iter().all(|node| !new.contains(node)));
        for (old, new) in old.iter().zip(&new) {
            let mut found = null_mut();
            ok!(cuGraphNodeFindInClone(&mut found, *old, clone));
            assert_eq!(found, *new);
        }
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&mut null_mut(), new[0], graph));
        ok!(cuGraphDestroy(graph));
        assert_eq!(dependencies(new[2]), [new[0]]);
        let exec = instantiate(clone);
        ok!(cuGraphLaunch(exec, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!(read(d, 8), [2, 2, 2, 2, 3, 3, 3, 3]);
        destroy(clone, exec);
    });
}

#[test]
fn a_graph_is_printed() {
    scene(4, |_, [s], d| {
        let graph = capture(s, || {
            ok!(cuMemsetD8Async(d, 1, 4, s));
            ok!(cuMemcpyDtoDAsync_v2(d + 2, d, 2, s));
        });
        let path = std::env::temp_dir().join(format!("cuda-sim-{}.dot", std::process::id()));
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        ok!(cuGraphDebugDotPrint(graph, name.as_ptr(), 0));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.starts_with("digraph dot {") && text.contains("MEMSET"), "{text}");
        assert_eq!(text.matches(" -> ").count(), 1, "{text}");
        fails!(
            CUDA_ERROR_OPERATING_SYSTEM,
            cuGraphDebugDotPrint(graph, c"/no/such/folder/graph".as_ptr(), 0)
        );
        ok!(cuGraphDestroy(graph));
    });
}
