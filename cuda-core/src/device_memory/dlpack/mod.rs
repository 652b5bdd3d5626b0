//! Tensors to and from other libraries, without copies: DLPack, `__cuda_array_interface__` and
//! `__cuda_stream__`.
//!
//! A [`Tensor`] is a buffer with a shape. [`Tensor::into_raw`] makes it the managed tensor that
//! PyTorch, CuPy, JAX and others take, in Python in a capsule; an [`ImportedTensor`] is a tensor of
//! such a library, and becomes a buffer. Either side gives memory back by calling the other's
//! deleter.
//!
//! # Capsules of Python
//! `__dlpack__` returns a `PyCapsule`, whose name says which struct it holds. The producer chooses by the
//! argument `max_version`, which the consumer passes:
//!
//! | `max_version` | name of the capsule | the producer calls | the consumer calls |
//! |---|---|---|---|
//! | of major 1 or more | `dltensor_versioned` | [`Tensor::into_raw`] | [`ImportedTensor::from_raw`] |
//! | none, or of major 0 | `dltensor` | [`Tensor::into_raw_unversioned`] | [`ImportedTensor::from_raw_unversioned`] |
//!
//! So ask other libraries for `x.__dlpack__(stream=…, max_version=(1, 0))`. A library that knows DLPack only
//! before 1.0 may return `dltensor` all the same, so let the capsule's name decide. The consumer renames the
//! capsule to `used_dltensor_versioned` or `used_dltensor`, and the capsule's destructor calls the deleter unless
//! it was renamed. `tests/interop/interop.py` in the repository has both sides, with `ctypes`.
//!
//! # Who orders what
//! The ledger of a buffer does not know what other libraries enqueue, so both sides follow the
//! protocol: the consumer names the stream on which it uses the tensor (the argument `stream` of
//! `__dlpack__`), and the producer makes that stream wait for the producer's own work.
//!
//! * **Handing a tensor over:** [`Tensor::into_raw`] gets this stream as a [`Consumer`], and makes it
//!   wait for all work that uses the memory. The deleter notes a use on the stream once more, so the
//!   memory is freed or reused only after **all that was enqueued on the stream before the deleter was
//!   called**; the deleter waits for that work only where dropping a buffer would. The consumer itself
//!   orders its work on other streams before that point.
//! * **Taking a tensor over:** [`ImportedTensor::from_raw`] gets the stream that the producer was asked
//!   to make wait. Work of other streams waits for the producer by this stream. The deleter is called
//!   when the buffer is gone, after the host has waited for all work that uses it, since the producer
//!   does not know that work.
//!
//! ```no_run
//! # fn capsule(_tensor: *mut cuda_core::dlpack::DLManagedTensorVersioned) {}
//! # let stream = cuda_core::Device::get(0)?.create_stream()?;
//! use std::sync::Arc;
//! use cuda_core::dlpack::{Consumer, Tensor};
//!
//! let matrix = Tensor::new(stream.alloc_zeroed::<f32>(6)?, &[2, 3], None)?;
//! // `matrix.__dlpack__(stream=1, max_version=(1, 0))`: the legacy default stream.
//! // SAFETY: that stream lives as long as its context.
//! let consumer = unsafe { Consumer::of_protocol(Some(1), stream.context(), Arc::new(())) }?;
//! capsule(matrix.into_raw(&consumer)?.as_ptr()); // its owner calls the deleter
//! # Ok::<(), cuda_core::Error>(())
//! ```

mod array_interface;
mod element;
mod export;
mod import;
mod raw;

pub use array_interface::ArrayInterface;
pub use element::TensorElement;
pub use export::{Consumer, Tensor};
pub use import::ImportedTensor;
pub use raw::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};
