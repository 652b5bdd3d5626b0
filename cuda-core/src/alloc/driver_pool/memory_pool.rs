//! The driver's pools: the default one of a device, and those that a program creates.

use std::ptr;
use std::sync::{Arc, Mutex, Weak};

use cuda_sys::{CUdeviceptr, CUmemPoolProps, CUmemoryPool, symbol as cu};

use super::stream_ordered::{self, DriverPool};
use crate::alloc::{Allocator, Choice, DeviceAllocator};
use crate::context::{Changes, PeerAccess, peer};
use crate::device::default_pool::RawPool;
use crate::device::{Device, default_pool, mem_location};
use crate::error::{Error, Rejected, Result, asked, check};
use crate::process::{
    DeferForeignCode, Failed, Handle, Owned, RelaxedCaptureMode, Release, driver, owned, released,
};
use crate::stream::Stream;
use crate::timeline::StreamCore;
use crate::types::{Resource, ShareableHandle};
use crate::util::{compare_by, debug_by, lock};

/// A pool of a device's memory, from which stream-ordered allocations come: `CUmemoryPool`.
///
/// A clone is a reference. A pool that a program created is destroyed with its last reference;
/// memory still allocated from it then stays valid, and the rest goes back to the device. Kernels and
/// graphs of other devices that use such memory are then refused, as if the pool had been closed.
///
/// ```no_run
/// use cuda_core::{Device, MemoryPool};
///
/// let device = Device::get(0)?;
/// let stream = device.create_stream()?;
/// let pool = MemoryPool::builder(device).max_size(1 << 30).build()?;
/// let buffer = stream.alloc_from::<f32>(&pool, 1 << 20)?;
/// assert_eq!(pool.usage()?.used, 4 << 20);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryPool(Arc<Owned<LivePool>>);

struct LivePool {
    // INVARIANT: a live pool: the device's default pool, which lives as long as the driver, or one
    // that only `release` destroys.
    raw: RawPool,
    device: Device,
    kind: PoolKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PoolKind {
    Default,
    Created,
    /// A pool of another process: this process allocates nothing from it.
    Imported,
}

/// Pools that this crate owns, by handle.
static POOLS: Mutex<Vec<(RawPool, Weak<Owned<LivePool>>)>> = Mutex::new(Vec::new());

impl Release for LivePool {
    const RESOURCE: Resource = Resource::MemoryPool;

    fn number(&self) -> u64 {
        self.raw.number()
    }

    fn release(&mut self) -> Result<(), Failed> {
        if self.kind == PoolKind::Default {
            return Ok(());
        }
        // If the mode cannot be set, the pool is destroyed nevertheless.
        let _relaxed = RelaxedCaptureMode::enter();
        // Removed first: the handle may be reused for another pool as soon as this one is destroyed.
        lock(&POOLS).retain(|(known, _)| *known != self.raw);
        peer::forget_pool(self.raw);
        // SAFETY: created or imported by this crate, destroyed once. Memory allocated from it stays
        // valid: its resources "will be released automatically once there are no more outstanding
        // allocations".
        released("cuMemPoolDestroy", unsafe { cu::cuMemPoolDestroy(self.raw.0) })
    }
}

/// Options of a new pool.
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// let stream = device.create_stream()?;
/// let pool = cuda_core::MemoryPool::builder(device)
///     .release_threshold(64 << 20) // bytes that it keeps when they are free
///     .build()?;
/// let buffer = stream.alloc_from::<f32>(&pool, 1 << 20)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct MemoryPoolBuilder {
    device: Device,
    max_size: Option<usize>,
    shareable: ShareableHandle,
    release_threshold: usize,
}

