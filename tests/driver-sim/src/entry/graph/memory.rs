//! Attributes of the memory that graphs allocate.

use cuda_sys::*;

use crate::call::put;
use crate::graph::node::NodeKind;

entries! {
    cuDeviceGetGraphMemAttribute(device, attribute, value) |call| {
        let device = call.device(device)?;
        let pool = &call.pools[&call.devices[device].graph_pool];
        let found = match attribute {
            CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => pool.used.current,
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => pool.used.high,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => pool.reserved.current,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => pool.reserved.high,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        // SAFETY: all attributes are 64-bit, and the caller passes a place for one.
        unsafe { put(value.cast::<u64>(), found as u64) }
    }

    cuDeviceSetGraphMemAttribute(device, attribute, value) |call| {
        let device = call.device(device)?;
        if value.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so the caller passes a 64-bit value.
        let value = unsafe { value.cast::<u64>().read() };
        let pool = call.devices[device].graph_pool;
        let pool = call.pools.get_mut(&pool).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let gauge = match attribute {
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => &mut pool.used,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => &mut pool.reserved,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        if value != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        gauge.high = gauge.current;
        Ok(())
    }

    cuDeviceGraphMemTrim(device) |call| {
        let device = call.device(device)?;
        let pool = call.devices[device].graph_pool;
        if let Some(pool) = call.pools.get_mut(&pool) {
            pool.trim(0);
        }
        Ok(())
    }

    cuGraphMemFreeNodeGetParams(node, address) |call| {
        let id = call.node(node)?;
        let NodeKind::Free(block) = call.graphs.nodes[&id].task.kind else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let found = call.space.blocks.get(&block).map_or(0, |block| block.address);
        // SAFETY: the caller passes a place for the address.
        unsafe { put(address, found) }
    }
}
