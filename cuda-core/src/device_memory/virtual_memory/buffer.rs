//! Buffers that grow and shrink without moving.

use std::sync::{Arc, Mutex, MutexGuard};

use super::mapping::{VirtualMapping, access_to};
use super::{Granularity, PhysicalMemory};
use crate::alloc::owned_storage;
use crate::context::{Context, PeerAccess};
use crate::device::Device;
use crate::error::{Error, Result, counted};
use crate::memory::{Buffer, DeviceMemory, MemoryKind, byte_len};
use crate::process::driver;
use crate::types::Pod;
use crate::util::lock;

/// The strictest alignment of elements: reserved addresses begin at a page of the device, and pages are
/// at least this large.
const ALIGNMENT: usize = 4096;

/// Device memory that grows up to a maximum and keeps its address. The addresses for the maximum are
/// reserved first, which costs no memory; physical memory is mapped as the buffer grows.
///
/// Its views are those of a [`DeviceBuffer`](crate::DeviceBuffer), for every copy, fill and launch, and
/// work is ordered in the same way. Growing copies nothing, and work on the existing elements
/// continues. New elements have unspecified values. Each growth beyond the mapped memory adds one chunk
/// of physical memory. Memory is released in whole chunks.
///
/// Dropping the buffer waits for the work that uses it, then releases everything.
///
/// ```no_run
/// use cuda_core::{Device, virtual_memory::VirtualBuffer};
///
/// let context = Device::get(0)?.context()?;
/// let stream = context.create_stream()?;
/// let mut list = VirtualBuffer::<u32>::new(&context, 1 << 34)?; // 64 GiB of addresses
/// list.grow_to(1000)?;
/// stream.upload(&[7; 1000], list.as_view_mut())?;
/// let address = list.as_raw();
/// list.grow_to(1 << 20)?;
/// assert_eq!(list.as_raw(), address); // and the first 1000 elements are still 7
/// list.shrink_to(1000)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub type VirtualBuffer<T> = Buffer<T, DeviceMemory, Virtual>;

/// The extra part that a [`VirtualBuffer`] has beyond a [`DeviceBuffer`](crate::DeviceBuffer). The
/// buffer's block has the size of the reserved addresses.
#[expect(missing_debug_implementations, reason = "has nothing to show beside its buffer")]
pub struct Virtual {
    /// Driver calls are made, and drop hooks run, under the lock only while the buffer is borrowed
    /// exclusively or freed: no other code can then ask for the mapping.
    mapping: Arc<Mutex<VirtualMapping>>,
    max_len: usize,
}

/// # Virtual memory
impl<T: Pod> VirtualBuffer<T> {
    /// Creates an empty buffer with addresses for `max_len` elements: `cuMemAddressReserve`; no driver
    /// call if they have no size.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`], [`Error::Invalid`]; [`Error::Unsupported`] on a device without
    /// virtual memory management; the driver's `OUT_OF_MEMORY` if that many addresses cannot be
    /// reserved.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let list = cuda_core::virtual_memory::VirtualBuffer::<f32>::new(&context, 1 << 38)?; // a tebibyte
    /// assert_eq!((list.len(), list.capacity()), (0, 0)); // of addresses; no memory yet
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemAddressReserve"))]
    pub fn new(context: &Context, max_len: usize) -> Result<Self> {
        driver::ensure()?;
        let max_bytes = byte_len::<T>(max_len, ALIGNMENT)?;
        let granularity = if max_bytes > 0 {
            let device = context.device();
            device.virtual_memory_granularity(Granularity::Minimum)?
        } else {
            1
        };
        let mapping = VirtualMapping::reserve(context, max_bytes, granularity)?;
        let (address, bytes) = (mapping.address, mapping.reserved);
        let mapping = Arc::new(Mutex::new(mapping));
        let storage = owned_storage(context, address, bytes, mapping.clone());
        Ok(Self::with_extra(storage, 0, Virtual { mapping, max_len }))
    }

    /// Returns the number of elements for which physical memory is mapped: growing up to that number
    /// makes no driver call.
    pub fn capacity(&self) -> usize {
        // In a forked child, a thread that exists only in the parent may hold the lock.
        if driver::is_gone() {
            return self.len();
        }
        let mapped = self.mapping().accessible;
        let capacity = mapped.checked_div(size_of::<T>()).unwrap_or(self.max_len());
        capacity.min(self.max_len())
    }

    /// Returns the number of elements for which addresses are reserved; zero once the addresses were
    /// [given up](Error::GivenUp).
    pub fn max_len(&self) -> usize {
        self.storage.ensure().map_or(0, |()| self.extra.max_len)
    }

    /// Makes the buffer at least `len` elements long: `cuMemCreate`, `cuMemMap`, `cuMemSetAccess`,
    /// unless enough memory is mapped already. Neither copies nor waits.
    ///
    /// # Errors
    /// [`Error::Invalid`] beyond [`max_len`](Self::max_len); [`Error::OutOfMemory`]. The buffer
    /// is then unchanged.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let mut list = cuda_core::virtual_memory::VirtualBuffer::<u32>::new(&context, 1 << 30)?;
    /// list.grow_to(1000)?;
    /// let address = list.as_raw();
    /// list.grow_to(1 << 24)?; // copies nothing
    /// assert_eq!(list.as_raw(), address);
    /// stream.fill(list.slice_mut(1000..)?, 7)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemCreate", "cuMemMap", "cuMemSetAccess"))]
    pub fn grow_to(&mut self, len: usize) -> Result<()> {
        driver::ensure()?;
        if len <= self.len() {
            return Ok(());
        }
        let why = || {
            let reserved = counted(self.max_len(), "element", "elements");
            format!("addresses are reserved for {reserved}, not for {len}")
        };
        Error::unless_with(len <= self.max_len(), "VirtualBuffer::grow_to", why)?;
        self.mapping().grow(len * size_of::<T>())?;
        self.set_len(len);
        Ok(())
    }

