//! Tensors to and from other libraries, without copies: DLPack, `__cuda_array_interface__` and
//! `__cuda_stream__`.
//!
//! A [`Tensor`] is a buffer with a shape. [`Tensor::into_raw`] turns it into the managed tensor that
//! PyTorch, CuPy, JAX and others accept, in Python in a capsule. An [`ImportedTensor`] is a tensor of
//! such a library, and becomes a buffer. Each side gives memory back by calling the other's deleter.
//!
//! # Capsules of Python
//! `__dlpack__` returns a `PyCapsule`, whose name identifies the struct in it. The producer chooses it
//! by the argument `max_version`, which the consumer passes:
//!
//! | `max_version` | name of the capsule | the producer calls | the consumer calls |
//! |---|---|---|---|
//! | of major 1 or more | `dltensor_versioned` | [`Tensor::into_raw`] | [`ImportedTensor::from_raw`] |
//! | none, or of major 0 | `dltensor` | [`Tensor::into_raw_unversioned`] | [`ImportedTensor::from_raw_unversioned`] |
//!
//! So ask other libraries for `x.__dlpack__(stream=…, max_version=(1, 0))`. A library that only knows
//! DLPack before 1.0 may still return `dltensor`, so let the capsule's name decide. The consumer
//! renames the capsule to `used_dltensor_versioned` or `used_dltensor`. The capsule's destructor calls
//! the deleter unless the capsule was renamed. `tests/interop/interop.py` in the repository implements
//! both sides, with `ctypes`.
//!
//! # Ordering between the libraries
//! The ledger of a buffer does not know what other libraries enqueue, so both sides follow the
//! protocol: the consumer names the stream on which it uses the tensor (the argument `stream` of
//! `__dlpack__`), and the producer makes that stream wait for the producer's own work.
//!
//! * **Handing a tensor over:** [`Tensor::into_raw`] gets this stream as a [`Consumer`], and makes it
//!   wait for all work that uses the memory. The deleter notes another use on the stream, so the
//!   memory is freed or reused only after **all that was enqueued on the stream before the deleter was
//!   called**. The deleter waits for that work only where dropping a buffer would. The consumer itself
//!   orders its work on other streams before that point.
//! * **Taking a tensor over:** [`ImportedTensor::from_raw`] gets the stream that the producer was asked
//!   to make wait. Other streams' work waits for the producer by waiting for this stream. When the buffer
//!   is dropped, the host waits for all work that uses it, which the producer does not know of, and then
//!   calls the deleter.
//!
//! ```no_run
//! # fn capsule(_tensor: *mut cuda_core::dlpack::DLManagedTensorVersioned) {}
//! # let stream = cuda_core::Device::get(0)?.create_stream()?;
//! use cuda_core::dlpack::{Consumer, Tensor};
//!
//! let matrix = Tensor::new(stream.alloc_zeroed::<f32>(6)?, &[2, 3], None)?;
//! // `matrix.__dlpack__(stream=1, max_version=(1, 0))`: the legacy default stream.
//! // SAFETY: that stream lives as long as its context.
//! let consumer = unsafe { Consumer::of_protocol(Some(1), stream.context(), ()) }?;
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
