//! Pinned host memory.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use cuda_sys::*;

use crate::call::{Call, Outcome, put};
use crate::engine::order::History;
use crate::engine::work::{HostPtr, Target};
use crate::handle::Id;
use crate::memory::pinned::{Origin, Pinned, allocate};
use crate::report::ViolationKind;

/// The accepted flags: portable, device-mapped, write-combined.
const ALLOC_FLAGS: c_uint = 7;
/// The accepted flags: portable, device-mapped, I/O memory, read-only.
const REGISTER_FLAGS: c_uint = 15;
/// The largest allocation of host memory on the simulated machine.
pub(super) const HOST_MEMORY: usize = 16 << 30;

entries! {
    cuMemHostAlloc(pointer, bytes, flags) |call| {
        let context = call.current()?;
        if pointer.is_null() || flags & !ALLOC_FLAGS != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.forbid_in_capture()?;
        if bytes == 0 {
            // SAFETY: not null, so the caller passes a place for the pointer.
            return unsafe { put(pointer, std::ptr::null_mut()) };
        }
        if bytes > HOST_MEMORY {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let base = allocate(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        pin(call, context, base, bytes, flags, Origin::Allocated);
        // SAFETY: the caller passes a place for the pointer.
        unsafe { put(pointer, base.0.cast()) }
    }

    cuMemFreeHost(pointer) |call| {
        if pointer.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.forbid_in_capture()?;
        unpin(call, pointer, Origin::Allocated, CUDA_ERROR_INVALID_VALUE)
    }

    cuMemHostRegister_v2(pointer, bytes, flags) |call| {
        let context = call.current()?;
        let is_range = bytes > 0 && pointer.addr().checked_add(bytes).is_some();
        if pointer.is_null() || !is_range || flags & !REGISTER_FLAGS != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.forbid_in_capture()?;
        if call.pinned.overlaps(pointer.addr(), bytes) {
            return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        pin(call, context, HostPtr(pointer.cast()), bytes, flags, Origin::Registered);
        Ok(())
    }

    cuMemHostUnregister(pointer) |call| {
        if pointer.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.forbid_in_capture()?;
        unpin(call, pointer, Origin::Registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
    }

    cuMemHostGetFlags(flags, pointer) |call| {
        call.current()?;
        let found = call.pinned.find(pointer.addr());
        let (id, _) = found.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the caller passes a place for the flags.
        unsafe { put(flags, call.pinned.blocks[&id].flags) }
    }

    cuMemHostGetDevicePointer_v2(address, pointer, flags) |call| {
        call.current()?;
        if flags != 0 || call.pinned.find(pointer.addr()).is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller passes a place for the address.
        unsafe { put(address, pointer.addr() as CUdeviceptr) }
    }
}

pub(super) fn pin(
    call: &mut Call,
    context: Id,
    base: HostPtr,
    size: usize,
    flags: c_uint,
    origin: Origin,
) {
    let id = call.new_id();
    let device = call.contexts[&context].device;
    let name = call.name;
    let history = History::default();
    call.pinned.insert(
        id,
        // Under unified addressing, all pinned memory is portable and mapped.
        Pinned {
            base,
            size,
            flags: flags | 2,
            context,
            device,
            origin,
            history,
            users: Arc::default(),
            call: name,
            advice: Vec::new(),
        },
    );
}

/// Frees or unregisters pinned memory once the device has no more work.
pub(super) fn unpin(
    call: &mut Call,
    pointer: *mut c_void,
    origin: Origin,
    code: CUresult,
) -> Outcome {
    let name = call.name;
    let Some(id) = call.pinned.starts_at(pointer.addr()) else {
        match call.pinned.freed_by(pointer.addr()) {
            Some(free) => {
                let message = format!("{pointer:?} was already freed by {free}");
                call.violation(ViolationKind::DoubleFree, message);
            }
            None => {
                call.unknown(name, pointer.addr() as u64);
            }
        }
        return Err(code);
    };
    if call.pinned.blocks[&id].origin != origin {
        call.unknown(name, pointer.addr() as u64);
        return Err(code);
    }
    // Checked first, because the wait below would hide it.
    call.check_host_free(name, Target::Pinned(id));
    let device = call.pinned.blocks[&id].device;
    call.synchronize_device(device);
    call.pinned.remove(id, name);
    Ok(())
}
