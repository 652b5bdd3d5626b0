//! Graphs built node by node.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering;

use cuda_sim::{Session, ViolationKind, register_kernel};
use cuda_sys::*;

use super::during::{dependencies, nodes};
use super::*;
use crate::support::*;

fn graph() -> CUgraph {
    let mut graph = null_mut();
    ok!(cuGraphCreate(&mut graph, 0));
    graph
}

fn empty(graph: CUgraph, after: &[CUgraphNode]) -> CUgraphNode {
    let mut node = null_mut();
    ok!(cuGraphAddEmptyNode(&mut node, graph, after.as_ptr(), after.len()));
    node
}

fn fill(graph: CUgraph, after: &[CUgraphNode], dst: CUdeviceptr, value: u32) -> CUgraphNode {
    let params = CUDA_MEMSET_NODE_PARAMS {
        dst,
        value,
        elementSize: 1,
        width: 4,
        height: 1,
        ..Default::default()
    };
    let mut node = null_mut();
    let (first, count) = (after.as_ptr(), after.len());
    ok!(cuGraphAddMemsetNode(&mut node, graph, first, count, &params, current()));
    node
}

fn copy(graph: CUgraph, after: &[CUgraphNode], to: CUdeviceptr, from: CUdeviceptr) -> CUgraphNode {
    let params = CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        srcPitch: 4,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        dstPitch: 4,
        WidthInBytes: 4,
        Height: 1,
        Depth: 1,
        ..Default::default()
    };
    let mut node = null_mut();
    let (first, count) = (after.as_ptr(), after.len());
    ok!(cuGraphAddMemcpyNode(&mut node, graph, first, count, &params, current()));
    node
}

/// Launches the graph once, and waits for it.
fn run(graph: CUgraph, stream: CUstream) {
    let exec = instantiate(graph);
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    ok!(cuGraphExecDestroy(exec));
}

#[test]
fn nodes_of_every_kind_are_added() {
    register_kernel(
        "graph_add",
        |launch| vec![launch.writes::<u8>(0, 4)],
        |launch, memory| {
            let by = launch.value::<u8>(1);
            memory.slice_mut(launch.address(0), |x: &mut [u8]| x.iter_mut().for_each(|x| *x += by))
        },
    );
    const PTX: &str = ".version 7.0\n.target sm_52\n.address_size 64\n
        .visible .entry graph_add(.param .u64 x, .param .u8 v) { add.u32 %r1, %r1, 1; ret; }\0";
    scene(16, |session, [s], d| {
        let (mut module, mut function) = (null_mut(), null_mut());
        ok!(cuModuleLoadDataEx(&mut module, PTX.as_ptr().cast(), 0, null_mut(), null_mut()));
        ok!(cuModuleGetFunction(&mut function, module, c"graph_add".as_ptr()));
        let g = graph();
        let first = fill(g, &[], d, 3);
        let (mut to, mut by) = (d, 4_u8);
        let mut parameters: [*mut c_void; 2] = [(&raw mut to).cast(), (&raw mut by).cast()];
        let params = CUDA_KERNEL_NODE_PARAMS_v2 {
            func: function,
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            kernelParams: parameters.as_mut_ptr(),
            ..Default::default()
        };
        let mut kernel = null_mut();
        ok!(cuGraphAddKernelNode_v2(&mut kernel, g, &first, 1, &params));
        let moved = copy(g, &[kernel], d + 8, d);
        CALLS.store(0, Ordering::SeqCst);
        let data = std::ptr::without_provenance_mut(5);
        let call = CUDA_HOST_NODE_PARAMS { fn_: Some(count), userData: data };
        ok!(cuGraphAddHostNode(&mut null_mut(), g, &moved, 1, &call));
        run(g, s);
        assert_eq!((read(d, 4), read(d + 8, 4)), (vec![7; 4], vec![7; 4]));
        assert_eq!(CALLS.load(Ordering::SeqCst), 5);
        // The node is changed in the graph, for later execs.
        let mut set = CUDA_MEMSET_NODE_PARAMS::default();
        ok!(cuGraphMemsetNodeGetParams(first, &mut set));
        set.value = 1;
        ok!(cuGraphMemsetNodeSetParams(first, &set));
        let mut far = CUDA_MEMCPY3D::default();
        ok!(cuGraphMemcpyNodeGetParams(moved, &mut far));
        far.dstDevice += 4;
        ok!(cuGraphMemcpyNodeSetParams(moved, &far));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphMemcpyNodeSetParams(first, &far));
        run(g, s);
        assert_eq!((read(d, 4), read(d + 12, 4)), (vec![5; 4], vec![5; 4]));
        // Without a context a driver crashes.
        let context = current();
        ok!(cuCtxSetCurrent(null_mut()));
        fails!(
            CUDA_ERROR_INVALID_CONTEXT,
            cuGraphAddKernelNode_v2(&mut kernel, g, null(), 0, &params)
        );
        assert_eq!(violations(session), [ViolationKind::Crash]);
        ok!(cuCtxSetCurrent(context));
        ok!(cuGraphDestroy(g));
        ok!(cuModuleUnload(module));
    });
}

