//! Views that own a share of their buffer.

use std::any::Any;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::error::{Error, Rejected, Result};
use crate::memory::view::lengths;
use crate::memory::{Buffer, DeviceMemory, Memory, Slice, Storage, views};
use crate::types::Pod;
use crate::util::{debug_by, from};

/// A part of a buffer that several owners share: read-only, and without a lifetime. It can be kept in a
/// struct, in a map, or in a task that outlives the caller.
///
/// `&shared` is accepted wherever `&buffer` is: as a source of copies, and as an argument of a kernel
/// that reads it. The whole buffer stays allocated until the last clone, the last part and the last
/// [`Arc`] that they were made from are dropped. No method calls the driver.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use std::sync::Arc;
/// use cuda_core::SharedSlice;
///
/// let weights = Arc::new(stream.alloc_zeroed::<f32>(1000)?);
/// let bias = SharedSlice::from(&weights).slice(900..)?; // or of the buffer: `SharedSlice::from(buffer)`
/// std::thread::spawn(move || stream.download_vec(&bias));
/// assert_eq!(weights.len(), 1000);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedSlice<T: Pod, M: Memory = DeviceMemory> {
    // INVARIANT: the buffer's storage does not change while this value exists: a shared `Arc` grants no
    // exclusive access.
    buffer: Arc<dyn Shared<M>>,
    // INVARIANT: as for `Slice`.
    start: usize,
    len: usize,
    _elements: PhantomData<T>,
}

// Unwind-safe as the buffer is, whose type is erased here.
impl<T: Pod, M: Memory> UnwindSafe for SharedSlice<T, M> {}
impl<T: Pod, M: Memory> RefUnwindSafe for SharedSlice<T, M> {}

/// A buffer of elements of any type.
trait Shared<M: Memory>: Send + Sync {
    fn storage(&self) -> &Storage<M>;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<T: Pod, M: Memory, X: Send + Sync + 'static> Shared<M> for Buffer<T, M, X> {
    fn storage(&self) -> &Storage<M> {
        &self.storage
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl<T: Pod, M: Memory> SharedSlice<T, M> {
    lengths!();

    /// Returns the elements as a view, whose methods return device, context and address, and divide it
    /// further.
    pub fn as_view(&self) -> Slice<'_, T, M> {
        Slice::part(self.buffer.storage(), self.start, self.len)
    }

    /// Returns a part that also shares the buffer.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds).
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        Ok(self.same(self.as_view().slice(range)?))
    }

    /// Reinterprets the bytes as elements of another type: [`Slice::cast`].
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::SharedSlice;
    ///
    /// let memory = SharedSlice::from(stream.alloc_zeroed::<u8>(4096)?);
    /// let x = memory.slice(1024..2048)?.cast::<f32>()?; // an offset into one allocation
    /// assert_eq!(x.len(), 256);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn cast<U: Pod>(&self) -> Result<SharedSlice<U, M>> {
        Ok(self.same(self.as_view().cast()?))
    }

    /// Returns the buffer, for writing, if it has no other owner.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the value, unchanged: if there is another owner, for a part, for a buffer of
    /// another element type, for a buffer whose type has a third parameter, such as
    /// [`ManagedBuffer`](crate::managed::ManagedBuffer), and for a tensor of
    /// [another library](crate::dlpack).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::SharedSlice;
    ///
    /// let weights = SharedSlice::from(stream.alloc_zeroed::<f32>(1000)?);
    /// let reader = weights.clone();
    /// let rejected = weights.into_buffer().expect_err("there is a reader");
    /// drop(reader);
    /// let mut weights = rejected.value.into_buffer()?; // this is the only one
    /// stream.fill(&mut weights, 1.0)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn into_buffer(self) -> Result<Buffer<T, M>, Rejected<Self>> {
        let Self { buffer, start, len, _elements } = self;
        let refuse = |buffer, why| {
            let error = Error::invalid("SharedSlice::into_buffer", why);
            Rejected::new(error, Self { buffer, start, len, _elements })
        };
        let kept = buffer.clone();
        match buffer.into_any().downcast::<Buffer<T, M>>() {
            Ok(buffer) if len == buffer.len() => {
                drop(kept);
                let owned = "there is another owner of the buffer";
                Arc::try_unwrap(buffer).map_err(|shared| refuse(shared, owned))
            }
            Ok(_) => Err(refuse(kept, "it is a part of the buffer")),
            Err(_) => Err(refuse(
                kept,
                "the memory is that of a buffer of another type, or of another library",
            )),
        }
    }

    /// Returns the same memory as bytes.
    pub(crate) fn into_bytes(self) -> SharedSlice<u8, M> {
        let (start, len) = (self.start, self.byte_len());
        SharedSlice { buffer: self.buffer, start, len, _elements: PhantomData }
    }

    /// Returns the elements of `view`, which is a view of this buffer.
    fn same<U: Pod>(&self, view: Slice<'_, U, M>) -> SharedSlice<U, M> {
        let (start, len) = (view.range().start, view.len());
        SharedSlice { buffer: self.buffer.clone(), start, len, _elements: PhantomData }
    }
}

from! {
    [T: Pod, M: Memory, X: Send + Sync + 'static] Arc<Buffer<T, M, X>> => SharedSlice<T, M>:
        |it| Self { len: it.len(), buffer: it, start: 0, _elements: PhantomData };
    [T: Pod, M: Memory, X: Send + Sync + 'static] Buffer<T, M, X> => SharedSlice<T, M>:
        |it| Arc::new(it).into();
    [T: Pod, M: Memory, X: Send + Sync + 'static] &Arc<Buffer<T, M, X>> => SharedSlice<T, M>:
        |it| it.clone().into();
}

views! {
    ['a, T: Pod, M: Memory] &'a SharedSlice<T, M> => Slice<'a, T, M>: |it| it.as_view();
}

debug_by! { [T: Pod, M: Memory] SharedSlice<T, M>: |it| "SharedSlice"(it.as_view()) }
