//! Buffers that grow and shrink without moving.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex};

use cuda_sys::CUdeviceptr;

use super::Granularity;
use super::mapping::{SharedMapping, VirtualMapping};
use super::physical::PhysicalMemory;
use crate::alloc::backing::DeviceBacking;
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::device::{DeviceMemory, DeviceSlice, DeviceSliceMut};
use crate::memory::{Block, Storage, byte_len};
use crate::peer::PeerAccess;
use crate::process::driver;
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::{Access, Bytes, Ledger};
use crate::timeline::submit::note_use;
use crate::types::pod::Pod;
use crate::util::sync::lock;
use crate::wait::future::Ready;

/// The strictest alignment of elements: reserved addresses begin at a page of the device, none of
/// which is smaller.
const ALIGNMENT: usize = 4096;

/// Device memory that grows up to a maximum and keeps its address: the addresses for the maximum
/// are reserved first, which costs no memory, and physical memory is mapped as the buffer grows.
///
/// Its views are those of a [`DeviceBuffer`](crate::DeviceBuffer), for every copy, fill and launch,
/// and work is ordered in the same way. Growing copies nothing; work on the existing elements
/// continues meanwhile. New elements have unspecified values. Physical memory is added in chunks,
/// one for each time that the buffer grew beyond what was mapped, and is released in whole chunks.
///
/// Dropping the buffer waits for the work that uses it, then releases everything.
///
/// ```no_run
/// use cuda_core::{Device, VirtualBuffer};
///
/// let context = Device::get(0)?.context()?;
/// let stream = context.create_stream()?;
/// let mut list = VirtualBuffer::<u32>::reserve(&context, 1 << 34)?; // 64 GiB of addresses
/// list.grow_to(1000)?;
/// stream.upload_from(&[7; 1000], list.as_view_mut())?;
/// let address = list.as_raw();
/// list.grow_to(1 << 20)?;
/// assert_eq!(list.as_raw(), address); // and the first 1000 elements are still 7
/// list.shrink_to(1000)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct VirtualBuffer<T: Pod> {
    /// Its block has the size of the reserved addresses.
    storage: Storage<DeviceMemory>,
    mapping: Arc<Mutex<VirtualMapping>>,
    // INVARIANT: this many elements are accessible.
    len: usize,
    max_len: usize,
    _elements: PhantomData<T>,
}

impl<T: Pod> VirtualBuffer<T> {
    /// An empty buffer with addresses for `max_len` elements: `cuMemAddressReserve`; no driver call
    /// if they have no size.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`], [`Error::OverAligned`]; [`Error::Unsupported`] on a device without
    /// virtual memory management; the driver's `OUT_OF_MEMORY` if that many addresses cannot be
    /// reserved.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let list = cuda_core::VirtualBuffer::<f32>::reserve(&context, 1 << 38)?; // a tebibyte
    /// assert_eq!((list.len(), list.capacity()), (0, 0)); // of addresses; no memory yet
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn reserve(context: &Context, max_len: usize) -> Result<Self> {
        driver::ensure()?;
        let max_bytes = byte_len::<T>(max_len, ALIGNMENT)?;
        let granularity = if max_bytes > 0 {
            let device = context.device();
            device.virtual_memory_granularity(Granularity::Minimum)?
        } else {
            1
        };
        let nowhere = ALIGNMENT as CUdeviceptr;
        let mapping = VirtualMapping::reserve(context, max_bytes, granularity, nowhere)?;
        let (address, bytes) = (mapping.address(), mapping.reserved());
        let mapping = Arc::new(Mutex::new(mapping));
        let block = Block {
            address,
            bytes,
            ledger: Ledger::default(),
            backing: DeviceBacking::Owned {
                context: context.clone(),
                owner: Box::new(SharedMapping(mapping.clone())),
            },
        };
        Ok(Self { storage: Storage::new(block), mapping, len: 0, max_len, _elements: PhantomData })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of the elements in bytes.
    pub fn byte_len(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The number of elements for which physical memory is mapped: growing up to that makes no
    /// driver call.
    pub fn capacity(&self) -> usize {
        let mapped = lock(&self.mapping).accessible();
        let capacity = mapped.checked_div(size_of::<T>()).unwrap_or(self.max_len);
        capacity.min(self.max_len)
    }

    /// The number of elements for which addresses are reserved.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// The context that the buffer was created in.
    pub fn context(&self) -> &Context {
        self.storage.block().backing.context()
    }

    /// The device that the memory is on.
    pub fn device(&self) -> Device {
        self.storage.block().backing.device()
    }

    /// The device address of the first element, the same for as long as `self` lives; not null, but
    /// otherwise meaningless if there are no elements.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.storage.block().address
    }

    /// Makes the buffer at least `len` elements long: `cuMemCreate`, `cuMemMap`, `cuMemSetAccess`,
    /// unless enough memory is mapped already. Neither copies nor waits.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] beyond [`max_len`](Self::max_len); [`Error::OutOfMemory`]. The buffer
    /// is then unchanged.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let mut list = cuda_core::VirtualBuffer::<u32>::reserve(&context, 1 << 30)?;
    /// list.grow_to(1000)?;
    /// let address = list.as_raw();
    /// list.grow_to(1 << 24)?; // copies nothing
    /// assert_eq!(list.as_raw(), address);
    /// stream.fill(list.slice_mut(1000..)?, 7)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn grow_to(&mut self, len: usize) -> Result<()> {
        driver::ensure()?;
        if len <= self.len {
            return Ok(());
        }
        self.check_len(len)?;
        lock(&self.mapping).grow(len * size_of::<T>())?;
        self.len = len;
        Ok(())
    }