#[test]
fn dependencies_are_those_given() {
    scene(8, |session, [s], d| {
        let g = graph();
        let a = fill(g, &[], d, 1);
        let b = fill(g, &[], d, 2);
        let exec = instantiate(g);
        ok!(cuGraphLaunch(exec, s));
        assert_eq!(violations(session), [ViolationKind::Race]);
        ok!(cuStreamSynchronize(s));
        ok!(cuGraphExecDestroy(exec));
        // The node that was added later runs first.
        ok!(cuGraphAddDependencies(g, &b, &a, 1));
        assert_eq!(dependencies(a), [b]);
        for _ in 0..8 {
            run(g, s);
            assert_eq!(read(d, 4), [1; 4]);
        }
        assert_eq!(violations(session), []);
        ok!(cuGraphRemoveDependencies(g, &b, &a, 1));
        assert_eq!(dependencies(a), []);
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(g, &b, &a, 1));
        ok!(cuGraphDestroy(g));
    });
}

#[test]
fn circles_and_strangers_are_refused() {
    scene(8, |_, [_s], _| {
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(&mut null_mut(), 1));
        let (g, other) = (graph(), graph());
        let a = empty(g, &[]);
        let b = empty(g, &[a]);
        let c = empty(g, &[b]);
        let stranger = empty(other, &[]);
        let bad = [(c, a), (a, a), (a, b), (a, stranger), (stranger, a)];
        for (from, to) in bad {
            fails!(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(g, &from, &to, 1));
        }
        // Either all edges are added or none.
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGraphAddDependencies(g, [a, c].as_ptr(), [c, a].as_ptr(), 2)
        );
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGraphRemoveDependencies(g, [a, a].as_ptr(), [b, c].as_ptr(), 2)
        );
        assert_eq!([a, b, c].map(dependencies), [vec![], vec![a], vec![b]]);
        let (mut node, same) = (null_mut(), [a, a]);
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&mut node, g, &stranger, 1));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&mut node, g, same.as_ptr(), 2));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&mut node, g, null(), 1));
        for graph in [g, other] {
            ok!(cuGraphDestroy(graph));
        }
    });
}

#[test]
fn a_destroyed_node_leaves_its_neighbours() {
    scene(8, |session, [s], d| {
        let g = graph();
        let a = fill(g, &[], d, 1);
        let b = empty(g, &[a]);
        let c = fill(g, &[b], d + 4, 2);
        ok!(cuGraphDestroyNode(b));
        assert_eq!((nodes(g), dependencies(c)), (vec![a, c], vec![]));
        let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(b, &mut kind));
        assert_eq!(violations(session), [ViolationKind::DanglingHandle]);
        run(g, s);
        assert_eq!(read(d, 8), [1, 1, 1, 1, 2, 2, 2, 2]);
        ok!(cuGraphDestroy(g));
    });
}

