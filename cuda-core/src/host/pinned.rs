//! Pinned host memory, which devices read and write asynchronously.

use std::ptr::{self, NonNull};

use cuda_sys::{
    CU_MEMHOSTALLOC_PORTABLE as PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED, CUdeviceptr, symbol as cu,
};

use crate::context::Context;
use crate::device::limits::has_host_addresses;
use crate::error::{OutOfHostMemory, Result};
use crate::host::pinned_pool::{PinnedChunk, PinnedPool};
use crate::host::{pin_gate, pinning};
use crate::memory::{self, Block, Buffer, Slice, SliceMut, Storage, byte_len};
use crate::process::{Failed, RelaxedCaptureMode, deferred, driver, released};
use crate::timeline::ledger::InGraphs;
use crate::types::{Pod, Resource};

/// Pinned memory of the host, as a kind of memory.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// use cuda_core::{Buffer, PinnedBuffer, PinnedMemory};
///
/// let buffer: Buffer<f32, PinnedMemory> = PinnedBuffer::new(&context, 100)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub enum PinnedMemory {}

/// A shared view of a [`PinnedBuffer`].
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// use cuda_core::{PinnedBuffer, PinnedSlice, Result};
///
/// fn sum(values: PinnedSlice<'_, f32>) -> Result<f32> {
///     Ok(values.as_slice()?.iter().sum()) // waits for the copies that write it
/// }
/// let host = PinnedBuffer::from_slice(&context, &[1.0; 100])?;
/// assert_eq!(sum(host.slice(..50)?)?, 50.0);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub type PinnedSlice<'a, T> = Slice<'a, T, PinnedMemory>;

/// An exclusive view of a [`PinnedBuffer`].
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let stream = context.create_stream()?;
/// use cuda_core::PinnedBuffer;
///
/// let mut host = PinnedBuffer::zeroed(&context, 100)?;
/// let mut buffer = stream.alloc(50)?;
/// let (mut low, mut high) = host.split_at_mut(50)?;
/// high.as_mut_slice()?.fill(1u32);
/// stream.upload(high.as_view(), &mut buffer)?;
/// low.as_mut_slice()?.fill(2); // need not wait: the copy reads the other half
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub type PinnedSliceMut<'a, T> = SliceMut<'a, T, PinnedMemory>;

/// Alignment of every pinned allocation: "always aligned to at least 256 bytes". Small allocations
/// share a page, so their alignment is not greater.
const ALIGNMENT: usize = 256;

/// The address of empty buffers: not null, and aligned for every element type that a buffer accepts.
const NOWHERE: HostAddress = {
    #[repr(align(256))]
    struct Aligned;
    assert!(align_of::<Aligned>() == ALIGNMENT);
    HostAddress(NonNull::<Aligned>::dangling().cast())
};

/// An address of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HostAddress(pub(crate) NonNull<u8>);

// SAFETY: an address; the ledger and the borrows of its buffer govern access to the memory.
unsafe impl Send for HostAddress {}
// SAFETY: a shared reference only gives out the address; the ledger and the borrows govern access to
// the memory.
unsafe impl Sync for HostAddress {}

/// The owner that keeps a block of pinned memory allocated and pinned.
pub(crate) enum PinnedBacking {
    /// Allocated by `cuMemHostAlloc` in this context, or empty.
    Allocated(Context),
    /// Portable memory, usually part of a slab of the pool, requested in this context.
    Cached(Context, PinnedChunk, PinnedPool),
    /// Registered by `cuMemHostRegister` in this context; the [`Registered`](crate::Registered) value
    /// owns the memory.
    Registered(Context),
}

impl memory::MemoryKind for PinnedMemory {
    type Address = HostAddress;
    type Backing = PinnedBacking;

    const RESOURCE: Resource = Resource::PinnedMemory;
    const NOWHERE: HostAddress = NOWHERE;

    fn free(block: &mut Block<Self>) -> Result<(), Failed> {
        let fences = block.ledger.last_uses(&block.whole());
        match &block.backing {
            PinnedBacking::Cached(_, chunk, pool) => pool.slabs().give(*chunk, fences),
            PinnedBacking::Allocated(_) => {
                fences.wait_host()?;
                // SAFETY: allocated by `alloc_raw`, by the backing; freed once, after the wait for its
                // last work.
                unsafe { free_raw(block.address) }
            }
            PinnedBacking::Registered(context) => {
                fences.wait_host()?;
                pin_gate::without_copies(block.address.0.addr().get(), block.bytes, || {
                    // SAFETY: registered by `pin`, by the backing; unregistered once, after the wait
                    // for its last work.
                    unsafe { pinning::unpin(context, block.address) }
                })
            }
        }
    }

