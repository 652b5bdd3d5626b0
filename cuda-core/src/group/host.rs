//! Copies between pinned memory and all devices, and between all devices and the parts of one
//! buffer.

use crate::copy::endpoint::Endpoint;
use crate::error::Result;
use crate::group::DeviceGroup;
use crate::group::round::{Transfer, run};
use crate::group::views::{parts, parts_mut, total};
use crate::host::pinned::{PinnedMemory, PinnedSlice};
use crate::memory::device::{DeviceMemory, DeviceSlice, DeviceSliceMut};
use crate::memory::same_len;
use crate::memory::view::{Slice, SliceMut};
use crate::stream::Stream;
use crate::types::pod::Pod;

/// Memory whose parts [`DeviceGroup::scatter`] distributes and [`DeviceGroup::gather`] collects:
/// [`DeviceMemory`], of any device, and [`PinnedMemory`]. Sealed.
///
/// ```no_run
/// use cuda_core::{Buffer, DeviceBuffer, DeviceGroup, Divisible, Result};
///
/// // What is to be handed out may be pinned, or on any device.
/// fn shares<M: Divisible>(
///     group: &DeviceGroup,
///     batch: &Buffer<f32, M>,
/// ) -> Result<Vec<DeviceBuffer<f32>>> {
///     let mut shares = group.alloc_shares(batch.len())?;
///     group.scatter(batch, &mut shares)?;
///     Ok(shares)
/// }
/// let group = DeviceGroup::all()?;
/// let on_first = group.streams()[0].alloc_zeroed(1000)?;
/// shares(&group, &on_first)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[allow(private_bounds, reason = "that bound is the seal")]
pub trait Divisible: Endpoint + Divide {}

impl<M: Endpoint + Divide> Divisible for M {}

/// How parts of a kind of memory are copied to a member and back.
pub(crate) trait Divide: Endpoint {
    /// The stream that copies a part to the member, or from it.
    fn stream(group: &DeviceGroup, rank: usize) -> &Stream;

    fn hand_out<T: Pod>(
        stream: &Stream,
        part: Slice<'_, T, Self>,
        member: DeviceSliceMut<'_, T>,
    ) -> Result<()>;

    fn take_in<T: Pod>(
        stream: &Stream,
        member: DeviceSlice<'_, T>,
        part: SliceMut<'_, T, Self>,
    ) -> Result<()>;
}

macro_rules! divide {
    ($memory:ty, $streams:ident, $hand_out:ident, $take_in:ident) => {
        impl Divide for $memory {
            fn stream(group: &DeviceGroup, rank: usize) -> &Stream {
                &group.$streams[rank]
            }

            fn hand_out<T: Pod>(
                stream: &Stream,
                part: Slice<'_, T, Self>,
                member: DeviceSliceMut<'_, T>,
            ) -> Result<()> {
                stream.$hand_out(part, member)
            }

            fn take_in<T: Pod>(
                stream: &Stream,
                member: DeviceSlice<'_, T>,
                part: SliceMut<'_, T, Self>,
            ) -> Result<()> {
                stream.$take_in(member, part)
            }
        }
    };
}

divide!(PinnedMemory, streams, upload, download);
// On the member's stream, so that all members copy at the same time.
divide!(DeviceMemory, lanes, copy, copy);

