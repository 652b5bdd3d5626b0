//! Memory of the host and of a device, between which the library and the raw driver calls copy.

use cuda_core::{DeviceBuffer, PinnedBuffer, Stream};
use cuda_sys::{self as sys, CUdeviceptr, CUresult, CUstream};

use super::Fixture;
use super::raw::wait;
use Direction::{Down, Up};

/// The direction of a copy between the host and a device.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    Up,
    Down,
}

impl Direction {
    /// Both directions, with the library's names for them.
    pub(super) const BOTH: [(Self, &str); 2] = [(Self::Up, "upload"), (Self::Down, "download")];
}

/// Host memory with every page touched.
enum Host {
    Pinned(PinnedBuffer<u8>),
    Pageable(Vec<u8>),
}

/// Both ends of the copies.
pub(super) struct Ends {
    host: Host,
    device: DeviceBuffer<u8>,
}

impl Ends {
    pub(super) fn pinned(fixture: &Fixture, bytes: usize) -> anyhow::Result<Self> {
        Self::new(fixture, Host::Pinned(PinnedBuffer::zeroed(&fixture.context, bytes)?), bytes)
    }

    pub(super) fn pageable(fixture: &Fixture, bytes: usize) -> anyhow::Result<Self> {
        Self::new(fixture, Host::Pageable(vec![7; bytes]), bytes)
    }

    fn new(fixture: &Fixture, host: Host, bytes: usize) -> anyhow::Result<Self> {
        let device = fixture.stream.alloc_zeroed(bytes)?;
        fixture.settle()?;
        Ok(Self { host, device })
    }

    /// Copies all bytes with the library.
    pub(super) fn copy(&mut self, stream: &Stream, to: Direction) -> cuda_core::Result<()> {
        match (to, &mut self.host) {
            (Up, Host::Pinned(host)) => stream.upload(&*host, &mut self.device),
            (Up, Host::Pageable(host)) => stream.upload(&*host, &mut self.device),
            (Down, Host::Pinned(host)) => stream.download(&self.device, host),
            (Down, Host::Pageable(host)) => stream.download(&self.device, host),
        }
    }

    /// Returns the same memory for raw calls.
    pub(super) fn raw(&mut self) -> anyhow::Result<RawEnds> {
        let host = match &mut self.host {
            Host::Pinned(pinned) => pinned.as_mut_slice()?.as_mut_ptr(),
            Host::Pageable(slice) => slice.as_mut_ptr(),
        };
        Ok(RawEnds { host, device: self.device.as_raw(), bytes: self.device.len() })
    }
}

/// Both ends of the raw copies.
#[derive(Clone, Copy)]
pub(super) struct RawEnds {
    pub(super) host: *mut u8,
    pub(super) device: CUdeviceptr,
    pub(super) bytes: usize,
}

impl RawEnds {
    /// Enqueues a copy of all bytes.
    ///
    /// # Safety
    /// The stream is live. Both ends have `bytes` bytes, which the host's end allows to be read or written as
    /// the direction requires. No other code uses them until the copy is done.
    pub(super) unsafe fn enqueue(self, stream: CUstream, to: Direction) -> CUresult {
        let Self { host, device, bytes } = self;
        match to {
            // SAFETY: the caller vouches for the stream, and for both ends until the copy is done.
            Up => unsafe { sys::cuMemcpyHtoDAsync_v2(device, host.cast(), bytes, stream) },
            // SAFETY: the caller vouches for the stream, and for both ends, the host's for writes here,
            // until the copy is done.
            Down => unsafe { sys::cuMemcpyDtoHAsync_v2(host.cast(), device, bytes, stream) },
        }
    }

    /// Copies all bytes on the stream for raw calls, and waits for them.
    ///
    /// # Safety
    /// See [`Self::enqueue`].
    pub(super) unsafe fn copy(self, fixture: &Fixture, to: Direction) -> CUresult {
        // SAFETY: the caller fulfils the same contract; the stream is borrowed, so it is live.
        wait(unsafe { self.enqueue(fixture.raw_stream(), to) }, &fixture.raw)
    }

    /// Copies all bytes with a call that returns only when the host's end may be used again.
    ///
    /// # Safety
    /// See [`Self::enqueue`].
    pub(super) unsafe fn copy_blocking(self, to: Direction) -> CUresult {
        let Self { host, device, bytes } = self;
        match to {
            // SAFETY: the caller vouches for both ends; when the call returns the copy is done, or the
            // driver has read the whole end.
            Up => unsafe { sys::cuMemcpyHtoD_v2(device, host.cast(), bytes) },
            // SAFETY: the caller vouches for both ends; the copy is done when the call returns.
            Down => unsafe { sys::cuMemcpyDtoH_v2(host.cast(), device, bytes) },
        }
    }
}
