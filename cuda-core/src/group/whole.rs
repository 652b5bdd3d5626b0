//! Memory whose parts belong to the members of a group.

use crate::copy::{HostSlice, HostSliceMut, either_len, from_host_memory};
use crate::host::{
    PinnedMemory, PinnedSlice, PinnedSliceMut, Registered, StableHost, StableHostMut,
};
use crate::memory::{
    Buffer, DeviceMemory, DeviceSlice, DeviceSliceMut, IntoView, SharedSlice, views,
};
use crate::types::Pod;

/// What [`DeviceGroup::scatter`](crate::DeviceGroup::scatter) distributes: host memory, in every
/// form that [`HostSlice`] lists, or memory of any device.
///
/// ```no_run
/// use cuda_core::{DeviceBuffer, DeviceGroup, IntoView, Result, Whole};
///
/// fn shares<'a>(
///     group: &DeviceGroup,
///     batch: impl IntoView<Whole<'a, f32>>,
/// ) -> Result<Vec<DeviceBuffer<f32>>> {
///     let batch = batch.into();
///     let mut shares = group.alloc_shares(batch.len())?;
///     group.scatter(batch, &mut shares)?;
///     Ok(shares)
/// }
/// let group = DeviceGroup::all()?;
/// shares(&group, &vec![1.0; 1000])?;
/// shares(&group, &group.streams()[0].alloc_zeroed(1000)?)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug)]
pub enum Whole<'a, T: Pod> {
    /// Device memory.
    Device(DeviceSlice<'a, T>),
    /// Host memory.
    Host(HostSlice<'a, T>),
}

/// Where [`DeviceGroup::gather`](crate::DeviceGroup::gather) collects: host memory, in every form
/// that [`HostSliceMut`] lists, or memory of any device.
#[derive(Debug)]
pub enum WholeMut<'a, T: Pod> {
    /// Device memory.
    Device(DeviceSliceMut<'a, T>),
    /// Host memory.
    Host(HostSliceMut<'a, T>),
}

either_len! { Whole: Device, Host; WholeMut: Device, Host; }

impl<'a, T: Pod> IntoView<Whole<'a, T>> for Whole<'a, T> {}
impl<'a, T: Pod> IntoView<WholeMut<'a, T>> for WholeMut<'a, T> {}

from_host_memory! { Whole: Whole::Host, WholeMut: WholeMut::Host }

views! {
    ['a, T: Pod] HostSlice<'a, T> => Whole<'a, T>: |it| Whole::Host(it);
    ['a, T: Pod] DeviceSlice<'a, T> => Whole<'a, T>: |it| Whole::Device(it);
    ['a, T: Pod] &DeviceSlice<'a, T> => Whole<'a, T>: |it| Whole::Device(*it);
    ['a, T: Pod] &'a DeviceSliceMut<'_, T> => Whole<'a, T>: |it| Whole::Device(it.as_view());
    ['a, T: Pod] &'a SharedSlice<T> => Whole<'a, T>: |it| Whole::Device(it.as_view());
    ['a, T: Pod, X] &'a Buffer<T, DeviceMemory, X> => Whole<'a, T>:
        |it| Whole::Device(it.as_view());
    ['a, T: Pod] &'a mut DeviceSliceMut<'_, T> => Whole<'a, T>: |it| Whole::Device(it.as_view());
    ['a, T: Pod, X] &'a mut Buffer<T, DeviceMemory, X> => Whole<'a, T>:
        |it| Whole::Device(it.as_view());

    ['a, T: Pod] HostSliceMut<'a, T> => WholeMut<'a, T>: |it| WholeMut::Host(it);
    ['a, T: Pod] DeviceSliceMut<'a, T> => WholeMut<'a, T>: |it| WholeMut::Device(it);
    ['a, T: Pod] &'a mut DeviceSliceMut<'_, T> => WholeMut<'a, T>:
        |it| WholeMut::Device(it.reborrow());
    ['a, T: Pod, X] &'a mut Buffer<T, DeviceMemory, X> => WholeMut<'a, T>:
        |it| WholeMut::Device(it.as_view_mut());
}
