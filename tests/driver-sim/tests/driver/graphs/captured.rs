//! What captures record as nodes.

use std::ffi::c_void;
use std::ptr::null_mut;

use cuda_sim::{ViolationKind, register_kernel};
use cuda_sys::*;

use super::*;
use crate::support::*;

#[test]
fn every_kind_of_copy_becomes_a_node() {
    scene(64, |_, [s], d| {
        let (up, down) = (Pinned::new(&[1, 2, 3, 4, 5, 6, 7, 8]), Pinned::new(&[0; 16]));
        let mut pageable = [9_u8; 4];
        let graph = capture(s, || {
            ok!(cuMemcpyHtoDAsync_v2(d, up.0, 8, s));
            ok!(cuMemcpyHtoDAsync_v2(d + 8, pageable.as_ptr().cast(), 4, s));
            ok!(cuMemsetD2D8Async(d + 12, 2, 7, 2, 2, s));
            let copy = CUDA_MEMCPY2D {
                srcMemoryType: CU_MEMORYTYPE_DEVICE,
                srcDevice: d,
                srcPitch: 8,
                dstMemoryType: CU_MEMORYTYPE_HOST,
                dstHost: down.0,
                dstPitch: 8,
                WidthInBytes: 8,
                Height: 2,
                ..Default::default()
            };
            ok!(cuMemcpy2DAsync_v2(&copy, s));
        });
        let exec = instantiate(graph);
        // A launch reads pageable memory at the time of the launch.
        pageable = [6; 4];
        ok!(cuGraphLaunch(exec, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!(down.read(), [1, 2, 3, 4, 5, 6, 7, 8, 6, 6, 6, 6, 7, 7, 7, 7]);
        assert_eq!(pageable, [6; 4]);
        destroy(graph, exec);
    });
}

#[test]
fn kernel_arguments_are_those_of_the_capture() {
    register_kernel(
        "graph_put",
        |launch| vec![launch.writes::<u32>(0, 1)],
        |launch, memory| memory.write(launch.address(0), launch.bytes(1)),
    );
    const PTX: &str = ".version 7.0\n.target sm_52\n.address_size 64\n
        .visible .entry graph_put(.param .u64 x, .param .u32 v) { add.u32 %r1, %r1, 1; ret; }\0";
    scene(4, |session, [s], mut d| {
        let (mut module, mut function) = (null_mut(), null_mut());
        ok!(cuModuleLoadDataEx(&mut module, PTX.as_ptr().cast(), 0, null_mut(), null_mut()));
        ok!(cuModuleGetFunction(&mut function, module, c"graph_put".as_ptr()));
        let mut value = 0x0102_0304_u32;
        let graph = capture(s, || {
            let mut parameters: [*mut c_void; 2] = [(&raw mut d).cast(), (&raw mut value).cast()];
            let parameters = parameters.as_mut_ptr();
            ok!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, s, parameters, null_mut()));
        });
        value = 0;
        let (mut node, mut count) = (null_mut(), 1);
        ok!(cuGraphGetNodes(graph, &mut node, &mut count));
        let mut params = CUDA_KERNEL_NODE_PARAMS_v2::default();
        ok!(cuGraphKernelNodeGetParams_v2(node, &mut params));
        assert_eq!((params.func, params.ctx, params.blockDimX), (function, current(), 1));
        // SAFETY: the node has two parameters.
        let second = unsafe { params.kernelParams.add(1) };
        // SAFETY: this is one of the node's pointers.
        let second = unsafe { second.read() };
        // SAFETY: the second parameter is a `u32` that belongs to the node, which exists.
        assert_eq!(unsafe { second.cast::<u32>().read_unaligned() }, 0x0102_0304);
        let exec = instantiate(graph);
        ok!(cuGraphLaunch(exec, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!((read(d, 4), value), (vec![4, 3, 2, 1], 0));
        // An unloaded kernel cannot run.
        ok!(cuGraphLaunch(exec, s));
        ok!(cuModuleUnload(module));
        assert_eq!(violations(session), [ViolationKind::UseAfterFree]);
        ok!(cuGraphLaunch(exec, s));
        assert_eq!(violations(session), [ViolationKind::UseAfterFree]);
        ok!(cuStreamSynchronize(s));
        destroy(graph, exec);
    });
}

#[test]
fn work_outside_invalidates() {
    scene(4, |_, [s, t], d| {
        let e = event();
        let mut graph = null_mut();
        ok!(cuEventRecord(e, t));
        ok!(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        fails!(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(s, e, 0));
        fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &mut graph));
        let context = current();
        ok!(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        fails!(
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            cuMemcpyPeerAsync(d, context, d, context, 4, s)
        );
        fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &mut graph));
        assert!(graph.is_null());
        ok!(cuEventDestroy_v2(e));
    });
}

