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
    /// [`DeviceGroup::upload_all`] or [`DeviceGroup::scatter`] of a borrowed slice, as long as each
    /// destination, or as all together.
    pub(super) fn upload_borrowed<T: Pod>(
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
}
