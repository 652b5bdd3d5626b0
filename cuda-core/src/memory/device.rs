//! Device memory: stream-ordered, freed on the stream that it was allocated on.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use cuda_sys::{CUdeviceptr, symbol as cu};

use crate::device::Device;
use crate::driver;
use crate::drops::Resource;
use crate::error::{Error, Result};
use crate::memory::ledger::{Access, Fences, Ledger};
use crate::memory::pod::Pod;
use crate::memory::view::{Slice, SliceMut};
use crate::memory::{self, Block, Storage, byte_len};
use crate::stream::{Kind, Stream};
use crate::stream_core::StreamCore;

/// Memory of a device.
#[derive(Debug)]
pub enum DeviceMemory {}

/// A shared view of a [`DeviceBuffer`].
pub type DeviceSlice<'a, T> = Slice<'a, T, DeviceMemory>;

/// An exclusive view of a [`DeviceBuffer`].
pub type DeviceSliceMut<'a, T> = SliceMut<'a, T, DeviceMemory>;

/// Alignment of every stream-ordered allocation: "aligned to at least 256 bytes".
const ALIGNMENT: usize = 256;

impl memory::Kind for DeviceMemory {
    type Address = CUdeviceptr;
    /// The stream that the block was allocated on, and is freed on.
    type Keeper = Arc<StreamCore>;

    const RESOURCE: Resource = Resource::DeviceMemory;

    fn free(block: &mut Block<Self>) -> Result<()> {
        let home = &block.keeper;
        let bound = home.bind()?;
        let mut fences = Fences::none();
        let range = block.whole();
        let timeline = Some(&**home.timeline());
        block
            .ledger
            .conflicts_exclusive(&range, Access::Write, timeline, &mut fences);
        if fences.wait_on(&bound).is_err() {
            // The stream could not be made to wait, so the host does.
            fences.wait_host()?;
        }
        let (_, freed) = bound.enqueue("cuMemFreeAsync", |stream| {
            // SAFETY: the block was allocated by cuMemAllocAsync and is freed once; all other work
            // on it comes before this point of the stream.
            unsafe { cu::cuMemFreeAsync(block.address, stream) }
        });
        freed
    }

    fn number(address: CUdeviceptr) -> u64 {
        address
    }
}

/// Elements on a device, allocated in the order of a stream: `cuMemAllocAsync`.
///
/// The stream is the buffer's *home*: allocation and free happen in its order, and the buffer keeps
/// it alive. Any stream of the device may use the buffer; who must wait for whom is sorted out
/// without the caller. Dropping it frees the memory behind all work that uses it, without waiting.
///
/// ```no_run
/// use cuda_core::Device;
///
/// let stream = Device::get(0)?.create_stream()?;
/// let mut buffer = stream.alloc::<u32>(1024)?;
/// stream.upload_from(&[7; 1024], &mut buffer)?;
/// let mut back = [0; 1024];
/// stream.download_to(&buffer, &mut back)?;
/// assert_eq!(back, [7; 1024]);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct DeviceBuffer<T: Pod> {
    storage: Storage<DeviceMemory>,
    // INVARIANT: the storage has room for so many elements.
    len: usize,
    _elements: PhantomData<T>,
}

impl Stream {
    /// `len` elements of unspecified value: `cuMemAllocAsync`, one driver call, none if `len` is
    /// zero.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`] and [`Error::OverAligned`] before the driver is asked;
    /// [`Error::Unsupported`] on a device without memory pools; [`Error::OutOfMemory`].
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let op = "cuMemAllocAsync";
        let bytes = byte_len::<T>(len, ALIGNMENT)?;
        // A zero-sized buffer is nowhere in particular, but aligned and not null.
        let mut address = ALIGNMENT as CUdeviceptr;
        let core = self.core();
        let mut ledger = Ledger::default();
        if bytes > 0 {
            let bound = core.bind()?;
            if self.device().default_pool()?.is_none() {
                return Err(Error::Unsupported {
                    feature: "stream-ordered allocation (memory pools)",
                    device: self.device().ordinal(),
                });
            }
            let (seq, result) = bound.enqueue(op, |stream| {
                // SAFETY: the pointer is valid for a write; the stream is live.
                unsafe { cu::cuMemAllocAsync(&mut address, bytes, stream) }
            });
            drop(bound);
            result.map_err(|error| self.explain(error, op, bytes))?;
            // Another stream may touch the memory only when the allocation has happened.
            ledger = Ledger::allocated(0..bytes, core.timeline(), seq);
        }
        Ok(DeviceBuffer {
            storage: Storage::new(Block {
                address,
                bytes,
                ledger,
                keeper: core.clone(),
            }),
            len,
            _elements: PhantomData,
        })
    }

    /// `len` elements whose bytes are all zero: `cuMemAllocAsync`, `cuMemsetD8Async`.
    ///
    /// # Errors
    /// As [`Stream::alloc`].
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.alloc(len)?;
        self.fill_bytes(&mut buffer, 0)?;
        Ok(buffer)
    }

    /// Says how much memory there was, where there was not enough.
    fn explain(&self, error: Error, op: &'static str, requested: usize) -> Error {
        if error.code() != Some(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY) {
            return error;
        }
        Error::OutOfMemory {
            op,
            requested,
            device: self.device().ordinal(),
            memory: self.context().memory_info().ok(),
        }
    }
}

