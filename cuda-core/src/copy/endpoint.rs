//! Kinds of memory that copies begin and end at.

use cuda_sys::CUdeviceptr;

use crate::context::Context;
use crate::device::Device;
use crate::memory::device::DeviceMemory;
use crate::memory::pinned::PinnedMemory;
use crate::memory::pod::Pod;
use crate::memory::view::Slice;
use crate::memory::{Block, Kind, Memory};

/// A kind of memory that copies begin and end at, be they [in rows](crate::Stream::copy_pitched) or
/// not: [`DeviceMemory`] and [`PinnedMemory`]. Sealed.
#[allow(private_bounds, reason = "that bound is the seal")]
pub trait Endpoint: Memory + Locate {}

impl<M: Memory + Locate> Endpoint for M {}

/// Where the memory of a kind is.
pub(crate) trait Locate: Kind {
    fn place(block: &Block<Self>, offset: usize) -> Place;

    /// The context that device memory belongs to; [`None`] for memory of the host.
    fn context(block: &Block<Self>) -> Option<&Context>;
}

/// The beginning of one end of a copy.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Host(*mut u8),
    Device(CUdeviceptr),
}

impl Place {
    /// The address in the one address space that the host and all devices share.
    pub(crate) fn unified(self) -> CUdeviceptr {
        match self {
            Place::Host(pointer) => pointer.expose_provenance() as CUdeviceptr,
            Place::Device(address) => address,
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
        Some(block.keeper.context())
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
}

impl<'a, T: Pod, M: Endpoint> Slice<'a, T, M> {
    /// Where the first element is.
    pub(crate) fn place(&self) -> Place {
        M::place(self.block(), self.range().start)
    }

    /// The context that the elements belong to, unless they are the host's.
    pub(crate) fn owner(&self) -> Option<&'a Context> {
        M::context(self.block())
    }

    /// The device that the elements are on, unless they are the host's.
    #[inline]
    pub(crate) fn on(&self) -> Option<Device> {
        self.owner().map(Context::device)
    }
}
