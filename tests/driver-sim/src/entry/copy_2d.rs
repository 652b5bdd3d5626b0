//! Copies in rows: `cuMemcpy2DAsync`, `cuMemcpy3DAsync` and `cuMemcpy3DPeerAsync`.

use cuda_sys::*;

use super::copy::{admit, finish, refuse_peer, require_of, stage};
use crate::call::{Call, Outcome};
use crate::engine::enqueue::Submission;
use crate::engine::work::{Access, AccessKind, Place, Work};
use crate::graph::node::{CopyParams, NodeKind};
use crate::handle::Id;

/// Returns a `CUDA_MEMCPY3D` with some fields of another description, and other fields with given values.
macro_rules! in_3d {
    ($copy:ident, $($same:ident)*; $($given:ident: $value:expr,)*) => {
        CUDA_MEMCPY3D { $($same: $copy.$same,)* $($given: $value,)* ..Default::default() }
    };
}

entries! {
    cuMemcpy2DAsync_v2(copy, stream) |call| {
        // SAFETY: the caller passes a description, or null.
        let copy = unsafe { copy.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let copy = in_3d!(copy,
            srcXInBytes srcY srcMemoryType srcHost srcDevice srcArray srcPitch
            dstXInBytes dstY dstMemoryType dstHost dstDevice dstArray dstPitch
            WidthInBytes Height;
            srcHeight: copy.Height.saturating_add(copy.srcY),
            dstHeight: copy.Height.saturating_add(copy.dstY),
            Depth: 1,
        );
        // SAFETY: the caller's description names memory of that size.
        unsafe { rows(call, &copy, None, stream) }
    }

    cuMemcpy3DAsync_v2(copy, stream) |call| {
        // SAFETY: the caller passes a description, or null.
        let copy = unsafe { copy.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the caller's description names memory of that size.
        unsafe { rows(call, copy, None, stream) }
    }

    cuMemcpy3DPeerAsync(copy, stream) |call| {
        // SAFETY: the caller passes a description, or null.
        let copy = unsafe { copy.as_ref() }.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // The context is "ignored" if the end is an array.
        let mut named = |kind, context| {
            (kind != CU_MEMORYTYPE_ARRAY).then(|| call.context(context)).transpose()
        };
        let source = named(copy.srcMemoryType, copy.srcContext)?;
        let contexts = [source, named(copy.dstMemoryType, copy.dstContext)?];
        refuse_peer(call, stream)?;
        let copy = in_3d!(copy,
            srcXInBytes srcY srcZ srcMemoryType srcHost srcDevice srcArray srcPitch srcHeight
            dstXInBytes dstY dstZ dstMemoryType dstHost dstDevice dstArray dstPitch dstHeight
            WidthInBytes Height Depth;
        );
        // SAFETY: the caller's description names memory of that size.
        unsafe { rows(call, &copy, Some(contexts), stream) }
    }
}

struct Side {
    kind: CUmemorytype,
    host: *mut u8,
    device: CUdeviceptr,
    array: CUarray,
    /// Offset of the first byte: bytes, rows and slices.
    at: [usize; 3],
    pitch: usize,
    slice_height: usize,
}

/// `CU_DEVICE_ATTRIBUTE_MAX_PITCH`.
const MAX_PITCH: usize = i32::MAX as usize;

impl Side {
    fn check(&self, call: &mut Call, [width, height, depth]: [usize; 3]) -> Outcome {
        let [x, y, z] = self.at;
        let end = [x.saturating_add(width), y.saturating_add(height), z.saturating_add(depth)];
        if self.kind == CU_MEMORYTYPE_ARRAY {
            return call.check_texels(self.array, self.at, end);
        }
        let rows = depth <= 1 || end[1] <= self.slice_height;
        if end[0] <= self.pitch && self.pitch <= MAX_PITCH && rows {
            Ok(())
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }

    /// Returns the place of one row.
    fn row(&self, call: &mut Call, y: usize, z: usize, width: usize) -> Outcome<Place> {
        let [x, first, slice] = self.at;
        if self.kind == CU_MEMORYTYPE_ARRAY {
            return call.texel_place(self.array, [x, first + y, slice + z]);
        }
        // If the product saturates, the end is no address.
        let rows = z.saturating_add(slice).saturating_mul(self.slice_height);
        let rows = rows.saturating_add(first).saturating_add(y);
        let offset = rows.saturating_mul(self.pitch).saturating_add(x);
        let is_host = self.kind == CU_MEMORYTYPE_HOST;
        let base = if is_host { self.host.addr() } else { self.device as usize };
        let start = base.checked_add(offset).filter(|start| start.checked_add(width).is_some());
        let start = start.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        match self.kind {
            CU_MEMORYTYPE_HOST => call.host_memory(self.host.wrapping_add(offset), width),
            CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => {
                call.device_memory(start as CUdeviceptr, width)
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// Returns both ends of a copy: source and destination.
fn sides(copy: &CUDA_MEMCPY3D) -> [Side; 2] {
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
    [source, destination]
}

/// A planned copy in rows.
pub(super) struct Rows {
    pub(super) works: Vec<Work>,
    pub(super) accesses: Vec<Access>,
    /// Whether the copy writes pageable memory.
    pub(super) to_pageable: bool,
}

/// The contexts that a call names for source and destination, if these are not arrays.
type Named = [Option<Id>; 2];

/// Returns the rows of a copy that is not empty. Pageable memory is read when the copy runs.
pub(super) fn plan(
    call: &mut Call,
    copy: &CUDA_MEMCPY3D,
    contexts: Option<Named>,
    stream: Option<CUstream>,
) -> Outcome<Rows> {
    let size = [copy.WidthInBytes, copy.Height, copy.Depth];
    let [width, height, depth] = size;
    let [source, destination] = sides(copy);
    source.check(call, size)?;
    destination.check(call, size)?;
    let mut rows = Rows { works: Vec::new(), accesses: Vec::new(), to_pageable: false };
    for (z, y) in (0..depth).flat_map(|z| (0..height).map(move |y| (z, y))) {
        let src = source.row(call, y, z, width)?;
        let dst = destination.row(call, y, z, width)?;
        rows.to_pageable |= matches!(dst, Place::Pageable(_));
        match contexts {
            None if y == 0 && z == 0 => admit(call, stream, &[&dst, &src])?,
            None => {}
            Some(contexts) => {
                for (context, place) in contexts.into_iter().zip([&src, &dst]) {
                    context.map_or(Ok(()), |context| require_of(call, context, place))?;
                }
            }
        }
        rows.accesses.extend(src.access(width, AccessKind::Read));
        rows.accesses.extend(dst.access(width, AccessKind::Write));
        rows.works.push(Work::Copy { dst, src, bytes: width });
    }
    Ok(rows)
}

/// # Safety
/// Pageable memory that the description names is valid for all rows.
unsafe fn rows(
    call: &mut Call,
    copy: &CUDA_MEMCPY3D,
    contexts: Option<Named>,
    stream: CUstream,
) -> Outcome {
    let home = call.stream(stream)?;
    if [copy.WidthInBytes, copy.Height, copy.Depth].contains(&0) {
        return Ok(());
    }
    let mut rows = plan(call, copy, contexts, Some(stream))?;
    for work in &mut rows.works {
        if let Work::Copy { src, bytes, .. } = work {
            // SAFETY: this function's contract.
            unsafe { stage(call, home, src, *bytes) };
        }
    }
    let kind = NodeKind::Memcpy(CopyParams::new(call, *copy));
    let mut submission = Submission::new(home, kind, Work::Each(rows.works));
    submission.accesses = rows.accesses;
    finish(call, submission, rows.to_pageable)
}