    fn frees_by_waiting(block: &Block<Self>) -> bool {
        !matches!(&block.backing, PinnedBacking::Cached(_, chunk, _) if chunk.is_cached())
    }

    #[inline]
    fn in_graphs(_block: &Block<Self>) -> InGraphs {
        InGraphs::Lent
    }

    fn context_of(backing: &PinnedBacking) -> &Context {
        use PinnedBacking::{Allocated, Cached, Registered};
        let (Allocated(of) | Cached(of, ..) | Registered(of)) = backing;
        of
    }

    fn number(address: HostAddress) -> u64 {
        address.0.addr().get() as u64
    }
}

impl memory::Located for PinnedMemory {
    #[inline]
    fn place(block: &Block<Self>, offset: usize) -> memory::Place {
        memory::Place::Host(block.address.0.as_ptr().wrapping_add(offset))
    }
}

/// Calls `cuMemFreeHost`, which waits for the device.
///
/// # Safety
/// The address came from [`alloc_raw`], the caller gives it up, and no work uses the memory.
pub(crate) unsafe fn free_raw(address: HostAddress) -> Result<(), Failed> {
    deferred::hand_over();
    let _relaxed = RelaxedCaptureMode::enter()?;
    // SAFETY: by the caller's promise. Needs no current context.
    released("cuMemFreeHost", unsafe { cu::cuMemFreeHost(address.0.as_ptr().cast()) })
}

/// Calls `cuMemHostAlloc` with these flags and `PORTABLE`. `bytes` is not zero.
pub(crate) fn alloc_raw(context: &Context, bytes: usize, flags: u32) -> Result<HostAddress> {
    let op = "cuMemHostAlloc";
    let raw = context.call(op, ptr::null_mut(), |raw| {
        // SAFETY: the call writes one pointer, to an exclusive borrow; a live context is current.
        unsafe { cu::cuMemHostAlloc(raw, bytes, PORTABLE | flags) }
    });
    match raw.map(|raw| NonNull::new(raw.cast::<u8>())) {
        Ok(Some(address)) => Ok(HostAddress(address)),
        Err(error) if !error.is_out_of_memory() => Err(error),
        _ => Err(OutOfHostMemory { op, requested: bytes }.into()),
    }
}

/// A buffer in pinned host memory, which copies of every device use at full speed whatever its context,
/// or in memory that is [registered](crate::Registered).
///
/// Copies between it and a device run asynchronously and at full speed. Before the host reads the
/// elements, it waits for the copies that write them; before it writes them, for all copies that use
/// them.
///
/// # Where the memory comes from
/// A buffer is part of a slab: memory of the process in huge pages, near the
/// device if the system reports its NUMA node, registered once (`cuMemHostRegister`). Dropping the
/// buffer makes no driver call and does not block. As soon as the copies that use the memory are done,
/// a buffer of about the same size in any context can reuse it. Allocating it again makes no driver
/// call if the copies are known to be done. A [`PinnedPool`] counts, limits and returns the memory that
/// is kept: the shared pool, or one of the program's own, which has its own slabs. If no slab can be
/// mapped or registered, the driver allocates one; with
/// [`PinnedBackend::Driver`](crate::pinned::PinnedBackend) it allocates each buffer.
///
/// The driver also allocates each [write-combined](PinnedBuffer::write_combined) buffer.
///
/// With unified addressing, as on every 64-bit system, all pinned memory is portable and mapped: copies of
/// every device use it at full speed, and kernels access it in place.
///
/// [`Buffer`] documents what every buffer has, such as `len`, `slice`, `chunks` and `ready`.
///
/// ```no_run
/// use cuda_core::{Device, PinnedBuffer};
///
/// let stream = Device::get(0)?.create_stream()?;
/// let source = PinnedBuffer::from_slice(stream.context(), &[1u32, 2, 3])?;
/// let mut target = PinnedBuffer::new(stream.context(), 3)?;
/// let mut buffer = stream.alloc(3)?;
/// stream.upload(&source, &mut buffer)?; // returns at once
/// stream.download(&buffer, &mut target)?; // so does this
/// assert_eq!(target.as_slice()?, [1, 2, 3]); // waits
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("LockedBuffer", "PinnedHostSlice", "alloc_pinned_memory"))]
pub type PinnedBuffer<T> = Buffer<T, PinnedMemory>;