impl DeviceGroup {
    /// Copies pinned memory to every device, asynchronously: `cuMemcpyHtoDAsync_v2` on each member's
    /// stream, all at the same time.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) unless there is one for each member,
    /// [`Error::WrongDevice`](crate::Error::WrongDevice), and
    /// [`Error::LengthMismatch`](crate::Error::LengthMismatch) as
    /// [`Error::OnDevice`](crate::Error::OnDevice), before any driver call.
    ///
    /// ```no_run
    /// use cuda_core::{DeviceGroup, PinnedBuffer};
    ///
    /// let group = DeviceGroup::all()?;
    /// let host = PinnedBuffer::from_slice(group.streams()[0].context(), &[1.0f32; 256])?;
    /// let mut copies = group.alloc(256)?;
    /// group.upload_all(&host, &mut copies)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn upload_all<'a, 'b, T: Pod>(
        &self,
        source: impl Into<PinnedSlice<'a, T>>,
        destinations: impl IntoIterator<Item = impl Into<DeviceSliceMut<'b, T>>>,
    ) -> Result<()> {
        let op = "upload_all";
        let source = source.into();
        let destinations = self.destinations(op, destinations)?;
        for (rank, destination) in destinations.iter().enumerate() {
            self.same_len_on(op, rank, source.len(), destination.len())?;
        }
        let copies = self.streams.iter().zip(destinations);
        let copies = copies.map(|(stream, destination)| Transfer { stream, source, destination });
        run(copies.collect(), Stream::upload)
    }

    /// Copies the first elements of `source` to the first device, the next ones to the second, and
    /// so on, asynchronously and all at the same time. Each device gets as many as its destination
    /// holds; together they hold as many as `source`, which is pinned memory or any device's. A
    /// destination may be empty.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid),
    /// [`Error::WrongDevice`](crate::Error::WrongDevice) and
    /// [`Error::LengthMismatch`](crate::Error::LengthMismatch) before any driver call.
    ///
    /// ```no_run
    /// use cuda_core::{DeviceGroup, PinnedBuffer};
    ///
    /// let group = DeviceGroup::all()?;
    /// let mut host = PinnedBuffer::<u32>::zeroed(group.streams()[0].context(), 1000)?;
    /// let mut shares = group.alloc_shares(1000)?;
    /// group.scatter(&host, &mut shares)?;
    /// group.gather(&shares, &mut host)?; // and back, in order
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn scatter<'a, 'b, T: Pod, M: Divisible>(
        &self,
        source: impl Into<Slice<'a, T, M>>,
        destinations: impl IntoIterator<Item = impl Into<DeviceSliceMut<'b, T>>>,
    ) -> Result<()> {
        let op = "scatter";
        let source = source.into();
        let destinations = self.destinations(op, destinations)?;
        let lens: Vec<usize> = destinations.iter().map(SliceMut::len).collect();
        same_len(op, source.len(), total::<T>(lens.iter().copied())?)?;
        let parts = parts(source, lens)?.into_iter().zip(destinations);
        let copies = parts.enumerate().map(|(rank, (source, destination))| Transfer {
            stream: M::stream(self, rank),
            source,
            destination,
        });
        run(copies.collect(), M::hand_out)
    }

    /// Copies each device's elements to their place in `destination`, in the order of the devices:
    /// the reverse of [`DeviceGroup::scatter`].
    ///
    /// # Errors
    /// As [`DeviceGroup::scatter`].
    ///
    /// ```no_run
    /// use cuda_core::{DeviceGroup, PinnedBuffer};
    ///
    /// let group = DeviceGroup::all()?;
    /// let shares = group.alloc_shares::<f32>(1000)?; // of different lengths
    /// let mut whole = PinnedBuffer::new(group.streams()[0].context(), 1000)?;
    /// group.gather(&shares, &mut whole)?; // enqueued, all devices at once
    /// println!("{}", whole.as_slice()?[0]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn gather<'a, 'b, T: Pod, M: Divisible>(
        &self,
        sources: impl IntoIterator<Item = impl Into<DeviceSlice<'a, T>>>,
        destination: impl Into<SliceMut<'b, T, M>>,
    ) -> Result<()> {
        let op = "gather";
        let destination = destination.into();
        let sources = self.sources(op, sources)?;
        let lens: Vec<usize> = sources.iter().map(Slice::len).collect();
        same_len(op, total::<T>(lens.iter().copied())?, destination.len())?;
        let parts = sources.into_iter().zip(parts_mut(destination, lens)?);
        let copies = parts.enumerate().map(|(rank, (source, destination))| Transfer {
            stream: M::stream(self, rank),
            source,
            destination,
        });
        run(copies.collect(), M::take_in)
    }
}
