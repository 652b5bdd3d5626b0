//! Arrays, mipmapped or not.

use cuda_sys::*;

use crate::call::{Call, Outcome, put};
use crate::engine::work::Place;
use crate::handle::{Id, pointer};
use crate::memory::image::{Descriptor, Mipmap};
use crate::report::ViolationKind;

entries! {
    cuArray3DCreate_v2(array, descriptor) |call| {
        let context = call.current()?;
        // SAFETY: the caller passes a descriptor.
        let descriptor = unsafe { read(descriptor) }?;
        call.forbid_in_capture()?;
        let name = call.name;
        let block = call.new_texels(name, context, descriptor.bytes())?;
        let id = call.new_array(block, 0, descriptor, false);
        // SAFETY: the caller passes a place for the handle.
        unsafe { put(array, pointer(call.images.arrays[&id].handle)) }
    }

    cuArray3DGetDescriptor_v2(descriptor, array) |call| {
        let id = call.array(array)?;
        let shape = call.images.arrays[&id].descriptor;
        let value = CUDA_ARRAY3D_DESCRIPTOR {
            Width: shape.width,
            Height: shape.height,
            Depth: shape.depth,
            Format: shape.format,
            NumChannels: shape.channels,
            Flags: shape.flags,
        };
        // SAFETY: the caller passes a place for the descriptor.
        unsafe { put(descriptor, value) }
    }

    cuArrayDestroy(array) |call| {
        let id = call.array(array)?;
        if call.images.arrays[&id].is_level {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        call.forbid_in_capture()?;
        let block = call.images.arrays[&id].block;
        let name = call.name;
        call.free_texels(name, block);
        call.images.arrays.remove(&id);
        Ok(())
    }

    cuMipmappedArrayCreate(mipmap, descriptor, levels) |call| {
        call.forbid_in_capture()?;
        let context = call.current()?;
        // SAFETY: the caller passes a descriptor.
        let descriptor = unsafe { read(descriptor) }?;
        if levels == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // "Clamped to the range [1, 1 + floor(log2(max(width, height, depth)))]".
        let longest = descriptor.width.max(descriptor.height).max(descriptor.depth).max(1);
        let levels = levels.min(1 + longest.ilog2());
        let mut shapes = vec![descriptor];
        for _ in 1..levels {
            let next = shapes[shapes.len() - 1].next();
            shapes.push(next);
        }
        let bytes = shapes.iter().map(Descriptor::bytes).sum();
        let name = call.name;
        let block = call.new_texels(name, context, bytes)?;
        let mut start = 0;
        let mut arrays = Vec::new();
        for shape in shapes {
            arrays.push(call.new_array(block, start, shape, true));
            start += shape.bytes();
        }
        let id = call.new_id();
        let handle = call.images.mipmaps.add(id, Mipmap { block, levels: arrays });
        // SAFETY: the caller passes a place for the handle.
        unsafe { put(mipmap, pointer(handle)) }
    }

    cuMipmappedArrayGetLevel(array, mipmap, level) |call| {
        let id = call.mipmap(mipmap)?;
        let levels = &call.images.mipmaps[&id].levels;
        let level = levels.get(level as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the caller passes a place for the handle.
        unsafe { put(array, pointer(call.images.arrays[level].handle)) }
    }

    cuMipmappedArrayDestroy(mipmap) |call| {
        call.forbid_in_capture()?;
        let id = call.mipmap(mipmap)?;
        let Some(mipmap) = call.images.mipmaps.remove(&id) else {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        };
        let name = call.name;
        call.free_texels(name, mipmap.block);
        for level in mipmap.levels {
            call.images.arrays.remove(&level);
        }
        Ok(())
    }
}

/// # Safety
/// `descriptor` is null or valid for a read.
unsafe fn read(descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) -> Outcome<Descriptor> {
    // SAFETY: this function's contract.
    let descriptor = unsafe { descriptor.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let descriptor = Descriptor::read(descriptor);
    if descriptor.is_valid() { Ok(descriptor) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

impl Call {
    pub(crate) fn array(&mut self, handle: CUarray) -> Outcome<Id> {
        let found = self.images.arrays.resolve(handle);
        found.map_err(|_| self.no_image("array", handle.addr()))
    }

    pub(crate) fn mipmap(&mut self, handle: CUmipmappedArray) -> Outcome<Id> {
        let found = self.images.mipmaps.resolve(handle);
        found.map_err(|_| self.no_image("mipmapped array", handle.addr()))
    }

    /// Reports a part of an array that exceeds the array. `from` is the part's first byte, row and slice;
    /// `to` is one beyond its last.
    pub(crate) fn check_texels(
        &mut self,
        array: CUarray,
        from: [usize; 3],
        to: [usize; 3],
    ) -> Outcome {
        let id = self.array(array)?;
        let shape = self.images.arrays[&id].descriptor;
        let size = [shape.row(), shape.rows(), shape.slices()];
        if to.iter().zip(size).all(|(end, len)| *end <= len) {
            return Ok(());
        }
        let message = format!("{from:?} to {to:?} of an array of {size:?}");
        self.violation(ViolationKind::OutOfRange, message);
        Err(CUDA_ERROR_INVALID_VALUE)
    }

    /// Returns the place of a byte in a row of a slice.
    pub(crate) fn texel_place(&mut self, array: CUarray, [x, y, z]: [usize; 3]) -> Outcome<Place> {
        let id = self.array(array)?;
        let array = &self.images.arrays[&id];
        let shape = array.descriptor;
        Ok(Place::Device {
            block: array.block,
            offset: array.start + (z * shape.rows() + y) * shape.row() + x,
        })
    }

    pub(crate) fn no_image(&mut self, what: &str, handle: usize) -> CUresult {
        let message = format!("there is no {what} {handle:#x}");
        self.violation(ViolationKind::DanglingHandle, message);
        CUDA_ERROR_INVALID_HANDLE
    }
}
