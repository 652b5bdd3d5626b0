//! Arguments that are taken as views: references to memory, and views.

use crate::memory::{Memory, Slice, SliceMut};
use crate::types::Pod;

/// Memory that a method takes as a view: `&buffer`, `&mut buffer`, or a view.
///
/// `V` is one of [`DeviceSlice`](crate::DeviceSlice), [`DeviceSliceMut`](crate::DeviceSliceMut),
/// [`PinnedSlice`](crate::PinnedSlice), [`PinnedSliceMut`](crate::PinnedSliceMut),
/// [`HostSlice`](crate::HostSlice), [`HostSliceMut`](crate::HostSliceMut), [`Whole`](crate::Whole)
/// and [`WholeMut`](crate::WholeMut), whose pages list the accepted arguments. All that the trait adds
/// to [`Into`] is the compiler's message about an argument of another type.
///
/// The argument is moved, so a function that has `buffer: &mut DeviceBuffer<T>` and uses it again writes
/// `&mut *buffer`, as for any generic argument.
///
/// A type of your own can be passed directly if it implements [`From`] and this trait:
///
/// ```no_run
/// use cuda_core::{DeviceBuffer, DeviceSlice, IntoView};
///
/// struct Tensor {
///     elements: DeviceBuffer<f32>,
///     shape: [usize; 2],
/// }
///
/// impl<'a> From<&'a Tensor> for DeviceSlice<'a, f32> {
///     fn from(tensor: &'a Tensor) -> Self {
///         tensor.elements.as_view()
///     }
/// }
///
/// impl<'a> IntoView<DeviceSlice<'a, f32>> for &'a Tensor {}
///
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// let tensor = Tensor { elements: stream.alloc_zeroed(6)?, shape: [2, 3] };
/// assert_eq!(stream.download_vec(&tensor)?, [0.0; 6]);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be given as `{V}`",
    label = "no such memory, or none that may be used like this",
    note = "memory is given by reference: `&memory` to be read, `&mut memory` to be written",
    note = "a `Result` needs `?`: `memory.slice(..)?`",
    note = "vectors, slices, arrays and pinned memory with its slices are the host's; buffers, \
            `buffer.slice(..)?` and `buffer.slice_mut(..)?` are of a device",
    note = "both ends of a copy have elements of the same type"
)]
pub trait IntoView<V>: Into<V> {}

impl<'a, T: Pod, M: Memory> IntoView<Slice<'a, T, M>> for Slice<'a, T, M> {}
impl<'a, T: Pod, M: Memory> IntoView<SliceMut<'a, T, M>> for SliceMut<'a, T, M> {}

/// Implements `From`, as `from!` does, and [`IntoView`].
macro_rules! views {
    ($([$($generics:tt)*] $from:ty => $to:ty: |$value:ident| $made:expr;)*) => {
        $crate::util::from::from! { $([$($generics)*] $from => $to: |$value| $made;)* }
        $(impl<$($generics)*> $crate::memory::into_view::IntoView<$to> for $from {})*
    };
}

pub(crate) use views;
