//! Pointer attributes.

use std::ffi::{c_int, c_void};

use cuda_sys::*;

use crate::call::{Call, Outcome, list, put};
use crate::handle::{Id, pointer};
use crate::memory::pinned::Origin;

entries! {
    cuPointerGetAttribute(data, attribute, address) |call| {
        let answer = attribute_of(call, attribute, address)?;
        // SAFETY: the caller passes a place of the attribute's type.
        unsafe { answer.store(data) }
    }

    cuPointerGetAttributes(count, attributes, data, address) |call| {
        if attributes.is_null() || data.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller passes `count` attributes.
        let attributes = unsafe { list(attributes, count as usize) }?;
        // SAFETY: the caller passes `count` places.
        let places = unsafe { list(data, count as usize) }?;
        for (&attribute, &place) in attributes.iter().zip(places) {
            let answer = match attribute_of(call, attribute, address) {
                Ok(answer) => answer,
                // This function returns zeroes for unknown addresses.
                Err(CUDA_ERROR_INVALID_VALUE) => Answer::zero(attribute)?,
                Err(code) => return Err(code),
            };
            // SAFETY: the place is of the attribute's type.
            unsafe { answer.store(place) }?;
        }
        Ok(())
    }
}

/// A value of the attribute's width.
enum Answer {
    Byte(u8),
    Word(u32),
    Long(u64),
    Pointer(*mut c_void),
}

impl Answer {
    /// Returns the attribute's value for an address that the driver does not know.
    fn zero(attribute: CUpointer_attribute) -> Outcome<Self> {
        Ok(match attribute {
            CU_POINTER_ATTRIBUTE_CONTEXT
            | CU_POINTER_ATTRIBUTE_HOST_POINTER
            | CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => Self::Pointer(std::ptr::null_mut()),
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Self::Word(0),
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Self::Word(-2_i32 as u32),
            CU_POINTER_ATTRIBUTE_IS_MANAGED | CU_POINTER_ATTRIBUTE_MAPPED => Self::Byte(0),
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER
            | CU_POINTER_ATTRIBUTE_BUFFER_ID
            | CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
            | CU_POINTER_ATTRIBUTE_RANGE_SIZE => Self::Long(0),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// # Safety
    /// `to` is null or valid for a write of the attribute's type.
    unsafe fn store(self, to: *mut c_void) -> Outcome {
        match self {
            // SAFETY: this function's contract.
            Self::Byte(value) => unsafe { put(to.cast(), value) },
            // SAFETY: this function's contract.
            Self::Word(value) => unsafe { put(to.cast(), value) },
            // SAFETY: this function's contract.
            Self::Long(value) => unsafe { put(to.cast(), value) },
            // SAFETY: this function's contract.
            Self::Pointer(value) => unsafe { put(to.cast(), value) },
        }
    }
}

/// The allocation that contains an address.
struct Found {
    id: Id,
    context: Option<Id>,
    device: usize,
    start: CUdeviceptr,
    size: usize,
    kind: CUmemorytype,
    host: Option<*mut c_void>,
    pool: Option<Id>,
    managed: bool,
}

fn find(call: &Call, address: CUdeviceptr) -> Option<Found> {
    if let Some((id, offset)) = call.pinned.find(address as usize) {
        let block = &call.pinned.blocks[&id];
        let managed = block.origin == Origin::Managed;
        return Some(Found {
            id,
            context: Some(block.context),
            device: block.device,
            start: address - offset as u64,
            size: block.size,
            kind: if managed { CU_MEMORYTYPE_DEVICE } else { CU_MEMORYTYPE_HOST },
            host: Some(block.base.0.wrapping_add(offset).cast()),
            pool: None,
            managed,
        });
    }
    let id = call.space.find(address)?;
    let block = &call.space.blocks[&id];
    (block.is_held() && block.contains(address)).then_some(Found {
        id,
        context: block.context,
        device: block.device,
        start: block.address,
        size: block.size,
        kind: CU_MEMORYTYPE_DEVICE,
        host: None,
        pool: block.pool,
        managed: false,
    })
}

fn attribute_of(
    call: &Call,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> Outcome<Answer> {
    let found = find(call, address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok(match attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT => {
            let context = found.context.and_then(|id| call.contexts.get(&id));
            Answer::Pointer(pointer(context.map_or(0, |context| context.handle)))
        }
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Answer::Word(found.kind.0),
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER => Answer::Long(address),
        CU_POINTER_ATTRIBUTE_HOST_POINTER => {
            Answer::Pointer(found.host.ok_or(CUDA_ERROR_INVALID_VALUE)?)
        }
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => Answer::Word(0),
        CU_POINTER_ATTRIBUTE_BUFFER_ID => Answer::Long(found.id),
        CU_POINTER_ATTRIBUTE_IS_MANAGED => Answer::Byte(found.managed.into()),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Answer::Word(found.device as c_int as u32),
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => Answer::Long(found.start),
        CU_POINTER_ATTRIBUTE_RANGE_SIZE => Answer::Long(found.size as u64),
        CU_POINTER_ATTRIBUTE_MAPPED => Answer::Byte(1),
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => {
            let pool = found.pool.and_then(|id| call.pools.get(&id));
            Answer::Pointer(pointer(pool.map_or(0, |pool| pool.handle)))
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}
