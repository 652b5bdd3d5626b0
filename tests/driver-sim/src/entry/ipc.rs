//! Sharing memory with other processes.

use cuda_sys::*;

use crate::call::{Call, Outcome, put};
use crate::memory::place::Owner;

/// The content of an IPC memory handle of this driver.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handle {
    process: u64,
    device: u64,
    address: u64,
    bytes: u64,
    unused: [u64; 4],
}

const _: () = assert!(size_of::<Handle>() == size_of::<CUipcMemHandle>());

const OPEN: &str = "cuIpcOpenMemHandle_v2";

entries! {
    cuIpcGetMemHandle(handle, address) |call| {
        call.current()?;
        let block = call.space.find(address).map(|id| &call.space.blocks[&id]);
        let block = block.filter(|block| {
            let own = block.context.is_some() && block.call != OPEN;
            own && block.is_held() && block.contains(address)
        });
        let block = block.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let made = handle_of(std::process::id().into(), block.device, address, block.size);
        // SAFETY: the caller passes a place for a handle, which is 64 bytes.
        unsafe { put(handle.cast(), bytes_of(made)) }
    }

    cuIpcOpenMemHandle_v2(address, handle, flags) |call| {
        let context = call.current()?;
        if flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0 || address.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.forbid_in_capture()?;
        // SAFETY: a handle is 64 bytes, and any bytes are a `Handle`.
        let handle: Handle = unsafe { std::mem::transmute_copy(&handle) };
        if handle.process == std::process::id().into() {
            // A process cannot open its own memory.
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if handle.process != !u64::from(std::process::id()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let device = call.contexts[&context].device;
        let bytes = handle.bytes as usize;
        let (_, start) = call.allocate(device, Owner::Context(context), bytes)?;
        // SAFETY: not null, so the caller passes a place for the address.
        unsafe { put(address, start) }
    }

    cuIpcCloseMemHandle(address) |call| {
        close(call, address)
    }
}

fn close(call: &mut Call, address: CUdeviceptr) -> Outcome {
    call.forbid_in_capture()?;
    let name = call.name;
    let id = call.block_to_free(name, address)?;
    let block = &call.space.blocks[&id];
    if block.call != OPEN {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let device = block.device;
    call.check_free(name, id);
    call.synchronize_device(device);
    call.release_block(id, name);
    Ok(())
}

fn handle_of(process: u64, device: usize, address: u64, bytes: usize) -> Handle {
    Handle { process, device: device as u64, address, bytes: bytes as u64, unused: [0; 4] }
}

fn bytes_of(handle: Handle) -> [u8; 64] {
    // SAFETY: both are 64 bytes without padding, and any bytes are bytes.
    unsafe { std::mem::transmute(handle) }
}

/// See [`foreign_memory`](crate::foreign_memory).
pub(crate) fn foreign(bytes: usize) -> [u8; 64] {
    bytes_of(handle_of(!u64::from(std::process::id()), 0, 0, bytes))
}