#[test]
fn external_events_are_nodes() {
    scene(8, |session, [s, t, u], d| {
        let (starts, ends) = (event(), event());
        fails!(CUDA_ERROR_INVALID_VALUE, cuEventRecordWithFlags(ends, s, 1));
        fails!(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(s, starts, 1));
        let graph = capture(s, || {
            ok!(cuStreamWaitEvent(s, starts, 1));
            ok!(cuMemcpyDtoDAsync_v2(d + 4, d, 4, s));
            ok!(cuEventRecordWithFlags(ends, s, 1));
        });
        let exec = instantiate(graph);
        ok!(cuMemsetD8Async(d, 3, 4, t));
        ok!(cuEventRecord(starts, t));
        ok!(cuGraphLaunch(exec, s));
        ok!(cuStreamWaitEvent(u, ends, 0));
        ok!(cuMemsetD8Async(d, 4, 8, u));
        ok!(cuEventSynchronize(ends));
        assert_eq!(session.pending_ops(), 3, "the launch's end, and on u the wait and the fill");
        ok!(cuStreamSynchronize(u));
        assert_eq!(read(d, 8), [4; 8]);
        ok!(cuStreamSynchronize(s));
        destroy(graph, exec);
        ok!(cuEventDestroy_v2(starts));
        ok!(cuEventDestroy_v2(ends));
    });
}

