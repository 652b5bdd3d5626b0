//! Buffers handed to other libraries.

use std::any::Any;
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use super::element::TensorElement;
use super::raw::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, VERSION,
};
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Rejected, Result};
use crate::memory::{Buffer, DeviceMemory, SharedSlice};
use crate::process::{contain, deferred, driver};
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::Access;
use crate::util::debug_by;

/// Device memory with a shape, for other libraries: see the [module](super).
///
/// ```no_run
/// # fn capsule(_tensor: *mut cuda_core::dlpack::DLManagedTensorVersioned) {}
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use std::sync::Arc;
/// use cuda_core::{SharedSlice, dlpack::{Consumer, Tensor}};
///
/// let weights = Arc::new(stream.alloc_zeroed::<f32>(1000)?);
/// let head = SharedSlice::from(&weights).slice(..100)?;
/// let matrix = Tensor::shared(head, &[10, 10], None)?; // read-only; keeps `weights` allocated
/// capsule(matrix.into_raw(&Consumer::Stream(stream.clone()))?.as_ptr());
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("__dlpack__", "to_dlpack"))]
pub struct Tensor {
    // INVARIANT: unless `read_only`, nothing else in this crate uses the buffer.
    memory: SharedSlice<u8>,
    data_type: DLDataType,
    /// The lengths, then as many strides: structs that are handed over point to them.
    // INVARIANT: all elements that they reach are in `memory`.
    // Not a box, since moving a box invalidates pointers to its contents, such as those of a
    // `DLTensor`.
    extents: Vec<i64>,
    read_only: bool,
}

const NEW: &str = "dlpack::Tensor::new";
const INTO_RAW: &str = "dlpack::Tensor::into_raw";

/// The stream on which the consumer uses a tensor. It determines what waits, and when the memory is
/// free.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::dlpack::{Consumer, Tensor};
///
/// let tensor = Tensor::new(stream.upload_new(&[1.0f32; 100])?, &[100], None)?;
/// let raw = tensor.into_raw(&Consumer::Stream(stream.clone()))?;
/// // … the consumer enqueues work on `stream`
/// // SAFETY: the one call of the deleter.
/// unsafe { raw.as_ref().deleter.unwrap()(raw.as_ptr()) }; // frees after that work
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Consumer {
    /// The consumer uses this stream, which waits for the memory now. The stream is kept until the
    /// deleter is called. The memory is freed after the work enqueued on the stream by then.
    Stream(Stream),
    /// The consumer uses the per-thread default stream of the thread that hands the tensor over, which
    /// waits for the memory now. The memory is freed after the work that all blocking streams of the
    /// context, including this stream, have when the deleter is called: it may run on any thread.
    PerThread,
    /// The consumer orders its work itself, and completes that work before it calls the deleter.
    Synchronized,
}

impl Consumer {
    /// Returns the meaning of the argument `stream` of `__dlpack__` for a tensor of `context`. 1, or
    /// [`None`], is the legacy default stream; 2 is the per-thread one; -1 means that the consumer
    /// orders its work itself; any other positive number is the handle of a stream, which `owner` keeps
    /// alive, as for [`Stream::from_raw`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for zero, which the protocol excludes since it could mean two streams, and
    /// for other negative numbers; those of [`Stream::from_raw`].
    ///
    /// # Safety
    /// As for [`Stream::from_raw`], if the number is a handle.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::dlpack::Consumer;
    ///
    /// // SAFETY: PyTorch never destroys its streams.
    /// let consumer = |stream| unsafe { Consumer::of_protocol(stream, &context, ()) };
    /// assert!(matches!(consumer(Some(2))?, Consumer::PerThread));
    /// assert!(consumer(Some(0)).is_err());
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub unsafe fn of_protocol(
        stream: Option<i64>,
        context: &Context,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        match stream {
            None | Some(1) => context.default_stream().map(Self::Stream),
            Some(2) => Ok(Self::PerThread),
            Some(-1) => Ok(Self::Synchronized),
            Some(handle @ 3..) => {
                let raw = ptr::with_exposed_provenance_mut(handle as usize);
                // SAFETY: the caller promises the same.
                Ok(Self::Stream(unsafe { Stream::from_raw(raw, context, owner) }?))
            }
            Some(other) => Err(Error::invalid(
                "__dlpack__",
                format!("{other} is no stream: 1, 2, -1 or a handle is expected"),
            )),
        }
    }
}

