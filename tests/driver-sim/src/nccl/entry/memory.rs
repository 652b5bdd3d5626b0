//! Allocates memory, and registers buffers with communicators.

use std::ffi::c_void;

use cuda_sys::CUDA_ERROR_OUT_OF_MEMORY;

use crate::engine::work::{Place, Target};
use crate::handle::pointer;
use crate::memory::place::{NCCL_ALLOC, Owner};
use crate::memory::reservation::GRANULARITY;
use crate::nccl::Registered;
use crate::nccl::call::{argument, cuda, put};
use crate::nccl::raw::{Code, RawComm};

nccl_entries! {
    ncclMemAlloc(address: *mut *mut c_void, bytes: usize) |call| {
        let context = call.current().map_err(cuda)?;
        if address.is_null() || bytes == 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        let device = call.contexts[&context].device;
        let size = bytes.checked_next_multiple_of(GRANULARITY);
        let size = size.ok_or(cuda(CUDA_ERROR_OUT_OF_MEMORY))?;
        call.reserve(device, None, size).map_err(cuda)?;
        let new = call.new_block(NCCL_ALLOC, device, Owner::Context(context), size);
        let (_, start) = new.map_err(cuda)?;
        // SAFETY: not null, so a place for the address.
        unsafe { put(address, pointer(start as usize)) }
    }

    ncclMemFree(address: *mut c_void) |call| {
        if address.is_null() {
            return Ok(());
        }
        let name = call.name;
        let block = call.block_to_free(name, address.addr() as u64).map_err(argument)?;
        call.check_free(name, block);
        call.release_block(block, name);
        Ok(())
    }

    ncclCommRegister(
        comm: RawComm,
        buffer: *mut c_void,
        size: usize,
        handle: *mut *mut c_void,
    ) of comm |call| {
        let id = call.ready_communicator(comm)?;
        let (name, device) = (call.name, call.nccl.communicators[&id].device);
        if handle.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        let place = call.device_place(name, buffer.addr() as u64, size).map_err(argument)?;
        call.same_device(&place, device)?;
        let (block, start) = match place {
            Place::Device { block, offset } => (Some(block), offset),
            _ => (None, 0),
        };
        let new = call.new_id();
        let range = start..start + size;
        let value = call.nccl.registered.add(new, Registered { communicator: id, block, range });
        // SAFETY: not null, so a place for the handle.
        unsafe { put(handle, pointer(value)) }
    }

    ncclCommDeregister(comm: RawComm, handle: *mut c_void) of comm |call| {
        let id = call.communicator(comm)?;
        // NCCL does not check for asynchronous errors here.
        if matches!(call.status(id), Code::SUCCESS | Code::IN_PROGRESS) {
            call.ready_communicator(comm)?;
        }
        let found = call.nccl.registered.resolve(handle);
        let invalid = |_| cuda_sys::CUDA_ERROR_INVALID_HANDLE;
        let found = call.found(found, "registration", handle.addr(), invalid).map_err(argument)?;
        if call.nccl.registered[&found].communicator != id {
            return Err(Code::INVALID_ARGUMENT);
        }
        if let Some(registered) = call.nccl.registered.remove(&found) {
            let name = call.name;
            if let Some(block) = registered.block {
                call.check_host_access(name, Target::Device(block), registered.range);
            }
        }
        Ok(())
    }
}
