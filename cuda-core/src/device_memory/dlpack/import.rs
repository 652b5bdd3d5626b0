//! Tensors of other libraries.

use std::ptr::NonNull;
use std::slice;

use super::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
    TensorElement,
};
use crate::device_memory::foreign::kept_by;
use crate::error::{Error, Rejected, Result};
use crate::memory::{DeviceBuffer, NOWHERE, SharedSlice, byte_len, elements};
use crate::process::{Contained, ForeignOwner, deferred, driver};
use crate::stream::Stream;
use crate::timeline::ledger::Ledger;
use crate::util::debug_by;

/// A managed tensor that another library produced: see the [module](super). Dropping it calls the
/// producer's deleter.
///
/// ```no_run
/// # fn take(_capsule: &str) -> *mut cuda_core::dlpack::DLManagedTensorVersioned { std::ptr::null_mut() }
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::dlpack::ImportedTensor;
///
/// // The capsule of `x.__dlpack__(stream=…, max_version=(1, 0))`, with `stream`'s handle.
/// let raw = take("dltensor_versioned");
/// // SAFETY: the producer has made `stream` wait, and the capsule was renamed, so that it is not
/// // deleted twice; no other code writes the tensor from now on.
/// let tensor = unsafe { ImportedTensor::from_raw(raw, &stream) }?;
/// assert_eq!(tensor.shape(), [2, 3]);
/// let mut buffer = tensor.into_buffer::<f32>()?;
/// stream.fill(&mut buffer, 1.0)?; // in the other library's memory
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("from_dlpack"))]
pub struct ImportedTensor {
    raw: OwnedTensor,
    // INVARIANT: a copy of the tensor in `raw`. `ndim` is not negative. `shape` and `strides` each are
    // null or point to `ndim` numbers; `shape` is not null unless `ndim` is zero.
    tensor: DLTensor,
    read_only: bool,
    stream: Stream,
}

/// Deletes the producer's struct when dropped.
struct OwnedTensor(Option<ForeignOwner>);

/// The producer's struct, of either version, and its deleter, which the drop calls.
// INVARIANT: a live managed tensor, whose deleter has not been called.
struct ManagedTensor<M> {
    raw: NonNull<M>,
    deleter: Option<unsafe extern "C" fn(*mut M)>,
}

// SAFETY: a tensor's deleter may be called by any thread: that is part of DLPack.
unsafe impl<M> Send for ManagedTensor<M> {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl<M> Sync for ManagedTensor<M> {}

// SAFETY: `raw` and `stream` are `Send`; the pointers in `tensor` lead to numbers that DLPack forbids
// the producer to change before the deleter is called, which happens when `raw` is dropped.
unsafe impl Send for ImportedTensor {}
// SAFETY: shared references only read what the producer does not change.
unsafe impl Sync for ImportedTensor {}

const FROM_RAW: &str = "dlpack::ImportedTensor::from_raw";
const INTO_BUFFER: &str = "dlpack::ImportedTensor::into_buffer";

/// The type of booleans of one byte, as libraries use them.
const MASK: DLDataType = DLDataType { code: DLDataType::BOOL, ..u8::DATA_TYPE };

/// The extra part of a buffer whose tensor other code may also read. No caller can name this type, so
/// [`SharedSlice::into_buffer`] never returns the buffer, which could then be written.
struct ReadAlone;

impl ImportedTensor {
    /// Takes over a tensor of DLPack 1.x, from a capsule named `dltensor_versioned`: see
    /// [Capsules of Python](super#capsules-of-python). No driver call.
    ///
    /// `stream` is the stream that the producer was asked to make wait: work that uses the memory comes
    /// after the work enqueued on it by now.
    ///
    /// # Errors
    /// [`Error::Invalid`] for null, for a major version other than 1, and for an invalid shape (null,
    /// or a negative length); [`Error::NotCapturable`] for a stream of
    /// [`Graph::capture`](crate::Graph::capture). The caller then still owns the tensor.
    ///
    /// # Safety
    /// Unless null, `raw` is a live managed tensor as DLPack describes it, which this value owns from
    /// now on. The producer's work on it comes before this point of `stream`, whose context can access
    /// the memory. Nothing else uses the memory until the deleter is called, with two exceptions:
    /// others may read it too if it becomes a [`SharedSlice`], and use it as
    /// [`note_use`](crate::Buffer::note_use) says. What is written to a boolean tensor is 0 or 1.
    pub unsafe fn from_raw(raw: *mut DLManagedTensorVersioned, stream: &Stream) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(null)?;
        // SAFETY: a live tensor, by the caller's promise; every version begins with this field.
        let DLPackVersion { major, minor } = unsafe { (*raw.as_ptr()).version };
        let why = || format!("the tensor is of DLPack {major}.{minor}; only 1.x is known");
        Error::unless_with(major == 1, FROM_RAW, why)?;
        // SAFETY: a live tensor of this layout, by the caller's promise and its version.
        let flags = unsafe { (*raw.as_ptr()).flags };
        // SAFETY: as above.
        let tensor = unsafe { (*raw.as_ptr()).dl_tensor };
        let read_only = flags & DLManagedTensorVersioned::READ_ONLY != 0;
        // SAFETY: as above.
        let deleter = unsafe { (*raw.as_ptr()).deleter };
        Self::of(tensor, read_only, stream, || ManagedTensor { raw, deleter })
    }

