//! The ends of copies, as in the driver's copy descriptions.

use std::ffi::c_void;
use std::ptr;

use cuda_sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray, CUcontext, CUdeviceptr, CUmemorytype,
};

use crate::memory::Place;
use crate::types::{Extent, Origin};

/// One end of a copy, as in the driver's copy descriptions.
#[derive(Clone, Copy)]
pub(crate) struct CopySide {
    pub(crate) kind: CUmemorytype,
    pub(crate) host: *mut c_void,
    pub(crate) device: CUdeviceptr,
    array: CUarray,
    /// The position in an array; in bytes in the first dimension.
    origin: Origin,
    /// The bytes from row to row, and the rows from slice to slice; not for arrays.
    pub(crate) pitch: usize,
    pub(crate) height: usize,
}

impl CopySide {
    pub(crate) fn linear(place: Place, pitch: usize, height: usize) -> Self {
        let (kind, host, device) = match place {
            Place::Host(pointer) => (cuda_sys::CU_MEMORYTYPE_HOST, pointer.cast(), 0),
            Place::Device(device) => (cuda_sys::CU_MEMORYTYPE_DEVICE, ptr::null_mut(), device),
        };
        let (array, origin) = (ptr::null_mut(), Origin::ZERO);
        Self { kind, host, device, array, origin, pitch, height }
    }

    pub(crate) fn array(array: CUarray, origin: Origin) -> Self {
        let kind = cuda_sys::CU_MEMORYTYPE_ARRAY;
        Self { kind, array, origin, ..Self::linear(Place::Device(0), 0, 0) }
    }

    /// Describes a copy of `extent` elements of type `T` to `other`.
    pub(crate) fn to<T>(self, other: Self, extent: Extent) -> CUDA_MEMCPY3D {
        CUDA_MEMCPY3D {
            srcXInBytes: self.origin.x,
            srcY: self.origin.y,
            srcZ: self.origin.z,
            srcMemoryType: self.kind,
            srcHost: self.host,
            srcDevice: self.device,
            srcArray: self.array,
            srcPitch: self.pitch,
            srcHeight: self.height,
            dstXInBytes: other.origin.x,
            dstY: other.origin.y,
            dstZ: other.origin.z,
            dstMemoryType: other.kind,
            dstHost: other.host,
            dstDevice: other.device,
            dstArray: other.array,
            dstPitch: other.pitch,
            dstHeight: other.height,
            WidthInBytes: extent.width * size_of::<T>(),
            Height: extent.height,
            Depth: extent.depth,
            ..CUDA_MEMCPY3D::default()
        }
    }

    /// [`CopySide::to`] for a plane; neither side is an array.
    pub(crate) fn plane_to<T>(self, other: Self, extent: Extent) -> CUDA_MEMCPY2D {
        CUDA_MEMCPY2D {
            srcMemoryType: self.kind,
            srcHost: self.host,
            srcDevice: self.device,
            srcPitch: self.pitch,
            dstMemoryType: other.kind,
            dstHost: other.host,
            dstDevice: other.device,
            dstPitch: other.pitch,
            WidthInBytes: extent.width * size_of::<T>(),
            Height: extent.height,
            ..CUDA_MEMCPY2D::default()
        }
    }

    /// [`CopySide::to`] for device memory of two contexts, `from` and `to`.
    pub(crate) fn across_to<T>(
        self,
        other: Self,
        extent: Extent,
        [from, to]: [CUcontext; 2],
    ) -> CUDA_MEMCPY3D_PEER {
        CUDA_MEMCPY3D_PEER {
            srcMemoryType: self.kind,
            srcContext: from,
            srcDevice: self.device,
            srcPitch: self.pitch,
            srcHeight: self.height,
            dstMemoryType: other.kind,
            dstContext: to,
            dstDevice: other.device,
            dstPitch: other.pitch,
            dstHeight: other.height,
            WidthInBytes: extent.width * size_of::<T>(),
            Height: extent.height,
            Depth: extent.depth,
            ..CUDA_MEMCPY3D_PEER::default()
        }
    }
}
