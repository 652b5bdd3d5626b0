//! Stream-ordered allocation: `Stream::alloc`, and freeing.

use std::borrow::Cow;
use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use crate::alloc::caching::builder::SHARED;
use crate::alloc::caching::pool::shared;
use crate::alloc::driver_pool::stream_ordered;
use crate::alloc::{Allocator, Choice, DeviceBacking, MemoryPool, caching, choice, custom};
use crate::context::{Confined, Context};
use crate::device::Device;
use crate::error::Result;
use crate::memory::{
    self, ALIGNMENT, Block, Buffer, DeviceBuffer, DeviceMemory, DeviceSlice, DeviceSliceMut,
    NOWHERE, Storage, byte_len,
};
use crate::process::{Failed, driver};
use crate::stream::Stream;
use crate::timeline::StreamCore;
use crate::timeline::ledger::{Access, Fences, InGraphs, Ledger};
use crate::types::{Pod, Resource};
use crate::wait::when_all_reached;

impl memory::MemoryKind for DeviceMemory {
    type Address = CUdeviceptr;
    type Backing = DeviceBacking;

    const RESOURCE: Resource = Resource::DeviceMemory;
    const NOWHERE: CUdeviceptr = NOWHERE;

    fn free(block: &mut Block<Self>) -> Result<(), Failed> {
        let range = block.whole();
        let home = block.backing.home().map(|home| &**home.timeline());
        let mut fences = block.ledger.conflicts(&range, Access::Write, home);
        match &mut block.backing {
            DeviceBacking::Cached(home) => {
                // SAFETY: a block is freed once, and not used afterwards; this cannot fail.
                unsafe { caching::free(block.address, home, fences) };
                Ok(())
            }
            DeviceBacking::Home(home) => free_in_order(home, block.address, &fences),
            // SAFETY: `Stream::alloc` allocated the block on this stream with this allocator; a block
            // is freed once.
            DeviceBacking::Served { home, allocator } => unsafe {
                custom::free(allocator, home, block.address, block.bytes, &fences)
            },
            DeviceBacking::Owned { owner, .. } if owner.traits().freed_by_work => Ok(()),
            DeviceBacking::Owned { owner, .. } => {
                owner.given_at().into_iter().for_each(|point| fences.forget(point));
                match owner.home().filter(|_| !fences.is_empty()) {
                    Some(home) => fences.wait_on_or_host(&home.bind("cuStreamWaitEvent")?)?,
                    None => fences.wait_host()?,
                }
                owner.release(block.address)
            }
        }
    }

    fn frees_by_waiting(block: &Block<Self>) -> bool {
        match &block.backing {
            DeviceBacking::Cached(_) | DeviceBacking::Home(_) => false,
            DeviceBacking::Served { .. } => true,
            DeviceBacking::Owned { owner, .. } => !owner.traits().freed_by_work,
        }
    }

    fn waits_for_others(block: &Block<Self>) -> bool {
        block.backing.traits().waits_for_others
    }

    fn free_by(block: Block<Self>, free: fn(Block<Self>, Result<()>)) {
        let mut uses = Fences::none();
        if let DeviceBacking::Owned { owner, .. } = &block.backing {
            if !owner.traits().freed_by_work {
                uses = block.ledger.last_uses(&block.whole());
                owner.given_at().into_iter().for_each(|point| uses.forget(point));
            }
        }
        when_all_reached(&uses, Box::new(move |done| free(block, done)));
    }

    #[inline]
    fn recycle(block: &mut Block<Self>) -> bool {
        let DeviceBacking::Cached(home) = &mut block.backing else { return false };
        let Some(timeline) = block.ledger.take_sole(home.core.timeline()) else { return false };
        // SAFETY: a block is freed once, and not used afterwards.
        unsafe { caching::recycle(block.address, home, timeline) };
        true
    }

    fn context_of(backing: &DeviceBacking) -> &Context {
        backing.context()
    }

    /// A graph is lent managed memory at each launch, and keeps other memory.
    #[inline]
    fn in_graphs(block: &Block<Self>) -> InGraphs {
        if block.backing.traits().visible_to_the_host { InGraphs::Lent } else { InGraphs::Kept }
    }

    fn number(address: CUdeviceptr) -> u64 {
        address
    }
}

impl memory::Located for DeviceMemory {
    #[inline]
    fn place(block: &Block<Self>, offset: usize) -> memory::Place {
        memory::Place::Device(block.address + offset as CUdeviceptr)
    }

    #[cold]
    fn is_everywhere(block: &Block<Self>) -> bool {
        block.backing.traits().everywhere
    }

    #[inline]
    fn confined_to(block: &Block<Self>) -> Option<Confined> {
        match &block.backing {
            // Memory of a graph, which allocates it in a pool.
            DeviceBacking::Owned { owner, context } if owner.traits().freed_by_work => {
                Some(Confined::to_device(context.device()))
            }
            // Managed, virtual, or shared in some other way: `is_closed_to` asks its owner.
            DeviceBacking::Owned { owner, .. } if !owner.traits().in_the_context => None,
            origin if origin.is_in_the_context() => Some(Confined::to_context(origin.context())),
            origin => Some(Confined::to_device(origin.device())),
        }
    }

