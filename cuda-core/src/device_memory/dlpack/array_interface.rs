//! `__cuda_array_interface__`.

use super::element::TensorElement;
use crate::error::{Error, Result};
use crate::memory::{DeviceSlice, DeviceSliceMut, IntoView};
use crate::stream::{Stream, StreamKind};

/// The entries of `__cuda_array_interface__`, version 3, for memory without gaps between the elements.
///
/// Nothing is handed over: the caller keeps the memory allocated while other code uses it, and notes
/// the work of that code by [`Stream::work`] or [`Buffer::note_use`](crate::Buffer::note_use).
/// [`Tensor`](super::Tensor) does both.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::dlpack::ArrayInterface;
///
/// let buffer = stream.alloc_zeroed::<f32>(6)?;
/// let entries = ArrayInterface::of(&buffer, &stream)?;
/// assert_eq!((entries.shape, entries.typestr), (vec![6], "<f4"));
/// assert_eq!(entries.data, (buffer.as_raw(), true)); // read-only
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias("__cuda_array_interface__"))]
pub struct ArrayInterface {
    /// The lengths of the dimensions; initially one dimension, of the view's length.
    pub shape: Vec<usize>,
    /// The type of the elements, in NumPy's notation.
    pub typestr: &'static str,
    /// The address, zero if there are no elements; and whether the consumer must not write.
    pub data: (u64, bool),
    /// The version of the interface: 3.
    pub version: u32,
    /// The stream after whose work the consumer orders its own: a handle, 1 for the legacy default
    /// stream, 2 for the per-thread one.
    pub stream: Option<usize>,
}

impl ArrayInterface {
    /// Returns the entries for memory that `stream` used last. No driver call.
    ///
    /// # Errors
    /// [`Error::Invalid`] for [`bf16`](struct@crate::bf16), which has no `typestr`.
    pub fn of<'a, T: TensorElement, K: StreamKind>(
        view: impl IntoView<DeviceSlice<'a, T>>,
        stream: &Stream<K>,
    ) -> Result<Self> {
        let view = view.into();
        let none = || Error::invalid("__cuda_array_interface__", "it has no typestr for bf16");
        let address = if view.is_empty() { 0 } else { view.as_raw() };
        Ok(Self {
            shape: vec![view.len()],
            typestr: T::TYPESTR.ok_or_else(none)?,
            data: (address, true),
            version: 3,
            stream: Some(stream.protocol_handle().1),
        })
    }

    /// [`ArrayInterface::of`] for memory that the consumer may write, and that the caller does not use
    /// in the meantime. PyTorch accepts no other memory.
    ///
    /// # Errors
    /// Those of [`ArrayInterface::of`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::dlpack::ArrayInterface;
    ///
    /// let mut buffer = stream.alloc_zeroed::<f32>(6)?;
    /// let entries = ArrayInterface::of_mut(&mut buffer, &stream)?;
    /// assert_eq!(entries.data, (buffer.as_raw(), false));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn of_mut<'a, T: TensorElement, K: StreamKind>(
        view: impl IntoView<DeviceSliceMut<'a, T>>,
        stream: &Stream<K>,
    ) -> Result<Self> {
        let entries = Self::of(view.into().into_view(), stream)?;
        Ok(Self { data: (entries.data.0, false), ..entries })
    }
}
