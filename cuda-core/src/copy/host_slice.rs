//! Host memory as an argument of copies: pinned or borrowed.

use crate::host::{
    PinnedMemory, PinnedSlice, PinnedSliceMut, Registered, StableHost, StableHostMut,
};
use crate::memory::{Buffer, IntoView, SharedSlice, views};
use crate::types::Pod;

/// Host memory to upload: pinned memory, or any slice, vector or array.
///
/// | source | the copy |
/// |---|---|
/// | `&PinnedBuffer`, `&Registered`, [`PinnedSlice`] | is asynchronous: the device reads the memory later, and the library orders what else uses it |
/// | `&[T]`, `&Vec<T>`, `&[T; N]`, `&Box<[T]>` | is staged in pinned memory: the source may be changed at once |
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{DeviceBuffer, HostSlice, IntoView, Result, Stream};
///
/// fn twice<'a>(
///     stream: &Stream,
///     source: impl IntoView<HostSlice<'a, f32>>,
/// ) -> Result<[DeviceBuffer<f32>; 2]> {
///     let source = source.into();
///     let (mut one, mut other) = (stream.alloc(source.len())?, stream.alloc(source.len())?);
///     stream.upload(source, &mut one)?;
///     stream.upload(source, &mut other)?;
///     Ok([one, other])
/// }
/// twice(&stream, &vec![1.0; 1000])?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub enum HostSlice<'a, T: Pod> {
    /// Memory that devices read directly.
    Pinned(PinnedSlice<'a, T>),
    /// Any other memory.
    Borrowed(&'a [T]),
}

/// Host memory to download to: pinned memory, or any slice, vector or array.
///
/// | destination | the copy |
/// |---|---|
/// | `&mut PinnedBuffer`, `&mut Registered`, [`PinnedSliceMut`] | is asynchronous: reading the memory waits for it |
/// | `&mut [T]`, `&mut Vec<T>`, `&mut [T; N]`, `&mut Box<[T]>` | is waited for |
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{DeviceBuffer, HostSliceMut, IntoView, Result, Stream};
///
/// fn ones<'a>(stream: &Stream, to: impl IntoView<HostSliceMut<'a, f32>>) -> Result<()> {
///     let to = to.into();
///     let mut buffer = stream.alloc(to.len())?;
///     stream.fill(&mut buffer, 1.0)?;
///     stream.download(&buffer, to)
/// }
/// let mut values = [0.0; 100];
/// ones(&stream, &mut values)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug)]
pub enum HostSliceMut<'a, T: Pod> {
    /// Memory that devices write directly.
    Pinned(PinnedSliceMut<'a, T>),
    /// Any other memory.
    Borrowed(&'a mut [T]),
}

/// Implements the length methods of an enum with two kinds of memory.
macro_rules! either_len {
    ($($slice:ident: $one:ident, $other:ident;)*) => {$(
        impl<T: Pod> $slice<'_, T> {
            /// The number of elements.
            pub fn len(&self) -> usize {
                match self {
                    Self::$one(slice) => slice.len(),
                    Self::$other(slice) => slice.len(),
                }
            }

            /// Whether there are no elements.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }
    )*};
}

either_len! { HostSlice: Pinned, Borrowed; HostSliceMut: Pinned, Borrowed; }

/// Implements `From` for every form of host memory: `$of` makes the type from a [`HostSlice`],
/// `$of_mut` from a [`HostSliceMut`].
macro_rules! from_host_memory {
    ($slice:ident: $of:expr, $slice_mut:ident: $of_mut:expr) => {
        views! {
            ['a, T: Pod] PinnedSlice<'a, T> => $slice<'a, T>: |it| $of(HostSlice::Pinned(it));
            ['a, T: Pod] &PinnedSlice<'a, T> => $slice<'a, T>: |it| $of(HostSlice::Pinned(*it));
            ['a, T: Pod] &'a PinnedSliceMut<'_, T> => $slice<'a, T>:
                |it| $of(HostSlice::Pinned(it.as_view()));
            ['a, T: Pod, X] &'a Buffer<T, PinnedMemory, X> => $slice<'a, T>:
                |it| $of(HostSlice::Pinned(it.as_view()));
            ['a, T: Pod] &'a SharedSlice<T, PinnedMemory> => $slice<'a, T>:
                |it| $of(HostSlice::Pinned(it.as_view()));
            ['a, H: StableHost] &'a Registered<H> => $slice<'a, H::Element>:
                |it| $of(HostSlice::Pinned(it.as_view()));
            ['a, T: Pod] &'a [T] => $slice<'a, T>: |it| $of(HostSlice::Borrowed(it));
            ['a, T: Pod] &'a Vec<T> => $slice<'a, T>: |it| $of(HostSlice::Borrowed(it));
            ['a, T: Pod] &'a Box<[T]> => $slice<'a, T>: |it| $of(HostSlice::Borrowed(it));
            ['a, T: Pod, const N: usize] &'a [T; N] => $slice<'a, T>:
                |it| $of(HostSlice::Borrowed(it));

            // For code that has a `&mut` but only reads.
            ['a, T: Pod] &'a mut PinnedSliceMut<'_, T> => $slice<'a, T>: |it| (&*it).into();
            ['a, T: Pod, X] &'a mut Buffer<T, PinnedMemory, X> => $slice<'a, T>: |it| (&*it).into();
            ['a, H: StableHost] &'a mut Registered<H> => $slice<'a, H::Element>: |it| (&*it).into();
            ['a, T: Pod] &'a mut [T] => $slice<'a, T>: |it| (&*it).into();
            ['a, T: Pod] &'a mut Vec<T> => $slice<'a, T>: |it| (&*it).into();
            ['a, T: Pod] &'a mut Box<[T]> => $slice<'a, T>: |it| (&*it).into();
            ['a, T: Pod, const N: usize] &'a mut [T; N] => $slice<'a, T>: |it| (&*it).into();

            ['a, T: Pod] PinnedSliceMut<'a, T> => $slice_mut<'a, T>:
                |it| $of_mut(HostSliceMut::Pinned(it));
            ['a, T: Pod] &'a mut PinnedSliceMut<'_, T> => $slice_mut<'a, T>:
                |it| $of_mut(HostSliceMut::Pinned(it.reborrow()));
            ['a, T: Pod, X] &'a mut Buffer<T, PinnedMemory, X> => $slice_mut<'a, T>:
                |it| $of_mut(HostSliceMut::Pinned(it.as_view_mut()));
            ['a, H: StableHostMut] &'a mut Registered<H> => $slice_mut<'a, H::Element>:
                |it| $of_mut(HostSliceMut::Pinned(it.as_view_mut()));
            ['a, T: Pod] &'a mut [T] => $slice_mut<'a, T>: |it| $of_mut(HostSliceMut::Borrowed(it));
            ['a, T: Pod] &'a mut Vec<T> => $slice_mut<'a, T>:
                |it| $of_mut(HostSliceMut::Borrowed(it));
            ['a, T: Pod] &'a mut Box<[T]> => $slice_mut<'a, T>:
                |it| $of_mut(HostSliceMut::Borrowed(it));
            ['a, T: Pod, const N: usize] &'a mut [T; N] => $slice_mut<'a, T>:
                |it| $of_mut(HostSliceMut::Borrowed(it));
        }
    };
}

pub(crate) use {either_len, from_host_memory};

impl<'a, T: Pod> IntoView<HostSlice<'a, T>> for HostSlice<'a, T> {}
impl<'a, T: Pod> IntoView<HostSliceMut<'a, T>> for HostSliceMut<'a, T> {}

from_host_memory! { HostSlice: std::convert::identity, HostSliceMut: std::convert::identity }