impl Tensor {
    /// Makes a tensor of a buffer's elements, which the consumer may write. No driver call.
    ///
    /// `strides` are in elements. [`None`] means that all elements of the buffer follow each other, the
    /// last dimension innermost.
    ///
    /// # Errors
    /// [`Error::Invalid`], with the buffer itself: for a shape of more or fewer elements than the
    /// buffer has, for a shape that leaves the buffer with these strides, and if the numbers of strides
    /// and dimensions differ.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::dlpack::Tensor;
    ///
    /// let rows = Tensor::new(stream.alloc_zeroed::<f32>(12)?, &[3, 4], None)?;
    /// let columns = Tensor::new(stream.alloc_zeroed::<f32>(12)?, &[3, 4], Some(&[1, 3]))?;
    /// assert!(Tensor::new(stream.alloc_zeroed::<f32>(12)?, &[4, 4], None).is_err());
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn new<T: TensorElement, X: Send + Sync + 'static>(
        buffer: Buffer<T, DeviceMemory, X>,
        shape: &[usize],
        strides: Option<&[usize]>,
    ) -> Result<Self, Rejected<Buffer<T, DeviceMemory, X>>> {
        let (extents, buffer) = Rejected::unless(extents(buffer.len(), shape, strides), buffer)?;
        Ok(Self::of(SharedSlice::<T>::from(buffer), extents, false))
    }

    /// [`Tensor::new`] for memory that this program continues to read: it is read-only for the
    /// consumer, too.
    ///
    /// # Errors
    /// Those of [`Tensor::new`].
    pub fn shared<T: TensorElement>(
        part: impl Into<SharedSlice<T>>,
        shape: &[usize],
        strides: Option<&[usize]>,
    ) -> Result<Self> {
        let part = part.into();
        Ok(Self::of(part.clone(), extents(part.len(), shape, strides)?, true))
    }

    fn of<T: TensorElement>(part: SharedSlice<T>, extents: Vec<i64>, read_only: bool) -> Self {
        let data_type = T::DATA_TYPE;
        Self { memory: part.into_bytes(), data_type, extents, read_only }
    }

    /// Returns the lengths of the dimensions.
    pub fn shape(&self) -> &[i64] {
        self.extents.split_at(self.extents.len() / 2).0
    }

    /// Returns the strides of the dimensions, in elements.
    pub fn strides(&self) -> &[i64] {
        self.extents.split_at(self.extents.len() / 2).1
    }

    /// Returns the device that the elements are on.
    pub fn device(&self) -> Device {
        self.memory.as_view().device()
    }

    /// Hands the tensor over as a managed tensor of DLPack 1.x, for a capsule named
    /// `dltensor_versioned`: makes the consumer's stream wait for work that uses the memory, and
    /// enqueues nothing if there is no such work. Such a capsule is for a consumer that passes a `max_version` of major 1 or more:
    /// [Capsules of Python](super#capsules-of-python).
    ///
    /// The consumer or the capsule's destructor calls the deleter, once, on any thread; otherwise the
    /// memory is leaked. The deleter leaves the current context unchanged and drops the buffer. Memory
    /// of a caching pool, the default, is dropped without a wait.
    ///
    /// # Errors
    /// With the tensor itself: [`Error::WrongDevice`] for a stream of another device;
    /// [`Error::Invalid`] for memory that a graph uses; [`Error::NotCapturable`] for a stream that this
    /// crate is capturing, and [`Error::Capturing`] for one that other code captures; the driver's.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::dlpack::{Consumer, Tensor};
    ///
    /// let tensor = Tensor::new(stream.upload_new(&[1.0f32; 6])?, &[2, 3], None)?;
    /// let raw = tensor.into_raw(&Consumer::PerThread)?; // after the upload
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn into_raw(
        self,
        consumer: &Consumer,
    ) -> Result<NonNull<DLManagedTensorVersioned>, Rejected<Self>> {
        let flags = if self.read_only { DLManagedTensorVersioned::READ_ONLY } else { 0 };
        self.hand_over(consumer, |dl_tensor, manager_ctx| {
            let deleter = delete::<DLManagedTensorVersioned>;
            let (version, deleter) = (VERSION, Some(deleter as _));
            DLManagedTensorVersioned { version, manager_ctx, deleter, flags, dl_tensor }
        })
    }

    /// [`Tensor::into_raw`] for consumers that only know DLPack before 1.0: for a capsule named
    /// `dltensor`. Such consumers [pass no `max_version`](super#capsules-of-python) of major 1 or more.
    ///
    /// # Errors
    /// Those of [`Tensor::into_raw`]; [`Error::Invalid`] for [shared](Self::shared) memory, since that
    /// struct cannot mark it as read-only.
    pub fn into_raw_unversioned(
        self,
        consumer: &Consumer,
    ) -> Result<NonNull<DLManagedTensor>, Rejected<Self>> {
        let why = "shared memory is read-only, which only the versioned struct can say: use \
                   `Tensor::into_raw`";
        let writable = Error::unless(!self.read_only, INTO_RAW, why);
        let ((), this) = Rejected::unless(writable, self)?;
        this.hand_over(consumer, |dl_tensor, manager_ctx| {
            let deleter = Some(delete::<DLManagedTensor> as _);
            DLManagedTensor { dl_tensor, manager_ctx, deleter }
        })
    }

    fn hand_over<M: 'static>(
        self,
        consumer: &Consumer,
        managed: impl FnOnce(DLTensor, *mut c_void) -> M,
    ) -> Result<NonNull<M>, Rejected<Self>> {
        let ((), this) = Rejected::unless(self.begin_use(consumer), self)?;
        let shape = this.extents.as_ptr().cast_mut();
        let ndim = this.shape().len();
        let address = this.memory.as_view().as_raw();
        let dl_tensor = DLTensor {
            data: match this.shape().contains(&0) {
                true => ptr::null_mut(),
                // An address of device memory, by which the host accesses nothing.
                false => ptr::without_provenance_mut(address as usize),
            },
            device: DLDevice {
                device_type: DLDevice::CUDA,
                device_id: this.device().ordinal() as i32,
            },
            ndim: ndim as i32,
            dtype: this.data_type,
            shape,
            strides: shape.wrapping_add(ndim),
            byte_offset: 0,
        };
        let managed = managed(dl_tensor, ptr::null_mut());
        let handed = Box::new(Handed { managed, tensor: this, consumer: consumer.clone() });
        // The address of the first field is that of the box, by `repr(C)`.
        Ok(NonNull::from(Box::leak(handed)).cast())
    }

    fn access(&self) -> Access {
        if self.read_only { Access::Read } else { Access::Write }
    }

    /// Makes the consumer's stream wait for other work that uses the memory.
    fn begin_use(&self, consumer: &Consumer) -> Result<()> {
        driver::ensure()?;
        let view = self.memory.as_view();
        view.storage().require_no_graph(INTO_RAW)?;
        let of_a_graph = view.ledger().shared().is_some_and(|shared| shared.is_of_a_graph());
        Error::unless(!of_a_graph, INTO_RAW, "a graph allocates the memory")?;
        match consumer {
            Consumer::Stream(stream) => self.note(stream),
            Consumer::PerThread => self.note(&self.memory.as_view().context().per_thread_stream()?),
            Consumer::Synchronized => Ok(()),
        }
    }

    /// Notes that the consumer's stream uses the memory up to now.
    fn note<K: StreamKind>(&self, stream: &Stream<K>) -> Result<()> {
        let core = stream.core();
        core.device().require_same(INTO_RAW, self.device())?;
        if core.timeline().recording().is_some() {
            return Err(Error::NotCapturable { op: INTO_RAW });
        }
        // SAFETY: between the two calls of this function only the consumer uses the memory, or others
        // only read what the consumer only reads, by the invariant on `memory`. The second call is in
        // the deleter, which is unsafe to call before the consumer's last use.
        unsafe { self.memory.as_view().note_use(stream, self.access()) }
    }

    /// Drops the tensor after the work that the consumer has enqueued.
    fn end_use(self, consumer: Consumer) {
        // A failed note has also left a mark: the memory is freed after that mark.
        let _ = match consumer {
            Consumer::Stream(stream) => self.note(&stream),
            // The default stream runs this after the work of all blocking streams, including those of
            // other threads.
            Consumer::PerThread => {
                let stream = self.memory.as_view().context().default_stream();
                stream.and_then(|stream| self.note(&stream))
            }
            Consumer::Synchronized => Ok(()),
        };
    }
}