impl MemoryPoolBuilder {
    /// Sets the most bytes that the pool takes from the device; the driver rounds them up. Needs a driver of
    /// CUDA 12.2. [`None`], which is the default, leaves the limit to the driver; zero is refused.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// use cuda_core::MemoryPool;
    ///
    /// let pool = MemoryPool::builder(device).max_size(64 << 20).build()?;
    /// let all = device.create_stream()?.alloc_from::<u8>(&pool, 1 << 30);
    /// assert!(all.is_err_and(|error| error.is_out_of_memory()));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn max_size(mut self, bytes: impl Into<Option<usize>>) -> Self {
        self.max_size = bytes.into();
        self
    }

    /// Sets whether the pool can be shared with other processes: see [`MemoryPool::export_fd`].
    pub fn shareable(mut self, shareable: ShareableHandle) -> Self {
        self.shareable = shareable;
        self
    }

    /// Sets how many bytes the pool keeps when a stream, an event or a context is synchronised, instead of
    /// giving them back to the device. All by default.
    pub fn release_threshold(mut self, bytes: usize) -> Self {
        self.release_threshold = bytes;
        self
    }

    /// The device whose memory the pool allocates.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The [most bytes](Self::max_size) that the pool takes, as they were given.
    pub fn get_max_size(&self) -> Option<usize> {
        self.max_size
    }

    /// Whether the pool can be [shared](Self::shareable) with other processes.
    pub fn get_shareable(&self) -> ShareableHandle {
        self.shareable
    }

    /// [Bytes that the pool keeps](Self::release_threshold).
    pub fn get_release_threshold(&self) -> usize {
        self.release_threshold
    }

    /// Creates the pool: `cuMemPoolCreate`, `cuMemPoolSetAttribute`. Needs no context.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a size of zero; [`Error::Unsupported`] on a device without memory pools, or
    /// one that cannot share them as requested; the driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let pool = cuda_core::MemoryPool::builder(device).release_threshold(0).build()?;
    /// let stream = device.create_stream()?;
    /// drop(stream.alloc_from::<f32>(&pool, 1000)?); // freed in the order of the stream
    /// stream.synchronize()?; // what is free goes back to the device
    /// assert_eq!(pool.usage()?.used, 0);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemPoolCreate", "cuMemPoolSetAttribute"))]
    #[doc(alias("cudaMemPoolCreate", "cudaMemPoolSetAttribute"))]
    pub fn build(self) -> Result<MemoryPool> {
        let device = self.device;
        let why = "a maximum of zero bytes was given; `None` is no maximum";
        Error::unless(self.max_size != Some(0), "cuMemPoolCreate", why)?;
        if device.default_pool()?.is_none() {
            return Err(device.unsupported("memory pools"));
        }
        let handle_types = self.shareable.as_raw();
        let supported =
            device.attribute(cuda_sys::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES)?;
        if handle_types.0 as i32 & !supported != 0 {
            return Err(device.unsupported("sharing memory pools"));
        }
        let properties = CUmemPoolProps {
            allocType: cuda_sys::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: handle_types,
            location: mem_location::of(device),
            maxSize: self.max_size.unwrap_or(0),
            ..CUmemPoolProps::default()
        };
        let _relaxed = RelaxedCaptureMode::enter()?;
        // SAFETY: the call writes one handle, to an exclusive borrow; the properties are zero where
        // they are reserved.
        let raw = asked("cuMemPoolCreate", ptr::null_mut(), |raw| unsafe {
            cu::cuMemPoolCreate(raw, &properties)
        })?;
        let pool = MemoryPool::made(raw, device, PoolKind::Created);
        pool.set_release_threshold(self.release_threshold)?;
        Ok(pool)
    }
}

/// # The driver's pools
impl Device {
    /// The device's default pool, which the allocator
    /// [`Allocator::driver_pool`](crate::Allocator::driver_pool) uses unless
    /// [`Device::set_memory_pool`] chose another: `cuDeviceGetDefaultMemPool`. Its release
    /// threshold has been raised to the maximum.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a device without memory pools.
    ///
    /// ```no_run
    /// let pool = cuda_core::Device::get(0)?.default_memory_pool()?;
    /// println!("{:?}", pool.usage()?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceGetDefaultMemPool", "cudaDeviceGetDefaultMemPool"))]
    pub fn default_memory_pool(self) -> Result<MemoryPool> {
        driver::ensure()?;
        let raw = self.default_pool()?.ok_or_else(|| self.unsupported("memory pools"))?;
        Ok(MemoryPool::new(raw.0, self, PoolKind::Default))
    }

