//! Contexts: creation, the thread's context stack, limits.

use std::ffi::c_uint;

use cuda_sys::*;

use crate::call::{Call, Outcome, put, put_if};
use crate::context::{ContextKind, Entry};
use crate::handle::pointer;
use crate::thread;

entries! {
    cuCtxCreate_v2(context, flags, dev) |call| {
        // SAFETY: the caller passes a place for the context.
        unsafe { create(call, context, flags, dev) }
    }

    cuCtxCreate_v4(context, _params, flags, dev) |call| {
        // SAFETY: the caller passes a place for the context.
        unsafe { create(call, context, flags, dev) }
    }

    cuCtxDestroy_v2(context) |call| {
        let id = call.context(context)?;
        if call.contexts[&id].kind != ContextKind::Created {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        call.synchronize_context(id);
        let stack = call.stacks.row(thread::number());
        if stack.last().is_some_and(|entry| entry.context == id) {
            stack.pop();
        }
        let name = call.name;
        call.destroy_context(id, name);
        Ok(())
    }

    cuCtxPushCurrent_v2(context) |call| {
        let entry = entry(call, context)?;
        call.stacks.row(thread::number()).push(entry);
        Ok(())
    }

    cuCtxPopCurrent_v2(context) |call| {
        let stack = call.stacks.row(thread::number());
        let entry = stack.pop().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if context.is_null() {
            return Ok(());
        }
        // SAFETY: not null, so the caller passes a place for the context.
        unsafe { put(context, pointer(entry.handle)) }
    }

    cuCtxSetCurrent(context) |call| {
        if context.is_null() {
            // Only the top entry is popped; the one below it becomes current.
            call.stacks.row(thread::number()).pop();
            return Ok(());
        }
        let entry = entry(call, context)?;
        let stack = call.stacks.row(thread::number());
        stack.pop();
        stack.push(entry);
        Ok(())
    }

    cuCtxGetCurrent(context) |call| {
        let top = call.stacks.get(&thread::number()).and_then(|stack| stack.last());
        let handle = top.map_or(0, |entry| entry.handle);
        // SAFETY: the caller passes a place for the context.
        unsafe { put(context, pointer(handle)) }
    }

    cuCtxGetDevice(device) |call| {
        let current = call.current_device()?;
        // SAFETY: the caller passes a place for the device.
        unsafe { put(device, current as CUdevice) }
    }

    cuCtxGetFlags(flags) |call| {
        let id = call.current()?;
        // SAFETY: the caller passes a place for the flags.
        unsafe { put(flags, call.contexts[&id].flags) }
    }

    cuCtxGetId(context, id) |call| {
        let found = call.context_or_current(context)?;
        // SAFETY: the caller passes a place for the id.
        unsafe { put(id, found) }
    }

    cuCtxGetApiVersion(context, version) |call| {
        call.context_or_current(context)?;
        // SAFETY: the caller passes a place for the version.
        unsafe { put(version, 3020) }
    }

    cuCtxSynchronize() |call| {
        let context = call.current()?;
        call.forbid_capturing_context(context)?;
        call.forbid_in_capture()?;
        call.synchronize_context(context);
        // The host has now also waited for completed work of destroyed streams.
        let buried = call.contexts.get(&context).map(|context| context.buried.clone());
        call.host_join(&buried.unwrap_or_default());
        Ok(())
    }

    cuCtxSetLimit(limit, value) |call| {
        call.forbid_in_capture()?;
        let id = call.current()?;
        let limits = call.contexts.get_mut(&id).map(|context| &mut context.limits);
        let slot = limits.and_then(|limits| limits.get_mut(&limit.0));
        *slot.ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)? = value;
        Ok(())
    }

    cuCtxGetLimit(value, limit) |call| {
        let id = call.current()?;
        let found = call.contexts[&id].limits.get(&limit.0).copied();
        // SAFETY: the caller passes a place for the value.
        unsafe { put(value, found.ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)?) }
    }

    cuCtxSetCacheConfig(config) |call| {
        call.forbid_in_capture()?;
        let id = call.current()?;
        let config = config.0;
        if config > 3 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if let Some(context) = call.contexts.get_mut(&id) {
            context.cache_config = config;
        }
        Ok(())
    }

    cuCtxGetCacheConfig(config) |call| {
        let id = call.current()?;
        let value = call.contexts[&id].cache_config;
        // SAFETY: the caller passes a place for the value.
        unsafe { put(config, CUfunc_cache(value)) }
    }

    cuCtxResetPersistingL2Cache() |call| {
        call.current()?;
        Ok(())
    }

    cuCtxGetStreamPriorityRange(least, greatest) |call| {
        call.current()?;
        // SAFETY: the caller passes a place for the value, or null.
        unsafe { put_if(least, super::stream::LEAST_PRIORITY) };
        // SAFETY: the caller passes a place for the value, or null.
        unsafe { put_if(greatest, super::stream::GREATEST_PRIORITY) };
        Ok(())
    }
}

/// # Safety
/// `context` is null or valid for a write.
unsafe fn create(
    call: &mut Call,
    context: *mut CUcontext,
    flags: c_uint,
    dev: CUdevice,
) -> Outcome {
    let device = call.device(dev)?;
    if context.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let id = call.new_context(device, ContextKind::Created, flags);
    let handle = call.contexts[&id].handle;
    let entry = Entry { context: id, handle };
    call.stacks.row(thread::number()).push(entry);
    // SAFETY: the caller's contract.
    unsafe { put(context, pointer(handle)) }
}

fn entry(call: &mut Call, context: CUcontext) -> Outcome<Entry> {
    Ok(Entry { context: call.context(context)?, handle: context.addr() })
}
