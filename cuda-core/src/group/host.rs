//! Copies between host memory and all devices, and between all devices and the parts of one buffer.
//! Borrowed slices go through the staging chunks of borrowed copies.

use crate::copy::borrowed::large::{self, DeviceEnd, Split};
use crate::copy::borrowed::staging::options::is_more_than;
use crate::copy::{HostSlice, HostSliceMut};
use crate::error::{Error, Result};
use crate::group::round::run;
use crate::group::views::{parts, parts_mut, total};
use crate::group::{DeviceGroup, Whole, WholeMut};
use crate::memory::{DeviceSlice, DeviceSliceMut, IntoView, Slice, SliceMut, same_len};
use crate::stream::Stream;
use crate::types::{Pod, bytes_of, bytes_of_mut};

/// Bytes up to which each stream stages its own copy: that is faster than a mostly unused new
/// chunk.
const SMALL: usize = 64 << 10;

/// # From and to the host
impl DeviceGroup {
    /// Copies host memory to every device, at the same time: `cuMemcpyHtoDAsync_v2` on each
    /// member's stream.
    ///
    /// Pinned memory is copied asynchronously. A borrowed slice is staged in pinned memory, and may
    /// be changed when the method returns. The slice is read once, for any number of devices: each
    /// pinned chunk is uploaded to all of them before it is filled again, and several threads fill
    /// the chunks of a large slice.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless there is one destination for each member, [`Error::WrongDevice`], and
    /// [`Error::LengthMismatch`] as [`Error::OnDevice`], before any driver call. After the driver fails,
    /// destinations may be written in part.
    ///
    /// ```no_run
    /// use cuda_core::DeviceGroup;
    ///
    /// let group = DeviceGroup::all()?;
    /// let mut copies = group.alloc(3)?;
    /// group.upload_all(&[1u32, 2, 3], &mut copies)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpyHtoDAsync", "cudaMemcpyAsync"))]
    pub fn upload_all<'a, 'b, T: Pod>(
        &self,
        source: impl IntoView<HostSlice<'a, T>>,
        destinations: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'b, T>>>,
    ) -> Result<()> {
        let op = "upload_all";
        let source = source.into();
        let destinations = self.views(op, destinations, DeviceSliceMut::device)?;
        for (rank, destination) in destinations.iter().enumerate() {
            self.same_len_on(op, rank, source.len(), destination.len())?;
        }
        match source {
            HostSlice::Pinned(source) => {
                let sources = vec![source; self.len()];
                run(self.streams.iter().zip(sources).zip(destinations), Stream::upload)
            }
            HostSlice::Borrowed(source) => self.upload_borrowed(source, destinations, Split::Whole),
        }
    }

    /// Copies the first elements of `source` to the first device, the next ones to the second, and
    /// so on, all at the same time. Each device gets as many elements as its destination holds;
    /// together the destinations hold as many as `source`. A destination may be empty.
    ///
    /// Memory of a device and pinned memory are copied asynchronously; a borrowed slice is staged
    /// in pinned memory, and may be changed when the method returns.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless there is one destination for each member, [`Error::WrongDevice`] and
    /// [`Error::LengthMismatch`] before any driver call. After the driver fails, destinations may be
    /// written in part.
    ///
    /// ```no_run
    /// use cuda_core::DeviceGroup;
    ///
    /// let group = DeviceGroup::all()?;
    /// let mut host = vec![7u32; 1000];
    /// let mut shares = group.alloc_shares(1000)?;
    /// group.scatter(&host, &mut shares)?;
    /// group.gather(&shares, &mut host)?; // and back, in order
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpyHtoDAsync", "cudaMemcpyAsync"))]
    pub fn scatter<'a, 'b, T: Pod>(
        &self,
        source: impl IntoView<Whole<'a, T>>,
        destinations: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'b, T>>>,
    ) -> Result<()> {
        let op = "scatter";
        let source = source.into();
        let destinations = self.views(op, destinations, DeviceSliceMut::device)?;
        let lens: Vec<usize> = destinations.iter().map(SliceMut::len).collect();
        same_len(op, source.len(), total::<T>(lens.iter().copied())?)?;
        match source {
            // On the receivers' streams: on the sender's one stream, the copies would run one after
            // another.
            Whole::Device(source) => {
                run(self.lanes.iter().zip(parts(source, lens)?).zip(destinations), Stream::copy)
            }
            Whole::Host(HostSlice::Pinned(source)) => {
                run(self.streams.iter().zip(parts(source, lens)?).zip(destinations), Stream::upload)
            }
            Whole::Host(HostSlice::Borrowed(source)) => {
                self.upload_borrowed(source, destinations, Split::Next)
            }
        }
    }

    /// Copies each device's elements to their place in `destination`, in the order of the devices:
    /// the reverse of [`DeviceGroup::scatter`]. A borrowed slice has been filled when the method
    /// returns; other copies are asynchronous.
    ///
    /// # Errors
    /// As [`DeviceGroup::scatter`]. After the driver fails, the destination may be written in part.
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
    #[doc(alias("cuMemcpyDtoHAsync", "cudaMemcpyAsync"))]
    pub fn gather<'a, 'b, T: Pod>(
        &self,
        sources: impl IntoIterator<Item = impl IntoView<DeviceSlice<'a, T>>>,
        destination: impl IntoView<WholeMut<'b, T>>,
    ) -> Result<()> {
        let op = "gather";
        let destination = destination.into();
        let sources = self.views(op, sources, DeviceSlice::device)?;
        let lens: Vec<usize> = sources.iter().map(Slice::len).collect();
        same_len(op, total::<T>(lens.iter().copied())?, destination.len())?;
        match destination {
            WholeMut::Device(whole) => {
                run(self.lanes.iter().zip(sources).zip(parts_mut(whole, lens)?), Stream::copy)
            }
            WholeMut::Host(HostSliceMut::Pinned(whole)) => {
                run(self.streams.iter().zip(sources).zip(parts_mut(whole, lens)?), Stream::download)
            }
            WholeMut::Host(HostSliceMut::Borrowed(whole)) => {
                let ends = self.ends(sources, |source| source.cast())?;
                large::download(ends, bytes_of_mut(whole), Error::on)
            }
        }
    }
}

impl DeviceGroup {
    /// Does [`DeviceGroup::upload_all`] or [`DeviceGroup::scatter`] of a borrowed slice, which is
    /// as long as each destination, or as all together.
    fn upload_borrowed<T: Pod>(
        &self,
        source: &[T],
        destinations: Vec<DeviceSliceMut<'_, T>>,
        split: Split,
    ) -> Result<()> {
        if is_more_than(size_of_val(source), SMALL) {
            let ends = self.ends(destinations, SliceMut::cast)?;
            return large::upload(bytes_of(source), ends, split, Error::on);
        }
        let mut rest = source;
        self.streams.iter().zip(destinations).try_for_each(|(stream, destination)| {
            let part = match split {
                Split::Whole => source,
                Split::Next => {
                    let (part, behind) = rest.split_at(destination.len());
                    rest = behind;
                    part
                }
            };
            stream.upload(part, destination).map_err(|error| error.on(stream.device()))
        })
    }

    /// Returns each member's stream, with its memory as bytes.
    fn ends<V, B>(
        &self,
        views: Vec<V>,
        as_bytes: impl Fn(V) -> Result<B>,
    ) -> Result<Vec<DeviceEnd<'_, B>>> {
        let ends =
            self.streams.iter().zip(views).map(|(stream, view)| {
                Ok(DeviceEnd { core: stream.core(), memory: as_bytes(view)? })
            });
        ends.collect()
    }
}
