//! Changes of execs.

use std::ffi::c_void;
use std::ptr::null_mut;

use cuda_sim::register_kernel;
use cuda_sys::*;

use super::during::nodes;
use super::*;
use crate::support::*;

/// Updates an exec, and returns the code, the result, and the node that differs.
fn update(exec: CUgraphExec, graph: CUgraph) -> (CUresult, CUgraphExecUpdateResult, CUgraphNode) {
    let mut info = CUgraphExecUpdateResultInfo::default();
    let code = call!(cuGraphExecUpdate_v2(exec, graph, &mut info));
    (code, info.result, info.errorNode)
}

#[test]
fn an_exec_takes_what_an_equal_graph_does() {
    scene(8, |_, [s], d| {
        let fill = |value, bytes| {
            capture(s, || {
                ok!(cuMemsetD8Async(d, value, 8, s));
                ok!(cuMemsetD8Async(d, value + 1, bytes, s));
            })
        };
        let (graph, other) = (fill(1, 4), fill(5, 2));
        let exec = instantiate(graph);
        ok!(cuGraphLaunch(exec, s));
        let success = (CUDA_SUCCESS, CU_GRAPH_EXEC_UPDATE_SUCCESS, null_mut());
        assert_eq!(update(exec, other), success);
        // The launch before the update is unchanged.
        ok!(cuStreamSynchronize(s));
        assert_eq!(read(d, 8), [2, 2, 2, 2, 1, 1, 1, 1]);
        ok!(cuGraphLaunch(exec, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!(read(d, 8), [6, 6, 5, 5, 5, 5, 5, 5]);
        ok!(cuGraphDestroy(other));
        destroy(graph, exec);
    });
}

#[test]
fn an_exec_that_cannot_follow_stays_as_it_was() {
    scene(64, |_, [s, t], d| {
        let host = Pinned::new(&[0; 8]);
        let fills = |body: &dyn Fn()| {
            capture(s, || {
                ok!(cuMemsetD8Async(d, 3, 4, s));
                body();
            })
        };
        let graph = fills(&|| ok!(cuMemcpyDtoDAsync_v2(d + 8, d, 4, s)));
        let exec = instantiate(graph);
        let failed = |other: CUgraph, result, at: Option<usize>| {
            let node = at.map_or(null_mut(), |at| nodes(other)[at]);
            assert_eq!(update(exec, other), (CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, result, node));
            let (mut old, mut error) = (CU_GRAPH_EXEC_UPDATE_SUCCESS, null_mut());
            fails!(
                CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                cuGraphExecUpdate(exec, other, &mut error, &mut old)
            );
            assert_eq!((old, error), (result, node));
            ok!(cuMemsetD8_v2(d, 0, 64));
            ok!(cuStreamSynchronize(null_mut()));
            ok!(cuGraphLaunch(exec, s));
            ok!(cuStreamSynchronize(s));
            assert_eq!(read(d, 12), [3, 3, 3, 3, 0, 0, 0, 0, 3, 3, 3, 3]);
            ok!(cuGraphDestroy(other));
        };
        failed(fills(&|| {}), CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, None);
        failed(
            fills(&|| ok!(cuMemsetD8Async(d, 4, 4, s))),
            CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED,
            Some(1),
        );
        failed(
            fills(&|| ok!(cuMemcpyDtoHAsync_v2(host.0, d, 4, s))),
            CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED,
            Some(1),
        );
        let apart = fork(
            s,
            t,
            || {},
            || ok!(cuMemsetD8Async(d, 3, 4, t)),
            || ok!(cuMemcpyDtoDAsync_v2(d + 16, d + 24, 4, s)),
        );
        failed(apart, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, Some(1));
        destroy(graph, exec);
    });
}

#[test]
fn an_update_names_the_dependency_that_differs() {
    scene(1, |_, [_s], _| {
        let created = |after: usize| {
            let (mut graph, mut nodes) = (null_mut(), [null_mut(); 3]);
            ok!(cuGraphCreate(&mut graph, 0));
            for at in 0..3 {
                let count = usize::from(at == 2);
                let before = nodes[after];
                ok!(cuGraphAddEmptyNode(&mut nodes[at], graph, &before, count));
            }
            (graph, nodes)
        };
        let ((graph, _), (other, nodes)) = (created(0), created(1));
        let (exec, mut info) = (instantiate(graph), CUgraphExecUpdateResultInfo::default());
        fails!(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other, &mut info));
        assert_eq!(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
        assert_eq!((info.errorNode, info.errorFromNode), (nodes[2], nodes[1]));
        ok!(cuGraphDestroy(other));
        destroy(graph, exec);
    });
}

#[test]
fn nodes_of_an_exec_get_other_parameters() {
    register_kernel(
        "graph_set",
        |launch| vec![launch.writes::<u8>(0, 1)],
        |launch, memory| memory.write(launch.address(0), launch.bytes(1)),
    );
    const PTX: &str = ".version 7.0\n.target sm_52\n.address_size 64\n
        .visible .entry graph_set(.param .u64 x, .param .u8 v) { add.u32 %r1, %r1, 1; ret; }\0";
    scene(64, |_, [s], d| {
        let (mut module, mut function) = (null_mut(), null_mut());
        ok!(cuModuleLoadDataEx(&mut module, PTX.as_ptr().cast(), 0, null_mut(), null_mut()));
        ok!(cuModuleGetFunction(&mut function, module, c"graph_set".as_ptr()));
        let (mut to, mut value) = (d, 1_u8);
        let mut parameters: [*mut c_void; 2] = [(&raw mut to).cast(), (&raw mut value).cast()];
        let parameters = parameters.as_mut_ptr();
        CALLS.store(0, std::sync::atomic::Ordering::SeqCst);
        let graph = capture(s, || {
            ok!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, s, parameters, null_mut()));
            ok!(cuMemsetD8Async(d + 8, 2, 4, s));
            ok!(cuMemcpyDtoDAsync_v2(d + 16, d, 1, s));
            ok!(cuLaunchHostFunc(s, Some(count), std::ptr::without_provenance_mut(1)));
        });
        let (exec, context) = (instantiate(graph), current());
        let [kernel, fill, copy, host] = nodes(graph)[..] else { panic!() };
        let run = || {
            ok!(cuMemsetD8_v2(d, 0, 64));
            ok!(cuStreamSynchronize(null_mut()));
            ok!(cuGraphLaunch(exec, s));
            ok!(cuStreamSynchronize(s));
            let back = read(d, 64);
            (back[0], back[8..12].to_vec(), back[16], back[17])
        };
        assert_eq!(run(), (1, vec![2; 4], 1, 0));

        let mut params = CUDA_KERNEL_NODE_PARAMS_v2::default();
        ok!(cuGraphKernelNodeGetParams_v2(kernel, &mut params));
        {
            let mut other = 7_u8;
            let mut parameters: [*mut c_void; 2] = [(&raw mut to).cast(), (&raw mut other).cast()];
            params.kernelParams = parameters.as_mut_ptr();
            ok!(cuGraphExecKernelNodeSetParams_v2(exec, kernel, &params));
        }
        assert_eq!(run().0, 7);
        params.kernelParams = parameters;
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams_v2(exec, fill, &params));

        let mut set = CUDA_MEMSET_NODE_PARAMS::default();
        ok!(cuGraphMemsetNodeGetParams(fill, &mut set));
        (set.value, set.elementSize, set.width) = (0x0504, 2, 1);
        ok!(cuGraphExecMemsetNodeSetParams(exec, fill, &set, context));
        assert_eq!(run().1, [4, 5, 0, 0]);
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemsetNodeSetParams(exec, copy, &set, context));
        (set.height, set.pitch) = (2, 16);
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemsetNodeSetParams(exec, fill, &set, context));

        let mut moved = CUDA_MEMCPY3D::default();
        ok!(cuGraphMemcpyNodeGetParams(copy, &mut moved));
        moved.dstDevice += 1;
        ok!(cuGraphExecMemcpyNodeSetParams(exec, copy, &moved, context));
        assert_eq!(run(), (7, vec![4, 5, 0, 0], 0, 7));
        let rows = CUDA_MEMCPY3D { Height: 2, srcHeight: 2, dstHeight: 2, ..moved };
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGraphExecMemcpyNodeSetParams(exec, copy, &rows, context)
        );
        moved.dstMemoryType = CU_MEMORYTYPE_HOST;
        let pinned = Pinned::new(&[0; 8]);
        moved.dstHost = pinned.0;
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGraphExecMemcpyNodeSetParams(exec, copy, &moved, context)
        );

        let calls = CALLS.load(std::sync::atomic::Ordering::SeqCst);
        let data = std::ptr::without_provenance_mut(100);
        let params = CUDA_HOST_NODE_PARAMS { fn_: Some(count), userData: data };
        ok!(cuGraphExecHostNodeSetParams(exec, host, &params));
        run();
        assert_eq!(CALLS.load(std::sync::atomic::Ordering::SeqCst), calls + 100);
        destroy(graph, exec);
        ok!(cuModuleUnload(module));
    });
}

#[test]
fn a_node_is_left_out() {
    scene(8, |_, [s], d| {
        let graph = capture(s, || {
            ok!(cuMemsetD8Async(d, 1, 8, s));
            ok!(cuMemsetD8Async(d, 2, 4, s));
            ok!(cuLaunchHostFunc(s, Some(count), null_mut()));
        });
        let exec = instantiate(graph);
        let [_, second, host] = nodes(graph)[..] else { panic!() };
        let enabled = || {
            let mut enabled = 9;
            ok!(cuGraphNodeGetEnabled(exec, second, &mut enabled));
            enabled
        };
        for (set, expected) in [(0, 1), (1, 2)] {
            ok!(cuGraphNodeSetEnabled(exec, second, set));
            assert_eq!(enabled(), set);
            ok!(cuGraphLaunch(exec, s));
            ok!(cuStreamSynchronize(s));
            assert_eq!(read(d, 1), [expected]);
        }
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(exec, host, 0));
        let other = capture(s, || ok!(cuMemsetD8Async(d, 1, 8, s)));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(exec, nodes(other)[0], 0));
        ok!(cuGraphDestroy(other));
        destroy(graph, exec);
    });
}
