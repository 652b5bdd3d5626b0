//! Nodes whose parameters name their kind.

use std::ptr;
use std::sync::atomic::Ordering;

use cuda_sys::*;

use super::build::{New, needs_context};
use super::task;
use crate::call::{Call, Outcome};
use crate::engine::kernel::LaunchAttributes;
use crate::engine::work::Work;
use crate::graph::node::{NodeKind, Task};
use crate::handle::Id;

/// Adds a node of any kind except allocations and frees, which only captures make, and semaphores, values and
/// batches of copies, for which the simulator has no nodes.
///
/// # Safety
/// `params` is null, or valid for the function that adds a node of its kind.
pub(super) unsafe fn add(call: &mut Call, to: New, params: *mut CUgraphNodeParams) -> Outcome {
    // SAFETY: this function's contract.
    let params = unsafe { params.as_mut() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let kind = params.type_;
    let params = &mut params.__bindgen_anon_1;
    let used = match kind {
        CU_GRAPH_NODE_TYPE_EMPTY => 0,
        CU_GRAPH_NODE_TYPE_KERNEL => size_of::<CUDA_KERNEL_NODE_PARAMS_v3>(),
        CU_GRAPH_NODE_TYPE_MEMCPY => size_of::<CUDA_MEMCPY_NODE_PARAMS>(),
        CU_GRAPH_NODE_TYPE_MEMSET => size_of::<CUDA_MEMSET_NODE_PARAMS_v2>(),
        CU_GRAPH_NODE_TYPE_HOST => size_of::<CUDA_HOST_NODE_PARAMS_v2>(),
        CU_GRAPH_NODE_TYPE_GRAPH => size_of::<CUDA_CHILD_GRAPH_NODE_PARAMS>(),
        CU_GRAPH_NODE_TYPE_EVENT_RECORD => size_of::<CUDA_EVENT_RECORD_NODE_PARAMS>(),
        CU_GRAPH_NODE_TYPE_WAIT_EVENT => size_of::<CUDA_EVENT_WAIT_NODE_PARAMS>(),
        CU_GRAPH_NODE_TYPE_CONDITIONAL => size_of::<CUDA_CONDITIONAL_NODE_PARAMS>(),
        _ => return Err(CUDA_ERROR_NOT_SUPPORTED),
    };
    // SAFETY: `reserved1` covers all other members.
    let words = unsafe { params.reserved1 };
    // An H200 with driver 580 refuses non-zero words, too.
    if words[used / size_of_val(&words[0])..].iter().any(|word| *word != 0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let task = match kind {
        CU_GRAPH_NODE_TYPE_KERNEL => {
            needs_context(call)?;
            // SAFETY: the type selects this member.
            let kernel = ptr::from_ref(unsafe { &params.kernel });
            // Has the layout of the second version.
            let kernel = kernel.cast::<CUDA_KERNEL_NODE_PARAMS_v2>();
            // SAFETY: the type selects this member; this function's contract.
            unsafe { task::kernel(call, kernel, LaunchAttributes::default()) }?
        }
        CU_GRAPH_NODE_TYPE_MEMCPY => {
            // SAFETY: the type selects this member.
            let copy = unsafe { &params.memcpy };
            // SAFETY: this function's contract.
            unsafe { task::copy(call, &copy.copyParams, Some(copy.copyCtx)) }?
        }
        CU_GRAPH_NODE_TYPE_MEMSET => {
            // SAFETY: the type selects this member.
            let fill = unsafe { params.memset };
            let CUDA_MEMSET_NODE_PARAMS_v2 { dst, pitch, value, elementSize, width, height, ctx } =
                fill;
            let fill = CUDA_MEMSET_NODE_PARAMS { dst, pitch, value, elementSize, width, height };
            // SAFETY: this function's contract.
            unsafe { task::fill(call, &fill, Some(ctx)) }?
        }
        CU_GRAPH_NODE_TYPE_HOST => {
            // SAFETY: the type selects this member.
            let CUDA_HOST_NODE_PARAMS_v2 { fn_, userData, .. } = unsafe { params.host };
            // SAFETY: this function's contract.
            unsafe { task::host(call, &CUDA_HOST_NODE_PARAMS { fn_, userData }) }?
        }
        CU_GRAPH_NODE_TYPE_GRAPH => {
            // SAFETY: the type selects this member.
            let child = unsafe { params.graph };
            if child.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
            task::child(call, to.graph, child.graph)?
        }
        CU_GRAPH_NODE_TYPE_EVENT_RECORD => {
            // SAFETY: the type selects this member.
            task::record(call, unsafe { params.eventRecord.event })?
        }
        CU_GRAPH_NODE_TYPE_WAIT_EVENT => {
            // SAFETY: the type selects this member.
            task::wait(call, unsafe { params.eventWait.event })?
        }
        CU_GRAPH_NODE_TYPE_CONDITIONAL => {
            // SAFETY: the type selects this member.
            conditional(call, to.graph, unsafe { &mut params.conditional })?
        }
        _ => Task::nothing(),
    };
    to.add(call, task)
}

fn conditional(
    call: &mut Call,
    graph: Id,
    params: &mut CUDA_CONDITIONAL_NODE_PARAMS,
) -> Outcome<Task> {
    needs_context(call)?;
    let context = call.context_or_current(params.ctx)?;
    let outermost = call.outermost(graph);
    let condition = call.graphs.graphs[&outermost].condition(params.handle).cloned();
    let condition = condition.filter(|condition| condition.context == context);
    let most = match params.type_ {
        CU_GRAPH_COND_TYPE_WHILE => 1,
        CU_GRAPH_COND_TYPE_IF => 2,
        CU_GRAPH_COND_TYPE_SWITCH => u32::MAX,
        _ => 0,
    };
    let condition = condition.filter(|_| params.size > 0 && params.size <= most);
    let condition = condition.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    // At most one node may use a condition.
    if condition.used.swap(true, Ordering::Relaxed) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let name = call.name;
    let node = call.new_conditional(name, graph, condition, (params.type_, params.size));
    params.phGraph_out = node.shown.as_ptr().cast_mut().cast();
    Ok(task::of_kind(name, NodeKind::Conditional(node), Work::Nothing))
}