    #[cold]
    fn is_closed_to(block: &Block<Self>, device: Device, access: Access) -> bool {
        matches!(&block.backing, DeviceBacking::Owned { owner, .. } if !owner.is_open_to(device, access))
    }
}

/// Frees the block with `cuMemFreeAsync` on its home stream, after the work of all other streams.
fn free_in_order(home: &StreamCore, address: CUdeviceptr, fences: &Fences) -> Result<(), Failed> {
    let bound = home.bind("cuMemFreeAsync")?;
    fences.wait_on_or_host(&bound)?;
    // SAFETY: the block was allocated by cuMemAllocAsync and is freed once; all other work on it
    // comes before this point of the stream.
    unsafe { stream_ordered::free(&bound, address) }
}

/// Returns the stream to allocate on for operations on `core`: another stream, if `core` is being
/// captured.
fn home_of(core: &Arc<StreamCore>) -> Result<Cow<'_, Arc<StreamCore>>> {
    let Some(recording) = core.timeline().recording() else { return Ok(Cow::Borrowed(core)) };
    let create = || Ok(core.context().create_stream()?.core().clone());
    recording.home(core.context(), create).map(Cow::Owned)
}

/// Returns a block of zero bytes, which needs no freeing.
fn empty(core: &Arc<StreamCore>) -> Block<DeviceMemory> {
    Block::unused(NOWHERE, 0, DeviceBacking::Home(core.clone()))
}

/// Allocates a block from the allocator that applies to this call.
#[inline(never)]
fn allocate(core: &Arc<StreamCore>, bytes: usize) -> Result<Block<DeviceMemory>> {
    core.ensure()?;
    if bytes == 0 {
        return Ok(empty(core));
    }
    if let Some(block) = choice::pool().and_then(|pool| caching::find(pool, core, bytes)) {
        return Ok(block);
    }
    allocate_from(&choice::current(core.device())?, core, bytes)
}

/// Allocates `bytes` in the order of the stream, whose own bins have no such block.
fn allocate_from(
    allocator: &Allocator,
    core: &Arc<StreamCore>,
    bytes: usize,
) -> Result<Block<DeviceMemory>> {
    core.ensure()?;
    if bytes == 0 {
        return Ok(empty(core));
    }
    if core.timeline().recording().is_some() {
        return allocate_from(allocator, &*home_of(core)?, bytes);
    }
    let in_order = |(address, seq)| {
        // Other streams may use the memory only after the allocation.
        let ledger = Ledger::after(0..bytes, core.timeline().at(seq));
        (address, ledger, DeviceBacking::Home(core.clone()))
    };
    let (address, ledger, backing) = match &allocator.0 {
        Choice::Shared => return caching::allocate(shared()?, core, bytes),
        Choice::Pool(pool) => return caching::allocate(pool, core, bytes),
        Choice::Driver => in_order(stream_ordered::allocate(core, bytes)?),
        Choice::Memory(pool) => in_order(pool.allocate_on(core, bytes)?),
        Choice::Plain | Choice::Custom(_) => {
            let (address, ledger) = custom::allocate(allocator, core, bytes)?;
            let (home, allocator) = (core.clone(), allocator.clone());
            (address, ledger, DeviceBacking::Served { home, allocator })
        }
    };
    Ok(Block { address, bytes, ledger, backing })
}

