//! Converts the parameters of a node to its task.

use cuda_sys::*;

use super::refuse_memory;
use crate::call::{Call, Outcome};
use crate::engine::kernel::LaunchAttributes;
use crate::engine::work::{HostPtr, Work};
use crate::entry::copy_2d;
use crate::entry::{fill, launch};
use crate::graph::GraphOwner;
use crate::graph::node::{CopyParams, NodeKind, Task};
use crate::handle::Id;

/// # Safety
/// `params` is null or describes a kernel with one pointer per parameter.
pub(super) unsafe fn kernel(
    call: &mut Call,
    params: *const CUDA_KERNEL_NODE_PARAMS_v2,
    attributes: LaunchAttributes,
) -> Outcome<Task> {
    // SAFETY: this function's contract.
    let params = unsafe { params.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if !params.extra.is_null() {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let function = call.function(params.func)?;
    let shape = launch::Shape {
        grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
        block: [params.blockDimX, params.blockDimY, params.blockDimZ],
        shared: params.sharedMemBytes,
        stream: std::ptr::null_mut(),
        attributes,
    };
    // SAFETY: this function's contract.
    unsafe { launch::task(call, &shape, function, params.kernelParams) }
}

/// Returns a kernel's attributes, which no parameters change.
pub(super) fn attributes(task: &Task) -> Outcome<LaunchAttributes> {
    match &task.kind {
        NodeKind::Kernel(kernel) => Ok(kernel.arguments.attributes),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Converts the parameters of a kernel from the first version.
///
/// # Safety
/// `params` is null or valid for a read.
pub(super) unsafe fn widen(
    params: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Outcome<CUDA_KERNEL_NODE_PARAMS_v2> {
    // SAFETY: this function's contract.
    let params = unsafe { params.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok(CUDA_KERNEL_NODE_PARAMS_v2 {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
        ..Default::default()
    })
}

/// Returns a copy in `context`, or in the node's context if `None`.
///
/// # Safety
/// `params` is null or describes a copy. Pageable memory that it names stays for each launch.
pub(super) unsafe fn copy(
    call: &mut Call,
    params: *const CUDA_MEMCPY3D,
    context: Option<CUcontext>,
) -> Outcome<Task> {
    // SAFETY: this function's contract.
    let params = unsafe { params.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if let Some(context) = context {
        call.context(context)?;
    }
    if [params.WidthInBytes, params.Height, params.Depth].contains(&0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let rows = copy_2d::plan(call, params, None, None)?;
    let mut copy = CopyParams::new(call, *params);
    copy.without_context &= context.is_none();
    let kind = NodeKind::Memcpy(copy);
    let (work, accesses) = (Work::Each(rows.works), rows.accesses);
    Ok(Task { call: call.name, kind, work, accesses })
}

/// Returns a fill on the device of a context, or of the memory if `None`.
///
/// # Safety
/// `params` is null or valid for a read.
pub(super) unsafe fn fill(
    call: &mut Call,
    params: *const CUDA_MEMSET_NODE_PARAMS,
    context: Option<CUcontext>,
) -> Outcome<Task> {
    // SAFETY: this function's contract.
    let params = unsafe { params.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let device = match context {
        Some(context) => {
            let context = call.context(context)?;
            call.contexts[&context].device
        }
        None => call.space.find(params.dst).map_or(0, |block| call.space.blocks[&block].device),
    };
    let size = params.elementSize as usize;
    let row = params.width.checked_mul(size).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if ![1, 2, 4].contains(&size)
        || row == 0
        || params.height == 0
        || params.dst % size as u64 != 0
        || params.height > 1 && params.pitch < row
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (works, accesses) = fill::plan(call, params, device)?;
    let (kind, work) = (NodeKind::Memset(*params), Work::Each(works));
    Ok(Task { call: call.name, kind, work, accesses })
}

/// # Safety
/// `params` is null or names a function that can be called at each launch.
pub(super) unsafe fn host(call: &Call, params: *const CUDA_HOST_NODE_PARAMS) -> Outcome<Task> {
    // SAFETY: this function's contract.
    let params = unsafe { params.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let function = params.fn_.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let work = Work::Call { function, data: HostPtr(params.userData.cast()) };
    Ok(of_kind(call.name, NodeKind::Host, work))
}

/// Returns a task with a copy of another graph as it is now.
pub(super) fn child(call: &mut Call, of: Id, child: CUgraph) -> Outcome<Task> {
    let child = call.graph(child)?;
    if child == of {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    refuse_memory(call, child)?;
    call.refuse_conditions(child)?;
    let name = call.name;
    let child = call.clone_graph(child, GraphOwner::Node, name);
    Ok(of_kind(name, NodeKind::Child(child), Work::Nothing))
}

pub(super) fn record(call: &mut Call, event: CUevent) -> Outcome<Task> {
    let event = call.event(event)?;
    Ok(of_kind(call.name, NodeKind::Record(event), Work::Record { event }))
}

pub(super) fn wait(call: &mut Call, event: CUevent) -> Outcome<Task> {
    let event = call.event(event)?;
    Ok(of_kind(call.name, NodeKind::Wait(event), Work::Nothing))
}

/// Returns a task that touches no memory.
pub(super) fn of_kind(call: &'static str, kind: NodeKind, work: Work) -> Task {
    Task { call, kind, work, accesses: Vec::new() }
}
