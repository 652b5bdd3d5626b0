//! Memory pools.

use std::ffi::{c_int, c_void};

use cuda_sys::*;

use crate::call::{Call, Outcome, put};
use crate::handle::pointer;
use crate::memory::pool::{Gauge, Pool};

/// The start of `CUmemLocation`, which headers of different ages declare differently.
#[repr(C)]
#[derive(Clone, Copy)]
struct Location {
    kind: u32,
    id: c_int,
}

/// `CUmemAccessDesc`, likewise.
#[repr(C)]
#[derive(Clone, Copy)]
struct AccessDesc {
    location: Location,
    flags: u32,
}

/// The start of `CUmemPoolProps`, likewise; `max_size` is 0 where an old header reserves it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Props {
    alloc_type: u32,
    handle_types: u32,
    location: Location,
    win32_security: *const c_void,
    max_size: usize,
}

const LOCATION_DEVICE: u32 = 1;
const ACCESS_NONE: u32 = 0;
const ACCESS_READ_WRITE: u32 = 3;

entries! {
    floor cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, dev: CUdevice) |call| {
        let device = call.device(dev)?;
        supported(call)?;
        let id = call.devices[device].default_pool;
        // SAFETY: the caller passes a place for the pool.
        unsafe { put(pool, pointer(call.pools[&id].handle)) }
    }

    floor cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice) |call| {
        let device = call.device(dev)?;
        supported(call)?;
        let id = call.devices[device].current_pool;
        // SAFETY: the caller passes a place for the pool.
        unsafe { put(pool, pointer(call.pools[&id].handle)) }
    }

    floor cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) |call| {
        let device = call.device(dev)?;
        let pool = call.pool(pool)?;
        if call.pools[&pool].device != device {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.devices[device].current_pool = pool;
        Ok(())
    }

    floor cuMemPoolCreate(pool: *mut CUmemoryPool, props: *const CUmemPoolProps) |call| {
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
        let id = call.new_pool(Pool { max_size: props.max_size, ..Pool::new(device, false) });
        // SAFETY: the caller passes a place for the pool.
        unsafe { put(pool, pointer(call.pools[&id].handle)) }
    }

    floor cuMemPoolDestroy(pool: CUmemoryPool) |call| {
        let id = call.pool(pool)?;
        let Some(pool) = call.pools.get_mut(&id).filter(|pool| !pool.is_default) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let (handle, device, in_use) = (pool.handle, pool.device, pool.used.current > 0);
        // What is allocated stays until it is freed.
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

    floor cuMemPoolSetAttribute(
        pool: CUmemoryPool,
        attribute: CUmemPool_attribute,
        value: *mut c_void,
    ) |call| {
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

    floor cuMemPoolGetAttribute(
        pool: CUmemoryPool,
        attribute: CUmemPool_attribute,
        value: *mut c_void,
    ) |call| {
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

    floor cuMemPoolSetAccess(
        pool: CUmemoryPool,
        map: *const CUmemAccessDesc,
        count: usize,
    ) |call| {
        let id = call.pool(pool)?;
        if map.is_null() && count > 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let owner = call.pools[&id].device;
        for index in 0..count {
            // SAFETY: the caller passes `count` descriptions.
            let desc = unsafe { map.cast::<AccessDesc>().add(index) };
            // SAFETY: as above; `AccessDesc` is the layout of every header.
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

    floor cuMemPoolGetAccess(
        flags: *mut CUmemAccess_flags,
        pool: CUmemoryPool,
        location: *mut CUmemLocation,
    ) |call| {
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

    floor cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) |call| {
        let id = call.pool(pool)?;
        if let Some(pool) = call.pools.get_mut(&id) {
            pool.trim(keep);
        }
        Ok(())
    }
}

fn supported(call: &Call) -> Outcome {
    if call.config.memory_pools {
        Ok(())
    } else {
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
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
