//! External memory. A descriptor by which physical memory was exported stands in for one of Vulkan's.

use std::sync::Arc;

use cuda_sys::*;

use crate::call::{Call, Outcome, put};
use crate::descriptor::{close, file};
use crate::handle::{Id, pointer};
use crate::memory::external::Imported;
use crate::memory::place::Owner;
use crate::report::ViolationKind;

entries! {
    cuImportExternalMemory(memory, handle) |call| {
        let context = call.current()?;
        if memory.is_null() || handle.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so the caller passes a description.
        let handle = unsafe { handle.read() };
        let is_fd = handle.type_ == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
        if !is_fd || handle.flags & !CUDA_EXTERNAL_MEMORY_DEDICATED != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: this kind of handle is a descriptor.
        let fd = unsafe { handle.handle.fd };
        let file = file(fd).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let physical = call.virtual_memory.exported.get(&file).copied();
        let physical = physical.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let device = call.contexts[&context].device;
        let Some(memory_of_it) = call.virtual_memory.physical.get_mut(&physical) else {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        };
        let size = handle.size as usize;
        if size != memory_of_it.size || memory_of_it.device != device {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        memory_of_it.mappings += 1;
        let pages = Arc::clone(&memory_of_it.pages);
        close(fd);
        let id = call.new_id();
        let mapped = Vec::new();
        let imported = Imported { context, size, physical, pages, mapped };
        let value = call.external.imported.add(id, imported);
        // SAFETY: not null, so a place for the handle.
        unsafe { put(memory, pointer(value)) }
    }

    cuExternalMemoryGetMappedBuffer(address, memory, part) |call| {
        let context = call.current()?;
        call.forbid_in_capture()?;
        let id = find(call, memory)?;
        if address.is_null() || part.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so the caller passes a description.
        let part = unsafe { part.read() };
        let imported = &call.external.imported[&id];
        let end = part.offset.checked_add(part.size);
        let inside = end.is_some_and(|end| end <= imported.size as u64);
        if part.size == 0 || part.flags != 0 || !inside {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (from, size) = (part.offset as usize, part.size as usize);
        let pages = Arc::clone(&imported.pages);
        let device = call.contexts[&context].device;
        let (block, start) = call.allocate(device, Owner::Context(context), size)?;
        if let Some(block) = call.space.blocks.get_mut(&block) {
            block.pages.show(from, size, pages);
        }
        if let Some(imported) = call.external.imported.get_mut(&id) {
            imported.mapped.push(block);
        }
        // SAFETY: not null, so a place for the address.
        unsafe { put(address, start) }
    }

    cuDestroyExternalMemory(memory) |call| {
        call.current()?;
        let id = find(call, memory)?;
        if let Some(address) = call.still_mapped(id) {
            let message = format!("{address:#x} is still mapped from it");
            call.violation(ViolationKind::UseAfterFree, message);
        }
        call.forget_imported(id);
        Ok(())
    }
}

fn find(call: &mut Call, memory: CUexternalMemory) -> Outcome<Id> {
    let found = call.external.imported.resolve(memory);
    call.found(found, "external memory", memory.addr(), |_| CUDA_ERROR_INVALID_HANDLE)
}