/// # Pinned memory
impl<T: Pod> PinnedBuffer<T> {
    /// Allocates `len` elements of unspecified value, possibly left by an earlier buffer of the
    /// process. No driver call if `len` is zero, or if memory of about this size was used before and is
    /// idle.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`](crate::Error::SizeOverflow) and [`Error::Invalid`](crate::Error::Invalid),
    /// before any driver call;
    /// [`Error::OutOfHostMemory`](crate::Error::OutOfHostMemory).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::PinnedBuffer;
    ///
    /// let mut host = PinnedBuffer::<f32>::new(stream.context(), 1000)?;
    /// host.as_mut_slice()?.fill(1.0);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemHostAlloc", "cudaMallocHost", "cudaHostAlloc", "alloc_pinned"))]
    pub fn new(context: &Context, len: usize) -> Result<Self> {
        PinnedPool::shared().alloc(context, len)
    }

    /// Allocates `len` elements that the host writes around its caches: `cuMemHostAlloc` with
    /// `CU_MEMHOSTALLOC_WRITECOMBINED`. Copies to a device are then faster on some systems, and reading by
    /// the host is slow on all.
    ///
    /// The driver allocates each such buffer. Dropping it waits for the copies that use it, then calls
    /// `cuMemFreeHost`.
    ///
    /// # Errors
    /// Those of [`PinnedBuffer::new`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::PinnedBuffer;
    ///
    /// // The host only writes it, and devices read it in place.
    /// let mut commands = PinnedBuffer::<u32>::write_combined(&context, 1024)?;
    /// commands.as_mut_slice()?.fill(0);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemHostAlloc", "cudaMallocHost", "cudaHostAlloc"))]
    pub fn write_combined(context: &Context, len: usize) -> Result<Self> {
        Self::allocated(context, len, |bytes| {
            let address = alloc_raw(context, bytes, CU_MEMHOSTALLOC_WRITECOMBINED)?;
            Ok((address, PinnedBacking::Allocated(context.clone())))
        })
    }

    /// Creates a buffer in memory from `allocate`, which is not called for zero bytes.
    #[inline]
    pub(super) fn allocated(
        context: &Context,
        len: usize,
        allocate: impl FnOnce(usize) -> Result<(HostAddress, PinnedBacking)>,
    ) -> Result<Self> {
        driver::ensure()?;
        let bytes = byte_len::<T>(len, ALIGNMENT)?;
        let (address, backing) = match bytes {
            0 => (NOWHERE, PinnedBacking::Allocated(context.clone())),
            _ => allocate(bytes)?,
        };
        Ok(Self::from_storage(Storage::new(Block::unused(address, bytes, backing)), len))
    }

    /// Allocates a buffer with a copy of `elements`.
    ///
    /// # Errors
    /// As [`PinnedBuffer::new`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::PinnedBuffer;
    ///
    /// let host = PinnedBuffer::from_slice(stream.context(), &[1.0f32, 2.0])?;
    /// let mut buffer = stream.alloc(2)?;
    /// stream.upload(&host, &mut buffer)?; // returns at once
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cudaMallocHost", "cudaHostAlloc", "cuMemHostAlloc"))]
    pub fn from_slice(context: &Context, elements: &[T]) -> Result<Self> {
        let mut buffer = Self::new(context, elements.len())?;
        buffer.as_mut_slice()?.copy_from_slice(elements);
        Ok(buffer)
    }

    /// Allocates `len` elements whose bytes are all zero.
    ///
    /// # Errors
    /// As [`PinnedBuffer::new`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::PinnedBuffer;
    ///
    /// assert_eq!(PinnedBuffer::<u32>::zeroed(&context, 2)?.as_slice()?, [0, 0]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cudaMallocHost", "cudaHostAlloc", "cuMemHostAlloc"))]
    pub fn zeroed(context: &Context, len: usize) -> Result<Self> {
        let buffer = Self::new(context, len)?;
        let block = buffer.storage.block();
        // SAFETY: the block is new and owned, so no other code accesses these bytes, and it has
        // this size; an empty one writes nothing.
        unsafe { ptr::write_bytes(block.address.0.as_ptr(), 0, block.bytes) };
        Ok(buffer)
    }

