//! Copies between borrowed slices and all devices, through the staging chunks of borrowed copies.

use crate::copy::borrowed::large::{self, DeviceEnd, Split};
use crate::copy::borrowed::staging::options::is_more_than;
use crate::error::{Error, Result};
use crate::group::DeviceGroup;
use crate::memory::device::{DeviceSlice, DeviceSliceMut};
use crate::memory::view::SliceMut;
use crate::types::pod::{Pod, bytes_of, bytes_of_mut};

/// Bytes up to which each stream stages its own copy: faster than a new chunk of which little is
/// used.
const SMALL: usize = 64 << 10;

impl DeviceGroup {
    /// [`DeviceGroup::upload_all`] of a borrowed slice, as long as each destination.
    pub(super) fn upload_borrowed<T: Pod>(
        &self,
        source: &[T],
        destinations: Vec<DeviceSliceMut<'_, T>>,
    ) -> Result<()> {
        if !is_more_than(size_of_val(source), SMALL) {
            return self.upload_each(destinations.into_iter().map(|to| (source, to)));
        }
        let ends = self.ends(destinations, SliceMut::cast)?;
        large::upload(bytes_of(source), ends, Split::Whole, Error::on)
    }

    /// [`DeviceGroup::scatter`] of a borrowed slice, as long as all destinations together.
    pub(super) fn scatter_borrowed<T: Pod>(
        &self,
        source: &[T],
        destinations: Vec<DeviceSliceMut<'_, T>>,
    ) -> Result<()> {
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

    /// [`DeviceGroup::gather`] to a borrowed slice, as long as all sources together.
    pub(super) fn gather_borrowed<T: Pod>(
        &self,
        sources: Vec<DeviceSlice<'_, T>>,
        destination: &mut [T],
    ) -> Result<()> {
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
            let uploaded = stream.upload(source, destination);
            uploaded.map_err(|error| error.on(stream.device()))
        })
    }
}