/// # Allocating
impl Stream {
    /// Allocates `len` elements of unspecified value from the process's
    /// [caching pool](crate::CachingPool::shared). No driver call if the pool has a free block for the
    /// stream.
    ///
    /// [Another allocator](crate::Allocator) can be made the default of the process, of a device or of
    /// a [scope](crate::with_allocator); the driver's own pool takes one call, `cuMemAllocAsync`. If
    /// `len` is zero, no allocator is called. If the device has too little memory left, the caching
    /// pool waits for work that uses freed blocks before it gives up.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`](crate::Error::SizeOverflow) and
    /// [`Error::Invalid`](crate::Error::Invalid), before any allocator is called; the allocator's,
    /// including [`Error::PoolExhausted`](crate::Error::PoolExhausted).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// match stream.alloc::<f32>(1 << 40) {
    ///     Ok(buffer) => println!("{} bytes", buffer.byte_len()),
    ///     Err(error) if error.is_out_of_memory() => eprintln!("{error}"), // says how much there is
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    // Inlined, so that a block from the cache is moved directly to its destination.
    #[doc(alias("cuMemAllocAsync", "cudaMalloc", "cudaMallocAsync"))]
    #[inline(always)]
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let bytes = byte_len::<T>(len, ALIGNMENT)?;
        if driver::is_ready() && choice::is_cache() {
            if let Some(block) = caching::find(SHARED, self.core(), bytes) {
                return Ok(Buffer::from_storage(Storage::new(block), len));
            }
            let block = allocate_from(&Allocator::cache(), self.core(), bytes)?;
            return Ok(Buffer::from_storage(Storage::new(block), len));
        }
        let block = allocate(self.core(), bytes)?;
        Ok(Buffer::from_storage(Storage::new(block), len))
    }

    /// [`Stream::alloc`] from the given allocator.
    ///
    /// # Errors
    /// As [`Stream::alloc`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::{Allocator, CachingPool};
    ///
    /// let pool = CachingPool::new(); // beside the process's own
    /// let scratch = stream.alloc_with::<u8>(&pool.allocator(), 1 << 20)?;
    /// let plain = stream.alloc_with::<u8>(&Allocator::plain(), 1 << 20)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemAllocFromPoolAsync", "cudaMallocFromPoolAsync"))]
    #[inline]
    pub fn alloc_with<T: Pod>(&self, allocator: &Allocator, len: usize) -> Result<DeviceBuffer<T>> {
        let bytes = byte_len::<T>(len, ALIGNMENT)?;
        if driver::is_ready() {
            let pool = allocator.pool();
            if let Some(block) = pool.and_then(|pool| caching::find(pool, self.core(), bytes)) {
                return Ok(Buffer::from_storage(Storage::new(block), len));
            }
        }
        let block = allocate_from(allocator, self.core(), bytes)?;
        Ok(Buffer::from_storage(Storage::new(block), len))
    }

    /// Allocates `len` elements whose bytes are all zero: [`Stream::alloc`], `cuMemsetD8Async`.
    ///
    /// # Errors
    /// As [`Stream::alloc`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let counts = stream.alloc_zeroed::<u32>(3)?;
    /// let mut back = [1; 3];
    /// stream.download(&counts, &mut back)?;
    /// assert_eq!(back, [0; 3]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemsetD8Async", "cudaMemset", "cudaMemsetAsync"))]
    #[doc(alias("alloc_zeros", "zeros"))]
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.alloc(len)?;
        self.fill_bytes(&mut buffer, 0)?;
        Ok(buffer)
    }

    /// Allocates `len` elements of unspecified value from `pool`: `cuMemAllocFromPoolAsync`, one driver
    /// call. The same as [`alloc_with`](Self::alloc_with) with the
    /// [pool's allocator](MemoryPool::allocator); of no elements, nothing is checked.
    ///
    /// # Errors
    /// Those of [`Stream::alloc`]; [`Error::WrongDevice`](crate::Error::WrongDevice) for a pool of
    /// another device; [`Error::Invalid`](crate::Error::Invalid) for an imported pool.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let stream = device.create_stream()?;
    /// let pool = cuda_core::MemoryPool::builder(device).build()?;
    /// let mut buffer = stream.alloc_from::<f32>(&pool, 1000)?;
    /// stream.fill(&mut buffer, 1.0)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemAllocFromPoolAsync", "cudaMallocFromPoolAsync"))]
    pub fn alloc_from<T: Pod>(&self, pool: &MemoryPool, len: usize) -> Result<DeviceBuffer<T>> {
        self.alloc_with(&pool.allocator(), len)
    }
}

/// # The address, and the stream
impl<T: Pod, X> Buffer<T, DeviceMemory, X> {
    /// Returns the device address of the first element, valid while `self` lives. For an empty buffer
    /// it is not null, but meaningless. The host accesses managed memory at the same address.
    ///
    /// No driver call, and it cannot fail. Pinned memory has a separate device address, which only the
    /// driver knows: [`PinnedBuffer::device_ptr`](crate::PinnedBuffer::device_ptr).
    ///
    /// The buffer does not know of work that uses the address: see [`Buffer::note_use`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let buffer = stream.alloc_zeroed::<f32>(1000)?;
    /// println!("at {:#x}", buffer.as_raw()); // for calls of another library
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("device_ptr"))]
    pub fn as_raw(&self) -> CUdeviceptr {
        self.storage.block().address
    }

    /// Returns a handle of the stream on which the memory was allocated, and in whose order it is
    /// freed; [`None`] for memory of no stream, such as that of
    /// [`Context::alloc`](crate::Context::alloc). Other streams may use the memory:
    /// [`ready`](Self::ready) waits for all of them.
    ///
    /// ```no_run
    /// use cuda_core::{DeviceBuffer, Result};
    ///
    /// fn doubled(x: &DeviceBuffer<f32>) -> Result<DeviceBuffer<f32>> {
    ///     let stream = x.home_stream().map_or_else(|| x.context().create_stream(), Ok)?;
    ///     stream.copy_new(x) // and a kernel
    /// }
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// assert_eq!(doubled(&stream.alloc(100)?)?.home_stream(), Some(stream));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn home_stream(&self) -> Option<Stream> {
        // Streams confined to one thread allocate nothing.
        self.storage.block().backing.home().cloned().map(Stream::new)
    }
}

impl<T: Pod> DeviceSlice<'_, T> {
    /// Returns the device address of the first element.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.block().address + self.range().start as CUdeviceptr
    }
}

impl<T: Pod> DeviceSliceMut<'_, T> {
    /// Returns the device address of the first element.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.as_view().as_raw()
    }
}
