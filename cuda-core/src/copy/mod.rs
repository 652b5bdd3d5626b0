//! Copies between buffers: one driver call each, ordered by the buffers' ledgers.

pub(crate) mod batch;
pub(crate) mod borrowed;
pub(crate) mod endpoint;
mod fill;
pub(crate) mod in_flight;
mod linear;
mod new;
pub(crate) mod pitched;
pub(crate) mod shape;

use std::ops::RangeBounds;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::host::pinned::{PinnedSlice, PinnedSliceMut};
use crate::memory::device::{DeviceSlice, DeviceSliceMut};
use crate::memory::same_len;
use crate::memory::view::{Slice, SliceMut, bounds};
use crate::peer::{Crossing, crossing};
use crate::stream::{Stream, StreamKind};
use crate::timeline::core::{StreamCore, same_device};
use crate::types::pod::Pod;

use endpoint::Endpoint;
use linear::LinearCopy;

/// Refuses memory that only streams of another device may use.
pub(crate) fn at_home<T: Pod>(
    op: &'static str,
    core: &StreamCore,
    memory: &DeviceSlice<'_, T>,
) -> Result<()> {
    at_one_end(op, core, memory.on_for(core), None)
}

/// Refuses a copy with no end on the stream's device. Host memory counts as being on any.
fn at_one_end(
    op: &'static str,
    core: &StreamCore,
    source: Option<Device>,
    destination: Option<Device>,
) -> Result<()> {
    match (source, destination) {
        (Some(near), Some(far)) => {
            same_device(op, core, near).or_else(|error| same_device(op, core, far).or(Err(error)))
        }
        (Some(device), None) | (None, Some(device)) => same_device(op, core, device),
        (None, None) => Ok(()),
    }
}

/// Copies all of `source` to `destination`, of equal length: checks, orders, enqueues, marks. No driver
/// call if there is nothing to copy.
#[inline]
fn transfer<T: Pod, A: Endpoint, B: Endpoint>(
    core: &StreamCore,
    source: Slice<'_, T, A>,
    mut destination: SliceMut<'_, T, B>,
) -> Result<()> {
    let view = destination.as_view();
    let (near, far) = (source.on_for(core), view.on_for(core));
    let copy = LinearCopy::of((&source, near), (&view, far));
    let op = copy.op();
    same_len(op, source.len(), view.len())?;
    at_one_end(op, core, near, far)?;
    if source.byte_len() == 0 {
        return Ok(());
    }
    let stream = core.bind(op)?;
    let _crossing = crossing_of(near, far);
    let mut touches = [source.read(), destination.write()];
    // SAFETY: both sides are equally long and stay allocated until this copy is done: freeing either
    // waits for the mark that is made of it. So do the accessors of the host's side. The buffers keep
    // both contexts alive.
    stream.submit_copy(op, &mut touches, move |stream| unsafe { copy.enqueue(stream) }).1
}

/// The crossing to hold while a copy is enqueued, if its ends are on two devices.
#[inline]
fn crossing_of(source: Option<Device>, destination: Option<Device>) -> Option<Crossing> {
    let (near, far) = source.zip(destination)?;
    (near != far).then(|| crossing(near, far))
}

impl<K: StreamKind> Stream<K> {
    /// Copies pinned memory to the stream's device, asynchronously: `cuMemcpyHtoDAsync_v2`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] and [`Error::WrongDevice`] before any driver call.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let host = cuda_core::PinnedBuffer::from_slice(stream.context(), &[1.0f32; 256])?;
    /// let mut buffer = stream.alloc(256)?;
    /// stream.upload(&host, &mut buffer)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn upload<'a, 'b, T: Pod>(
        &self,
        source: impl Into<PinnedSlice<'a, T>>,
        destination: impl Into<DeviceSliceMut<'b, T>>,
    ) -> Result<()> {
        transfer(self.core(), source.into(), destination.into())
    }

    /// Copies from the stream's device to pinned memory, asynchronously: `cuMemcpyDtoHAsync_v2`.
    /// Reading the destination on the host waits for the copy.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] and [`Error::WrongDevice`] before any driver call.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::PinnedBuffer;
    ///
    /// let buffer = stream.alloc_zeroed::<u32>(1000)?;
    /// let mut host = PinnedBuffer::new(&context, 1000)?;
    /// stream.download(&buffer, &mut host)?; // returns at once
    /// assert_eq!(host.as_slice()?, [0; 1000]); // waits
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn download<'a, 'b, T: Pod>(
        &self,
        source: impl Into<DeviceSlice<'a, T>>,
        destination: impl Into<PinnedSliceMut<'b, T>>,
    ) -> Result<()> {
        transfer(self.core(), source.into(), destination.into())
    }

    /// Copies device memory, asynchronously: `cuMemcpyDtoDAsync_v2` on one device,
    /// `cuMemcpyPeerAsync` between two, which works whether or not they have access to each other,
    /// but is ten times faster if they have
    /// ([`Context::enable_peer_access`](crate::Context::enable_peer_access)).
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::WrongDevice`] if the stream belongs to neither device.
    ///
    /// ```no_run
    /// use cuda_core::Device;
    ///
    /// let (one, two) = (Device::get(0)?.create_stream()?, Device::get(1)?.create_stream()?);
    /// let source = one.alloc_zeroed::<f32>(1 << 20)?;
    /// let mut destination = two.alloc(1 << 20)?;
    /// two.copy(&source, &mut destination)?; // once `one` has zeroed it
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn copy<'a, 'b, T: Pod>(
        &self,
        source: impl Into<DeviceSlice<'a, T>>,
        destination: impl Into<DeviceSliceMut<'b, T>>,
    ) -> Result<()> {
        transfer(self.core(), source.into(), destination.into())
    }

    /// Copies elements of a buffer to another place in it, from `to` on, asynchronously:
    /// `cuMemcpyDtoDAsync_v2`.
    ///
    /// A device copies in no particular order, so the two places must not overlap: unlike
    /// `slice::copy_within` this uses no buffer in between.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Invalid`] and [`Error::WrongDevice`] before any driver
    /// call.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut ring = stream.alloc_zeroed::<f32>(3000)?;
    /// stream.copy_within(&mut ring, 2000.., 0)?; // the last thousand over the first
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn copy_within<'b, T: Pod>(
        &self,
        buffer: impl Into<DeviceSliceMut<'b, T>>,
        from: impl RangeBounds<usize>,
        to: usize,
    ) -> Result<()> {
        let buffer = buffer.into();
        let (start, end) = bounds(from, buffer.len())?;
        let len = end - start;
        let (to, to_end) = bounds(to..to.saturating_add(len), buffer.len())?;
        if to < end && start < to_end && len > 0 {
            let why = format!("{len} elements from {start} on and from {to} on overlap");
            return Err(Error::invalid("cuMemcpyDtoDAsync", why));
        }
        if to >= end {
            let (low, mut high) = buffer.split_at_mut(to)?;
            return self.copy(low.as_view().slice(start..end)?, high.slice_mut(..len)?);
        }
        let (mut low, high) = buffer.split_at_mut(start)?;
        self.copy(high.as_view().slice(..len)?, low.slice_mut(to..to_end)?)
    }
}
