//! Copies between buffers: one driver call each, ordered by the buffers' ledgers.

pub(crate) mod batch;
pub(crate) mod borrowed;
mod fill;
pub(crate) mod host_slice;
pub(crate) mod in_flight;
mod linear;
mod new;
pub(crate) mod pitched;
pub(crate) mod shape;
pub(crate) mod side;

use std::ops::RangeBounds;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::device::{DeviceSlice, DeviceSliceMut};
use crate::memory::view::{Slice, SliceMut, bounds};
use crate::memory::{Memory, same_len};
use crate::peer::{Crossing, crossing};
use crate::stream::{Stream, StreamKind};
use crate::timeline::core::{StreamCore, same_device};
use crate::types::pod::Pod;
use host_slice::{HostSlice, HostSliceMut};

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

/// Copies all of `source` to `destination`, of equal length: checks, orders, enqueues, marks. No
/// driver call if there is nothing to copy.
#[inline]
fn transfer<T: Pod, A: Memory, B: Memory>(
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
    /// Copies host memory to the stream's device: `cuMemcpyHtoDAsync_v2`.
    ///
    /// **Pinned memory** is copied asynchronously. **A borrowed slice** is first staged in pinned
    /// memory, and the method returns as soon as that is done: the slice may be changed at once,
    /// and nothing waits for the device.
    ///
    /// A small slice costs one `memcpy` more. A large one goes through at most eight
    /// [chunks](crate::staging::StagingOptions), 64 MiB by default; the calling thread waits for
    /// this stream before it stages more than they hold. It also waits for this stream when 256 MiB
    /// of small slices are in flight, unless the stream is known to be held up, for example by a
    /// [signal](crate::Signal) or a host function: then small slices take more pinned memory, which
    /// later copies, or [`staging::trim`](crate::staging::trim), give back. If no pinned memory can
    /// be had at all, bytes go through memory that is not pinned: slower, and the driver may wait
    /// for this stream.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] and [`Error::WrongDevice`] before any driver call. After the
    /// driver fails, the destination of a large slice may be written in part.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::PinnedBuffer;
    ///
    /// let mut buffer = stream.alloc(3)?;
    /// stream.upload(&[1u32, 2, 3], &mut buffer)?;
    /// let host = PinnedBuffer::from_slice(stream.context(), &[4, 5, 6])?;
    /// stream.upload(&host, &mut buffer)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[inline]
    pub fn upload<'a, 'b, T: Pod>(
        &self,
        source: impl Into<HostSlice<'a, T>>,
        destination: impl Into<DeviceSliceMut<'b, T>>,
    ) -> Result<()> {
        match source.into() {
            HostSlice::Pinned(source) => transfer(self.core(), source, destination.into()),
            HostSlice::Borrowed(source) => {
                borrowed::upload(self.core(), source, destination.into())
            }
        }
    }

    /// Copies from the stream's device to host memory: `cuMemcpyDtoHAsync_v2`.
    ///
    /// **To pinned memory** it copies asynchronously: reading that on the host waits for the copy.
    /// **A borrowed slice** is filled when the method returns: it waits for the copy. To wait once
    /// for several slices, use [`Stream::scope`].
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] and [`Error::WrongDevice`] before any driver call. A borrowed
    /// slice of up to a mebibyte, or up to a [chunk](crate::staging::StagingOptions) if that is
    /// smaller, is untouched after a failure; a larger one may be written in part.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::PinnedBuffer;
    ///
    /// let buffer = stream.alloc_zeroed::<u32>(1000)?;
    /// let mut back = vec![1; 1000];
    /// stream.download(&buffer, &mut back)?; // waits
    /// let mut host = PinnedBuffer::new(&context, 1000)?;
    /// stream.download(&buffer, &mut host)?; // returns at once
    /// assert_eq!(host.as_slice()?, back); // waits
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[inline]
    pub fn download<'a, 'b, T: Pod>(
        &self,
        source: impl Into<DeviceSlice<'a, T>>,
        destination: impl Into<HostSliceMut<'b, T>>,
    ) -> Result<()> {
        match destination.into() {
            HostSliceMut::Pinned(destination) => transfer(self.core(), source.into(), destination),
            HostSliceMut::Borrowed(destination) => {
                borrowed::download(self.core(), source.into(), destination)
            }
        }
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