    /// The pool that [`Allocator::driver_pool`](crate::Allocator::driver_pool) uses on this device:
    /// `cuDeviceGetMemPool`. [`None`] if other code created it.
    ///
    /// # Errors
    /// Those of [`Device::default_memory_pool`]; the driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// assert_eq!(device.memory_pool()?, Some(device.default_memory_pool()?)); // unless another was set
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceGetMemPool", "cudaDeviceGetMemPool"))]
    pub fn memory_pool(self) -> Result<Option<MemoryPool>> {
        let default = self.default_memory_pool()?;
        // SAFETY: the device's handle is one that the driver gave; the call writes one handle, to an
        // exclusive borrow.
        let raw = asked("cuDeviceGetMemPool", ptr::null_mut(), |raw| unsafe {
            cu::cuDeviceGetMemPool(raw, self.as_raw())
        })?;
        if raw == default.as_raw() {
            return Ok(Some(default));
        }
        let pools = lock(&POOLS);
        let found = pools.iter().find(|(known, _)| known.0 == raw);
        Ok(found.and_then(|(_, weak)| weak.upgrade()).map(MemoryPool))
    }

    /// Makes [`Allocator::driver_pool`](crate::Allocator::driver_pool), and every other user of
    /// `cuMemAllocAsync`, use that pool on this device: `cuDeviceSetMemPool`. This holds for the whole
    /// process, until the pool is destroyed. [`Stream::alloc`] uses the pool if the driver's pool is the
    /// [default allocator](crate::set_default_allocator).
    ///
    /// [`Context::enable_peer_access`](crate::Context::enable_peer_access) gives access to the default pool:
    /// for others see [`MemoryPool::set_access`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for a pool of another device, and for an imported pool; the driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// use cuda_core::{Allocator, MemoryPool, set_default_allocator};
    ///
    /// let pool = MemoryPool::builder(device).max_size(1 << 30).build()?;
    /// device.set_memory_pool(&pool)?;
    /// assert_eq!(device.memory_pool()?, Some(pool.clone()));
    /// set_default_allocator(&Allocator::driver_pool())?; // `Stream::alloc` takes from it now
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemAllocAsync", "cuDeviceSetMemPool"))]
    #[doc(alias("cudaMallocAsync", "cudaDeviceSetMemPool"))]
    pub fn set_memory_pool(self, pool: &MemoryPool) -> Result<()> {
        let (op, raw) = ("cuDeviceSetMemPool", pool.live()?);
        pool.require_device(op, self)?;
        pool.can_allocate(op)?;
        // SAFETY: the pool is live, and the driver returns to the default pool when it is destroyed.
        check(op, unsafe { cu::cuDeviceSetMemPool(self.as_raw(), raw) })
    }
}

/// # Using it
impl MemoryPool {
    /// Options of a new pool of `device`; see [`MemoryPoolBuilder`].
    pub fn builder(device: Device) -> MemoryPoolBuilder {
        MemoryPoolBuilder {
            device,
            max_size: None,
            shareable: ShareableHandle::None,
            release_threshold: usize::MAX,
        }
    }

    fn new(raw: CUmemoryPool, device: Device, kind: PoolKind) -> Self {
        let raw = Handle(raw);
        Self(Arc::new(Owned::new(LivePool { raw, device, kind })))
    }

    /// Makes the object for a pool that this crate destroys.
    pub(super) fn made(raw: CUmemoryPool, device: Device, kind: PoolKind) -> Self {
        let pool = Self::new(raw, device, kind);
        lock(&POOLS).push((Handle(raw), Arc::downgrade(&pool.0)));
        pool
    }

