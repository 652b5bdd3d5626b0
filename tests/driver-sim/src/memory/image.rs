//! Arrays, textures and surfaces.
//!
//! The texels of an array are a block of the address space, row after row, at an address that no program
//! learns. A mipmap is one block with its levels one after the other.

use cuda_sys::*;

use crate::engine::work::{Place, Target};
use crate::handle::{Id, Objects, pointer};
use crate::memory::place::Owner;
use crate::report::{LeakKind, ViolationKind};
use crate::state::State;

#[derive(Debug)]
pub(crate) struct Images {
    pub(crate) arrays: Objects<Array>,
    pub(crate) mipmaps: Objects<Mipmap>,
    /// Textures and surfaces.
    pub(crate) objects: Objects<Object>,
}

#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) block: Id,
    /// The offset of the first byte within the block.
    pub(crate) start: usize,
    /// The descriptor that the program passed.
    pub(crate) descriptor: Descriptor,
    /// Whether the array is a level of a mipmap, which is destroyed with the mipmap.
    pub(crate) is_level: bool,
}

#[derive(Debug)]
pub(crate) struct Mipmap {
    pub(crate) block: Id,
    /// The arrays of the levels.
    pub(crate) levels: Vec<Id>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: CUarray_format,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// A texture or a surface: the descriptions that the program passed, byte by byte.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) context: Id,
    pub(crate) kind: LeakKind,
    pub(crate) resource: Box<[u8]>,
    pub(crate) texture: Box<[u8]>,
}

const LAYERED: u32 = 1;
pub(crate) const SURFACE: u32 = 2;
const CUBEMAP: u32 = 4;
const GATHER: u32 = 8;

impl Images {
    pub(crate) fn new() -> Self {
        Self {
            arrays: Objects::new(0x7c00_0000),
            mipmaps: Objects::new(0x7400_0000),
            objects: Objects::new(0x7800_0000),
        }
    }

    /// Returns whether a block holds texels.
    pub(crate) fn holds(&self, block: Id) -> bool {
        self.arrays.values().any(|array| array.block == block)
    }
}

impl Descriptor {
    pub(crate) fn read(raw: &CUDA_ARRAY3D_DESCRIPTOR) -> Self {
        Self {
            width: raw.Width,
            height: raw.Height,
            depth: raw.Depth,
            format: raw.Format,
            channels: raw.NumChannels,
            flags: raw.Flags,
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        let Self { width, height, depth, flags, .. } = *self;
        let (layered, cubemap) = (flags & LAYERED != 0, flags & CUBEMAP != 0);
        let faces = width == height && depth % 6 == 0 && depth > 0;
        let shaped = match (layered, cubemap) {
            (_, true) => faces && (layered || depth == 6),
            (true, false) => depth > 0,
            (false, false) => depth == 0 || height > 0,
        };
        let gathers = flags & GATHER == 0 || height > 0 && depth == 0;
        let largest = if depth > 0 && !layered { 16 << 10 } else { 128 << 10 };
        width > 0
            && width <= largest
            && height <= largest
            && depth <= 16 << 10
            && self.channel_bytes().is_some()
            && matches!(self.channels, 1 | 2 | 4)
            && shaped
            && gathers
    }

    fn channel_bytes(&self) -> Option<usize> {
        channel_bytes(self.format)
    }

    /// Returns the bytes of a row.
    pub(crate) fn row(&self) -> usize {
        self.width * self.channels as usize * self.channel_bytes().unwrap_or(0)
    }

    /// Returns the rows of a slice.
    pub(crate) fn rows(&self) -> usize {
        self.height.max(1)
    }

    pub(crate) fn slices(&self) -> usize {
        self.depth.max(1)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.row() * self.rows() * self.slices()
    }

    /// Returns the descriptor of a mipmap's next level.
    pub(crate) fn next(&self) -> Self {
        let half = |size: usize| if size > 1 { size / 2 } else { size };
        let keeps_depth = self.flags & (LAYERED | CUBEMAP) != 0;
        Self {
            width: half(self.width),
            height: half(self.height),
            depth: if keeps_depth { self.depth } else { half(self.depth) },
            ..*self
        }
    }
}

pub(crate) fn channel_bytes(format: CUarray_format) -> Option<usize> {
    Some(match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
        _ => return None,
    })
}

impl State {
    /// Allocates a block for texels on the context's device.
    pub(crate) fn new_texels(
        &mut self,
        call: &'static str,
        context: Id,
        bytes: usize,
    ) -> Result<Id, CUresult> {
        let device = self.contexts[&context].device;
        self.reserve(device, None, bytes)?;
        let (id, _) = self.new_block(call, device, Owner::Context(context), bytes)?;
        Ok(id)
    }

    pub(crate) fn new_array(
        &mut self,
        block: Id,
        start: usize,
        descriptor: Descriptor,
        is_level: bool,
    ) -> Id {
        let id = self.new_id();
        self.images.arrays.add(id, Array { block, start, descriptor, is_level });
        id
    }

    /// Resolves the handle of a texture or a surface to what a kernel reaches by it: an array, or linear
    /// memory in one row. Also returns the number of bytes.
    pub(crate) fn texels(
        &mut self,
        call: &'static str,
        handle: u64,
    ) -> Result<(Id, Place, usize), CUresult> {
        let found = self.images.objects.resolve(pointer::<u8>(handle as usize));
        let Ok(id) = found else {
            let message = format!("there is no texture or surface {handle:#x}");
            self.log.violation(ViolationKind::DanglingHandle, call, message);
            return Err(CUDA_ERROR_INVALID_HANDLE);
        };
        let resource: *const CUDA_RESOURCE_DESC = self.images.objects[&id].resource.as_ptr().cast();
        // SAFETY: the bytes are those of such a description.
        let resource = unsafe { resource.read_unaligned() };
        match resource.resType {
            CU_RESOURCE_TYPE_ARRAY => {
                // SAFETY: the type determines which field of the union is valid.
                let array = unsafe { resource.res.array.hArray };
                let array = self.images.arrays.resolve(array);
                let array = array.map_err(|_| CUDA_ERROR_INVALID_HANDLE)?;
                let Array { block, start, descriptor, .. } = *self.images.arrays[&array];
                Ok((id, Place::Device { block, offset: start }, descriptor.bytes()))
            }
            CU_RESOURCE_TYPE_LINEAR => {
                // SAFETY: the type determines which field of the union is valid.
                let linear = unsafe { resource.res.linear };
                let place = self.device_place(call, linear.devPtr, linear.sizeInBytes)?;
                Ok((id, place, linear.sizeInBytes))
            }
            _ => Err(CUDA_ERROR_NOT_SUPPORTED),
        }
    }

    /// Removes the arrays, textures and surfaces of a context. Their blocks are part of the context's memory.
    pub(crate) fn forget_images(&mut self, context: Id) {
        let Self { images, space, .. } = self;
        let stays = |block: Id| {
            let block = space.blocks.get(&block);
            block.is_none_or(|block| block.context != Some(context))
        };
        images.arrays.retain(|array| stays(array.block));
        images.mipmaps.retain(|mipmap| stays(mipmap.block));
        images.objects.retain(|object| object.context != context);
    }

    /// Frees texels, and reports work that still uses them.
    pub(crate) fn free_texels(&mut self, call: &'static str, block: Id) {
        self.check_host_free(call, Target::Device(block));
        self.release_block(block, call);
    }
}
