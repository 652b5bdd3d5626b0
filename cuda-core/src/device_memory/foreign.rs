//! Device memory that other code allocated and an owner keeps allocated while a buffer needs it;
//! handing memory over for other code to free.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use crate::alloc::{DeviceBacking, MemoryOwner, owned};
use crate::context::Context;
use crate::error::{Error, Rejected, Result};
use crate::memory::{ALIGNMENT, Block, DeviceBuffer, NOWHERE, Storage, byte_len, elements};
use crate::process::{Contained, Failed, ForeignOwner, driver};
use crate::stream::Stream;
use crate::timeline::StreamCore;
use crate::timeline::ledger::Ledger;
use crate::types::Pod;

/// The owner that keeps the memory allocated. Leaked unless it is released: dropping it frees the
/// memory, which work of this crate may use until the host has observed the end of that work.
struct Foreign<O> {
    owner: Option<ManuallyDrop<O>>,
    /// For memory that a producer handed over: the id of a timeline and the point on it up to which the
    /// producer itself waits for work before it frees the memory.
    given_at: Option<(u64, u64)>,
    /// The stream in whose order the memory is freed, if any.
    home: Option<Arc<StreamCore>>,
}

/// Creates a buffer of `len` elements, which take up `bytes`, in memory that `owner` keeps allocated.
/// The owner of an empty buffer is dropped at once.
pub(crate) fn kept_by<T: Pod, O: Send + Sync + UnwindSafe + RefUnwindSafe + 'static>(
    context: &Context,
    address: CUdeviceptr,
    bytes: usize,
    len: usize,
    owner: O,
    given_at: Option<(u64, u64)>,
) -> DeviceBuffer<T> {
    let owner = (bytes > 0).then(|| ManuallyDrop::new(owner));
    owned(context, address, bytes, Foreign { owner, given_at, home: None }, len)
}

impl<O: Send + Sync + UnwindSafe + RefUnwindSafe + 'static> MemoryOwner for Foreign<O> {
    fn release(&mut self, _: CUdeviceptr) -> Result<(), Failed> {
        drop(self.owner.take().map(ManuallyDrop::into_inner));
        Ok(())
    }

    fn given_at(&self) -> Option<(u64, u64)> {
        self.given_at
    }

    fn home(&self) -> Option<&Arc<StreamCore>> {
        self.home.as_ref()
    }
}

/// Checks memory of other code for a buffer of `len` elements. Returns its address and its size; for an
/// empty buffer the address is `NOWHERE`.
fn given<T: Pod>(
    op: &'static str,
    address: CUdeviceptr,
    len: usize,
) -> Result<(CUdeviceptr, usize)> {
    driver::ensure()?;
    let bytes = byte_len::<T>(len, usize::MAX)?;
    if bytes == 0 {
        byte_len::<T>(len, ALIGNMENT)?;
        return Ok((NOWHERE, 0));
    }
    Error::unless(address != 0, op, "the address is zero")?;
    elements::<T>(op, bytes, address)?;
    Ok((address, bytes))
}

/// # Memory of other code
impl<T: Pod> DeviceBuffer<T> {
    /// Creates a buffer of `len` elements in device memory that other code allocated, with the owner
    /// that keeps it allocated. No driver call.
    ///
    /// Dropping the buffer waits for all work that uses it, then drops the owner;
    /// [`DeviceBuffer::from_raw_on`] does so without waiting. If the work cannot be proven complete,
    /// the owner is leaked and the failure reported, as for memory that this crate allocated. The owner
    /// of an empty buffer is dropped at once.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`]; [`Error::Invalid`] for elements at address zero, or at one that is
    /// not aligned for `T`. The error has the owner.
    ///
    /// # Safety
    /// `address` is the first of `len * size_of::<T>()` bytes of memory of the device of `context`.
    /// `context` can access them, and they stay allocated until `owner` is dropped. Until then only the
    /// buffer uses them, and no work that is already enqueued does, unless
    /// [`note_use`](crate::Buffer::note_use) says so.
    ///
    /// ```no_run
    /// # use cuda_core::{Context, DeviceBuffer, Result};
    /// # struct Tensor { address: u64, len: usize }
    /// # fn wrap(context: &Context, tensor: Tensor) -> Result<()> {
    /// let (address, len) = (tensor.address, tensor.len);
    /// // SAFETY: the tensor's memory, which it frees when it is dropped, and which no other owner has.
    /// let buffer = unsafe { DeviceBuffer::<f32>::from_raw(address, len, context, tensor) }?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("UnownedMemory", "upgrade_device_ptr", "from_raw_parts"))]
    pub unsafe fn from_raw<O: Any + Send + Sync>(
        address: CUdeviceptr,
        len: usize,
        context: &Context,
        owner: O,
    ) -> Result<Self, Rejected<O>> {
        let given = given::<T>("DeviceBuffer::from_raw", address, len);
        let ((address, bytes), owner) = Rejected::unless(given, owner)?;
        let owner: ForeignOwner = Contained::new(Box::new(owner));
        Ok(kept_by(context, address, bytes, len, owner, None))
    }