debug_by! {
    [] Tensor: |it| "Tensor" {
        memory: it.memory, shape: it.shape(), strides: it.strides(), read_only: it.read_only
    }
}

/// A tensor that was handed over, with the struct that refers to it.
#[repr(C)]
struct Handed<M> {
    managed: M,
    tensor: Tensor,
    consumer: Consumer,
}

/// The deleter of a managed tensor.
///
/// # Safety
/// `managed` came from [`Tensor::hand_over`] and is passed here once. Before, the consumer's work on it
/// was enqueued on its [`Consumer`]'s stream, or has completed, for [`Consumer::Synchronized`].
unsafe extern "C" fn delete<M: 'static>(managed: *mut M) {
    // SAFETY: the address of a leaked box of this type, which is taken back once, by this function's
    // contract.
    let handed = unsafe { Box::from_raw(managed.cast::<Handed<M>>()) };
    let Handed { tensor, consumer, .. } = *handed;
    contain(|| deferred::run_or_defer(move || tensor.end_use(consumer)));
}

/// Returns lengths and strides of a tensor whose elements are some or all of the `len` elements of a
/// buffer.
fn extents(len: usize, shape: &[usize], strides: Option<&[usize]>) -> Result<Vec<i64>> {
    Error::unless(i32::try_from(shape.len()).is_ok(), NEW, "too many dimensions")?;
    let mut extents = vec![0; 2 * shape.len()];
    let (lengths, steps) = extents.split_at_mut(shape.len());
    let fits = |count: usize| i64::try_from(count).ok();
    let too_long = || Error::invalid(NEW, "a length or a stride is more than an `i64` holds");
    let mut count = Some(1usize);
    for (at, &length) in shape.iter().enumerate().rev() {
        // In a tensor without elements this stride may overflow, and is not used.
        steps[at] = count.and_then(fits).unwrap_or(0);
        lengths[at] = fits(length).ok_or_else(too_long)?;
        count = count.and_then(|count| count.checked_mul(length));
    }
    let Some(strides) = strides else {
        let why =
            || format!("shape {shape:?} has another number of elements than the memory ({len})");
        return Error::unless_with(count == Some(len), NEW, why).map(|()| extents);
    };
    Error::unless(strides.len() == shape.len(), NEW, "each dimension needs one stride")?;
    let reach = shape.iter().zip(strides).try_fold(1usize, |reach, (length, stride)| {
        reach.checked_add(length.saturating_sub(1).checked_mul(*stride)?)
    });
    let is_empty = shape.contains(&0);
    let stays = is_empty || reach.is_some_and(|reach| reach <= len);
    let why = || format!("{shape:?} by strides of {strides:?} leaves the {len} elements");
    Error::unless_with(stays, NEW, why)?;
    for (step, stride) in steps.iter_mut().zip(strides) {
        *step = fits(*stride).ok_or_else(too_long)?;
    }
    Ok(extents)
}