#[test]
fn a_graph_runs_within_another() {
    scene(16, |session, [s], d| {
        let inner = graph();
        let a = fill(inner, &[], d + 4, 2);
        fill(inner, &[], d + 8, 3);
        let g = graph();
        let first = fill(g, &[], d + 4, 1);
        let mut child = null_mut();
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphAddChildGraphNode(&mut child, g, null(), 0, g));
        ok!(cuGraphAddChildGraphNode(&mut child, g, &first, 1, inner));
        copy(g, &[child], d + 12, d + 8);
        ok!(cuGraphDestroy(inner));
        let mut own = null_mut();
        ok!(cuGraphChildGraphNodeGetGraph(child, &mut own));
        let parts = nodes(own);
        assert!(parts.len() == 2 && !parts.contains(&a));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(own));
        for _ in 0..4 {
            run(g, s);
            assert_eq!(read(d + 4, 12), [2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3]);
        }
        assert_eq!(violations(session), []);
        // The child graph's nodes are nodes of the exec.
        let exec = instantiate(g);
        ok!(cuGraphNodeSetEnabled(exec, parts[1], 0));
        ok!(cuMemsetD8_v2(d, 0, 16));
        ok!(cuStreamSynchronize(null_mut()));
        ok!(cuGraphLaunch(exec, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!(read(d + 4, 8), [2, 2, 2, 2, 0, 0, 0, 0]);
        ok!(cuGraphExecDestroy(exec));
        let mut clone = null_mut();
        ok!(cuGraphClone(&mut clone, g));
        ok!(cuGraphDestroy(g));
        run(clone, s);
        assert_eq!(read(d + 4, 8), [2, 2, 2, 2, 3, 3, 3, 3]);
        ok!(cuGraphDestroy(clone));
    });
}

#[test]
fn events_connect_launches_with_streams() {
    scene(8, |session, [s, t], d| {
        let (starts, ends) = (event(), event());
        let g = graph();
        let mut wait = null_mut();
        ok!(cuGraphAddEventWaitNode(&mut wait, g, null(), 0, starts));
        let fills = fill(g, &[wait], d, 2);
        let mut record = null_mut();
        ok!(cuGraphAddEventRecordNode(&mut record, g, &fills, 1, ends));
        let mut found = null_mut();
        ok!(cuGraphEventWaitNodeGetEvent(wait, &mut found));
        assert_eq!(found, starts);
        ok!(cuGraphEventRecordNodeGetEvent(record, &mut found));
        assert_eq!(found, ends);
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphEventRecordNodeGetEvent(wait, &mut found));
        let exec = instantiate(g);
        ok!(cuMemsetD8Async(d, 1, 8, t));
        ok!(cuEventRecord(starts, t));
        ok!(cuGraphLaunch(exec, s));
        ok!(cuStreamWaitEvent(t, ends, 0));
        ok!(cuMemcpyDtoDAsync_v2(d + 4, d, 4, t));
        ok!(cuStreamSynchronize(t));
        assert_eq!((read(d, 8), violations(session)), (vec![2; 8], vec![]));
        ok!(cuStreamSynchronize(s));
        destroy(g, exec);
        ok!(cuEventDestroy_v2(starts));
        ok!(cuEventDestroy_v2(ends));
    });
}

#[test]
fn every_call_on_graphs_can_fail() {
    let session: Session = begin();
    bind(0);
    let g = graph();
    let calls: [(&str, &dyn Fn() -> CUresult); 5] = [
        ("cuGraphCreate", &|| call!(cuGraphCreate(&mut null_mut(), 0))),
        ("cuGraphAddEmptyNode", &|| call!(cuGraphAddEmptyNode(&mut null_mut(), g, null(), 0))),
        ("cuGraphClone", &|| call!(cuGraphClone(&mut null_mut(), g))),
        ("cuGraphInstantiateWithFlags", &|| {
            call!(cuGraphInstantiateWithFlags(&mut null_mut(), g, 0))
        }),
        ("cuGraphGetNodes", &|| call!(cuGraphGetNodes(g, null_mut(), &mut 0))),
    ];
    for (name, made) in calls {
        session.fail_nth(Some(name), 1, CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(made(), CUDA_ERROR_OUT_OF_MEMORY, "{name}");
    }
    assert!(nodes(g).is_empty());
    ok!(cuGraphDestroy(g));
    session.assert_clean();
}
