//! The views passed to a group, one for each member, and parts of views.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::group::DeviceGroup;
use crate::memory::{Memory, Slice, SliceMut, same_len};
use crate::types::Pod;

impl DeviceGroup {
    /// Returns one view for each member, on its device.
    pub(super) fn views<V>(
        &self,
        op: &'static str,
        given: impl IntoIterator<Item = impl Into<V>>,
        device: impl Fn(&V) -> Device,
    ) -> Result<Vec<V>> {
        let views: Vec<V> = given.into_iter().map(Into::into).collect();
        self.one_each(op, views.len())?;
        for (rank, view) in views.iter().enumerate() {
            self.on_member(op, rank, device(view))?;
        }
        Ok(views)
    }

    /// Refuses a copy to the member if source and destination differ in length.
    pub(super) fn same_len_on(
        &self,
        op: &'static str,
        rank: usize,
        source_len: usize,
        destination_len: usize,
    ) -> Result<()> {
        let same = same_len(op, source_len, destination_len);
        same.map_err(|error| error.on(self.streams[rank].device()))
    }
}

/// Returns the number of elements in all of them together.
///
/// The sum may overflow for zero-sized elements.
pub(super) fn total<T>(lens: impl IntoIterator<Item = usize>) -> Result<usize> {
    let sum = lens.into_iter().try_fold(0, usize::checked_add);
    sum.ok_or(Error::SizeOverflow { len: usize::MAX, element_size: size_of::<T>() })
}

/// Cuts a view into consecutive parts of these lengths.
pub(super) fn parts<'a, T: Pod, M: Memory>(
    view: Slice<'a, T, M>,
    lens: impl IntoIterator<Item = usize>,
) -> Result<Vec<Slice<'a, T, M>>> {
    let mut start = 0;
    let part = |len| {
        let part = view.slice(start..start + len)?;
        start += len;
        Ok(part)
    };
    lens.into_iter().map(part).collect()
}

/// Works as [`parts`], for an exclusive view.
pub(super) fn parts_mut<'b, T: Pod, M: Memory>(
    view: SliceMut<'b, T, M>,
    lens: impl IntoIterator<Item = usize>,
) -> Result<Vec<SliceMut<'b, T, M>>> {
    let mut rest = view;
    let mut parts = Vec::new();
    for len in lens {
        let (part, behind) = rest.split_at_mut(len)?;
        parts.push(part);
        rest = behind;
    }
    Ok(parts)
}
