//! Copies between borrowed slices and all devices, through the staging chunks of borrowed copies.

use crate::copy::borrowed::large::{self, DeviceEnd, Split};
use crate::copy::borrowed::staging::options::is_more_than;
use crate::error::{Error, Result};
use crate::group::DeviceGroup;
use crate::group::views::total;
use crate::memory::device::{DeviceSlice, DeviceSliceMut};
use crate::memory::same_len;
use crate::memory::view::{Slice, SliceMut};
use crate::types::pod::{Pod, bytes_of, bytes_of_mut};

/// Bytes up to which each stream stages its own copy: faster than a new chunk of which little is
/// used.
const SMALL: usize = 64 << 10;

impl DeviceGroup {
    /// Copies a borrowed slice to every device. Returns as soon as the bytes are staged in pinned
    /// memory: the slice may be changed at once.
    ///
    /// The slice is read once, however many devices there are: each pinned chunk is uploaded to all
    /// of them before it is filled again. Several threads fill the chunks of a large slice.
    ///
    /// # Errors
    /// As [`DeviceGroup::upload_all`]. After the driver fails, destinations may be written in part.
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::all()?;
    /// let mut copies = group.alloc(3)?;
    /// group.upload_all_from(&[1u32, 2, 3], &mut copies)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn upload_all_from<'b, T: Pod>(
        &self,
        source: &[T],
        destinations: impl IntoIterator<Item = impl Into<DeviceSliceMut<'b, T>>>,
    ) -> Result<()> {
        let op = "upload_all_from";
        let destinations = self.destinations(op, destinations)?;
        for (rank, destination) in destinations.iter().enumerate() {
            self.same_len_on(op, rank, source.len(), destination.len())?;
        }
        if !is_more_than(size_of_val(source), SMALL) {
            return self.upload_each(destinations.into_iter().map(|to| (source, to)));
        }
        let ends = self.ends(destinations, SliceMut::cast)?;
        large::upload(bytes_of(source), ends, Split::Whole, Error::on)
    }

    /// Copies the first elements of a borrowed slice to the first device, the next ones to the
    /// second, and so on: [`DeviceGroup::scatter`] through pinned chunks, to all devices at the
    /// same time. Returns as soon as the bytes are staged.
    ///
    /// # Errors
    /// As [`DeviceGroup::scatter`]. After the driver fails, destinations may be written in part.
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::all()?;
    /// let batch = vec![0.5f32; 1001];
    /// let mut shares = group.alloc_shares(batch.len())?;
    /// group.scatter_from(&batch, &mut shares)?; // `batch` may be changed at once
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn scatter_from<'b, T: Pod>(
        &self,
        source: &[T],
        destinations: impl IntoIterator<Item = impl Into<DeviceSliceMut<'b, T>>>,
    ) -> Result<()> {
        let op = "scatter_from";
        let destinations = self.destinations(op, destinations)?;
        let lens = destinations.iter().map(SliceMut::len);
        same_len(op, source.len(), total::<T>(lens)?)?;
        if !is_more_than(size_of_val(source), SMALL) {
            let mut rest = source;
            return self.upload_each(destinations.into_iter().map(|destination| {
                let (part, behind) = rest.split_at(destination.len());
                rest = behind;
                (part, destination)
            }));
        }
        let ends = self.ends(destinations, SliceMut::cast)?;
        large::upload(bytes_of(source), ends, Split::Next, Error::on)
    }

    /// Copies each device's elements to their place in a borrowed slice, and waits for them:
    /// [`DeviceGroup::gather`] through pinned chunks, from all devices at the same time.
    ///
    /// # Errors
    /// As [`DeviceGroup::gather`]. After the driver fails, the slice may be written in part.
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::all()?;
    /// let mut shares = group.alloc_shares(1000)?;
    /// group.scatter_from(&[7u32; 1000], &mut shares)?;
    /// let mut back = [0; 1000];
    /// group.gather_to(&shares, &mut back)?; // waits
    /// assert_eq!(back, [7; 1000]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn gather_to<'a, T: Pod>(
        &self,
        sources: impl IntoIterator<Item = impl Into<DeviceSlice<'a, T>>>,
        destination: &mut [T],
    ) -> Result<()> {
        let op = "gather_to";
        let sources = self.sources(op, sources)?;
        let lens = sources.iter().map(Slice::len);
        same_len(op, total::<T>(lens)?, destination.len())?;
        let ends = self.ends(sources, |source| source.cast())?;
        large::download(ends, bytes_of_mut(destination), Error::on)
    }

    /// Each member's stream, and its memory as bytes.
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

    /// One slice to each member.
    fn upload_each<'a, 'b, T: Pod>(
        &self,
        copies: impl Iterator<Item = (&'a [T], DeviceSliceMut<'b, T>)>,
    ) -> Result<()> {
        self.streams.iter().zip(copies).try_for_each(|(stream, (source, destination))| {
            let uploaded = stream.upload_from(source, destination);
            uploaded.map_err(|error| error.on(stream.device()))
        })
    }
}