    /// [`ImportedTensor::from_raw`] for the struct of DLPack before 1.0, from a capsule named
    /// `dltensor`.
    ///
    /// # Errors
    /// Those of [`ImportedTensor::from_raw`].
    ///
    /// # Safety
    /// As for [`ImportedTensor::from_raw`].
    pub unsafe fn from_raw_unversioned(raw: *mut DLManagedTensor, stream: &Stream) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(null)?;
        // SAFETY: a live tensor, by the caller's promise.
        let tensor = unsafe { (*raw.as_ptr()).dl_tensor };
        // SAFETY: as above.
        let deleter = unsafe { (*raw.as_ptr()).deleter };
        Self::of(tensor, false, stream, || ManagedTensor { raw, deleter })
    }

    /// Checks the tensor, and takes it over by `own`; on errors the caller still owns it.
    fn of<M: 'static>(
        tensor: DLTensor,
        read_only: bool,
        stream: &Stream,
        own: impl FnOnce() -> ManagedTensor<M>,
    ) -> Result<Self> {
        // Any other stream that used the memory would wait for a point of the capture, and so join the
        // capture.
        if let Some(recording) = stream.core().timeline().recording() {
            return Err(recording.refusal(FROM_RAW));
        }
        let is_shaped = tensor.ndim == 0 || (tensor.ndim > 0 && !tensor.shape.is_null());
        let shape = || numbers(&tensor, tensor.shape);
        if is_shaped && shape().iter().all(|length| *length >= 0) {
            let raw = OwnedTensor(Some(Contained::new(Box::new(own()))));
            return Ok(Self { raw, tensor, read_only, stream: stream.clone() });
        }
        Err(Error::invalid(FROM_RAW, "the tensor's shape is null, or a length in it is negative"))
    }

    /// Returns the lengths of the dimensions.
    pub fn shape(&self) -> &[i64] {
        numbers(&self.tensor, self.tensor.shape)
    }

    /// Returns the strides of the dimensions, in elements; [`None`] if the tensor is compact, the last
    /// dimension innermost.
    pub fn strides(&self) -> Option<&[i64]> {
        (!self.tensor.strides.is_null()).then(|| numbers(&self.tensor, self.tensor.strides))
    }

    /// Returns the type of the elements.
    pub fn data_type(&self) -> DLDataType {
        self.tensor.dtype
    }

    /// Returns the device that the elements are on.
    pub fn device(&self) -> DLDevice {
        self.tensor.device
    }

    /// Whether the producer forbids writing. The struct of DLPack before 1.0 cannot express this.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether the elements follow each other without gaps, the last dimension innermost.
    pub fn is_contiguous(&self) -> bool {
        let Some(strides) = self.strides() else { return true };
        let mut expected = Some(1i64);
        let is_next = |(length, stride): (&i64, &i64)| {
            let fits = *length == 1 || expected == Some(*stride);
            expected = expected.and_then(|count| count.checked_mul(*length));
            fits
        };
        self.shape().contains(&0) || self.shape().iter().zip(strides).rev().all(is_next)
    }

    /// Returns the elements as a buffer in the producer's memory, without a copy. No driver call.
    /// Elements of a boolean tensor are `u8`, 0 or 1.
    ///
    /// Dropping the buffer waits for all work that has used it since the import, then calls the
    /// producer's deleter. If no work used it, there is no driver call.
    ///
    /// # Errors
    /// With the tensor itself: [`Error::Invalid`] for elements of another type, for gaps between them,
    /// for memory that is not on a CUDA device, for a null or a misaligned address, and for a read-only
    /// tensor; [`Error::WrongDevice`] for memory of another device than the stream's;
    /// [`Error::SizeOverflow`].
    ///
    /// ```no_run
    /// # fn f(tensor: cuda_core::dlpack::ImportedTensor) -> cuda_core::Result<()> {
    /// use cuda_core::Rejected;
    ///
    /// let buffer = match tensor.into_buffer::<f32>() {
    ///     Ok(buffer) => buffer,
    ///     Err(Rejected { error, value }) => {
    ///         eprintln!("{error}"); // the elements are float64, not float32
    ///         value.into_buffer::<f64>()?.cast()?
    ///     }
    /// };
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_buffer<T: TensorElement>(self) -> Result<DeviceBuffer<T>, Rejected<Self>> {
        let why = "the tensor is read-only: use `into_shared`";
        let writable = Error::unless(!self.read_only, INTO_BUFFER, why);
        Rejected::unless(writable, self)?.1.into_memory()
    }

    /// [`ImportedTensor::into_buffer`] for elements that any number of owners only read; also for a
    /// read-only tensor.
    ///
    /// # Errors
    /// Those of [`ImportedTensor::into_buffer`], except for a read-only tensor.
    pub fn into_shared<T: TensorElement>(self) -> Result<SharedSlice<T>, Rejected<Self>> {
        self.into_memory().map(|buffer| SharedSlice::from(buffer.into_other(ReadAlone)))
    }

    fn into_memory<T: TensorElement>(self) -> Result<DeviceBuffer<T>, Rejected<Self>> {
        let ((address, len, bytes), this) = Rejected::unless(self.place::<T>(), self)?;
        // The buffer does not keep the stream.
        let Self { raw, stream, .. } = this;
        let (context, timeline) = (stream.context(), stream.core().timeline());
        if bytes == 0 {
            return Ok(kept_by(context, address, bytes, len, raw, None));
        }
        // A new point: it does not count work that the producer has enqueued on the stream.
        let seq = timeline.issue();
        let given_at = Some((timeline.id(), seq));
        let mut buffer: DeviceBuffer<T> = kept_by(context, address, bytes, len, raw, given_at);
        *buffer.storage.ledger_mut() = Ledger::after(0..bytes, timeline.at(seq));
        Ok(buffer)
    }

    /// Returns the address and the numbers of elements and bytes, if a buffer can have them.
    fn place<T: TensorElement>(&self) -> Result<(u64, usize, usize)> {
        driver::ensure()?;
        self.stream.core().ensure()?;
        let DLTensor { data, device, dtype, byte_offset, .. } = self.tensor;
        let why = || format!("the elements are {dtype}, not {}", T::DATA_TYPE);
        let is_mask = dtype == MASK && T::DATA_TYPE == u8::DATA_TYPE;
        Error::unless_with(is_mask || dtype == T::DATA_TYPE, INTO_BUFFER, why)?;
        let kind = device.device_type;
        let is_cuda = [DLDevice::CUDA, DLDevice::CUDA_MANAGED].contains(&kind);
        let why =
            || format!("the tensor is in memory of DLDeviceType {kind}, not on a CUDA device");
        Error::unless_with(is_cuda, INTO_BUFFER, why)?;
        let on = self.stream.device().ordinal();
        if device.device_id != on as i32 {
            return Err(Error::wrong_device(INTO_BUFFER, device.device_id as u32, on));
        }
        Error::unless(self.is_contiguous(), INTO_BUFFER, "there are gaps between the elements")?;
        let mut lengths = self.shape().iter().map(|&length| usize::try_from(length).ok());
        let len = match self.shape().contains(&0) {
            true => Some(0),
            false => lengths.try_fold(1usize, |len, length| len.checked_mul(length?)),
        };
        let len = len.unwrap_or(usize::MAX);
        let bytes = byte_len::<T>(len, usize::MAX)?;
        if bytes == 0 {
            return Ok((NOWHERE, 0, 0));
        }
        let address = (data.addr() as u64).checked_add(byte_offset).filter(|_| !data.is_null());
        let nowhere = || Error::invalid(INTO_BUFFER, "the elements have no address");
        let address = address.ok_or_else(nowhere)?;
        Ok((address, elements::<T>(INTO_BUFFER, bytes, address)?, bytes))
    }
}

