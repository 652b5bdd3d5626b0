//! Memory pools.

use std::ffi::c_int;

use cuda_sys::*;

use super::virtual_memory::located;
use crate::call::{Call, Outcome, list, put};
use crate::descriptor::{descriptor, file};
use crate::handle::pointer;
use crate::memory::place::Owner;
use crate::memory::pool::{Gauge, Pool};

const POSIX_FD: u32 = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;

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
        // SAFETY: the caller passes properties, or null.
        let props = unsafe { props.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if pool.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let device = located(call, &props.location)?;
        let is_pinned = props.allocType == CU_MEM_ALLOCATION_TYPE_PINNED;
        let known = [0, POSIX_FD].contains(&props.handleTypes.0);
        if !is_pinned || !known || !props.win32SecurityAttributes.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.forbid_in_capture()?;
        let id = call.new_pool(Pool {
            max_size: props.maxSize,
            handle_types: props.handleTypes.0,
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
        let (device, in_use) = (pool.device, pool.used.current > 0);
        // Allocated blocks stay valid until they are freed.
        pool.destroyed = true;
        call.pools.retire(&id);
        if !in_use {
            call.pools.remove(&id);
        }
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
        let owner = call.pools[&id].device;
        // SAFETY: the caller passes `count` descriptions.
        for desc in unsafe { list(map, count) }? {
            let device = located(call, &desc.location)?;
            let reachable = device == owner || super::peer::reaches(call, device, owner);
            let opens = match desc.flags {
                CU_MEM_ACCESS_FLAGS_PROT_READWRITE => true,
                CU_MEM_ACCESS_FLAGS_PROT_NONE if device != owner => false,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            };
            if !reachable {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let Some(pool) = call.pools.get_mut(&id).filter(|_| device != owner) else { continue };
            if opens {
                pool.access.insert(device);
            } else {
                pool.access.remove(&device);
            }
        }
        Ok(())
    }

    cuMemPoolGetAccess(flags, pool, location) |call| {
        call.forbid_in_capture()?;
        let id = call.pool(pool)?;
        // SAFETY: the caller passes a location, or null.
        let location = unsafe { location.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let value = match call.pools[&id].is_open_to(located(call, location)?) {
            true => CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            false => CU_MEM_ACCESS_FLAGS_PROT_NONE,
        };
        // SAFETY: the caller passes a place for the flags.
        unsafe { put(flags, value) }
    }

    cuMemPoolExportToShareableHandle(shareable, pool, kind, flags) |call| {
        let id = call.pool(pool)?;
        let offered = call.pools[&id].handle_types;
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || offered & POSIX_FD == 0 || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (fd, file) = descriptor().ok_or(CUDA_ERROR_OPERATING_SYSTEM)?;
        for pool in call.pools.values_mut() {
            // A system may give a new file the number of a deleted one.
            pool.exported.retain(|&old| old != file);
        }
        if let Some(pool) = call.pools.get_mut(&id) {
            pool.exported.push(file);
        }
        // SAFETY: the caller passes a place for an int.
        unsafe { put(shareable.cast::<c_int>(), fd) }
    }

    cuMemPoolImportFromShareableHandle(pool, shareable, kind, flags) |call| {
        let file = file(shareable.addr() as c_int).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let source = call.pools.values().find(|pool| pool.exported.contains(&file));
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
        // As on driver 580: the pool must be shareable, and exported before.
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
        // Only the addresses are imported: writes by another process are not simulated.
        let device = call.pools[&id].device;
        let bytes = exported.bytes as usize;
        let (_, start) = call.allocate(device, Owner::Context(context), bytes)?;
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
