//! User objects that graphs keep.

use std::ffi::c_uint;

use cuda_sys::*;

use crate::call::{Call, Outcome, put};
use crate::engine::work::HostPtr;
use crate::graph::object::UserObject;
use crate::handle::{Id, pointer};

const MOVE: c_uint = CU_GRAPH_USER_OBJECT_MOVE.0;

entries! {
    cuUserObjectCreate(object, data, destroy, count, flags) |call| {
        let destroy = destroy.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let count = number(count)?;
        if object.is_null() || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC.0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let id = call.new_id();
        let data = HostPtr(data.cast());
        let new = UserObject { destroy, data, own: count, all: count };
        let handle = call.graphs.objects.add(id, new);
        // SAFETY: not null, so the caller passes a place for the object.
        unsafe { put(object, pointer(handle)) }
    }

    cuUserObjectRetain(object, count) |call| {
        let id = find(call, object)?;
        let count = number(count)?;
        call.retain_object(id, count);
        if let Some(object) = call.graphs.objects.get_mut(&id) {
            object.own += count;
        }
        Ok(())
    }

    cuUserObjectRelease(object, count) |call| {
        let id = find(call, object)?;
        let count = number(count)?;
        give_up(call, id, count)?;
        call.release_object(id, count);
        Ok(())
    }

    cuGraphRetainUserObject(graph, object, count, flags) |call| {
        let graph = call.graph(graph)?;
        let id = find(call, object)?;
        let count = number(count)?;
        match flags {
            0 => call.retain_object(id, count),
            MOVE => give_up(call, id, count)?,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        if let Some(graph) = call.graphs.graphs.get_mut(&graph) {
            *graph.objects.entry(id).or_default() += count;
        }
        Ok(())
    }

    cuGraphReleaseUserObject(graph, object, count) |call| {
        let graph = call.graph(graph)?;
        let id = find(call, object)?;
        let count = number(count)?;
        let graph = call.graphs.graphs.get_mut(&graph).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let kept = graph.objects.get_mut(&id).filter(|kept| **kept >= count);
        let kept = kept.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        *kept -= count;
        if *kept == 0 {
            graph.objects.remove(&id);
        }
        call.release_object(id, count);
        Ok(())
    }
}

fn find(call: &mut Call, object: CUuserObject) -> Outcome<Id> {
    let found = call.graphs.objects.resolve(object);
    call.found(found, "user object", object.addr(), |_| CUDA_ERROR_INVALID_VALUE)
}

fn number(count: c_uint) -> Outcome<u64> {
    if (1..=i32::MAX as c_uint).contains(&count) {
        Ok(count.into())
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

/// Takes references from the program, which must have as many.
fn give_up(call: &mut Call, object: Id, count: u64) -> Outcome {
    let object = call.graphs.objects.get_mut(&object).filter(|object| object.own >= count);
    object.ok_or(CUDA_ERROR_INVALID_VALUE)?.own -= count;
    Ok(())
}
