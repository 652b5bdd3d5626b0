//! A copy of contiguous bytes, by the driver call that its ends require.

use std::ptr;

use cuda_sys::{CUcontext, CUdeviceptr, CUresult, CUstream, symbol as cu};

use crate::context::Context;
use crate::memory::{Memory, Place, Slice};
use crate::timeline::StreamCore;
use crate::types::Pod;

/// A copy of `bytes` bytes.
#[derive(Clone, Copy)]
pub(crate) struct LinearCopy {
    pub(crate) from: Place,
    pub(crate) to: Place,
    pub(crate) bytes: usize,
    /// The contexts of both ends, if the ends are on two devices.
    peers: Option<(CUcontext, CUcontext)>,
    /// Whether `cuMemcpyAsync`, which accepts any two addresses, makes the copy.
    unified: bool,
}

// Inlined, so that the kinds of the ends select the call at compile time.
impl LinearCopy {
    /// Describes a copy of all of `source`, which counts as being of the context `near`, to `destination`,
    /// of `far`.
    #[inline(always)]
    pub(super) fn of<T: Pod, A: Memory, B: Memory>(
        (source, near): (&Slice<'_, T, A>, Option<&Context>),
        (destination, far): (&Slice<'_, T, B>, Option<&Context>),
    ) -> Self {
        let owners = near.zip(far).filter(|(near, far)| near.device() != far.device());
        Self {
            from: source.place(),
            to: destination.place(),
            bytes: source.byte_len(),
            peers: owners.map(|(near, far)| (near.as_raw(), far.as_raw())),
            unified: false,
        }
    }

    /// Returns the same copy for a stream. If the stream is being captured, a copy between two devices
    /// uses `cuMemcpyAsync`, since `cuMemcpyPeerAsync` would end the capture.
    #[inline(always)]
    pub(super) fn on(self, core: &StreamCore) -> Self {
        match self.peers.is_some() && core.timeline().recording().is_some() {
            true => Self { peers: None, unified: true, ..self },
            false => self,
        }
    }

    /// Describes a copy from the host's memory to the stream's device.
    #[inline(always)]
    pub(super) fn up(from: *const u8, to: CUdeviceptr, bytes: usize) -> Self {
        let (from, to) = (Place::Host(from.cast_mut()), Place::Device(to));
        Self { from, to, bytes, peers: None, unified: false }
    }

    /// Describes a copy from the stream's device to the host's memory.
    #[inline(always)]
    pub(super) fn down(from: CUdeviceptr, to: *mut u8, bytes: usize) -> Self {
        let (from, to) = (Place::Device(from), Place::Host(to));
        Self { from, to, bytes, peers: None, unified: false }
    }

    /// Returns the address of the host's end; null if there is none.
    pub(super) fn host(&self) -> *mut u8 {
        match (self.from, self.to) {
            (Place::Host(host), _) | (_, Place::Host(host)) => host,
            _ => ptr::null_mut(),
        }
    }

    /// Returns the name of the driver call for errors.
    #[inline(always)]
    pub(super) fn op(&self) -> &'static str {
        match (self.from, self.to) {
            (Place::Host(_), Place::Device(_)) => "cuMemcpyHtoDAsync",
            (Place::Device(_), Place::Host(_)) => "cuMemcpyDtoHAsync",
            (Place::Device(_), Place::Device(_)) if self.peers.is_some() => "cuMemcpyPeerAsync",
            (Place::Device(_), Place::Device(_)) if !self.unified => "cuMemcpyDtoDAsync",
            _ => "cuMemcpyAsync",
        }
    }

    /// Enqueues the copy.
    ///
    /// # Safety
    /// Until this copy is done, both places have `bytes` bytes that stay allocated, and no other code
    /// has conflicting access to the host's side. The contexts of both ends are live.
    #[inline(always)]
    pub(super) unsafe fn enqueue(&self, stream: CUstream) -> CUresult {
        let bytes = self.bytes;
        match (self.from, self.to, self.peers) {
            // SAFETY: the caller promises that both sides have `bytes` bytes until the copy is done.
            (Place::Host(from), Place::Device(to), _) => unsafe {
                cu::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream)
            },
            // SAFETY: the caller promises that both sides have `bytes` bytes until the copy is done,
            // and that no other code accesses the host's side until then.
            (Place::Device(from), Place::Host(to), _) => unsafe {
                cu::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, stream)
            },
            // SAFETY: the caller promises that both sides have `bytes` bytes until the copy is done,
            // and that both contexts are live.
            (Place::Device(from), Place::Device(to), Some((of, into))) => unsafe {
                cu::cuMemcpyPeerAsync(to, into, from, of, bytes, stream)
            },
            // SAFETY: the caller promises that both sides have `bytes` bytes until the copy is done.
            (Place::Device(from), Place::Device(to), None) if !self.unified => unsafe {
                cu::cuMemcpyDtoDAsync_v2(to, from, bytes, stream)
            },
            // SAFETY: all memory is in one address space; the caller promises that both sides have
            // `bytes` bytes until the copy is done.
            (from, to, _) => unsafe {
                cu::cuMemcpyAsync(to.unified(), from.unified(), bytes, stream)
            },
        }
    }
}
