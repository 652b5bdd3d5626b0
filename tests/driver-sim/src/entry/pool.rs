//! Memory pools.

use std::ffi::{c_int, c_void};

use cuda_sys::*;

use super::virtual_memory::{AccessDesc, Location};
use crate::call::{Call, Outcome, put};
use crate::descriptor::descriptor;
use crate::handle::pointer;
use crate::memory::place::Owner;
use crate::memory::pool::{Gauge, Pool};

/// The start of `CUmemPoolProps`, as [`Location`]; `max_size` is 0 where an old header reserves it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Props {
    alloc_type: u32,
    handle_types: u32,
    location: Location,
    win32_security: *const c_void,
    max_size: usize,
}

const ALLOCATION_PINNED: u32 = 1;
const POSIX_FD: u32 = 1;
const LOCATION_DEVICE: u32 = 1;
const ACCESS_NONE: u32 = 0;
const ACCESS_READ_WRITE: u32 = 3;

/// The content of an exported pointer's data.
#[repr(C)]
#[derive(Clone, Copy)]
struct Exported {
    magic: u64,
    bytes: u64,
    unused: [u64; 6],
}

const _: () = assert!(size_of::<Exported>() == size_of::<CUmemPoolPtrExportData>());

const MAGIC: u64 = 0x706f_6f6c_2070_7472;

