//! Virtual memory management. No call needs a current context.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_ulonglong, c_void};
use std::sync::{Arc, Mutex};

use cuda_sys::*;

use crate::call::{Call, Outcome, list, put};
use crate::descriptor::{descriptor, file};
use crate::engine::order::overlap;
use crate::handle::{Id, pointer};
use crate::memory::pages::Pages;
use crate::memory::reservation::{Chunk, GRANULARITY, Physical};
use crate::report::ViolationKind;

entries! {
    cuMemGetAllocationGranularity(granularity, properties, _option) |call| {
        // SAFETY: the caller passes properties.
        unsafe { properties_of(call, properties) }?;
        // SAFETY: the caller passes a place for the number.
        unsafe { put(granularity, GRANULARITY) }
    }

    cuMemAddressReserve(address, size, alignment, _hint, flags) |call| {
        let aligned = alignment == 0 || alignment.is_power_of_two() && alignment <= GRANULARITY;
        if size == 0 || size % GRANULARITY != 0 || !aligned || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let name = call.name;
        let device = call.current_device().unwrap_or(0);
        let start = call.new_reservation(name, device, size).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        // SAFETY: the caller passes a place for the address.
        unsafe { put(address, start) }
    }

    cuMemAddressFree(address, size) |call| {
        let name = call.name;
        let (id, start) = call.reserved(name, address, size)?;
        let whole = start == 0 && size == call.space.blocks[&id].size;
        if !whole || !call.virtual_memory.reservations[&id].is_empty() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.end_reservation(name, id);
        Ok(())
    }

    cuMemCreate(handle, size, properties, flags) |call| {
        // SAFETY: the caller passes properties.
        let (device, properties) = unsafe { properties_of(call, properties) }?;
        if size == 0 || size % GRANULARITY != 0 || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.reserve(device, None, size)?;
        call.devices[device].allocated += size;
        let id = call.new_id();
        let physical = Physical {
            device,
            size,
            handle_types: properties.requestedHandleTypes,
            flags: properties.allocFlags,
            holders: 1,
            mappings: 0,
            pages: Arc::new(Mutex::new(Pages::new(size))),
        };
        let value = call.virtual_memory.physical.add(id, physical);
        // SAFETY: the caller passes a place for the handle.
        unsafe { put(handle, value as u64) }
    }

    cuMemRelease(handle) |call| {
        let id = physical(call, handle)?;
        let last = {
            let Some(physical) = call.virtual_memory.physical.get_mut(&id) else {
                return Err(CUDA_ERROR_INVALID_VALUE);
            };
            physical.holders -= 1;
            physical.holders == 0
        };
        if last {
            call.virtual_memory.physical.retire(&id);
            call.settle_physical(id);
        }
        Ok(())
    }

    cuMemMap(address, size, offset, handle, flags) |call| {
        let name = call.name;
        let (id, start) = call.reserved(name, address, size)?;
        let memory = physical(call, handle)?;
        let odd = [start, size, offset].iter().any(|bytes| bytes % GRANULARITY != 0);
        if odd || size == 0 || offset != 0 || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let chunks = &call.virtual_memory.reservations[&id];
        let taken = chunks.iter().any(|chunk| overlap(&chunk.range(), &(start..start + size)));
        let Some(physical) = call.virtual_memory.physical.get_mut(&memory) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        if taken || size != physical.size {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        physical.mappings += 1;
        let (device, pages) = (physical.device, physical.pages.clone());
        let chunk = Chunk { start, size, physical: memory, device, access: BTreeMap::new() };
        if let Some(chunks) = call.virtual_memory.reservations.get_mut(&id) {
            chunks.push(chunk);
        }
        if let Some(block) = call.space.blocks.get_mut(&id) {
            block.device = device;
            block.pages.open_window(start, size, pages);
        }
        Ok(())
    }

    cuMemUnmap(address, size) |call| {
        let name = call.name;
        let (id, start) = call.reserved(name, address, size)?;
        let range = start..start + size;
        let Some(mut chunks) = call.chunks_of(id, &range).filter(|chunks| !chunks.is_empty()) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        chunks.sort_unstable();
        for index in chunks.into_iter().rev() {
            call.unmap_chunk(name, id, index);
        }
        Ok(())
    }

    cuMemSetAccess(address, size, map, count) |call| {
        let name = call.name;
        let (id, start) = call.reserved(name, address, size)?;
        let range = start..start + size;
        let Some(chunks) = call.chunks_of(id, &range).filter(|chunks| !chunks.is_empty()) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        if count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller passes `count` descriptions.
        for desc in unsafe { list(map, count) }? {
            let device = located(call, &desc.location)?;
            let known = [
                CU_MEM_ACCESS_FLAGS_PROT_NONE,
                CU_MEM_ACCESS_FLAGS_PROT_READ,
                CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            ];
            if !known.contains(&desc.flags) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            for &index in &chunks {
                let owner = call.virtual_memory.reservations[&id][index].device;
                if device != owner && !super::peer::reaches(call, device, owner) {
                    return Err(CUDA_ERROR_INVALID_DEVICE);
                }
            }
            if desc.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE {
                call.check_host_access(name, crate::engine::work::Target::Device(id), range.clone());
            }
            let Some(all) = call.virtual_memory.reservations.get_mut(&id) else { continue };
            for &index in &chunks {
                if desc.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE {
                    all[index].access.remove(&device);
                } else {
                    all[index].access.insert(device, desc.flags);
                }
            }
        }
        Ok(())
    }

    cuMemGetAccess(flags, location, address) |call| {
        let name = call.name;
        let (id, start) = call.reserved(name, address, 1)?;
        // SAFETY: the caller passes a location, or null.
        let location = unsafe { location.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let device = located(call, location)?;
        let mut chunks = call.virtual_memory.reservations[&id].iter();
        let chunk = chunks.find(|chunk| chunk.range().contains(&start));
        let chunk = chunk.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let value = chunk.access.get(&device).copied().unwrap_or(CU_MEM_ACCESS_FLAGS_PROT_NONE);
        // SAFETY: the caller passes a place for the number.
        unsafe { put(flags, c_ulonglong::from(value.0)) }
    }

    cuMemGetAllocationPropertiesFromHandle(properties, handle) |call| {
        let id = physical(call, handle)?;
        let physical = &call.virtual_memory.physical[&id];
        let value = CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: physical.handle_types,
            location: CUmemLocation {
                type_: CU_MEM_LOCATION_TYPE_DEVICE,
                __bindgen_anon_1: CUmemLocation_st__bindgen_ty_1 { id: physical.device as c_int },
            },
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: physical.flags,
        };
        // SAFETY: the caller passes a place for properties.
        unsafe { put(properties, value) }
    }

    cuMemExportToShareableHandle(shareable, handle, kind, flags) |call| {
        let id = physical(call, handle)?;
        let offered = call.virtual_memory.physical[&id].handle_types;
        let is_fd = kind == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        if !is_fd || offered.0 & kind.0 == 0 || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (fd, file) = descriptor().ok_or(CUDA_ERROR_OPERATING_SYSTEM)?;
        call.virtual_memory.exported.insert(file, id);
        // SAFETY: the caller passes a place for an int.
        unsafe { put(shareable.cast::<c_int>(), fd) }
    }

    cuMemImportFromShareableHandle(handle, shareable, kind) |call| {
        let file = file(shareable.addr() as c_int);
        let known = file.and_then(|file| call.virtual_memory.exported.get(&file).copied());
        let known = known.filter(|_| kind == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        let id = known.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let memory = &mut call.virtual_memory;
        // Memory that only a descriptor holds has been released, unlike in a real process.
        let physical = memory.physical.get_mut(&id).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        physical.holders += 1;
        let value = match physical.holders {
            // Only its mappings held it, and its old handle may be that of other memory.
            1 => memory.physical.issue(id),
            _ => memory.physical[&id].handle,
        };
        // SAFETY: the caller passes a place for the handle.
        unsafe { put(handle, value as u64) }
    }
}

/// Returns the properties of memory, and its device.
///
/// # Safety
/// `properties` is null or stays valid during the caller's call.
unsafe fn properties_of<'a>(
    call: &Call,
    properties: *const CUmemAllocationProp,
) -> Outcome<(usize, &'a CUmemAllocationProp)> {
    // SAFETY: this function's contract.
    let properties = unsafe { properties.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if properties.type_ != CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let device = located(call, &properties.location)?;
    if properties.allocFlags.gpuDirectRDMACapable != 0 && device % 2 != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok((device, properties))
}

/// Returns the device that a location names.
pub(super) fn located(call: &Call, location: &CUmemLocation) -> Outcome<usize> {
    if location.type_ != CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the location of a device uses the union's number, which came with the type.
    call.device(unsafe { location.__bindgen_anon_1.id })
}

/// Returns the memory of a handle.
fn physical(call: &mut Call, handle: CUmemGenericAllocationHandle) -> Outcome<Id> {
    let found = call.virtual_memory.physical.resolve(pointer::<c_void>(handle as usize));
    found.map_err(|_| {
        let message = format!("there is no physical memory {handle:#x}");
        call.violation(ViolationKind::DanglingHandle, message);
        CUDA_ERROR_INVALID_VALUE
    })
}
