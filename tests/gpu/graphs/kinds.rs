//! Nodes whose parameters name their kind, added by raw calls, which a device and the simulated driver must
//! treat alike.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_core::{EventFlags, Graph, Result};
use cuda_sys::{
    CU_GRAPH_NODE_TYPE_EMPTY, CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_GRAPH,
    CU_GRAPH_NODE_TYPE_HOST, CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY,
    CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_MEMORYTYPE_DEVICE,
    CUDA_ERROR_INVALID_VALUE, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS_v2, CUDA_SUCCESS, CUgraph,
    CUgraphNode, CUgraphNodeParams, CUgraphNodeParams_st__bindgen_ty_1, CUgraphNodeType, CUresult,
    cuGraphAddNode_v2, cuGraphCreate,
};
use support::{gpu_test, kernels, one_stream};

use crate::stack;

type Members = CUgraphNodeParams_st__bindgen_ty_1;

/// Adds a node after another.
fn add(
    graph: CUgraph,
    after: Option<CUgraphNode>,
    kind: CUgraphNodeType,
    set: impl FnOnce(&mut Members),
) -> Result<CUgraphNode, CUresult> {
    let mut params = CUgraphNodeParams { type_: kind, ..Default::default() };
    set(&mut params.__bindgen_anon_1);
    let (mut node, dependencies) = (ptr::null_mut(), after.as_slice());
    let (first, count) = (dependencies.as_ptr(), dependencies.len());
    // SAFETY: the graph is live, and only this thread uses it. The dependencies and the parameters live
    // during the call, which copies them, and writes one handle to a local.
    match unsafe { cuGraphAddNode_v2(&mut node, graph, first, ptr::null(), count, &mut params) } {
        CUDA_SUCCESS => Ok(node),
        code => Err(code),
    }
}

fn created() -> CUgraph {
    let mut graph = ptr::null_mut();
    // SAFETY: the call writes one handle, to a local that outlives it.
    support::check("cuGraphCreate", unsafe { cuGraphCreate(&mut graph, 0) });
    graph
}

static CALLS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn called(_: *mut c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_nodes_of_each_kind_by_one_raw_call() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "add_one")?;
        let x = stream.alloc_zeroed::<u32>(100)?;
        let y = stream.alloc_zeroed::<u32>(100)?;
        let event = cuda_core::Event::new(&context, EventFlags::DISABLE_TIMING)?;
        let fill = |value: u32| CUDA_MEMSET_NODE_PARAMS_v2 {
            dst: x.as_raw(),
            value,
            elementSize: 4,
            width: 100,
            height: 1,
            ctx: context.as_raw(),
            ..Default::default()
        };
        let graph = stack::with(context.as_raw(), || -> Result<CUgraph, CUresult> {
            let inner = created();
            add(inner, None, CU_GRAPH_NODE_TYPE_MEMSET, |it| it.memset = fill(6))?;
            let graph = created();
            let start = add(graph, None, CU_GRAPH_NODE_TYPE_EMPTY, |_| {})?;
            let waits = |it: &mut Members| it.eventWait.event = event.as_raw();
            let wait = add(graph, Some(start), CU_GRAPH_NODE_TYPE_WAIT_EVENT, waits)?;
            let within = |it: &mut Members| it.graph.graph = inner;
            let child = add(graph, Some(wait), CU_GRAPH_NODE_TYPE_GRAPH, within)?;
            let (mut address, mut count) = (x.as_raw(), 100_u32);
            let mut parameters: [*mut c_void; 2] =
                [(&raw mut address).cast(), (&raw mut count).cast()];
            let kernel = add(graph, Some(child), CU_GRAPH_NODE_TYPE_KERNEL, |it| {
                it.kernel.func = function.as_raw();
                it.kernel.kernelParams = parameters.as_mut_ptr();
                (it.kernel.gridDimX, it.kernel.gridDimY, it.kernel.gridDimZ) = (1, 1, 1);
                (it.kernel.blockDimX, it.kernel.blockDimY, it.kernel.blockDimZ) = (256, 1, 1);
            })?;
            let copy = CUDA_MEMCPY3D {
                srcMemoryType: CU_MEMORYTYPE_DEVICE,
                srcDevice: x.as_raw(),
                srcPitch: 400,
                dstMemoryType: CU_MEMORYTYPE_DEVICE,
                dstDevice: y.as_raw(),
                dstPitch: 400,
                WidthInBytes: 400,
                Height: 1,
                Depth: 1,
                ..Default::default()
            };
            let copied = add(graph, Some(kernel), CU_GRAPH_NODE_TYPE_MEMCPY, |it| {
                it.memcpy.copyCtx = context.as_raw();
                it.memcpy.copyParams = copy;
            })?;
            let host = add(graph, Some(copied), CU_GRAPH_NODE_TYPE_HOST, |it| it.host.fn_ = Some(called))?;
            let records = |it: &mut Members| it.eventRecord.event = event.as_raw();
            add(graph, Some(host), CU_GRAPH_NODE_TYPE_EVENT_RECORD, records)?;
            // The words beyond a kind's parameters must be zero.
            for (kind, word) in [
                (CU_GRAPH_NODE_TYPE_EMPTY, 0),
                (CU_GRAPH_NODE_TYPE_EMPTY, 28),
                (CU_GRAPH_NODE_TYPE_MEMSET, 28),
                (CU_GRAPH_NODE_TYPE_EVENT_RECORD, 28),
            ] {
                let dirty = |it: &mut Members| {
                    match kind {
                        CU_GRAPH_NODE_TYPE_MEMSET => it.memset = fill(1),
                        CU_GRAPH_NODE_TYPE_EVENT_RECORD => it.eventRecord.event = event.as_raw(),
                        _ => {}
                    }
                    // SAFETY: `reserved1` covers all other members.
                    unsafe { it.reserved1[word] = 1 };
                };
                let refused = add(graph, None, kind, dirty);
                assert_eq!(refused.unwrap_err(), CUDA_ERROR_INVALID_VALUE, "{kind:?}, word {word}");
            }
            // SAFETY: the graph was made above, and the outer graph has a copy.
            support::check("cuGraphDestroy", unsafe { cuda_sys::cuGraphDestroy(inner) });
            Ok(graph)
        });
        let graph = graph.expect("all nodes were added");
        // SAFETY: the graph was made above, and is not used elsewhere; memory, function and event outlive its
        // launch.
        let graph = unsafe { Graph::from_raw(graph, &context, ()) }?;
        assert_eq!(graph.node_count()?, 7);
        event.record(&stream)?;
        CALLS.store(0, Ordering::SeqCst);
        graph.instantiate()?.launch(&stream)?;
        stream.synchronize()?;
        assert_eq!(stream.download_vec(&y)?, [7; 100]);
        assert_eq!(CALLS.load(Ordering::SeqCst), 1);
        assert!(event.query()?);
        Ok(())
    }
}