    /// Makes the buffer at most `len` elements long, and releases the chunks of memory that lie
    /// entirely after those elements, once the work that uses the chunks has completed: `cuMemUnmap`,
    /// `cuMemRelease`. Does not wait for work on the remaining elements.
    ///
    /// # Errors
    /// [`Error::Invalid`] while a graph uses the memory, or NCCL may have it registered, and the
    /// driver's errors about the work waited for; the buffer is then unchanged. If memory cannot be unmapped, the buffer is shorter
    /// nevertheless, and a later call tries again.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let mut list = cuda_core::virtual_memory::VirtualBuffer::<u32>::new(&context, 1 << 30)?;
    /// list.grow_to(1 << 24)?;
    /// stream.fill(list.as_view_mut(), 7)?;
    /// list.shrink_to(1 << 20)?; // once the fill is done with what goes
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemUnmap", "cuMemRelease"))]
    pub fn shrink_to(&mut self, len: usize) -> Result<()> {
        driver::ensure()?;
        self.storage.require_no_graph("shrink_to")?;
        // As after a registration that failed, and could not be undone.
        let registered = DeviceMemory::waits_for_others(self.storage.block());
        Error::unless(!registered, "shrink_to", "NCCL may have the memory registered")?;
        let bytes = len.min(self.len()) * size_of::<T>();
        let cut = self.mapping().cut(bytes);
        self.storage.wait_for(&(cut..self.storage.block().bytes))?;
        self.set_len(self.len().min(len));
        self.mapping().truncate(bytes)
    }

    /// Maps `memory` after the memory that is mapped, and extends the buffer over all of it: the
    /// elements from the former [`capacity`](Self::capacity) on are in the new memory.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], in bytes, if it does not fit; [`Error::Invalid`] if it is on another device; the
    /// driver's. The memory is then released.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{
    ///     interop::ShareableHandle,
    ///     virtual_memory::{Granularity, PhysicalMemory, VirtualBuffer},
    /// };
    ///
    /// let step = context.device().virtual_memory_granularity(Granularity::Recommended)?;
    /// let mut list = VirtualBuffer::<u32>::new(&context, 1 << 30)?;
    /// list.append(PhysicalMemory::new(&context, step, ShareableHandle::PosixFd)?)?; // others may map it
    /// assert_eq!(list.byte_len(), step);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemMap"))]
    pub fn append(&mut self, memory: PhysicalMemory) -> Result<()> {
        driver::ensure()?;
        let why = "memory of another device than the buffer's";
        Error::unless(memory.device() == self.device(), "cuMemMap", why)?;
        self.mapping().append(memory)?;
        self.set_len(self.capacity());
        Ok(())
    }

    /// Sets another device's access to the memory, now and when it grows: `cuMemSetAccess`. Revoking
    /// access waits for the work that uses the buffer. Launches on a device without access are refused.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the buffer's own device, which has full access, and, unless access
    /// becomes [`PeerAccess::ReadWrite`], while a graph uses the memory; [`Error::Unsupported`] for a
    /// device that cannot reach it; the driver's.
    ///
    /// ```no_run
    /// # use cuda_core::{Device, PeerAccess, virtual_memory::VirtualBuffer};
    /// let mut buffer = VirtualBuffer::<f32>::new(&Device::get(0)?.context()?, 1 << 30)?;
    /// buffer.set_access(Device::get(1)?, PeerAccess::ReadWrite)?;
    /// buffer.grow_to(1 << 20)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemSetAccess"))]
    pub fn set_access(&mut self, peer: Device, access: PeerAccess) -> Result<()> {
        driver::ensure()?;
        let why = "the memory's own device has all access";
        Error::unless(peer != self.device(), "cuMemSetAccess", why)?;
        if access != PeerAccess::None && !peer.can_access_peer(self.device())? {
            return Err(peer.unsupported("access to the memory of that device"));
        }
        if access != PeerAccess::ReadWrite {
            self.storage.require_no_graph("cuMemSetAccess")?;
            self.storage.wait_for(&self.storage.block().whole())?;
        }
        self.mapping().set_access(peer, access.as_raw())
    }

    /// Returns a device's access to the memory: `cuMemGetAccess`. [`PeerAccess::None`] while nothing is
    /// mapped.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuMemGetAccess"))]
    pub fn access(&self, device: Device) -> Result<PeerAccess> {
        driver::ensure()?;
        // Not locked during the call: other threads may ask for the capacity, or launch kernels. The memory
        // stays mapped, since the buffer is borrowed.
        let mapped = self.mapping().mapped();
        let flags = mapped.map(|address| access_to(address, device)).transpose()?;
        Ok(flags.and_then(PeerAccess::from_raw).unwrap_or(PeerAccess::None))
    }

    fn mapping(&self) -> MutexGuard<'_, VirtualMapping> {
        lock(&self.extra.mapping)
    }
}
