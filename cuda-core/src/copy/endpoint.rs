//! Kinds of memory that copies begin and end at.

use std::ffi::c_void;
use std::ptr;

use cuda_sys::{CUdeviceptr, CUmemorytype};

use crate::alloc::backing::DeviceBacking;
use crate::context::Context;
use crate::device::Device;
use crate::host::pinned::PinnedMemory;
use crate::memory::device::DeviceMemory;
use crate::memory::view::Slice;
use crate::memory::{Block, Memory, MemoryKind};
use crate::timeline::core::StreamCore;
use crate::types::pod::Pod;

/// A kind of memory that copies begin and end at, [in rows](crate::Stream::copy_pitched) or not:
/// [`DeviceMemory`] and [`PinnedMemory`]. Sealed.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{Buffer, Endpoint, Pod, Result, Shape, Stream};
///
/// // From and to the host or a device: the upper left corner of an image, `wide` elements a row.
/// fn corner<T: Pod, A: Endpoint, B: Endpoint>(
///     stream: &Stream,
///     image: &Buffer<T, A>,
///     wide: usize,
///     corner: &mut Buffer<T, B>,
/// ) -> Result<()> {
///     let part = Shape::plane(8, 8);
///     let image = image.pitched(part.with_pitch(wide * size_of::<T>()))?;
///     stream.copy_pitched(image, corner.pitched_mut(part)?)
/// }
/// let image = stream.alloc::<f32>(64 * 64)?;
/// corner(&stream, &image, 64, &mut stream.alloc(64)?)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[allow(private_bounds, reason = "that bound is the seal")]
pub trait Endpoint: Memory + Locate {}

impl<M: Memory + Locate> Endpoint for M {}

/// The addresses of a kind of memory.
pub(crate) trait Locate: MemoryKind {
    fn place(block: &Block<Self>, offset: usize) -> Place;

    /// The context that device memory belongs to; [`None`] for host memory.
    fn context(block: &Block<Self>) -> Option<&Context>;

    /// Whether streams of another device use it as if it were their own device's.
    fn usable_from(block: &Block<Self>, device: Device) -> bool;
}

/// The address of one end of a copy.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Host(*mut u8),
    Device(CUdeviceptr),
}

impl Place {
    /// The address in the address space that the host and all devices share.
    pub(crate) fn unified(self) -> CUdeviceptr {
        match self {
            Place::Host(pointer) => pointer.expose_provenance() as CUdeviceptr,
            Place::Device(address) => address,
        }
    }
}

/// One end of a copy, as in the driver's copy descriptions.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) kind: CUmemorytype,
    pub(crate) host: *mut c_void,
    pub(crate) device: CUdeviceptr,
}

impl Side {
    pub(crate) fn of(place: Place) -> Self {
        match place {
            Place::Host(pointer) => {
                Self { kind: cuda_sys::CU_MEMORYTYPE_HOST, host: pointer.cast(), device: 0 }
            }
            Place::Device(device) => {
                Self { kind: cuda_sys::CU_MEMORYTYPE_DEVICE, host: ptr::null_mut(), device }
            }
        }
    }
}

impl Locate for DeviceMemory {
    #[inline]
    fn place(block: &Block<Self>, offset: usize) -> Place {
        Place::Device(block.address + offset as CUdeviceptr)
    }

    #[inline]
    fn context(block: &Block<Self>) -> Option<&Context> {
        Some(block.backing.context())
    }

    #[cold]
    fn usable_from(block: &Block<Self>, device: Device) -> bool {
        matches!(&block.backing, DeviceBacking::Owned { owner, .. } if owner.usable_from(device))
    }
}

impl Locate for PinnedMemory {
    #[inline]
    fn place(block: &Block<Self>, offset: usize) -> Place {
        Place::Host(block.address.0.as_ptr().wrapping_add(offset))
    }

    #[inline]
    fn context(_block: &Block<Self>) -> Option<&Context> {
        None
    }

    fn usable_from(_block: &Block<Self>, _device: Device) -> bool {
        false
    }
}

impl<'a, T: Pod, M: Endpoint> Slice<'a, T, M> {
    /// The address of the first element.
    #[inline]
    pub(crate) fn place(&self) -> Place {
        M::place(self.block(), self.range().start)
    }

    /// The context that the elements belong to; [`None`] for host memory.
    #[inline]
    pub(crate) fn owner(&self) -> Option<&'a Context> {
        M::context(self.block())
    }

    /// The device that the elements are on; [`None`] for host memory.
    #[inline]
    pub(crate) fn on(&self) -> Option<Device> {
        self.owner().map(Context::device)
    }

    /// The device that the elements count as being on for a stream: the stream's own, for managed
    /// memory that every device uses as its own.
    #[inline]
    pub(crate) fn on_for(&self, stream: &StreamCore) -> Option<Device> {
        let on = self.on()?;
        if on == stream.device() || !M::usable_from(self.block(), stream.device()) {
            return Some(on);
        }
        Some(stream.device())
    }
}