impl Drop for OwnedTensor {
    fn drop(&mut self) {
        let owner = self.0.take();
        // Foreign code is not run in a forked child, nor when the process exits. A producer's code may
        // call the driver, so it is not run where the driver must not be called.
        deferred::run_or_defer(move || drop(owner));
    }
}

impl<M> Drop for ManagedTensor<M> {
    fn drop(&mut self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: a live tensor, by the invariant; called once, and the tensor is not used
            // afterwards.
            unsafe { deleter(self.raw.as_ptr()) };
        }
    }
}

debug_by! {
    [] ImportedTensor: |it| "ImportedTensor" {
        data_type: format_args!("{}", it.data_type()), device: it.device(), shape: it.shape(),
        strides: it.strides(), read_only: it.read_only
    }
}

#[cold]
fn null() -> Error {
    Error::invalid(FROM_RAW, "null is no tensor")
}

/// Returns the `ndim` numbers at `first`, which is the shape of `tensor` or its strides.
fn numbers(tensor: &DLTensor, first: *mut i64) -> &[i64] {
    if tensor.ndim <= 0 || first.is_null() {
        return &[];
    }
    // SAFETY: `first` points to `ndim` numbers, by the invariant on `ImportedTensor::tensor`, or, in
    // `of`, by the promise of `from_raw`'s caller; they do not change while the tensor lives.
    unsafe { slice::from_raw_parts(first, tensor.ndim as usize) }
}
