//! Conditional nodes, as an H200 with driver 580 treats them.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Once;

use cuda_sim::{ViolationKind, register_kernel};
use cuda_sys::*;

use super::*;
use crate::support::*;

const RELAXED: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_RELAXED;

const PTX: &str = ".version 7.0\n.target sm_52\n.address_size 64\n
    .visible .entry sim_count_down(.param .u64 x, .param .u64 condition) { ret; }
    .visible .entry sim_panic() { ret; }\0";

/// `sim_count_down(u8 *x, condition)` subtracts one from `x[0]`, and sets the condition to the rest.
fn kernel() -> (CUmodule, CUfunction) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        register_kernel(
            "sim_count_down",
            |launch| vec![launch.writes::<u8>(0, 1)],
            |launch, memory| {
                let mut left = 0;
                memory.slice_mut(launch.address(0), |x: &mut [u8]| {
                    x[0] -= 1;
                    left = x[0].into();
                })?;
                memory.set_condition(launch.value(1), left);
                Ok(())
            },
        );
    });
    let (mut module, mut function) = (null_mut(), null_mut());
    ok!(cuModuleLoadDataEx(&mut module, PTX.as_ptr().cast(), 0, null_mut(), null_mut()));
    ok!(cuModuleGetFunction(&mut function, module, c"sim_count_down".as_ptr()));
    (module, function)
}

fn count_down(function: CUfunction, stream: CUstream, mut x: CUdeviceptr, mut condition: u64) {
    let mut parameters: [*mut c_void; 2] = [(&raw mut x).cast(), (&raw mut condition).cast()];
    let parameters = parameters.as_mut_ptr();
    ok!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, null_mut()));
}

fn graph() -> CUgraph {
    let mut graph = null_mut();
    ok!(cuGraphCreate(&mut graph, 0));
    graph
}

fn condition(graph: CUgraph, initial: u32) -> u64 {
    let (mut handle, flags) = (0, CU_GRAPH_COND_ASSIGN_DEFAULT);
    ok!(cuGraphConditionalHandleCreate(&mut handle, graph, current(), initial, flags));
    handle
}

/// Adds a node, if the driver accepts it, and returns the node and its first body.
fn add(
    graph: CUgraph,
    handle: u64,
    kind: CUgraphConditionalNodeType,
    size: u32,
) -> Result<(CUgraphNode, CUgraph), CUresult> {
    let conditional = CUDA_CONDITIONAL_NODE_PARAMS {
        handle,
        type_: kind,
        size,
        ctx: current(),
        ..Default::default()
    };
    let mut params =
        CUgraphNodeParams { type_: CU_GRAPH_NODE_TYPE_CONDITIONAL, ..Default::default() };
    params.__bindgen_anon_1.conditional = conditional;
    let mut node = null_mut();
    match call!(cuGraphAddNode_v2(&mut node, graph, null(), null(), 0, &mut params)) {
        CUDA_SUCCESS => {
            // SAFETY: this is the member that was set.
            let bodies = unsafe { params.__bindgen_anon_1.conditional.phGraph_out };
            // SAFETY: the driver's list has `size` graphs, which live as long as the node.
            Ok((node, unsafe { *bodies }))
        }
        failed => Err(failed),
    }
}

/// Captures `work` into a body.
fn fill_body(stream: CUstream, body: CUgraph, work: impl FnOnce()) {
    let mut ended = null_mut();
    ok!(cuStreamBeginCaptureToGraph(stream, body, null(), null(), 0, RELAXED));
    work();
    ok!(cuStreamEndCapture(stream, &mut ended));
    assert_eq!(ended, body);
}

fn run(graph: CUgraph, stream: CUstream) {
    let exec = instantiate(graph);
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    ok!(cuGraphExecDestroy(exec));
}

#[test]
fn a_loop_runs_late_until_its_condition_is_zero() {
    scene(8, |session, [s], d| {
        let (module, function) = kernel();
        let g = graph();
        let handle = condition(g, 1);
        let (node, body) = add(g, handle, CU_GRAPH_COND_TYPE_WHILE, 1).expect("it is added");
        fill_body(s, body, || {
            ok!(cuMemcpyDtoDAsync_v2(d + 4, d, 1, s));
            count_down(function, s, d, handle);
        });
        let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
        ok!(cuGraphNodeGetType(node, &mut kind));
        assert_eq!(kind, CU_GRAPH_NODE_TYPE_CONDITIONAL);
        let exec = instantiate(g);
        for _ in 0..2 {
            ok!(cuMemsetD8_v2(d, 4, 8));
            ok!(cuStreamSynchronize(null_mut()));
            ok!(cuGraphLaunch(exec, s));
            assert_eq!(session.pending_ops(), 1);
            ok!(cuStreamSynchronize(s));
            assert_eq!(read(d, 8), [0, 4, 4, 4, 1, 4, 4, 4]);
        }
        assert_eq!(violations(session), []);
        // As measured on an H200.
        fails!(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&mut null_mut(), g));
        let other = graph();
        fails!(
            CUDA_ERROR_NOT_SUPPORTED,
            cuGraphAddChildGraphNode(&mut null_mut(), other, null(), 0, g)
        );
        fails!(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiateWithFlags(&mut null_mut(), g, 0));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(body));
        ok!(cuGraphDestroy(other));
        destroy(g, exec);
        ok!(cuModuleUnload(module));
    });
}