#[test]
fn the_shape_of_a_captured_graph() {
    scene(8, |_, [s, t], d| {
        let host = Pinned::new(&[0; 4]);
        let graph = fork(
            s,
            t,
            || ok!(cuMemsetD32Async(d, 0x0102_0304, 2, s)),
            || ok!(cuMemcpyDtoHAsync_v2(host.0, d, 4, t)),
            || ok!(cuLaunchHostFunc(s, Some(count), null_mut())),
        );
        let mut count = 0;
        ok!(cuGraphGetNodes(graph, null_mut(), &mut count));
        assert_eq!(count, 3);
        let mut nodes: [CUgraphNode; 4] = [std::ptr::dangling_mut(); 4];
        count = 4;
        ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
        assert!(count == 3 && nodes[3].is_null());
        let [fill, copy, call, _] = nodes;
        let kind = |node| {
            let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
            ok!(cuGraphNodeGetType(node, &mut kind));
            kind
        };
        assert_eq!(
            [fill, copy, call].map(kind),
            [CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_HOST]
        );
        let (mut from, mut to) = ([null_mut(); 2], [null_mut(); 2]);
        count = 2;
        ok!(cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut count));
        assert_eq!((from, to, count), ([fill, fill], [copy, call], 2));
        let mut data = [CUgraphEdgeData { from_port: 7, ..Default::default() }; 3];
        let (mut from, mut to) = ([null_mut(); 3], [null_mut(); 3]);
        count = 3;
        ok!(cuGraphGetEdges_v2(
            graph,
            from.as_mut_ptr(),
            to.as_mut_ptr(),
            data.as_mut_ptr(),
            &mut count
        ));
        assert_eq!((from[2], to[1], count, data[0].from_port), (null_mut(), call, 2, 0));
        let (mut one, mut two) = ([null_mut(); 1], [null_mut(); 2]);
        count = 2;
        ok!(cuGraphGetRootNodes(graph, two.as_mut_ptr(), &mut count));
        assert_eq!((two, count), ([fill, null_mut()], 1));
        ok!(cuGraphNodeGetDependencies(copy, one.as_mut_ptr(), &mut count));
        assert_eq!((one, count), ([fill], 1));
        count = 2;
        ok!(cuGraphNodeGetDependentNodes(fill, two.as_mut_ptr(), &mut count));
        assert_eq!((two, count), ([copy, call], 2));
        let mut set = CUDA_MEMSET_NODE_PARAMS::default();
        ok!(cuGraphMemsetNodeGetParams(fill, &mut set));
        assert_eq!((set.dst, set.value, set.elementSize), (d, 0x0102_0304, 4));
        assert_eq!((set.width, set.height), (2, 1));
        let mut params = CUDA_MEMCPY3D::default();
        ok!(cuGraphMemcpyNodeGetParams(copy, &mut params));
        assert_eq!((params.srcDevice, params.dstHost, params.WidthInBytes), (d, host.0, 4));
        assert_eq!(params.srcMemoryType, CU_MEMORYTYPE_DEVICE);
        assert_eq!(params.dstMemoryType, CU_MEMORYTYPE_HOST);
        let mut called = CUDA_HOST_NODE_PARAMS::default();
        ok!(cuGraphHostNodeGetParams(call, &mut called));
        assert!(called.fn_.is_some() && called.userData.is_null());
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphHostNodeGetParams(fill, &mut called));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeGetParams(copy, &mut set));
        ok!(cuGraphDestroy(graph));
    });
}

#[test]
fn a_node_depends_on_the_last_one_alone() {
    scene(4, |_, [s], d| {
        let graph = capture(s, || {
            for value in 0..3 {
                ok!(cuMemsetD8Async(d, value, 4, s));
            }
        });
        let mut count = 0;
        ok!(cuGraphGetEdges(graph, null_mut(), null_mut(), &mut count));
        assert_eq!(count, 2);
        ok!(cuGraphDestroy(graph));
    });
}

/// As on an H200, whose driver refuses such a list for an empty graph, too.
#[test]
fn a_list_with_room_for_nothing_is_refused() {
    scene(4, |_, [s], d| {
        let filled = capture(s, || ok!(cuMemsetD8Async(d, 1, 4, s)));
        let (mut node, mut count) = (null_mut(), 1);
        ok!(cuGraphGetNodes(filled, &mut node, &mut count));
        let mut empty = null_mut();
        ok!(cuGraphCreate(&mut empty, 0));
        let (mut list, mut to) = ([null_mut(); 1], [null_mut(); 1]);
        let (list, to) = (list.as_mut_ptr(), to.as_mut_ptr());
        let data = &mut CUgraphEdgeData::default();
        let none = &mut 0;
        let refused = CUDA_ERROR_INVALID_VALUE;
        for graph in [filled, empty] {
            fails!(refused, cuGraphGetNodes(graph, list, none));
            fails!(refused, cuGraphGetRootNodes(graph, list, none));
            fails!(refused, cuGraphGetEdges(graph, list, to, none));
            fails!(refused, cuGraphGetEdges_v2(graph, list, to, data, none));
            fails!(refused, cuGraphGetEdges_v2(graph, list, to, null_mut(), none));
        }
        fails!(refused, cuGraphNodeGetDependencies(node, list, none));
        fails!(refused, cuGraphNodeGetDependencies_v2(node, list, data, none));
        fails!(refused, cuGraphNodeGetDependentNodes(node, list, none));
        fails!(refused, cuGraphNodeGetDependentNodes_v2(node, list, data, none));
        ok!(cuGraphDestroy(empty));
        ok!(cuGraphDestroy(filled));
    });
}