#[cfg(test)]
mod tests {
    use super::extents;

    #[test]
    fn shapes_have_the_elements_of_the_memory() {
        let all = |shape: &[usize], len| extents(len, shape, None);
        assert_eq!(all(&[2, 3, 4], 24).unwrap(), [2, 3, 4, 12, 4, 1]);
        assert_eq!(all(&[], 1).unwrap(), []);
        assert_eq!(all(&[3, 0], 0).unwrap(), [3, 0, 0, 1]);
        assert!(all(&[2, 3], 7).is_err());
        assert!(all(&[2, 3], 5).is_err());
        assert!(all(&[], 2).is_err());
        assert!(all(&[usize::MAX, 2], usize::MAX - 1).is_err());
        assert!(all(&[0, usize::MAX], 0).is_err());
    }

    #[test]
    fn strides_stay_within_the_memory() {
        let by = |shape: &[usize], strides: &[usize], len| extents(len, shape, Some(strides));
        assert_eq!(by(&[2, 3], &[1, 2], 6).unwrap(), [2, 3, 1, 2]);
        assert_eq!(by(&[2, 3], &[10, 1], 13).unwrap(), [2, 3, 10, 1]);
        assert!(by(&[2, 3], &[10, 1], 12).is_err());
        assert!(by(&[2, 3], &[1], 6).is_err());
        assert_eq!(by(&[5], &[0], 1).unwrap(), [5, 0], "one element, five times");
        assert!(by(&[3], &[usize::MAX], 10).is_err());
        assert!(by(&[usize::MAX], &[0], 1).is_err(), "a length that no `i64` holds");
        assert!(by(&[1], &[usize::MAX], 1).is_err(), "a stride that no `i64` holds");
        assert!(by(&[0, 3], &[1, 1], 0).is_ok());
        assert!(by(&[1], &[1], 0).is_err());
    }
}