#[test]
fn a_loop_ends_with_the_first_kernel_that_panics() {
    register_kernel("sim_panic", |_| Vec::new(), |_, _| panic!("on purpose"));
    let session = begin();
    let (mut context, mut function, none) = (null_mut(), null_mut(), null_mut());
    ok!(cuCtxCreate_v2(&mut context, 0, 0));
    let (s, (module, _)) = (stream(), kernel());
    ok!(cuModuleGetFunction(&mut function, module, c"sim_panic".as_ptr()));
    let g = graph();
    let handle = condition(g, 1);
    let (_, body) = add(g, handle, CU_GRAPH_COND_TYPE_WHILE, 1).expect("it is added");
    fill_body(s, body, || {
        ok!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, s, null_mut(), none));
    });
    ok!(cuGraphLaunch(instantiate(g), s));
    fails!(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(s));
    assert_eq!(violations(&session), [ViolationKind::KernelPanic]);
    call!(cuCtxDestroy_v2(context));
}

#[test]
fn conditions_are_refused_as_measured() {
    scene(4, |session, [s], _| {
        let (g, other) = (graph(), graph());
        let (handle, far) = (condition(g, 1), condition(other, 0));
        let refused = |graph, handle, kind, size| add(graph, handle, kind, size).err();
        let invalid = Some(CUDA_ERROR_INVALID_VALUE);
        assert_eq!(refused(g, far, CU_GRAPH_COND_TYPE_IF, 1), invalid, "of another graph");
        assert_eq!(refused(g, handle, CU_GRAPH_COND_TYPE_WHILE, 2), invalid);
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&mut null_mut(), g, 0));
        let (_, body) = add(g, handle, CU_GRAPH_COND_TYPE_IF, 1).expect("it is added");
        assert_eq!(refused(g, handle, CU_GRAPH_COND_TYPE_IF, 1), invalid, "it has a node");
        // A node in a body can use a condition of the outer graph.
        let inner = condition(g, 1);
        add(body, inner, CU_GRAPH_COND_TYPE_IF, 2).expect("it is added");
        run(g, s);
        fill_body(s, body, || ok!(cuLaunchHostFunc(s, Some(count), null_mut())));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&mut null_mut(), g, 0));
        assert_eq!(violations(session), []);
        ok!(cuGraphDestroy(g));
        ok!(cuGraphDestroy(other));
    });
}

#[test]
fn misuse_of_conditions_is_reported() {
    scene(8, |session, [s, t], d| {
        let (module, function) = kernel();
        let g = graph();
        let handle = condition(g, 1);
        ok!(cuMemsetD8_v2(d, 2, 8));
        ok!(cuStreamSynchronize(null_mut()));
        // The condition's graph is not running.
        count_down(function, s, d, handle);
        ok!(cuStreamSynchronize(s));
        assert_eq!(violations(session), [ViolationKind::DanglingHandle]);
        // Two nodes of a body are not ordered.
        let (_, body) = add(g, handle, CU_GRAPH_COND_TYPE_IF, 1).expect("it is added");
        fill_body(s, body, || ok!(cuMemsetD8Async(d, 1, 4, s)));
        fill_body(s, body, || ok!(cuMemsetD8Async(d, 2, 4, s)));
        run(g, s);
        assert_eq!(violations(session), [ViolationKind::Race]);
        // Memory that the body accesses counts as accessed by the launch.
        let exec = instantiate(g);
        ok!(cuMemsetD8Async(d, 3, 4, t));
        ok!(cuGraphLaunch(exec, s));
        assert!(violations(session).contains(&ViolationKind::Race));
        ok!(cuCtxSynchronize());
        // Nothing ends this loop.
        let endless = graph();
        let handle = condition(endless, 1);
        add(endless, handle, CU_GRAPH_COND_TYPE_WHILE, 1).expect("it is added");
        run(endless, s);
        assert_eq!(violations(session).last(), Some(&ViolationKind::EndlessLoop));
        ok!(cuGraphDestroy(endless));
        destroy(g, exec);
        ok!(cuModuleUnload(module));
    });
}

#[test]
fn an_exec_is_destroyed_after_its_launches() {
    scene(8, |session, [s], d| {
        let g = graph();
        let handle = condition(g, 1);
        let (_, body) = add(g, handle, CU_GRAPH_COND_TYPE_IF, 1).expect("it is added");
        fill_body(s, body, || ok!(cuMemsetD8Async(d, 7, 8, s)));
        let exec = instantiate(g);
        ok!(cuGraphLaunch(exec, s));
        assert_eq!(session.pending_ops(), 1);
        ok!(cuGraphExecDestroy(exec));
        assert_eq!(session.pending_ops(), 0);
        ok!(cuStreamSynchronize(s));
        assert_eq!(read(d, 8), [7; 8]);
        ok!(cuGraphDestroy(g));
    });
}