impl<T: Pod> DeviceBuffer<T> {
    /// Elements in the buffer.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    pub fn byte_len(&self) -> usize {
        self.storage.block().bytes
    }

    /// The device that the memory is on.
    pub fn device(&self) -> Device {
        self.storage.block().keeper.device()
    }

    /// The device's address of the first element, valid while `self` lives; not null, but otherwise
    /// meaningless for an empty buffer.
    ///
    /// Work that is given the address is unknown to the buffer: see [`DeviceBuffer::note_use`].
    pub fn as_raw(&self) -> CUdeviceptr {
        self.storage.block().address
    }

    /// A view of some elements.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<DeviceSlice<'_, T>> {
        Slice::whole(&self.storage, self.len).slice(range)
    }

    /// An exclusive view of some elements.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<DeviceSliceMut<'_, T>> {
        SliceMut::whole(&mut self.storage, self.len).into_slice(range)
    }

    /// Exclusive views of the elements before `mid` and from it on, usable on two streams at once.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `mid` is greater than the length.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let (one, two) = (context.create_stream()?, context.create_stream()?);
    /// let mut buffer = one.alloc_zeroed::<f32>(1 << 20)?;
    /// let (mut low, mut high) = buffer.split_at_mut(1 << 19)?;
    /// one.fill(&mut low, 1.0f32)?;
    /// two.fill(&mut high, 2.0f32)?; // beside the other fill
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn split_at_mut(
        &mut self,
        mid: usize,
    ) -> Result<(DeviceSliceMut<'_, T>, DeviceSliceMut<'_, T>)> {
        SliceMut::whole(&mut self.storage, self.len).split_at_mut(mid)
    }

    /// Says that work enqueued on `stream` behind this crate's back uses the buffer.
    ///
    /// Call it before the work is enqueued, so that the stream waits for what others do with the
    /// buffer, and again after, so that others wait for the work.
    ///
    /// # Safety
    /// Between the two calls nothing else uses the buffer, and the work does with it no more than
    /// `access` says.
    pub unsafe fn note_use<K: Kind>(&self, stream: &Stream<K>, access: Access) -> Result<()> {
        let core = stream.core();
        let bound = core.bind()?;
        let block = self.storage.block();
        let mut fences = Fences::none();
        let range = block.whole();
        let timeline = core.timeline();
        block
            .ledger
            .conflicts(&range, access, Some(timeline), &mut fences);
        fences.wait_on(&bound)?;
        let seq = bound.count();
        block.ledger.mark(&range, access, timeline, seq, &fences);
        Ok(())
    }

    /// Blocks the thread until no stream uses the buffer any more.
    pub fn synchronize(&self) -> Result<()> {
        driver::ensure()?;
        let block = self.storage.block();
        let mut fences = Fences::none();
        block
            .ledger
            .conflicts(&block.whole(), Access::Write, None, &mut fences);
        fences.wait_host()?;
        block.ledger.prune();
        Ok(())
    }

    /// Frees the memory behind all work that uses it, and says whether that worked:
    /// `cuMemFreeAsync`. Dropping the buffer reports a failure to the hook of
    /// [`set_drop_hook`](crate::set_drop_hook) instead.
    ///
    /// # Errors
    /// The driver's, with the buffer itself, still allocated.
    pub fn close(mut self) -> Result<(), (Error, Self)> {
        match driver::ensure().and_then(|()| self.storage.free()) {
            Ok(()) => Ok(()),
            Err(error) => Err((error, self)),
        }
    }
}

impl<'a, T: Pod> DeviceSlice<'a, T> {
    /// The device's address of the first element.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.block().address + self.range().start as CUdeviceptr
    }

    /// The device that the memory is on.
    pub fn device(&self) -> Device {
        self.block().keeper.device()
    }

    pub(crate) fn home(&self) -> &'a StreamCore {
        &self.block().keeper
    }
}

impl<T: Pod> DeviceSliceMut<'_, T> {
    /// The device's address of the first element.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.as_view().as_raw()
    }
}

impl<'a, T: Pod> From<&'a DeviceBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        Slice::whole(&buffer.storage, buffer.len)
    }
}

impl<'a, T: Pod> From<&'a mut DeviceBuffer<T>> for DeviceSliceMut<'a, T> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        SliceMut::whole(&mut buffer.storage, buffer.len)
    }
}

impl<T: Pod> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer")
            .field("address", &format_args!("{:#x}", self.as_raw()))
            .field("len", &self.len)
            .field("device", &self.device())
            .finish()
    }
}
