//! Memory that graphs allocate.

use std::cell::Cell;
use std::ptr::{null, null_mut};

use cuda_sim::{LeakKind, ViolationKind};
use cuda_sys::*;

use super::during::nodes;
use super::*;
use crate::support::*;

/// Returns the used bytes, now and at most, and the reserved bytes, now and at most.
fn attributes() -> [u64; 4] {
    let kinds = [
        CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
        CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
    ];
    kinds.map(|kind| {
        let mut value = 0_u64;
        ok!(cuDeviceGetGraphMemAttribute(0, kind, (&raw mut value).cast()));
        value
    })
}

fn reset() {
    ok!(cuDeviceGraphMemTrim(0));
    for kind in [CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH] {
        let mut value = 0_u64;
        ok!(cuDeviceSetGraphMemAttribute(0, kind, (&raw mut value).cast()));
    }
}

#[test]
fn each_launch_allocates_and_frees() {
    scene(8, |session, [s], d| {
        reset();
        let mut x = 0;
        let graph = capture(s, || {
            x = alloc_async(8, s);
            ok!(cuMemsetD8Async(x, 3, 8, s));
            ok!(cuMemcpyDtoDAsync_v2(d, x, 8, s));
            ok!(cuMemFreeAsync(x, s));
        });
        let kinds = nodes(graph).into_iter().map(|node| {
            let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
            ok!(cuGraphNodeGetType(node, &mut kind));
            kind
        });
        let kinds: Vec<CUgraphNodeType> = kinds.collect();
        assert_eq!(
            (kinds[0], kinds[3]),
            (CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_FREE)
        );
        let mut freed = 0;
        ok!(cuGraphMemFreeNodeGetParams(nodes(graph)[3], &mut freed));
        assert_eq!((freed, attributes()), (x, [0; 4]));
        let exec = instantiate(graph);
        for _ in 0..3 {
            ok!(cuGraphLaunch(exec, s));
            ok!(cuStreamSynchronize(s));
            assert_eq!((read(d, 8), attributes()), (vec![3; 8], [0, 8, 8, 8]));
        }
        ok!(cuDeviceGraphMemTrim(0));
        assert_eq!(attributes(), [0, 8, 0, 8]);
        reset();
        assert_eq!(attributes(), [0; 4]);
        assert_eq!(session.take_violations(), []);
        destroy(graph, exec);
    });
}

