//! Primary contexts: one per device, retained and released.

use std::ffi::c_int;

use cuda_sys::*;

use crate::call::{Call, Outcome, put};
use crate::context::ContextKind;
use crate::handle::{Id, pointer};

entries! {
    cuDevicePrimaryCtxRetain(context, dev) |call| {
        let device = call.device(dev)?;
        if context.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let id = retain(call, device);
        // SAFETY: the caller passes a place for the context.
        unsafe { put(context, pointer(call.contexts[&id].handle)) }
    }

    cuDevicePrimaryCtxRelease_v2(dev) |call| {
        let device = call.device(dev)?;
        release(call, device)
    }

    cuDevicePrimaryCtxReset_v2(dev) |call| {
        let device = call.device(dev)?;
        reset(call, device)
    }

    cuDevicePrimaryCtxGetState(dev, flags, active) |call| {
        let device = call.device(dev)?;
        // SAFETY: the caller passes a place for the flags.
        unsafe { put(flags, call.devices[device].primary_flags) }?;
        // SAFETY: the caller passes a place for the state.
        unsafe { put(active, c_int::from(call.devices[device].primary.is_some())) }
    }

    cuDevicePrimaryCtxSetFlags_v2(dev, flags) |call| {
        let device = call.device(dev)?;
        call.devices[device].primary_flags = flags;
        if let Some(id) = call.devices[device].primary {
            if let Some(context) = call.contexts.get_mut(&id) {
                context.flags = flags;
            }
        }
        Ok(())
    }
}

/// Adds a reference; the first one creates the context.
pub(super) fn retain(call: &mut Call, device: usize) -> Id {
    call.devices[device].retained += 1;
    if let Some(id) = call.devices[device].primary {
        return id;
    }
    let flags = call.devices[device].primary_flags;
    let id = call.new_context(device, ContextKind::Primary, flags);
    call.devices[device].primary = Some(id);
    id
}

/// Removes a reference; removing the last one destroys the context.
pub(super) fn release(call: &mut Call, device: usize) -> Outcome {
    match call.devices[device].retained {
        0 => Err(CUDA_ERROR_INVALID_CONTEXT),
        1 => reset(call, device),
        count => {
            call.devices[device].retained = count - 1;
            Ok(())
        }
    }
}

/// Destroys the context; a later retain creates a new one.
fn reset(call: &mut Call, device: usize) -> Outcome {
    let Some(id) = call.devices[device].primary else {
        return Ok(());
    };
    call.synchronize_context(id);
    call.devices[device].primary = None;
    call.devices[device].retained = 0;
    let name = call.name;
    call.destroy_context(id, name);
    Ok(())
}