entries! {
    cuDeviceGetDefaultMemPool(pool, dev) |call| {
        let device = call.device(dev)?;
        supported(call)?;
        let id = call.devices[device].default_pool;
        // SAFETY: the caller passes a place for the pool.
        unsafe { put(pool, pointer(call.pools[&id].handle)) }
    }

    cuDeviceGetMemPool(pool, dev) |call| {
        let device = call.device(dev)?;
        supported(call)?;
        let id = call.devices[device].current_pool;
        // SAFETY: the caller passes a place for the pool.
        unsafe { put(pool, pointer(call.pools[&id].handle)) }
    }

    cuDeviceSetMemPool(dev, pool) |call| {
        let device = call.device(dev)?;
        let pool = call.pool(pool)?;
        if call.pools[&pool].device != device {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.devices[device].current_pool = pool;
        Ok(())
    }

    cuMemPoolCreate(pool, props) |call| {
        supported(call)?;
        if pool.is_null() || props.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so the caller passes properties, which begin with these fields.
        let props = unsafe { props.cast::<Props>().read() };
        if props.location.kind != LOCATION_DEVICE {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let device = call.device(props.location.id)?;
        let known = [0, POSIX_FD].contains(&props.handle_types);
        if props.alloc_type != ALLOCATION_PINNED || !known || !props.win32_security.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.forbid_in_capture()?;
        let id = call.new_pool(Pool {
            max_size: props.max_size,
            handle_types: props.handle_types,
            ..Pool::new(device, false)
        });
        // SAFETY: the caller passes a place for the pool.
        unsafe { put(pool, pointer(call.pools[&id].handle)) }
    }

    cuMemPoolDestroy(pool) |call| {
        let id = call.pool(pool)?;
        call.forbid_in_capture()?;
        let Some(pool) = call.pools.get_mut(&id).filter(|pool| !pool.is_default) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let (handle, device, in_use) = (pool.handle, pool.device, pool.used.current > 0);
        // Blocks that are allocated stay valid until they are freed.
        pool.destroyed = true;
        if !in_use {
            call.pools.remove(&id);
        }
        call.pool_handles.retire(handle);
        let device = &mut call.devices[device];
        if device.current_pool == id {
            device.current_pool = device.default_pool;
        }
        Ok(())
    }

    cuMemPoolSetAttribute(pool, attribute, value) |call| {
        call.forbid_in_capture()?;
        let id = call.pool(pool)?;
        if value.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let Some(pool) = call.pools.get_mut(&id) else { return Err(CUDA_ERROR_INVALID_VALUE) };
        if let Some(index) = reuse_index(attribute) {
            // SAFETY: the reuse attributes are ints, and the caller passes one.
            pool.reuse[index] = unsafe { value.cast::<c_int>().read() };
            return Ok(());
        }
        // SAFETY: all other attributes are 64-bit, and the caller passes one.
        let number = unsafe { value.cast::<u64>().read() };
        match attribute {
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.release_threshold = number,
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if number == 0 => reset(&mut pool.reserved),
            CU_MEMPOOL_ATTR_USED_MEM_HIGH if number == 0 => reset(&mut pool.used),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }

    cuMemPoolGetAttribute(pool, attribute, value) |call| {
        call.forbid_in_capture()?;
        let id = call.pool(pool)?;
        let pool = &call.pools[&id];
        if let Some(index) = reuse_index(attribute) {
            // SAFETY: the reuse attributes are ints, and the caller passes a place for one.
            return unsafe { put(value.cast::<c_int>(), pool.reuse[index]) };
        }
        let number = match attribute {
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.release_threshold,
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => pool.reserved.current as u64,
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => pool.reserved.high as u64,
            CU_MEMPOOL_ATTR_USED_MEM_CURRENT => pool.used.current as u64,
            CU_MEMPOOL_ATTR_USED_MEM_HIGH => pool.used.high as u64,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        // SAFETY: these attributes are 64-bit, and the caller passes a place for one.
        unsafe { put(value.cast::<u64>(), number) }
    }

    cuMemPoolSetAccess(pool, map, count) |call| {
        call.forbid_in_capture()?;
        let id = call.pool(pool)?;
        if map.is_null() && count > 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let owner = call.pools[&id].device;
        for index in 0..count {
            // SAFETY: the caller passes `count` descriptions.
            let desc = unsafe { map.cast::<AccessDesc>().add(index) };
            // SAFETY: one of the caller's descriptions; `AccessDesc` has the layout that every header gives it.
            let desc = unsafe { desc.read() };
            let device = call.device(desc.location.id)?;
            let reachable = device == owner || super::peer::reaches(call, device, owner);
            let valid = matches!(desc.flags, ACCESS_NONE | ACCESS_READ_WRITE);
            if desc.location.kind != LOCATION_DEVICE || !reachable || !valid {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            if device == owner {
                if desc.flags == ACCESS_NONE {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                continue;
            }
            if let Some(pool) = call.pools.get_mut(&id) {
                if desc.flags == ACCESS_NONE {
                    pool.access.remove(&device);
                } else {
                    pool.access.insert(device);
                }
            }
        }
        Ok(())
    }

    cuMemPoolGetAccess(flags, pool, location) |call| {
        call.forbid_in_capture()?;
        let id = call.pool(pool)?;
        if location.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so the caller passes a location, which begins with these fields.
        let location = unsafe { location.cast::<Location>().read() };
        if location.kind != LOCATION_DEVICE {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let open = call.pools[&id].is_open_to(call.device(location.id)?);
        let value = if open { ACCESS_READ_WRITE } else { ACCESS_NONE };
        // SAFETY: the caller passes a place for the flags, a 32-bit enum.
        unsafe { put(flags.cast::<u32>(), value) }
    }

    cuMemPoolExportToShareableHandle(shareable, pool, kind, flags) |call| {
        let id = call.pool(pool)?;
        let offered = call.pools[&id].handle_types;
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || offered & POSIX_FD == 0 || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let fd = descriptor().ok_or(CUDA_ERROR_OPERATING_SYSTEM)?;
        for pool in call.pools.values_mut() {
            // The descriptor's number may have been used before and closed.
            pool.exported.retain(|&old| old != fd);
        }
        if let Some(pool) = call.pools.get_mut(&id) {
            pool.exported.push(fd);
        }
        // SAFETY: the caller passes a place for an int.
        unsafe { put(shareable.cast::<c_int>(), fd) }
    }

    cuMemPoolImportFromShareableHandle(pool, shareable, kind, flags) |call| {
        let fd = shareable.addr() as i32;
        let source = call.pools.values().find(|pool| pool.exported.contains(&fd));
        let device = source.map(|pool| pool.device);
        let (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, Some(device), 0) = (kind, device, flags)
        else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        call.forbid_in_capture()?;
        let id = call.new_pool(Pool { imported: true, ..Pool::new(device, false) });
        // SAFETY: the caller passes a place for the pool.
        unsafe { put(pool, pointer(call.pools[&id].handle)) }
    }

    cuMemPoolExportPointer(data, address) |call| {
        let block = call.space.find(address).map(|id| &call.space.blocks[&id]);
        let block = block.filter(|block| block.is_held() && block.address == address);
        let block = block.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let pool = block.pool.and_then(|id| call.pools.get(&id));
        // As in driver 580: the pool is shareable, and was exported before.
        if pool.is_none_or(|pool| pool.handle_types & POSIX_FD == 0 || pool.exported.is_empty()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let made = Exported {
            magic: MAGIC,
            bytes: block.size as u64,
            unused: [0; 6],
        };
        // SAFETY: both are 64 bytes without padding, and any bytes are bytes.
        let made: [u8; 64] = unsafe { std::mem::transmute(made) };
        // SAFETY: the caller passes a place for the data, which are 64 bytes.
        unsafe { put(data.cast(), made) }
    }

    cuMemPoolImportPointer(address, pool, data) |call| {
        let context = call.current()?;
        let id = call.pool(pool)?;
        if data.is_null() || address.is_null() || !call.pools[&id].imported {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so the caller passes 64 bytes, and any are an `Exported`.
        let exported = unsafe { data.cast::<Exported>().read_unaligned() };
        if exported.magic != MAGIC {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Only the addresses: writes by another process are not simulated.
        let (name, device) = (call.name, call.pools[&id].device);
        let bytes = exported.bytes as usize;
        let (_, start) = call.new_block(name, device, Owner::Context(context), bytes);
        // SAFETY: not null, so the caller passes a place for the address.
        unsafe { put(address, start) }
    }

    cuMemPoolTrimTo(pool, keep) |call| {
        let id = call.pool(pool)?;
        call.forbid_in_capture()?;
        if let Some(pool) = call.pools.get_mut(&id) {
            pool.trim(keep);
        }
        Ok(())
    }
}

fn supported(call: &Call) -> Outcome {
    if call.config.memory_pools { Ok(()) } else { Err(CUDA_ERROR_NOT_SUPPORTED) }
}

fn reuse_index(attribute: CUmemPool_attribute) -> Option<usize> {
    match attribute {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES => Some(0),
        CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC => Some(1),
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => Some(2),
        _ => None,
    }
}

fn reset(gauge: &mut Gauge) {
    gauge.high = gauge.current;
}
