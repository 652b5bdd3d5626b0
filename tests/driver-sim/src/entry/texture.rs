//! Texture and surface objects: stores and checks their descriptions.

use cuda_sys::*;

use crate::call::{Call, Outcome, put};
use crate::handle::{Id, pointer};
use crate::memory::image::{Object, SURFACE, channel_bytes};
use crate::report::LeakKind;

/// `CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT`.
const ALIGNMENT: u64 = 512;
/// `CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT`.
const PITCH_ALIGNMENT: usize = 32;

entries! {
    cuTexObjectCreate(object, resource, texture, view) |call| {
        call.forbid_in_capture()?;
        call.current()?;
        // The safe layer passes no view.
        if texture.is_null() || !view.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller passes a description, or null.
        let given = unsafe { resource.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the caller sets the fields that the description's type names.
        unsafe { check_resource(call, given) }?;
        // SAFETY: `as_ref` succeeded, so not null; the caller passes a description.
        let resource = unsafe { bytes(resource) };
        // SAFETY: not null, so the caller passes a description.
        let mut texture = unsafe { texture.read() };
        if !texture.addressMode.contains(&CU_TR_ADDRESS_MODE_BORDER) {
            // Driver 580 returns it like this.
            texture.borderColor = [0.0; 4];
        }
        // SAFETY: a local variable; the caller has set all of its bytes.
        let texture = unsafe { bytes(&raw const texture) };
        let handle = new_object(call, LeakKind::Texture, resource, texture)?;
        // SAFETY: the caller passes a place for the handle.
        unsafe { put(object, handle as u64) }
    }

    cuTexObjectDestroy(object) |call| {
        call.forbid_in_capture()?;
        destroy(call, object, LeakKind::Texture)
    }

    cuTexObjectGetResourceDesc(resource, object) |call| {
        let id = find(call, object, LeakKind::Texture)?;
        let bytes = call.images.objects[&id].resource.clone();
        // SAFETY: the caller passes a place for the description.
        unsafe { put_bytes(resource, &bytes) }
    }

    cuTexObjectGetTextureDesc(texture, object) |call| {
        let id = find(call, object, LeakKind::Texture)?;
        let bytes = call.images.objects[&id].texture.clone();
        // SAFETY: the caller passes a place for the description.
        unsafe { put_bytes(texture, &bytes) }
    }

    cuSurfObjectCreate(object, resource) |call| {
        call.current()?;
        // SAFETY: the caller passes a description.
        let given = unsafe { resource.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if given.resType != CU_RESOURCE_TYPE_ARRAY {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the type determines which field of the union is valid.
        let array = unsafe { given.res.array.hArray };
        let id = own_array(call, array)?;
        if call.images.arrays[&id].descriptor.flags & SURFACE == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: `as_ref` succeeded, so not null; the caller passes a description.
        let resource = unsafe { bytes(resource) };
        let handle = new_object(call, LeakKind::Surface, resource, Box::default())?;
        // SAFETY: the caller passes a place for the handle.
        unsafe { put(object, handle as u64) }
    }

    cuSurfObjectDestroy(object) |call| {
        destroy(call, object, LeakKind::Surface)
    }

    cuSurfObjectGetResourceDesc(resource, object) |call| {
        let id = find(call, object, LeakKind::Surface)?;
        let bytes = call.images.objects[&id].resource.clone();
        // SAFETY: the caller passes a place for the description.
        unsafe { put_bytes(resource, &bytes) }
    }
}

/// Resolves an array of the current context. Driver 580 refuses arrays of other contexts, although copies of
/// them succeed in any context of the device. It accepts mipmapped arrays and linear memory of other
/// contexts.
fn own_array(call: &mut Call, array: CUarray) -> Outcome<Id> {
    let id = call.array(array)?;
    let block = &call.space.blocks[&call.images.arrays[&id].block];
    let current = Some(call.current()?);
    if block.context == current { Ok(id) } else { Err(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED) }
}

/// # Safety
/// The fields that the description's type names are set.
unsafe fn check_resource(call: &mut Call, resource: &CUDA_RESOURCE_DESC) -> Outcome {
    if resource.flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    match resource.resType {
        CU_RESOURCE_TYPE_ARRAY => {
            // SAFETY: the type determines which field of the union is valid.
            let array = unsafe { resource.res.array.hArray };
            own_array(call, array).map(drop)
        }
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
            // SAFETY: the type determines which field of the union is valid.
            let mipmap = unsafe { resource.res.mipmap.hMipmappedArray };
            call.mipmap(mipmap).map(drop)
        }
        CU_RESOURCE_TYPE_LINEAR => {
            // SAFETY: the type determines which field of the union is valid.
            let linear = unsafe { resource.res.linear };
            call.device_memory(linear.devPtr, linear.sizeInBytes)?;
            if linear.devPtr % ALIGNMENT == 0 && linear.sizeInBytes > 0 {
                Ok(())
            } else {
                Err(CUDA_ERROR_INVALID_VALUE)
            }
        }
        CU_RESOURCE_TYPE_PITCH2D => {
            // SAFETY: the type determines which field of the union is valid.
            let plane = unsafe { resource.res.pitch2D };
            if plane.width == 0 || plane.height == 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let texel = channel_bytes(plane.format).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let row = plane.width.checked_mul(texel * plane.numChannels as usize);
            let rows = plane.pitchInBytes.checked_mul(plane.height - 1);
            let bytes = row.zip(rows).and_then(|(row, rows)| rows.checked_add(row));
            call.device_memory(plane.devPtr, bytes.ok_or(CUDA_ERROR_INVALID_VALUE)?)?;
            if plane.devPtr % ALIGNMENT == 0 && plane.pitchInBytes % PITCH_ALIGNMENT == 0 {
                Ok(())
            } else {
                Err(CUDA_ERROR_INVALID_VALUE)
            }
        }
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn new_object(
    call: &mut Call,
    kind: LeakKind,
    resource: Box<[u8]>,
    texture: Box<[u8]>,
) -> Outcome<usize> {
    let (context, id) = (call.current()?, call.new_id());
    Ok(call.images.objects.add(id, Object { context, kind, resource, texture }))
}

fn find(call: &mut Call, object: u64, kind: LeakKind) -> Outcome<Id> {
    let handle = pointer::<u8>(object as usize);
    let found = call.images.objects.resolve(handle).ok();
    let found = found.filter(|id| call.images.objects[id].kind == kind);
    found.ok_or_else(|| call.no_image("texture or surface", object as usize))
}

fn destroy(call: &mut Call, object: u64, kind: LeakKind) -> Outcome {
    let id = find(call, object, kind)?;
    call.images.objects.remove(&id);
    Ok(())
}

/// # Safety
/// `from` is valid for a read and has no uninitialised byte: callers zero descriptions before they fill them
/// in.
unsafe fn bytes<T>(from: *const T) -> Box<[u8]> {
    // SAFETY: this function's contract.
    unsafe { std::slice::from_raw_parts(from.cast(), size_of::<T>()) }.into()
}

/// # Safety
/// `to` is null or valid for a write; `bytes` are the bytes of a `T`.
unsafe fn put_bytes<T>(to: *mut T, bytes: &[u8]) -> Outcome {
    if to.is_null() || bytes.len() != size_of::<T>() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: this function's contract; `to` has as many bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
    Ok(())
}
