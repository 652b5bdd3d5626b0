//! Copies in rows: `cuMemcpy2DAsync`, `cuMemcpy3DAsync` and `cuMemcpy3DPeerAsync`.

use cuda_sys::*;

use super::copy::{admit, finish};
use crate::call::{Call, Outcome};
use crate::engine::enqueue::Submission;
use crate::engine::work::{AccessKind, HostPtr, Place, Work};

entries! {
    floor cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream) |call| {
        // SAFETY: the caller passes a description, or null.
        let copy = unsafe { copy.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let source = Side {
            kind: copy.srcMemoryType,
            host: copy.srcHost.cast_mut().cast(),
            device: copy.srcDevice,
            array: copy.srcArray,
            at: [copy.srcXInBytes, copy.srcY, 0],
            pitch: copy.srcPitch,
            slice_height: copy.Height + copy.srcY,
        };
        let destination = Side {
            kind: copy.dstMemoryType,
            host: copy.dstHost.cast(),
            device: copy.dstDevice,
            array: copy.dstArray,
            at: [copy.dstXInBytes, copy.dstY, 0],
            pitch: copy.dstPitch,
            slice_height: copy.Height + copy.dstY,
        };
        let size = [copy.WidthInBytes, copy.Height, 1];
        // SAFETY: the caller's description names memory of that size.
        unsafe { rows(call, &source, &destination, size, Devices::One, stream) }
    }

    floor cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream) |call| {
        // SAFETY: the caller passes a description, or null.
        let copy = unsafe { copy.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let source = Side {
            kind: copy.srcMemoryType,
            host: copy.srcHost.cast_mut().cast(),
            device: copy.srcDevice,
            array: copy.srcArray,
            at: [copy.srcXInBytes, copy.srcY, copy.srcZ],
            pitch: copy.srcPitch,
            slice_height: copy.srcHeight,
        };
        let destination = Side {
            kind: copy.dstMemoryType,
            host: copy.dstHost.cast(),
            device: copy.dstDevice,
            array: copy.dstArray,
            at: [copy.dstXInBytes, copy.dstY, copy.dstZ],
            pitch: copy.dstPitch,
            slice_height: copy.dstHeight,
        };
        let size = [copy.WidthInBytes, copy.Height, copy.Depth];
        // SAFETY: the caller's description names memory of that size.
        unsafe { rows(call, &source, &destination, size, Devices::One, stream) }
    }

    floor cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) |call| {
        // SAFETY: the caller passes a description, or null.
        let copy = unsafe { copy.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        call.context(copy.srcContext)?;
        call.context(copy.dstContext)?;
        let source = Side {
            kind: copy.srcMemoryType,
            host: copy.srcHost.cast_mut().cast(),
            device: copy.srcDevice,
            array: copy.srcArray,
            at: [copy.srcXInBytes, copy.srcY, copy.srcZ],
            pitch: copy.srcPitch,
            slice_height: copy.srcHeight,
        };
        let destination = Side {
            kind: copy.dstMemoryType,
            host: copy.dstHost.cast(),
            device: copy.dstDevice,
            array: copy.dstArray,
            at: [copy.dstXInBytes, copy.dstY, copy.dstZ],
            pitch: copy.dstPitch,
            slice_height: copy.dstHeight,
        };
        let size = [copy.WidthInBytes, copy.Height, copy.Depth];
        // SAFETY: the caller's description names memory of that size.
        unsafe { rows(call, &source, &destination, size, Devices::Named, stream) }
    }
}

/// Whether the call names the devices of its memory.
#[derive(PartialEq)]
enum Devices {
    One,
    Named,
}

struct Side {
    kind: CUmemorytype,
    host: *mut u8,
    device: CUdeviceptr,
    array: CUarray,
    /// Bytes, rows and slices before the first byte.
    at: [usize; 3],
    pitch: usize,
    slice_height: usize,
}

/// `CU_DEVICE_ATTRIBUTE_MAX_PITCH`.
const MAX_PITCH: usize = i32::MAX as usize;

impl Side {
    fn check(&self, call: &mut Call, [width, height, depth]: [usize; 3]) -> Outcome {
        let [x, y, z] = self.at;
        if self.kind == CU_MEMORYTYPE_ARRAY {
            return call.check_texels(self.array, self.at, [x + width, y + height, z + depth]);
        }
        let rows = depth <= 1 || y + height <= self.slice_height;
        if x + width <= self.pitch && self.pitch <= MAX_PITCH && rows {
            Ok(())
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }

    /// The bytes of one row.
    fn row(&self, call: &mut Call, y: usize, z: usize, width: usize) -> Outcome<Place> {
        let [x, first, slice] = self.at;
        if self.kind == CU_MEMORYTYPE_ARRAY {
            return call.texel_place(self.array, [x, first + y, slice + z]);
        }
        let offset = ((z + slice) * self.slice_height + first + y) * self.pitch + x;
        let name = call.name;
        match self.kind {
            CU_MEMORYTYPE_HOST => call.host_place(name, self.host.wrapping_add(offset), width),
            CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => {
                call.device_place(name, self.device + offset as u64, width)
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// # Safety
/// Where the sides name pageable memory, it is valid for all rows.
unsafe fn rows(
    call: &mut Call,
    source: &Side,
    destination: &Side,
    size: [usize; 3],
    devices: Devices,
    stream: CUstream,
) -> Outcome {
    let home = call.stream(stream)?;
    let [width, height, depth] = size;
    if size.contains(&0) {
        return Ok(());
    }
    source.check(call, size)?;
    destination.check(call, size)?;
    let (mut works, mut accesses) = (Vec::new(), Vec::new());
    let mut wait = false;
    for (z, y) in (0..depth).flat_map(|z| (0..height).map(move |y| (z, y))) {
        let src = match source.row(call, y, z, width)? {
            Place::Pageable(HostPtr(from)) => {
                let mut staged = vec![0_u8; width];
                // SAFETY: valid for reads by this function's contract; `staged` is new.
                unsafe {
                    std::ptr::copy_nonoverlapping(from.cast_const(), staged.as_mut_ptr(), width);
                }
                Place::Staged(staged.into_boxed_slice())
            }
            place => place,
        };
        let dst = destination.row(call, y, z, width)?;
        wait |= matches!(dst, Place::Pageable(_));
        if y == 0 && z == 0 && devices == Devices::One {
            admit(call, Some(stream), &[&dst, &src])?;
        }
        accesses.extend(src.access(width, AccessKind::Read));
        accesses.extend(dst.access(width, AccessKind::Write));
        let bytes = width;
        works.push(Work::Copy { dst, src, bytes });
    }
    let mut submission = Submission::new(home, Work::Each(works));
    submission.accesses = accesses;
    finish(call, submission, wait)
}
