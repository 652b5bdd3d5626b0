//! Reads the parameters of nodes.

use cuda_sys::*;

use super::task;
use crate::call::{Call, Outcome, put};
use crate::engine::work::{HostPtr, Work};
use crate::graph::node::{KernelLaunch, NodeKind};
use crate::handle::{Id, pointer};

entries! {
    cuGraphNodeGetType(node, kind) |call| {
        let id = call.node(node)?;
        // SAFETY: the caller passes a place for the kind.
        unsafe { put(kind, call.graphs.nodes[&id].task.kind.to_raw()) }
    }

    cuGraphKernelNodeGetParams_v2(node, params) |call| {
        let found = kernel_params(call, node)?;
        // SAFETY: the caller passes a place for the parameters.
        unsafe { put(params, found) }
    }

    cuGraphKernelNodeGetParams(node, params) |call| {
        let found = kernel_params(call, node)?;
        let found = CUDA_KERNEL_NODE_PARAMS_v1 {
            func: found.func,
            gridDimX: found.gridDimX,
            gridDimY: found.gridDimY,
            gridDimZ: found.gridDimZ,
            blockDimX: found.blockDimX,
            blockDimY: found.blockDimY,
            blockDimZ: found.blockDimZ,
            sharedMemBytes: found.sharedMemBytes,
            kernelParams: found.kernelParams,
            extra: found.extra,
        };
        // SAFETY: the caller passes a place for the parameters.
        unsafe { put(params, found) }
    }

    cuGraphKernelNodeGetAttribute(node, attribute, value) |call| {
        let id = call.node(node)?;
        let attributes = task::attributes(&call.graphs.nodes[&id].task)?;
        if attribute != CU_LAUNCH_ATTRIBUTE_PRIORITY {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        // SAFETY: the caller passes a place for the value of any attribute.
        unsafe { put(value.cast(), attributes.priority.unwrap_or(0)) }
    }

    cuGraphMemcpyNodeGetParams(node, params) |call| {
        let id = call.node(node)?;
        let NodeKind::Memcpy(copy) = &call.graphs.nodes[&id].task.kind else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        // SAFETY: the caller passes a place for the parameters.
        unsafe { put(params, copy.copy) }
    }

    cuGraphMemsetNodeGetParams(node, params) |call| {
        let id = call.node(node)?;
        let NodeKind::Memset(fill) = call.graphs.nodes[&id].task.kind else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        // SAFETY: the caller passes a place for the parameters.
        unsafe { put(params, fill) }
    }

    cuGraphHostNodeGetParams(node, params) |call| {
        let id = call.node(node)?;
        let Work::Call { function, data } = call.graphs.nodes[&id].task.work else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let found = CUDA_HOST_NODE_PARAMS { fn_: Some(function), userData: data.0.cast() };
        // SAFETY: the caller passes a place for the parameters.
        unsafe { put(params, found) }
    }

    cuGraphEventRecordNodeGetEvent(node, event) |call| {
        let id = call.node(node)?;
        let NodeKind::Record(found) = call.graphs.nodes[&id].task.kind else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        // SAFETY: the caller passes a place for the event.
        unsafe { put_event(call, event, found) }
    }

    cuGraphEventWaitNodeGetEvent(node, event) |call| {
        let id = call.node(node)?;
        let NodeKind::Wait(found) = call.graphs.nodes[&id].task.kind else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        // SAFETY: the caller passes a place for the event.
        unsafe { put_event(call, event, found) }
    }
}

/// # Safety
/// `to` is null or valid for a write.
unsafe fn put_event(call: &Call, to: *mut CUevent, event: Id) -> Outcome {
    let handle = call.events.get(&event).map_or(0, |event| event.handle);
    // SAFETY: this function's contract.
    unsafe { put(to, pointer(handle)) }
}

/// Returns the parameters of a kernel node. The array of pointers and the values belong to the node.
fn kernel_params(call: &mut Call, node: CUgraphNode) -> Outcome<CUDA_KERNEL_NODE_PARAMS_v2> {
    let id = call.node(node)?;
    let node = call.graphs.nodes.get_mut(&id).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let NodeKind::Kernel(KernelLaunch { function, arguments, pointers, .. }) = &mut node.task.kind
    else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    *pointers = arguments.parameters.iter_mut().map(|bytes| HostPtr(bytes.as_mut_ptr())).collect();
    let ([grid_x, grid_y, grid_z], [x, y, z]) = (arguments.grid, arguments.block);
    let (function, shared) = (*function, arguments.shared);
    let pointers = pointers.as_mut_ptr().cast();
    let function = call.functions.get(&function).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let context = call.modules.get(&function.module).map(|module| module.context);
    let context = context.and_then(|id| call.contexts.get(&id));
    Ok(CUDA_KERNEL_NODE_PARAMS_v2 {
        func: pointer(function.handle),
        gridDimX: grid_x,
        gridDimY: grid_y,
        gridDimZ: grid_z,
        blockDimX: x,
        blockDimY: y,
        blockDimZ: z,
        sharedMemBytes: shared,
        kernelParams: pointers,
        ctx: pointer(context.map_or(0, |context| context.handle)),
        ..Default::default()
    })
}