    /// [`DeviceBuffer::from_raw`] for memory that `owner` frees in the order of `stream`, as the
    /// allocators of other libraries do. No driver call.
    ///
    /// Dropping the buffer makes `stream` wait for all other streams that use the buffer, then drops
    /// the owner. The host does not wait, so wrapping a tensor for each call does not block the
    /// program. Other streams use the memory only after the work enqueued on `stream` so far, as if the
    /// memory had been allocated there.
    ///
    /// # Errors
    /// As [`DeviceBuffer::from_raw`]; [`Error::Invalid`] for a stream of a
    /// [capture](crate::Graph::capture).
    ///
    /// # Safety
    /// As [`DeviceBuffer::from_raw`], in the context of `stream`; work that is already enqueued on
    /// `stream` may use the memory. The memory stays allocated until `owner` is dropped and `stream`
    /// has done the work enqueued before the drop.
    ///
    /// ```no_run
    /// # use cuda_core::{DeviceBuffer, Result, Stream};
    /// # struct Tensor { address: u64, len: usize }
    /// # fn step(tensor: Tensor, stream: &Stream) -> Result<()> {
    /// let (address, len) = (tensor.address, tensor.len);
    /// // SAFETY: the tensor's memory, which its library allocates and frees in the order of that stream.
    /// let mut x = unsafe { DeviceBuffer::<f32>::from_raw_on(address, len, stream, tensor) }?;
    /// stream.fill(&mut x, 1.0) // the tensor is let go when `x` is dropped, which does not wait
    /// # }
    /// ```
    pub unsafe fn from_raw_on<O: Any + Send + Sync>(
        address: CUdeviceptr,
        len: usize,
        stream: &Stream,
        owner: O,
    ) -> Result<Self, Rejected<O>> {
        let op = "DeviceBuffer::from_raw_on";
        let (core, timeline) = (stream.core(), stream.core().timeline());
        let given = given::<T>(op, address, len).and_then(|(address, bytes)| {
            if bytes > 0 {
                core.ensure()?;
                let why = "an owner cannot free memory in the order of a capture";
                Error::unless(timeline.recording().is_none(), op, why)?;
            }
            Ok((address, bytes))
        });
        let ((address, bytes), owner) = Rejected::unless(given, owner)?;
        let owner: ForeignOwner = Contained::new(Box::new(owner));
        if bytes == 0 {
            return Ok(kept_by(stream.context(), address, 0, len, owner, None));
        }
        let ledger = Ledger::after(0..bytes, timeline.at(timeline.issue()));
        let (context, home) = (core.context().clone(), Some(core.clone()));
        let owner = Foreign { owner: Some(ManuallyDrop::new(owner)), given_at: None, home };
        let backing = DeviceBacking::Owned { context, owner: Box::new(owner) };
        Ok(Self::from_storage(Storage::new(Block { address, bytes, ledger, backing }), len))
    }

    /// Hands the memory over to other code, which frees it with `cuMemFree` or `cuMemFreeAsync`.
    /// Returns the address of the first element, and the number of elements. Waits for all work that
    /// uses the buffer. If the buffer never had bytes, the address is null, and there is nothing to
    /// free.
    ///
    /// The memory must be a separate allocation of the driver: from [`Context::alloc`], from
    /// [`Stream::alloc_from`](crate::Stream::alloc_from), or from the allocators
    /// [`driver_pool`](crate::Allocator::driver_pool) and [`plain`](crate::Allocator::plain). It is
    /// freed with its context: keep a [created](Context::new) [`Context`] alive.
    ///
    /// # Errors
    /// [`Error::Invalid`] for memory of a caching pool (the default), of a custom allocator, or of
    /// other code, and while a graph uses the memory; those of the wait. The buffer is unchanged.
    ///
    /// ```no_run
    /// # fn take_over(_address: u64, _len: usize) {}
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::Allocator;
    ///
    /// let mut buffer = stream.alloc_with::<f32>(&Allocator::driver_pool(), 1024)?;
    /// stream.fill(&mut buffer, 1.0)?;
    /// let (address, len) = buffer.into_raw()?; // filled
    /// take_over(address, len); // frees it
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemFree", "cuMemFreeAsync", "cudaFree", "cudaFreeAsync"))]
    #[doc(alias("leak"))]
    pub fn into_raw(mut self) -> Result<(CUdeviceptr, usize), Rejected<Self>> {
        let (address, this) = Rejected::unless(self.disown(), self)?;
        Ok((address, this.len()))
    }

    /// Waits for the work that uses the memory, and leaves the memory to the caller.
    fn disown(&mut self) -> Result<CUdeviceptr> {
        driver::ensure()?;
        self.storage.ensure()?;
        self.storage.require_no_graph("DeviceBuffer::into_raw")?;
        let block = self.storage.block();
        let (address, whole) = (block.address, block.whole());
        if whole.is_empty() {
            return Ok(0);
        }
        let why = match &block.backing {
            DeviceBacking::Home(_) => None,
            DeviceBacking::Owned { owner, .. } if owner.traits().plain => None,
            DeviceBacking::Served { allocator, .. } if allocator.is_plain() => None,
            DeviceBacking::Cached(_) => Some(
                "the memory is part of a larger block of a caching pool: allocate it with \
                 `Stream::alloc_from`, `Context::alloc`, or the allocator `driver_pool` or `plain`",
            ),
            DeviceBacking::Served { .. } => Some("a custom allocator frees the memory"),
            DeviceBacking::Owned { .. } => Some("an owner frees the memory: use `as_raw`"),
        };
        Error::unless(why.is_none(), "DeviceBuffer::into_raw", why.unwrap_or_default())?;
        self.storage.wait_for(&whole)?;
        self.storage.disown();
        Ok(address)
    }
}
