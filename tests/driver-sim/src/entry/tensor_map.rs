//! Tensor maps. A simulated one begins with the address and the number of dimensions; no simulated kernel
//! copies with it.

use std::slice;

use cuda_sys::*;

use crate::call::{Outcome, put};

entries! {
    cuTensorMapEncodeTiled(
        map, ty, rank, address, shape, strides, tile, steps, interleave, swizzle, promotion, fill,
    ) |call| {
        call.current()?;
        let bytes: u64 = match ty {
            CU_TENSOR_MAP_DATA_TYPE_UINT8 => 1,
            CU_TENSOR_MAP_DATA_TYPE_UINT16 | CU_TENSOR_MAP_DATA_TYPE_FLOAT16
            | CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 => 2,
            CU_TENSOR_MAP_DATA_TYPE_UINT64 | CU_TENSOR_MAP_DATA_TYPE_INT64
            | CU_TENSOR_MAP_DATA_TYPE_FLOAT64 => 8,
            _ => 4,
        };
        let plain = interleave == CU_TENSOR_MAP_INTERLEAVE_NONE;
        let dims = rank as usize;
        valid((if plain { 1 } else { 3 }..=5).contains(&rank) && map.addr() % 64 == 0)?;
        valid(![shape, strides].contains(&std::ptr::null()) && ![tile, steps].contains(&std::ptr::null()))?;
        // SAFETY: not null, so the caller passes a number for each dimension.
        let shape = unsafe { slice::from_raw_parts(shape, dims) };
        // SAFETY: not null, so the caller passes a number for each dimension but the innermost.
        let strides = unsafe { slice::from_raw_parts(strides, dims - 1) };
        // SAFETY: not null, so the caller passes a number for each dimension.
        let tile = unsafe { slice::from_raw_parts(tile, dims) };
        // SAFETY: not null, so the caller passes a number for each dimension.
        let steps = unsafe { slice::from_raw_parts(steps, dims) };
        let unit = if interleave == CU_TENSOR_MAP_INTERLEAVE_32B { 32 } else { 16 };
        valid(address.addr() as u64 % unit == 0)?;
        valid(shape.iter().all(|len| (1..=1 << 32).contains(len)))?;
        valid(strides.iter().all(|stride| stride % unit == 0 && *stride < 1 << 40))?;
        valid(tile.iter().all(|len| (1..=256).contains(len)))?;
        valid(steps.iter().all(|step| (1..=8).contains(step)))?;
        let row = u64::from(tile[0]) * bytes;
        let most = match swizzle {
            CU_TENSOR_MAP_SWIZZLE_32B => 32,
            CU_TENSOR_MAP_SWIZZLE_64B => 64,
            CU_TENSOR_MAP_SWIZZLE_128B => 128,
            _ => u64::MAX,
        };
        valid(!plain || row % 16 == 0 && row <= most)?;
        let mut encoded = CUtensorMap::default();
        let numbers = [address.addr() as u64, rank.into(), promotion.0 as u64, fill.0 as u64];
        encoded.opaque[..4].copy_from_slice(&numbers);
        // SAFETY: aligned, so not null; the caller passes a place for a map.
        unsafe { put(map, encoded) }
    }
}

fn valid(holds: bool) -> Outcome {
    if holds { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}
