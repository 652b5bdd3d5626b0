//! Contexts: creation, the thread's stack, limits.

use std::ffi::c_uint;

use cuda_sys::*;

use crate::call::{Call, Outcome, put};
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
        let streams = call.streams_of_context(id);
        call.synchronize(&streams);
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

    cuCtxGetDevice_v2(device, context) |call| {
        let id = current_or(call, context)?;
        // SAFETY: the caller passes a place for the device.
        unsafe { put(device, call.contexts[&id].device as CUdevice) }
    }

    cuCtxGetFlags(flags) |call| {
        let id = call.current()?;
        // SAFETY: the caller passes a place for the flags.
        unsafe { put(flags, call.contexts[&id].flags) }
    }

    cuCtxGetId(context, id) |call| {
        let found = current_or(call, context)?;
        // SAFETY: the caller passes a place for the id.
        unsafe { put(id, found) }
    }

    cuCtxGetApiVersion(context, version) |call| {
        current_or(call, context)?;
        // SAFETY: the caller passes a place for the version.
        unsafe { put(version, 3020) }
    }

    cuCtxSynchronize() |call| {
        let id = call.current()?;
        synchronize(call, id)
    }

    cuCtxSynchronize_v2(context) |call| {
        let id = current_or(call, context)?;
        synchronize(call, id)
    }

    cuCtxSetLimit(limit, value) |call| {
        call.forbid_in_capture()?;
        let id = call.current()?;
        let limits = call.contexts.get_mut(&id).map(|context| &mut context.limits);
        let slot = limits.and_then(|limits| limits.get_mut(&(limit.0 as _)));
        *slot.ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)? = value;
        Ok(())
    }

    cuCtxGetLimit(value, limit) |call| {
        let id = call.current()?;
        let found = call.contexts[&id].limits.get(&(limit.0 as _)).copied();
        // SAFETY: the caller passes a place for the value.
        unsafe { put(value, found.ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)?) }
    }

    cuCtxSetCacheConfig(config) |call| {
        call.forbid_in_capture()?;
        let id = call.current()?;
        let config: u32 = config.0 as _;
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
        unsafe { put(config, CUfunc_cache(value as _)) }
    }

    cuCtxResetPersistingL2Cache() |call| {
        call.current()?;
        Ok(())
    }

    cuCtxGetStreamPriorityRange(least, greatest) |call| {
        call.current()?;
        if !least.is_null() {
            // SAFETY: not null, so a place for the value.
            unsafe { put(least, super::stream::LEAST_PRIORITY) }?;
        }
        if !greatest.is_null() {
            // SAFETY: not null, so a place for the value.
            unsafe { put(greatest, super::stream::GREATEST_PRIORITY) }?;
        }
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

fn current_or(call: &mut Call, context: CUcontext) -> Outcome<u64> {
    if context.is_null() { call.current() } else { call.context(context) }
}

fn synchronize(call: &mut Call, context: u64) -> Outcome {
    call.forbid_capturing_context(context)?;
    call.forbid_in_capture()?;
    let streams = call.streams_of_context(context);
    call.synchronize(&streams);
    // Also for work of destroyed streams that is done.
    let buried = call.contexts.get(&context).map(|context| context.buried.clone());
    call.host_join(&buried.unwrap_or_default());
    Ok(())
}
