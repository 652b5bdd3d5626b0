//! Copies of whole buffers and views.

use std::ops::RangeBounds;

use crate::copy::{HostSlice, HostSliceMut, borrowed, transfer};
use crate::error::{Error, Result};
use crate::memory::{DeviceSlice, DeviceSliceMut, IntoView, bounds};
use crate::stream::{Stream, StreamKind};
use crate::types::Pod;

/// # Copies
impl<K: StreamKind> Stream<K> {
    /// Copies host memory to the stream's device: `cuMemcpyHtoDAsync_v2`.
    ///
    /// **Pinned memory** is copied asynchronously. **A borrowed slice** is first staged in pinned
    /// memory, and the method returns as soon as that is done: the slice may be changed at once. Except
    /// in the cases below, nothing waits for the device.
    ///
    /// A small slice costs one additional `memcpy`. A large slice goes through at most eight
    /// [chunks](crate::staging::StagingOptions), 64 MiB by default; the calling thread waits for this
    /// stream before it stages more than these chunks hold. The thread also waits for this stream when
    /// 256 MiB of small slices are in flight, unless the stream is known to be held up, for example by
    /// a [signal](crate::Signal) or a host function. In that case small slices take more pinned memory,
    /// which later copies, or [`staging::trim`](crate::staging::trim), give back. If no pinned memory
    /// is available at all, bytes go through memory that is not pinned: slower, and the driver may wait
    /// for this stream.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] and [`Error::WrongDevice`] before any driver call. If the driver
    /// fails, the destination of a large slice may be partly written.
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
    #[doc(alias("cuMemcpyHtoDAsync", "cudaMemcpy", "cudaMemcpyAsync"))]
    #[inline]
    #[doc(alias("cuMemcpyHtoD", "memcpy_htod", "copy_from_host_async"))]
    pub fn upload<'a, 'b, T: Pod>(
        &self,
        source: impl IntoView<HostSlice<'a, T>>,
        destination: impl IntoView<DeviceSliceMut<'b, T>>,
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
    /// **To pinned memory** it copies asynchronously: reading that memory on the host waits for the
    /// copy. **A borrowed slice** is filled when the method returns: the method waits for the copy. To
    /// wait once for several slices, use [`Stream::scope`].
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] and [`Error::WrongDevice`] before any driver call. A borrowed slice of
    /// up to a mebibyte, or up to a [chunk](crate::staging::StagingOptions) if that is smaller, is
    /// unchanged after a failure; a larger one may be partly written.
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
    #[doc(alias("cuMemcpyDtoHAsync", "cudaMemcpy", "cudaMemcpyAsync"))]
    #[inline]
    #[doc(alias("cuMemcpyDtoH", "memcpy_dtoh", "copy_to_host_async"))]
    pub fn download<'a, 'b, T: Pod>(
        &self,
        source: impl IntoView<DeviceSlice<'a, T>>,
        destination: impl IntoView<HostSliceMut<'b, T>>,
    ) -> Result<()> {
        match destination.into() {
            HostSliceMut::Pinned(destination) => transfer(self.core(), source.into(), destination),
            HostSliceMut::Borrowed(destination) => {
                borrowed::download(self.core(), source.into(), destination)
            }
        }
    }

    /// Copies device memory, asynchronously: `cuMemcpyDtoDAsync_v2` on one device, `cuMemcpyPeerAsync`
    /// between two. The latter works whether or not the devices have access to each other, but is faster if
    /// they do ([`Context::enable_peer_access`](crate::Context::enable_peer_access)): on H200s with NVLink,
    /// ten times.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::WrongDevice`] if the stream belongs to neither device. In a
    /// [capture](crate::Graph::capture), [`Error::Invalid`] for memory of another device's
    /// [pool](crate::MemoryPool) to which the stream's device has no access; it is the driver's
    /// `INVALID_VALUE` if the stream's device has access to another pool of that device.
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
    #[doc(alias("cuMemcpyDtoDAsync", "cuMemcpyPeerAsync"))]
    #[doc(alias("cudaMemcpy", "cudaMemcpyAsync", "cudaMemcpyPeerAsync"))]
    #[doc(alias("cuMemcpyDtoD", "memcpy_dtod", "copy_from_device_async"))]
    pub fn copy<'a, 'b, T: Pod>(
        &self,
        source: impl IntoView<DeviceSlice<'a, T>>,
        destination: impl IntoView<DeviceSliceMut<'b, T>>,
    ) -> Result<()> {
        transfer(self.core(), source.into(), destination.into())
    }

    /// Copies the elements `from` of a buffer to another place in it, from `to` on, asynchronously:
    /// `cuMemcpyDtoDAsync_v2`.
    ///
    /// A device copies in no particular order, so the two places must not overlap: unlike
    /// `slice::copy_within`, this method does not handle overlap.
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
    #[doc(alias("cuMemcpyDtoDAsync", "cudaMemcpyAsync"))]
    pub fn copy_within<'b, T: Pod>(
        &self,
        buffer: impl IntoView<DeviceSliceMut<'b, T>>,
        from: impl RangeBounds<usize>,
        to: usize,
    ) -> Result<()> {
        let buffer = buffer.into();
        let (start, end) = bounds(from, buffer.len())?;
        let len = end - start;
        let (to, to_end) = bounds(to..to.saturating_add(len), buffer.len())?;
        let apart = to >= end || start >= to_end || len == 0;
        let why = || format!("{len} elements from {start} on and from {to} on overlap");
        Error::unless_with(apart, "cuMemcpyDtoDAsync", why)?;
        if to >= end {
            let (low, mut high) = buffer.split_at_mut(to)?;
            return self.copy(low.as_view().slice(start..end)?, high.slice_mut(..len)?);
        }
        let (mut low, high) = buffer.split_at_mut(start)?;
        self.copy(high.as_view().slice(..len)?, low.slice_mut(to..to_end)?)
    }
}