    /// The device that the memory is on.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// The driver's handle, valid while `self` or a clone of it lives; null for a pool that was
    /// [given up](Error::GivenUp).
    pub fn as_raw(&self) -> CUmemoryPool {
        self.0.get().map_or(ptr::null_mut(), |live| live.raw.0)
    }

    /// Returns the handle, or an error if the pool was given up.
    pub(super) fn live(&self) -> Result<CUmemoryPool> {
        Ok(self.0.live()?.raw.0)
    }

    /// Whether it is the device's default pool.
    pub fn is_default(&self) -> bool {
        self.0.kind == PoolKind::Default
    }

    pub(super) fn require_device(&self, op: &'static str, device: Device) -> Result<()> {
        let own = self.device();
        let why = || {
            format!("the pool is of device {}, not of device {}", own.ordinal(), device.ordinal())
        };
        Error::unless_with(own == device, op, why)
    }

    fn can_allocate(&self, op: &'static str) -> Result<()> {
        if self.0.kind == PoolKind::Imported {
            let why = "the pool is another process's, which alone allocates from it; open what it has \
                       allocated by `MemoryPool::import_pointer`";
            return Err(Error::invalid(op, why));
        }
        Ok(())
    }

    /// Opens the pool's memory, present and future, to another device, or closes it:
    /// `cuMemPoolSetAccess`.
    ///
    /// Closing the pool, or opening it only for reads, waits for all contexts of both devices that this crate
    /// knows, since their work may need the access. Once a graph that needs the access was captured, it waits
    /// for the contexts of all devices. It waits again if another thread meanwhile enqueues a copy between
    /// the devices, or a kernel or a graph that uses the other's memory.
    ///
    /// Without the access, copies run at a tenth of the speed. Kernels, and graphs with copies between the
    /// two devices, are refused as after
    /// [`Context::disable_peer_access`](crate::Context::disable_peer_access), also if the pool is open only
    /// for reads, since they might write. A closed default pool stays closed until this call or
    /// [`Context::enable_peer_access`](crate::Context::enable_peer_access) opens it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for closing a pool to its own device; [`Error::PeerAccessInUse`] if other threads
    /// keep enqueuing such work; those of [`Context::synchronize`](crate::Context::synchronize) of each
    /// context that is waited for; the driver's `INVALID_VALUE` for a device that cannot reach the memory.
    #[doc(alias("cuMemPoolSetAccess", "cudaMemPoolSetAccess"))]
    pub fn set_access(&self, peer: Device, access: PeerAccess) -> Result<()> {
        self.live()?;
        let own = peer == self.device();
        let why = "a device always reads and writes its own pools";
        Error::unless(!own || access == PeerAccess::ReadWrite, "cuMemPoolSetAccess", why)?;
        // An imported pool may have to be opened to its own device first.
        if own && self.0.kind != PoolKind::Imported {
            return Ok(());
        }
        // Begun first, so that it ends last: a drop hook may copy between these two devices.
        let _quiet = DeferForeignCode::begin();
        // Keeps work between the devices out until the loss of access is recorded.
        let closed = match access {
            PeerAccess::ReadWrite => None,
            PeerAccess::Read | PeerAccess::None => Some(peer::close(peer, self.device())?),
        };
        let _changes = Changes::begin();
        let before = if closed.is_some() { self.access(peer)? } else { PeerAccess::None };
        let set = default_pool::set_pool_access(self.0.raw, peer, access.as_raw());
        // The error may stem from earlier work, so the access is queried.
        let now = if set.is_ok() { access } else { self.access(peer).unwrap_or(PeerAccess::None) };
        if let Some(closed) =
            closed.as_ref().filter(|_| before != PeerAccess::None && now != before)
        {
            closed.note_revocation();
        }
        // A pool that is open only for reads counts as closed: the kernels and copies that an open pool
        // admits may write.
        match now {
            PeerAccess::None | PeerAccess::Read => {
                peer::pool_closed(self.0.raw, self.device(), peer);
            }
            PeerAccess::ReadWrite => peer::pool_opened(self.0.raw, self.device(), peer),
        }
        set
    }

