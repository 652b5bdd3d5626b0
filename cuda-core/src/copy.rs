//! Copies between buffers: one driver call each, ordered by the buffers' ledgers.

use cuda_sys::symbol as cu;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::device::{DeviceSlice, DeviceSliceMut};
use crate::memory::pinned::{PinnedSlice, PinnedSliceMut};
use crate::memory::pod::Pod;
use crate::stream::{Kind, Stream};
use crate::stream_core::StreamCore;
use crate::submit::submit;

/// Refuses a copy between slices of different length.
pub(crate) fn same_len(op: &'static str, source_len: usize, destination_len: usize) -> Result<()> {
    if source_len == destination_len {
        return Ok(());
    }
    Err(Error::LengthMismatch {
        op,
        source_len,
        destination_len,
    })
}

/// Refuses memory of another device than the stream's.
pub(crate) fn same_device(op: &'static str, core: &StreamCore, memory: Device) -> Result<()> {
    if core.device() == memory {
        return Ok(());
    }
    Err(Error::WrongDevice {
        op,
        memory: memory.ordinal(),
        stream: core.device().ordinal(),
    })
}

impl<K: Kind> Stream<K> {
    /// Copies pinned memory to the stream's device, asynchronously: `cuMemcpyHtoDAsync_v2`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] and [`Error::WrongDevice`] before the driver is asked.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// # let stream = device.create_stream()?;
    /// let host = cuda_core::PinnedBuffer::from_slice(&device.context()?, &[1.0f32; 256])?;
    /// let mut buffer = stream.alloc(256)?;
    /// stream.upload(&host, &mut buffer)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn upload<'a, 'b, T: Pod>(
        &self,
        source: impl Into<PinnedSlice<'a, T>>,
        destination: impl Into<DeviceSliceMut<'b, T>>,
    ) -> Result<()> {
        let (source, mut destination) = (source.into(), destination.into());
        let op = "cuMemcpyHtoDAsync";
        same_len(op, source.len(), destination.len())?;
        let core = self.core();
        same_device(op, core, destination.as_view().device())?;
        if source.byte_len() == 0 {
            return Ok(());
        }
        let stream = core.bind()?;
        let (to, from, bytes) = (destination.as_raw(), source.as_ptr(), source.byte_len());
        let mut touches = [source.read(), destination.write()];
        let call = |stream| {
            // SAFETY: both sides have `bytes` bytes that stay allocated until this copy is done:
            // freeing either waits for the mark that is made of it.
            unsafe { cu::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream) }
        };
        submit(core, &stream, op, &mut touches, call).1
    }

    /// Copies from the stream's device to pinned memory, asynchronously: `cuMemcpyDtoHAsync_v2`.
    /// Looking at the destination waits for the copy.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] and [`Error::WrongDevice`] before the driver is asked.
    pub fn download<'a, 'b, T: Pod>(
        &self,
        source: impl Into<DeviceSlice<'a, T>>,
        destination: impl Into<PinnedSliceMut<'b, T>>,
    ) -> Result<()> {
        let (source, mut destination) = (source.into(), destination.into());
        let op = "cuMemcpyDtoHAsync";
        same_len(op, source.len(), destination.len())?;
        let core = self.core();
        same_device(op, core, source.device())?;
        if source.byte_len() == 0 {
            return Ok(());
        }
        let stream = core.bind()?;
        let to = destination.as_view().as_ptr();
        let (from, bytes) = (source.as_raw(), source.byte_len());
        let mut touches = [source.read(), destination.write()];
        let call = |stream| {
            // SAFETY: as in `upload`; and the host cannot look at the destination before the copy
            // is done, since the accessors wait for its mark.
            unsafe { cu::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, stream) }
        };
        submit(core, &stream, op, &mut touches, call).1
    }

    /// Copies device memory, asynchronously: `cuMemcpyDtoDAsync_v2` on one device,
    /// `cuMemcpyPeerAsync` between two, which works whether or not they have access to each other,
    /// and ten times faster if they have
    /// ([`Context::enable_peer_access`](crate::Context::enable_peer_access)).
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::WrongDevice`] if the stream belongs to neither device.
    pub fn copy<'a, 'b, T: Pod>(
        &self,
        source: impl Into<DeviceSlice<'a, T>>,
        destination: impl Into<DeviceSliceMut<'b, T>>,
    ) -> Result<()> {
        let (source, mut destination) = (source.into(), destination.into());
        let (near, far) = (source.device(), destination.as_view().device());
        let op = if near == far {
            "cuMemcpyDtoDAsync"
        } else {
            "cuMemcpyPeerAsync"
        };
        same_len(op, source.len(), destination.len())?;
        let core = self.core();
        same_device(op, core, near).or(same_device(op, core, far))?;
        if source.byte_len() == 0 {
            return Ok(());
        }
        let stream = core.bind()?;
        let (to, from, bytes) = (destination.as_raw(), source.as_raw(), source.byte_len());
        // The buffers keep these alive.
        let of = source.context().as_raw();
        let into = destination.as_view().context().as_raw();
        let mut touches = [source.read(), destination.write()];
        let call = |stream| {
            if near == far {
                // SAFETY: both sides have `bytes` bytes that stay allocated until this copy is
                // done: their frees are ordered behind the marks that are made of it.
                return unsafe { cu::cuMemcpyDtoDAsync_v2(to, from, bytes, stream) };
            }
            // SAFETY: as above; both contexts are live.
            unsafe { cu::cuMemcpyPeerAsync(to, into, from, of, bytes, stream) }
        };
        submit(core, &stream, op, &mut touches, call).1
    }
}
