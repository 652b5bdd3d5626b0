//! Green contexts. Multiprocessors are counted and divided; this does not affect how work runs.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use cuda_sys::*;

use super::primary;
use super::stream::create_in;
use crate::call::{Call, Outcome, list, put, put_if};
use crate::context::ContextKind;
use crate::handle::{Id, pointer};

/// `CUdevResource`, whose padding holds the driver's own data.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
struct Resource {
    kind: CUdevResourceType,
    device: u32,
    /// The split that made the resource; zero for a device's own.
    split: u64,
    _padding: [u8; 80],
    count: u32,
    smallest: u32,
    alignment: u32,
    _oversize: [u8; 36],
}

const _: () = assert!(size_of::<Resource>() == size_of::<CUdevResource>());

/// The granularity of splits for compute capability 9.
const STEP: u32 = 8;

/// The distance of a green context's handle from its context's.
const GREEN: usize = 8;
const DESCRIPTION: usize = 0x7F00_0000;

/// The device of each description, and its number of multiprocessors. Descriptions stay valid for the life of
/// the process.
static DESCRIPTIONS: Mutex<Vec<(usize, u32)>> = Mutex::new(Vec::new());

/// The number of multiprocessors of each green context, by its context's identity.
static COUNTS: Mutex<BTreeMap<Id, u32>> = Mutex::new(BTreeMap::new());

fn resource(device: usize, split: u64, count: u32) -> Resource {
    Resource {
        kind: if count == 0 { CU_DEV_RESOURCE_TYPE_INVALID } else { CU_DEV_RESOURCE_TYPE_SM },
        device: device as u32,
        split,
        _padding: [0; 80],
        count,
        smallest: STEP,
        alignment: STEP,
        _oversize: [0; 36],
    }
}

entries! {
    cuDeviceGetDevResource(dev, to, kind) |call| {
        let device = call.device(dev)?;
        if kind != CU_DEV_RESOURCE_TYPE_SM {
            return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        let count = multiprocessors(call, device);
        // SAFETY: the caller passes a place for the resource.
        unsafe { put(to.cast(), resource(device, 0, count)) }
    }

    cuDevSmResourceSplitByCount(result, groups, input, remaining, _flags, least) |call| {
        if groups.is_null() || input.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so the caller passes a resource.
        let input = unsafe { input.cast::<Resource>().read() };
        // SAFETY: not null, so the caller passes a number.
        let wanted = unsafe { groups.read() };
        if input.kind != CU_DEV_RESOURCE_TYPE_SM {
            return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        if least > input.count {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let each = least.max(1).next_multiple_of(STEP);
        let possible = input.count / each;
        // A part made by a split can be split again only through a green context.
        if possible == 0 || input.split != 0 {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        let device = input.device as usize;
        let split = call.new_id();
        let made = if result.is_null() { possible } else { possible.min(wanted) };
        if !result.is_null() {
            for index in 0..made as usize {
                // SAFETY: the caller passes room for `wanted` resources, and `made` is no more.
                let place = unsafe { result.add(index) };
                // SAFETY: `place` is within the room for `wanted` resources that the caller passes.
                unsafe { put(place.cast(), resource(device, split, each)) }?;
            }
        }
        let rest = resource(device, split, input.count - made * each);
        // SAFETY: the caller passes a place for a resource, or null.
        unsafe { put_if(remaining.cast(), rest) };
        // SAFETY: the caller passes a place for the number.
        unsafe { put(groups, made) }
    }

    cuDevResourceGenerateDesc(description, resources, count) |_call| {
        // SAFETY: the caller passes `count` resources.
        let resources = unsafe { list(resources.cast::<Resource>(), count as usize) }?;
        let first = *resources.first().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if resources.iter().any(|one| one.kind != CU_DEV_RESOURCE_TYPE_SM) {
            return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        if resources.iter().any(|one| (one.device, one.split) != (first.device, first.split)) {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        let mut all = DESCRIPTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let count = resources.iter().map(|one| one.count).sum();
        all.push((first.device as usize, count));
        // SAFETY: the caller passes a place for the handle.
        unsafe { put(description, pointer(DESCRIPTION + all.len())) }
    }

    cuGreenCtxCreate(green, description, dev, flags) |call| {
        let device = call.device(dev)?;
        let index = description.addr().checked_sub(DESCRIPTION + 1);
        let described = index.and_then(|index| {
            let all = DESCRIPTIONS.lock().unwrap_or_else(PoisonError::into_inner);
            all.get(index).copied()
        });
        let Some((_, count)) = described.filter(|(of, _)| *of == device) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        if green.is_null() || flags != CU_GREEN_CTX_DEFAULT_STREAM.0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        primary::retain(call, device);
        let id = call.new_context(device, ContextKind::Green, 0);
        COUNTS.lock().unwrap_or_else(PoisonError::into_inner).insert(id, count);
        // SAFETY: the caller passes a place for the handle.
        unsafe { put(green, pointer(call.contexts[&id].handle + GREEN)) }
    }

    cuCtxFromGreenCtx(context, green) |call| {
        let id = find(call, green)?;
        // SAFETY: the caller passes a place for the context.
        unsafe { put(context, pointer(call.contexts[&id].handle)) }
    }

    cuGreenCtxStreamCreate(stream, green, flags, priority) |call| {
        let id = find(call, green)?;
        if flags != CU_STREAM_NON_BLOCKING.0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller passes a place for the stream.
        unsafe { create_in(call, id, stream, flags, priority) }
    }

    cuGreenCtxGetDevResource(green, to, kind) |call| {
        let id = find(call, green)?;
        // SAFETY: the caller passes a place for the resource.
        unsafe { resource_of(call, id, to, kind) }
    }

    cuCtxGetDevResource(context, to, kind) |call| {
        let id = call.context(context)?;
        // SAFETY: the caller passes a place for the resource.
        unsafe { resource_of(call, id, to, kind) }
    }

    cuGreenCtxDestroy(green) |call| {
        let id = find(call, green)?;
        let device = call.contexts[&id].device;
        let name = call.name;
        call.destroy_context(id, name);
        primary::release(call, device)
    }
}

/// Returns the number of multiprocessors of a device.
fn multiprocessors(call: &Call, device: usize) -> u32 {
    let attribute = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    let count = crate::device::attribute(attribute, device, &call.config);
    count.unwrap_or(0).unsigned_abs()
}

/// Returns the multiprocessors that a context's work runs on.
///
/// # Safety
/// `to` is null or valid for a write.
unsafe fn resource_of(
    call: &Call,
    context: Id,
    to: *mut CUdevResource,
    kind: CUdevResourceType,
) -> Outcome {
    if kind != CU_DEV_RESOURCE_TYPE_SM {
        return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    let device = call.contexts[&context].device;
    let counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let count = counts.get(&context).copied();
    let count = count.unwrap_or_else(|| multiprocessors(call, device));
    // SAFETY: this function's contract.
    unsafe { put(to.cast(), resource(device, 0, count)) }
}

fn find(call: &mut Call, green: CUgreenCtx) -> Outcome<Id> {
    let context = green.addr().saturating_sub(GREEN);
    let id = call.context(pointer(context))?;
    match call.contexts[&id].kind {
        ContextKind::Green => Ok(id),
        ContextKind::Primary | ContextKind::Created => Err(CUDA_ERROR_INVALID_CONTEXT),
    }
}