    /// Waits for the copies that write the elements, and returns the elements. Also waits for all other
    /// work that the streams of those copies have by now, unless a
    /// [checkpoint](crate::Stream::checkpoint), or an [event](crate::Event) that was waited for,
    /// follows the copies.
    ///
    /// # Errors
    /// The driver's errors about those copies; [`Error::InCallback`](crate::Error::InCallback) in a host
    /// function, unless the copies are known to be done;
    /// [`Error::NotCapturable`](crate::Error::NotCapturable) while such a copy is being captured.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::PinnedBuffer;
    ///
    /// let buffer = stream.alloc_zeroed::<u32>(3)?;
    /// let mut host = PinnedBuffer::new(stream.context(), 3)?;
    /// stream.download(&buffer, &mut host)?; // returns at once
    /// assert_eq!(host.as_slice()?, [0, 0, 0]); // waits for the download
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn as_slice(&self) -> Result<&[T]> {
        self.as_view().as_slice()
    }

    /// Returns the elements, or [`None`] while copies that write them are pending.
    ///
    /// # Errors
    /// As [`as_slice`](Self::as_slice).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::PinnedBuffer;
    ///
    /// let mut host = PinnedBuffer::<u32>::zeroed(stream.context(), 1 << 20)?;
    /// stream.download(&stream.alloc_zeroed(1 << 20)?, &mut host)?;
    /// match host.try_as_slice()? {
    ///     Some(elements) => println!("{} are here", elements.len()),
    ///     None => println!("not yet"),
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn try_as_slice(&self) -> Result<Option<&[T]>> {
        self.as_view().try_as_slice()
    }

    /// Waits for all copies that use the elements, and returns the elements for writing. Waits for as
    /// much of each stream as [`as_slice`](Self::as_slice) does.
    ///
    /// # Errors
    /// As [`as_slice`](Self::as_slice).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let mut host = cuda_core::PinnedBuffer::zeroed(&context, 2)?;
    /// let mut buffer = stream.alloc(2)?;
    /// host.as_mut_slice()?.copy_from_slice(&[1u32, 2]);
    /// stream.upload(&host, &mut buffer)?;
    /// host.as_mut_slice()?[0] = 3; // waits for the upload, which read 1
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.as_view_mut().into_mut_slice()
    }

    /// Returns the address by which devices access the first element, for kernels that read or write
    /// the memory in place: `cuMemHostGetDevicePointer_v2`. Zero for an empty buffer.
    ///
    /// On a device whose
    /// [`can_use_host_pointer_for_registered_mem`](crate::DeviceAttributes::can_use_host_pointer_for_registered_mem)
    /// holds, this is the address of [`as_slice`](PinnedBuffer::as_slice), without a driver call. For
    /// [write-combined](PinnedBuffer::write_combined) and registered memory, and on other devices, each call
    /// enters the context and calls the driver.
    ///
    /// The buffer does not know of work that uses the address: see
    /// [`note_use`](crate::Buffer::note_use).
    ///
    /// # Errors
    /// The driver's, among them `INVALID_VALUE` for registered memory that is not mapped.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let host = cuda_core::PinnedBuffer::<u32>::new(&context, 64)?;
    /// println!("devices find it at {:#x}", host.device_ptr()?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemHostGetDevicePointer", "cudaHostGetDevicePointer"))]
    pub fn device_ptr(&self) -> Result<CUdeviceptr> {
        device_ptr_of(self.storage.block(), self.context())
    }
}

/// Returns the address by which devices of the context access the memory; zero if the block is empty.
pub(crate) fn device_ptr_of(block: &Block<PinnedMemory>, context: &Context) -> Result<CUdeviceptr> {
    if block.bytes == 0 {
        driver::ensure()?;
        return Ok(0);
    }
    driver::ensure_not_gone()?;
    let host = block.address.0.as_ptr();
    // Memory that is not write-combined, and accessible from every context.
    let plain = matches!(block.backing, PinnedBacking::Cached(..));
    if plain && has_host_addresses(context.device())? {
        return Ok(host.addr() as CUdeviceptr);
    }
    context.ask("cuMemHostGetDevicePointer", 0, |address| {
        // SAFETY: the call writes one address, to an exclusive borrow; the memory is pinned; flags
        // must be zero.
        unsafe { cu::cuMemHostGetDevicePointer_v2(address, host.cast(), 0) }
    })
}