    /// Makes the buffer at most `len` elements long, and releases the chunks of memory that lie
    /// entirely behind them, once the work that uses those has completed: `cuMemUnmap`,
    /// `cuMemRelease`. Does not wait for work on the elements that stay.
    ///
    /// # Errors
    /// The driver's errors about the work waited for; the buffer is then unchanged. If memory
    /// cannot be unmapped, the buffer is shorter nevertheless, and a later call tries again.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let mut list = cuda_core::VirtualBuffer::<u32>::reserve(&context, 1 << 30)?;
    /// list.grow_to(1 << 24)?;
    /// stream.fill(list.as_view_mut(), 7)?;
    /// list.shrink_to(1 << 20)?; // once the fill is done with what goes
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn shrink_to(&mut self, len: usize) -> Result<()> {
        driver::ensure()?;
        let bytes = len.min(self.len) * size_of::<T>();
        let cut = lock(&self.mapping).cut(bytes);
        self.wait_for(&(cut..self.storage.block().bytes))?;
        self.len = self.len.min(len);
        lock(&self.mapping).truncate(bytes)
    }

    /// Maps `memory` behind what is mapped, and makes the buffer as long as there is memory: the
    /// elements from the former [`capacity`](Self::capacity) on are in the new memory.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if it does not fit; [`Error::Flags`] if it is another device's; the
    /// driver's. The memory is then released.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{Granularity, PhysicalMemory, ShareableHandle, VirtualBuffer};
    ///
    /// let step = context.device().virtual_memory_granularity(Granularity::Recommended)?;
    /// let mut list = VirtualBuffer::<u32>::reserve(&context, 1 << 30)?;
    /// list.append(PhysicalMemory::create(&context, step, ShareableHandle::PosixFd)?)?; // others may map it
    /// assert_eq!(list.byte_len(), step);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn append(&mut self, memory: PhysicalMemory) -> Result<()> {
        driver::ensure()?;
        if memory.device() != self.device() {
            return Err(Error::Flags {
                op: "cuMemMap",
                why: "memory of another device than the buffer's",
            });
        }
        lock(&self.mapping).append(memory)?;
        self.len = self.capacity();
        Ok(())
    }

    /// Sets what another device may do with the memory, now and when it grows: `cuMemSetAccess`.
    /// Revoking access waits for the work that uses the buffer.
    ///
    /// # Errors
    /// [`Error::Flags`] for the buffer's own device, which has all access;
    /// [`Error::Unsupported`] for a device that cannot reach it; the driver's.
    ///
    /// ```no_run
    /// # use cuda_core::{Device, PeerAccess, VirtualBuffer};
    /// let mut buffer = VirtualBuffer::<f32>::reserve(&Device::get(0)?.context()?, 1 << 30)?;
    /// buffer.set_access(Device::get(1)?, PeerAccess::ReadWrite)?;
    /// buffer.grow_to(1 << 20)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn set_access(&mut self, peer: Device, access: PeerAccess) -> Result<()> {
        driver::ensure()?;
        if peer == self.device() {
            return Err(Error::Flags {
                op: "cuMemSetAccess",
                why: "the memory's own device has all access",
            });
        }
        if access != PeerAccess::None && !peer.can_access_peer(self.device())? {
            return Err(Error::Unsupported {
                feature: "access to the memory of that device",
                device: peer.ordinal(),
            });
        }
        if access != PeerAccess::ReadWrite {
            self.wait_for(&self.storage.block().whole())?;
        }
        lock(&self.mapping).set_access(peer, access.as_raw())
    }

    /// What a device may do with the memory: `cuMemGetAccess`. [`PeerAccess::None`] while nothing
    /// is mapped.
    ///
    /// # Errors
    /// The driver's.
    pub fn access(&self, device: Device) -> Result<PeerAccess> {
        driver::ensure()?;
        let flags = lock(&self.mapping).access(device)?;
        Ok(flags.map_or(PeerAccess::None, PeerAccess::from_raw))
    }

    /// A view of all elements.
    pub fn as_view(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::whole(&self.storage, self.len)
    }

    /// An exclusive view of all elements.
    pub fn as_view_mut(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::whole(&mut self.storage, self.len)
    }

    /// A view of some elements.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<DeviceSlice<'_, T>> {
        self.as_view().slice(range)
    }

    /// An exclusive view of some elements.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<DeviceSliceMut<'_, T>> {
        self.as_view_mut().into_slice(range)
    }

    /// As [`Buffer::split_at_mut`](crate::Buffer::split_at_mut).
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `mid` is greater than the length.
    pub fn split_at_mut(
        &mut self,
        mid: usize,
    ) -> Result<(DeviceSliceMut<'_, T>, DeviceSliceMut<'_, T>)> {
        self.as_view_mut().split_at_mut(mid)
    }

    /// Waits, without blocking, for the work that writes the buffer.
    pub fn ready(&self) -> Ready<'_> {
        self.as_view().ready()
    }

    /// Waits, without blocking, for all work that uses the buffer.
    pub fn ready_mut(&mut self) -> Ready<'_> {
        self.as_view().clear_for(Access::Write)
    }

    /// Notes that work enqueued on `stream` behind this crate's back uses the buffer: see
    /// [`Buffer::note_use`](crate::Buffer::note_use).
    ///
    /// # Errors
    /// The driver's, when the stream is made to wait.
    ///
    /// # Safety
    /// That of [`Buffer::note_use`](crate::Buffer::note_use).
    pub unsafe fn note_use<K: StreamKind>(&self, stream: &Stream<K>, access: Access) -> Result<()> {
        let block = self.storage.block();
        note_use(stream.core(), &block.ledger, &block.whole(), access)
    }

    /// Blocks the thread until no stream uses the buffer any more.
    ///
    /// # Errors
    /// The driver's errors about the work waited for.
    pub fn synchronize(&self) -> Result<()> {
        driver::ensure()?;
        self.wait_for(&self.storage.block().whole())
    }

    /// Releases memory and addresses, once no work uses them: `cuMemUnmap`, `cuMemRelease`,
    /// `cuMemAddressFree`. Dropping the buffer does the same, but reports a failure to the hook of
    /// [`set_drop_hook`](crate::set_drop_hook).
    ///
    /// # Errors
    /// Those of [`Buffer::close`](crate::Buffer::close); a buffer that was given up has no addresses
    /// to grow into.
    pub fn close(mut self) -> Result<(), (Error, Self)> {
        let freed = driver::ensure().and_then(|()| self.storage.free());
        if self.storage.ensure().is_err() {
            (self.len, self.max_len) = (0, 0);
        }
        freed.map_err(|error| (error, self))
    }

    fn check_len(&self, len: usize) -> Result<()> {
        if len <= self.max_len {
            return Ok(());
        }
        Err(Error::OutOfBounds { start: self.len, end: len, len: self.max_len })
    }

    fn wait_for(&self, range: &Bytes) -> Result<()> {
        let ledger = &self.storage.block().ledger;
        let fences = ledger.conflicts(range, Access::Write, None);
        fences.wait_host()?;
        ledger.prune(range);
        Ok(())
    }
}

impl<'a, T: Pod> From<&'a VirtualBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a VirtualBuffer<T>) -> Self {
        buffer.as_view()
    }
}

impl<'a, T: Pod> From<&'a mut VirtualBuffer<T>> for DeviceSliceMut<'a, T> {
    fn from(buffer: &'a mut VirtualBuffer<T>) -> Self {
        buffer.as_view_mut()
    }
}

impl<T: Pod> fmt::Debug for VirtualBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualBuffer")
            .field("address", &format_args!("{:#x}", self.as_raw()))
            .field("len", &self.len)
            .field("max_len", &self.max_len)
            .field("device", &self.device())
            .finish()
    }
}