    /// Returns what a device may do with the pool's memory: `cuMemPoolGetAccess`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuMemPoolGetAccess", "cudaMemPoolGetAccess"))]
    pub fn access(&self, device: Device) -> Result<PeerAccess> {
        let pool = self.live()?;
        let mut location = mem_location::of(device);
        let _relaxed = RelaxedCaptureMode::enter()?;
        // SAFETY: `self` keeps the pool alive; the call reads a location, a local that outlives it,
        // and writes one number, to an exclusive borrow.
        let flags = asked("cuMemPoolGetAccess", PeerAccess::None.as_raw(), |flags| unsafe {
            cu::cuMemPoolGetAccess(flags, pool, &mut location)
        })?;
        Ok(PeerAccess::from_raw(flags).unwrap_or(PeerAccess::None))
    }

    /// Destroys the pool, if nothing else refers to it: `cuMemPoolDestroy`. Memory allocated from it stays
    /// valid. A pool with other references lives as long as they do; a device's default pool lives as long as
    /// the driver.
    ///
    /// # Errors
    /// The driver's; the pool is then [given up](Error::GivenUp).
    #[doc(alias("cuMemPoolDestroy", "cudaMemPoolDestroy"))]
    pub fn close(self) -> Result<(), Rejected<Self>> {
        owned::close(self.0).map_err(|rejected| rejected.map(Self))
    }
}

/// # As an allocator
impl MemoryPool {
    /// Returns the pool as an allocator for [`with_allocator`](crate::with_allocator) or
    /// [`Device::set_allocator`](crate::Device::set_allocator). [`Stream::alloc`] then allocates from the
    /// pool, on the pool's device only.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let pool = cuda_core::MemoryPool::builder(device).build()?;
    /// device.set_allocator(Some(&pool.allocator()))?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn allocator(&self) -> Allocator {
        Allocator(Choice::Memory(self.clone()))
    }

    /// Calls `cuMemAllocFromPoolAsync`; returns the address, and the point of the stream from which on the
    /// memory may be used.
    pub(crate) fn allocate_on(
        &self,
        core: &Arc<StreamCore>,
        bytes: usize,
    ) -> Result<(CUdeviceptr, u64)> {
        let op = "cuMemAllocFromPoolAsync";
        core.device().require_same(op, self.device())?;
        let raw = self.live()?;
        self.can_allocate(op)?;
        stream_ordered::enqueue(core.bind(op)?, op, bytes, |address, stream| {
            // SAFETY: the call writes one address, to an exclusive borrow; `self` keeps the pool
            // alive, and the stream is live while it is bound.
            unsafe { cu::cuMemAllocFromPoolAsync(address, bytes, raw, stream) }
        })
    }
}

// SAFETY: memory of a pool of the stream's device, aligned to 256 bytes as all of CUDA's is, which may
// be used in stream order; the pool lives as long as the allocator that owns this reference.
unsafe impl DeviceAllocator for MemoryPool {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
        self.allocate_on(stream.core(), bytes).map(|(address, _)| address)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: CUdeviceptr, bytes: usize) -> Result<()> {
        // SAFETY: a pool's memory is freed by the call that frees the default pool's, under the same
        // conditions.
        unsafe { DriverPool.deallocate(stream, address, bytes) }
    }

    fn trim(&self, keep: usize) -> Result<usize> {
        MemoryPool::trim(self, keep)
    }

    fn name(&self) -> &str {
        "memory pool"
    }
}

// Equal if they are the same pool of the driver.
compare_by! { MemoryPool: |it| it.as_raw() }

debug_by! {
   [] MemoryPool: |it| "MemoryPool" { handle: it.as_raw(), kind: it.0.kind, device: it.device() }
}