#[test]
fn memory_of_a_graph_has_bytes_only_within_its_launches() {
    scene(8, |session, [s], _| {
        let mut x = 0;
        let graph = capture(s, || {
            x = alloc_async(8, s);
            ok!(cuMemsetD8Async(x, 3, 8, s));
            ok!(cuMemFreeAsync(x, s));
        });
        ok!(cuMemsetD8Async(x, 1, 8, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!(violations(session), [ViolationKind::UseBeforeAllocation]);
        let exec = instantiate(graph);
        ok!(cuGraphLaunch(exec, s));
        ok!(cuMemsetD8Async(x, 1, 8, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!(violations(session), [ViolationKind::UseAfterFree]);
        fails!(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(x, s));
        assert_eq!(violations(session), [ViolationKind::DoubleFree]);
        // The graph itself has a node after the free.
        let mut y = 0;
        let late = capture(s, || {
            y = alloc_async(8, s);
            ok!(cuMemFreeAsync(y, s));
            ok!(cuMemsetD8Async(y, 1, 8, s));
            fails!(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(y, s));
        });
        let again = instantiate(late);
        ok!(cuGraphLaunch(again, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!(violations(session), [ViolationKind::UseAfterFree]);
        destroy(late, again);
        destroy(graph, exec);
    });
}

#[test]
fn memory_that_outlives_its_launch() {
    scene(8, |session, [s], _| {
        reset();
        let mut x = 0;
        let graph = capture(s, || {
            x = alloc_async(8, s);
            ok!(cuMemsetD8Async(x, 3, 8, s));
        });
        let exec = instantiate(graph);
        for free_async in [true, false] {
            ok!(cuGraphLaunch(exec, s));
            fails!(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, s));
            ok!(cuMemsetD8Async(x, 4, 4, s));
            ok!(cuStreamSynchronize(s));
            assert_eq!((read(x, 8), attributes()[0]), (vec![4, 4, 4, 4, 3, 3, 3, 3], 8));
            assert!(session.leaks().iter().any(|leak| leak.kind == LeakKind::Device
                && leak.handle == x
                && leak.call == "cuMemAllocAsync"));
            if free_async {
                ok!(cuMemFreeAsync(x, s));
            } else {
                ok!(cuMemFree_v2(x));
            }
            ok!(cuStreamSynchronize(s));
        }
        assert_eq!(attributes()[0], 0);
        // Or the next launch frees it.
        ok!(cuGraphExecDestroy(exec));
        let mut exec = null_mut();
        ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 1));
        for _ in 0..3 {
            ok!(cuGraphLaunch(exec, s));
        }
        ok!(cuStreamSynchronize(s));
        assert_eq!((read(x, 8), attributes()[..2].to_vec()), (vec![3; 8], vec![8, 8]));
        // Or another graph frees it.
        let frees = capture(s, || ok!(cuMemFreeAsync(x, s)));
        let free = instantiate(frees);
        ok!(cuGraphLaunch(free, s));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(free, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!((attributes()[0], violations(session)), (0, vec![]));
        destroy(frees, free);
        destroy(graph, exec);
        reset();
    });
}

#[test]
fn a_free_has_an_order_behind_the_allocation() {
    scene(8, |session, [s, t], _| {
        reset();
        let x = Cell::new(0);
        let alloc = || x.set(alloc_async(8, t));
        let graph = fork(s, t, || {}, alloc, || ok!(cuMemFreeAsync(x.get(), s)));
        let exec = instantiate(graph);
        let mut used = Vec::new();
        while used.len() < 16 || used.last() != Some(&0) {
            ok!(cuGraphLaunch(exec, s));
            assert_eq!(violations(session), [ViolationKind::Race]);
            ok!(cuStreamSynchronize(s));
            used.push(attributes()[0]);
        }
        // The value depends on which launch came last.
        assert!(used.contains(&8) && used.iter().all(|bytes| [0, 8].contains(bytes)), "{used:?}");
        destroy(graph, exec);
    });
}

#[test]
fn what_graphs_with_memory_cannot_do() {
    scene(8, |session, [s], d| {
        let graph = capture(s, || {
            let x = alloc_async(8, s);
            ok!(cuMemFreeAsync(x, s));
            fails!(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(d, s));
        });
        let exec = instantiate(graph);
        let unsupported = CUDA_ERROR_NOT_SUPPORTED;
        fails!(unsupported, cuGraphInstantiateWithFlags(&mut null_mut(), graph, 0));
        fails!(unsupported, cuGraphClone(&mut null_mut(), graph));
        let other = capture(s, || {
            let x = alloc_async(8, s);
            ok!(cuMemFreeAsync(x, s));
        });
        let mut info = CUgraphExecUpdateResultInfo::default();
        fails!(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other, &mut info));
        assert_eq!(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
        ok!(cuGraphDestroy(other));
        let [first, second] = nodes(graph)[..] else { panic!() };
        fails!(unsupported, cuGraphDestroyNode(second));
        fails!(unsupported, cuGraphRemoveDependencies(graph, &first, &second, 1));
        let mut other = null_mut();
        ok!(cuGraphCreate(&mut other, 0));
        fails!(unsupported, cuGraphAddChildGraphNode(&mut null_mut(), other, null(), 0, graph));
        ok!(cuGraphDestroy(other));
        ok!(cuGraphExecDestroy(exec));
        let exec = instantiate(graph);
        destroy(graph, exec);
        // The graph needs more memory than the device has.
        let graph = capture(s, || {
            let x = alloc_async(1 << 30, s);
            ok!(cuMemFreeAsync(x, s));
        });
        let (exec, taken) = (instantiate(graph), alloc(1 << 20));
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(exec, s));
        ok!(cuMemFree_v2(taken));
        assert_eq!(violations(session), []);
        destroy(graph, exec);
    });
}

#[test]
fn calls_on_another_stream_wait_for_the_last_launch() {
    scene(8, |session, [s, t], _| {
        let graph = capture(s, || {
            let x = alloc_async(8, s);
            ok!(cuMemsetD8Async(x, 3, 8, s));
            ok!(cuMemFreeAsync(x, s));
        });
        let exec = instantiate(graph);
        ok!(cuGraphLaunch(exec, s));
        ok!(cuGraphLaunch(exec, s));
        assert_eq!(session.pending_ops(), 2);
        ok!(cuGraphLaunch(exec, t));
        assert_eq!(session.pending_ops(), 1, "its own");
        ok!(cuGraphUpload(exec, s));
        assert_eq!(session.pending_ops(), 1, "its own");
        ok!(cuStreamSynchronize(s));
        destroy(graph, exec);
    });
}
