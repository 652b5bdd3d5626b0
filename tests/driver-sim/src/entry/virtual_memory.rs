//! Virtual memory management. None of it needs a current context.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_ulonglong, c_void};
use std::sync::{Arc, Mutex};

use cuda_sys::*;

use crate::call::{Call, Outcome, put};
use crate::descriptor::{descriptor, file};
use crate::handle::{Id, pointer};
use crate::memory::pages::Pages;
use crate::memory::reservation::{Chunk, GRANULARITY, Physical};
use crate::report::ViolationKind;

/// The start of `CUmemLocation`, which headers of different versions declare differently.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Location {
    pub(super) kind: u32,
    pub(super) id: c_int,
}

/// `CUmemAllocationProp`, likewise.
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    kind: u32,
    handle_types: u32,
    location: Location,
    win32_data: *mut c_void,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`, likewise.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AccessDesc {
    pub(super) location: Location,
    pub(super) flags: u32,
}

const LOCATION_DEVICE: u32 = 1;
const PINNED: u32 = 1;
const POSIX_FD: u32 = 1;
const ACCESS_NONE: u32 = 0;
const ACCESS_READ: u32 = 1;
const ACCESS_READ_WRITE: u32 = 3;

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
        let (device, handle_types, flags_of_memory) = unsafe { properties_of(call, properties) }?;
        if size == 0 || size % GRANULARITY != 0 || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.reserve(device, None, size)?;
        call.devices[device].allocated += size;
        let id = call.new_id();
        let value = call.virtual_memory.handles.issue(id);
        let physical = Physical {
            handle: value,
            device,
            size,
            handle_types,
            flags: flags_of_memory,
            holders: 1,
            mappings: 0,
            pages: Arc::new(Mutex::new(Pages::new(size))),
        };
        call.virtual_memory.physical.insert(id, physical);
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
            call.virtual_memory.handles.retire(handle as usize);
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
        let end = start + size;
        let chunks = &call.virtual_memory.reservations[&id];
        let taken = chunks.iter().any(|c| c.start < end && start < c.start + c.size);
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
        if map.is_null() || count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for at in 0..count {
            // SAFETY: the caller passes `count` descriptions.
            let desc = unsafe { map.cast::<AccessDesc>().add(at) };
            // SAFETY: one of the caller's descriptions; `AccessDesc` has the layout that every header gives it.
            let desc = unsafe { desc.read() };
            let device = call.device(desc.location.id)?;
            let known = matches!(desc.flags, ACCESS_NONE | ACCESS_READ | ACCESS_READ_WRITE);
            if desc.location.kind != LOCATION_DEVICE || !known {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            for &index in &chunks {
                let owner = call.virtual_memory.reservations[&id][index].device;
                if device != owner && !super::peer::reaches(call, device, owner) {
                    return Err(CUDA_ERROR_INVALID_DEVICE);
                }
            }
            if desc.flags != ACCESS_READ_WRITE {
                call.check_host_access(name, crate::engine::work::Target::Device(id), range.clone());
            }
            let Some(all) = call.virtual_memory.reservations.get_mut(&id) else { continue };
            for &index in &chunks {
                if desc.flags == ACCESS_NONE {
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
        if location.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so the caller passes a location, which begins with these fields.
        let location = unsafe { location.cast::<Location>().read() };
        let device = call.device(location.id)?;
        let mut chunks = call.virtual_memory.reservations[&id].iter();
        let chunk = chunks.find(|chunk| chunk.range().contains(&start));
        let chunk = chunk.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let value = chunk.access.get(&device).copied().unwrap_or(ACCESS_NONE);
        // SAFETY: the caller passes a place for the number.
        unsafe { put(flags, c_ulonglong::from(value)) }
    }

    cuMemGetAllocationPropertiesFromHandle(properties, handle) |call| {
        let id = physical(call, handle)?;
        let physical = &call.virtual_memory.physical[&id];
        let value = Properties {
            kind: PINNED,
            handle_types: physical.handle_types,
            location: Location { kind: LOCATION_DEVICE, id: physical.device as c_int },
            win32_data: std::ptr::null_mut(),
            flags: physical.flags,
        };
        // SAFETY: the caller passes a place for properties, which have this layout.
        unsafe { put(properties.cast::<Properties>(), value) }
    }

    cuMemExportToShareableHandle(shareable, handle, kind, flags) |call| {
        let id = physical(call, handle)?;
        let offered = call.virtual_memory.physical[&id].handle_types;
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || offered & POSIX_FD == 0 || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let fd = descriptor().ok_or(CUDA_ERROR_OPERATING_SYSTEM)?;
        let file = file(fd).ok_or(CUDA_ERROR_OPERATING_SYSTEM)?;
        call.virtual_memory.exported.insert(file, id);
        // SAFETY: the caller passes a place for an int.
        unsafe { put(shareable.cast::<c_int>(), fd) }
    }

    cuMemImportFromShareableHandle(handle, shareable, kind) |call| {
        let file = file(shareable.addr() as c_int);
        let known = file.and_then(|file| call.virtual_memory.exported.get(&file).copied());
        let known = known.filter(|_| kind == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        let id = known.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let Some(physical) = call.virtual_memory.physical.get_mut(&id) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        // Memory that only a descriptor holds is released here, unlike in a real process.
        physical.holders += 1;
        let value = physical.handle;
        // SAFETY: the caller passes a place for the handle.
        unsafe { put(handle, value as u64) }
    }
}

/// The device, the handle types and the flags in the properties.
///
/// # Safety
/// `properties` is null or valid for a read.
unsafe fn properties_of(
    call: &Call,
    properties: *const CUmemAllocationProp,
) -> Outcome<(usize, u32, [u8; 8])> {
    if properties.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so valid by this function's contract; every header has this layout.
    let properties = unsafe { properties.cast::<Properties>().read() };
    if properties.kind != PINNED || properties.location.kind != LOCATION_DEVICE {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let device = call.device(properties.location.id)?;
    // The second of the flags is `gpuDirectRDMACapable`.
    if properties.flags[1] != 0 && device % 2 != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok((device, properties.handle_types, properties.flags))
}

/// The memory of a handle.
fn physical(call: &mut Call, handle: CUmemGenericAllocationHandle) -> Outcome<Id> {
    let found = call.virtual_memory.handles.resolve(pointer::<c_void>(handle as usize));
    found.map_err(|_| {
        let name = call.name;
        let message = format!("there is no physical memory {handle:#x}");
        call.log.violation(ViolationKind::DanglingHandle, name, message);
        CUDA_ERROR_INVALID_VALUE
    })
}
