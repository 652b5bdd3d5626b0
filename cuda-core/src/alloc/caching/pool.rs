//! Caching pools: the shared one, and those that a program creates.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use cuda_sys::CUdeviceptr;

use super::builder::{CachingPoolBuilder, SHARED, Settings, numbered};
use super::heap::{ALL, Heap, LOOKED_AT};
use super::limit::PoolLimit;
use super::space::Rest;
use super::{class, growth};
use crate::alloc::{Allocator, Choice, DeviceAllocator, trim_all};
use crate::context::{Context, kept};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::process::{Failed, driver};
use crate::stream::Stream;
use crate::timeline::StreamCore;
use crate::types::PoolUsage;
use crate::util::{compare_by, debug_by, lock, setting};

/// A pool of device memory that cuts blocks from its own segments, and keeps freed blocks for reuse.
///
/// The process has a shared pool, [`CachingPool::shared`], which [`Stream::alloc`] uses unless
/// [another allocator](crate::set_default_allocator) was chosen. Other pools keep their memory apart from it.
/// A clone is a reference. An allocated buffer stays valid when its pool is gone.
///
/// Each stream caches the blocks that were freed on it, separately for each pool. [`Stream::alloc`] and
/// [`Stream::alloc_with`] reuse them without a driver call and without a lock that other streams need,
/// whichever thread freed them. Used through an [adaptor](crate::adaptors) or called as a
/// [`DeviceAllocator`], a pool has one lock for each context.
///
/// A freed block is reused on its own stream at once. Another stream reuses it only when the work on it is
/// known to be complete: a large block from then on, a small one only when the device has no more memory.
/// While the device has memory, nothing waits. When it has none, the pool gives segments back, makes streams
/// wait for each other, and as the last resort blocks the calling thread.
///
/// A pool that a program creates keeps alive the contexts in which it was asked for memory. When the last
/// reference to the pool is gone, its memory is freed as soon as the work on it is done: at once if the work
/// is known to be done, else on a thread of this crate. `cuMemFree` frees the memory, and waits for other
/// work of the device.
///
/// ```no_run
/// use cuda_core::{CachingPool, Device, pools::PoolLimit};
///
/// let device = Device::get(0)?;
/// let stream = device.create_stream()?;
/// let pool = CachingPool::builder().limit(PoolLimit::Bytes(1 << 30)).build()?;
/// let buffer = stream.alloc_with::<f32>(&pool.allocator(), 1 << 20)?;
/// assert_eq!(pool.usage(device).used, 4 << 20);
/// drop(buffer);
/// assert_eq!(pool.usage(device).free, pool.usage(device).reserved);
/// pool.trim(0)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
pub struct CachingPool(Arc<CachingPoolInner>);

struct CachingPoolInner {
    settings: Arc<Settings>,
    heaps: Mutex<Vec<ContextHeap>>,
}

/// The heap of one context, keyed by the address of the `Context`'s inner value.
struct ContextHeap {
    context: usize,
    device: Device,
    heap: Weak<Heap>,
    /// Keeps the heap alive, unless that would keep alive a context that is destroyed with its last
    /// reference.
    _kept: Option<Arc<Heap>>,
}

/// The environment variable that sets the shared pool's limit.
const LIMIT: &str = "CUDA_CORE_POOL_LIMIT";

/// The shared pool.
pub(crate) fn shared() -> Result<&'static CachingPool> {
    static POOL: OnceLock<Result<CachingPool>> = OnceLock::new();
    // In a fork's child, a thread that does not exist there may have been initializing it.
    if let Err(error) = driver::ensure_not_gone() {
        return POOL.get().ok_or(error)?.as_ref().map_err(Error::clone);
    }
    let make = || {
        let mut builder = CachingPool::builder();
        if let Some(limit) = setting(LIMIT) {
            builder = builder.limit(PoolLimit::parse(LIMIT, &limit)?);
        }
        let _ = kept::POOL.set(forget_reached);
        Ok(CachingPool::of(builder.into_settings(SHARED)))
    };
    POOL.get_or_init(make).as_ref().map_err(Error::clone)
}

/// See [`kept::POOL`].
fn forget_reached() {
    let heaps = shared().map(|pool| pool.heaps(|_| true)).unwrap_or_default();
    heaps.iter().for_each(|heap| heap.with(|state| state.reclaim(ALL)));
}

/// # Using it
impl CachingPool {
    /// Creates a pool without a limit that takes its segments from `cuMemAlloc`. Makes no driver call.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::CachingPool;
    ///
    /// let pool = CachingPool::new();
    /// let scratch = stream.alloc_with::<f32>(&pool.allocator(), 1 << 20)?;
    /// println!("{} bytes in use", pool.usage(stream.device()).used);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemAlloc", "cudaMalloc"))]
    pub fn new() -> Self {
        Self::of(Self::builder().into_settings(numbered()))
    }

    /// Options of a new pool.
    pub fn builder() -> CachingPoolBuilder {
        CachingPoolBuilder::new()
    }

    /// The shared pool, which is the default allocator. Its limit is `CUDA_CORE_POOL_LIMIT`, bytes
    /// or a percentage as in [`PoolLimit`], until [`set_limit`](Self::set_limit) replaces it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the environment variable holds anything else; then every allocation
    /// from this pool fails with the same error.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let before = cuda_core::CachingPool::shared()?.usage(stream.device()).allocations;
    /// let buffer = stream.alloc::<f32>(1000)?; // comes from there, unless another is the default
    /// let after = cuda_core::CachingPool::shared()?.usage(stream.device()).allocations;
    /// assert_eq!(after, before + 1);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("get_default_memory_pool"))]
    pub fn shared() -> Result<Self> {
        shared().cloned()
    }

    pub(super) fn of(settings: Settings) -> Self {
        Self(Arc::new(CachingPoolInner { settings: Arc::new(settings), heaps: Mutex::default() }))
    }

    /// The id by which streams file the pool's blocks.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.0.settings.pool
    }

    /// The pool as an allocator to pass to functions that take one.
    ///
    /// ```no_run
    /// use cuda_core::{CachingPool, set_default_allocator};
    ///
    /// let pool = CachingPool::builder().initial(1 << 30).build()?;
    /// set_default_allocator(&pool.allocator())?; // for `Stream::alloc` everywhere
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn allocator(&self) -> Allocator {
        Allocator(if self.0.settings.is_shared() {
            Choice::Shared
        } else {
            Choice::Pool(self.clone())
        })
    }

    /// Returns what the pool holds of a device's memory; all zero in a fork's child. Makes no driver call,
    /// unless the limit became a fraction after the pool last grew: then the call of
    /// [`Device::total_memory`], once for each device.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let usage = cuda_core::CachingPool::shared()?.usage(device);
    /// println!("{} of {} MiB are in use", usage.used >> 20, usage.reserved >> 20);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn usage(&self, device: Device) -> PoolUsage {
        let heaps = self.heaps_of(device);
        let usages = heaps.iter().map(|heap| heap.usage());
        usages.reduce(PoolUsage::and).unwrap_or_default()
    }

    /// Sets the peaks of a device's [`usage`](Self::usage) to the present values. No driver call.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let pool = cuda_core::CachingPool::shared()?;
    /// pool.reset_peaks(device);
    /// // … one step of the program …
    /// println!("{} bytes at once", pool.usage(device).used_peak);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn reset_peaks(&self, device: Device) {
        for heap in self.heaps_of(device) {
            heap.reset_peaks();
        }
    }

    /// The most that the pool takes from a device, in each context; [`PoolLimit::None`] in a fork's
    /// child.
    pub fn limit(&self) -> PoolLimit {
        if driver::is_gone() { PoolLimit::None } else { self.0.settings.limit() }
    }

    /// Sets the limit. Memory that was already taken stays until it is [trimmed](Self::trim). No
    /// driver call.
    ///
    /// # Errors
    /// [`Error::Invalid`] for zero, and for a fraction that is not between 0 and 1; [`Error::Forked`] in a
    /// fork's child.
    ///
    /// ```no_run
    /// use cuda_core::{CachingPool, pools::PoolLimit};
    ///
    /// let pool = CachingPool::shared()?;
    /// pool.set_limit(PoolLimit::Fraction(0.5))?; // of each device
    /// pool.set_limit(4 << 30)?; // bytes
    /// pool.set_limit(None)?; // no limit again
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn set_limit(&self, limit: impl Into<PoolLimit>) -> Result<()> {
        driver::ensure_not_gone()?;
        self.0.settings.set_limit(limit.into())
    }

    /// Gives unused segments back to their device, the largest first, until no more than `keep`
    /// bytes are [reserved](PoolUsage::reserved), and returns the bytes given back: `cuMemFree_v2` for each,
    /// which waits for all work of the device. Memory in use, also by other streams, stays.
    ///
    /// Wait for the work first, as by [`Stream::synchronize`]: a block counts as
    /// [`free`](PoolUsage::free) as soon as its buffer is dropped, but a segment goes back only when
    /// the work of the stream that freed it is known to be done.
    ///
    /// # Errors
    /// The first error of the allocator that segments come from; the other segments are given back
    /// regardless. A segment that the driver refused to take back may have been freed or not: the
    /// pool does not use it again, and reports it to the hook of [`drops::set_hook`](crate::drops::set_hook).
    /// If an allocator refused a segment with an error of its own, the next call offers it once more.
    ///
    /// ```no_run
    /// let freed = cuda_core::CachingPool::shared()?.trim(0)?; // keeps nothing that is idle
    /// println!("{} MiB for other processes", freed >> 20);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemFree", "cudaFree"))]
    pub fn trim(&self, keep: usize) -> Result<usize> {
        driver::ensure()?;
        trim_all(&self.heaps(|_| true), keep, |heap| heap.reserved(), |heap, keep| heap.trim(keep))
    }

    /// Returns the heap of a context, creating it if needed.
    pub(super) fn heap(&self, context: &Context) -> Arc<Heap> {
        let key = std::ptr::from_ref(context.inner()).addr();
        let mut heaps = lock(&self.0.heaps);
        let of = |entry: &&ContextHeap| entry.context == key;
        if let Some(heap) = heaps.iter().find(of).and_then(|entry| entry.heap.upgrade()) {
            return heap;
        }
        let heap = Heap::new(context, &self.0.settings);
        heaps.retain(|entry| entry.heap.strong_count() > 0);
        let kept = context.is_primary() || !self.0.settings.is_shared();
        heaps.push(ContextHeap {
            context: key,
            device: context.device(),
            heap: Arc::downgrade(&heap),
            _kept: kept.then(|| heap.clone()),
        });
        heap
    }

    /// Returns the heap that the stream's blocks come from. The shared pool's is kept alive by its streams.
    pub(super) fn serve(&self, core: &Arc<StreamCore>) -> Arc<Heap> {
        core.stream_cache.branch(self.id()).unwrap_or_else(|| {
            let heap = self.heap(core.context());
            heap.serve(core);
            core.stream_cache.add_branch(self.id(), &heap);
            heap
        })
    }

    /// Returns the heaps of a device's contexts. Drop the result where no lock is held.
    pub(super) fn heaps_of(&self, device: Device) -> Vec<Arc<Heap>> {
        self.heaps(|entry| entry.device == device)
    }

    /// Returns the heaps that `wanted` selects. Drop the result where no lock is held.
    fn heaps(&self, wanted: impl Fn(&ContextHeap) -> bool) -> Vec<Arc<Heap>> {
        // In a fork's child, a thread that does not exist there may hold the lock.
        if driver::is_gone() {
            return Vec::new();
        }
        let heaps = lock(&self.0.heaps);
        let wanted = heaps.iter().filter(|entry| wanted(entry));
        wanted.filter_map(|entry| entry.heap.upgrade()).collect()
    }
}

impl Drop for CachingPoolInner {
    /// Moves the blocks in stream caches to their heaps, since nothing allocates from the pool any more.
    /// Blocks in use follow when they are freed.
    fn drop(&mut self) {
        // In a fork's child, this crate's locks may be held by threads that do not exist there.
        if driver::is_gone() {
            return;
        }
        let heaps = self.heaps.get_mut();
        let heaps = heaps.unwrap_or_else(PoisonError::into_inner).iter();
        let heaps = heaps.filter_map(|entry| entry.heap.upgrade());
        for heap in heaps {
            for core in heap.served() {
                if let Some((_branch, contents)) = core.stream_cache.remove_branch(&heap) {
                    heap.take_back(contents, Rest::Joins);
                }
            }
        }
    }
}

impl Default for CachingPool {
    fn default() -> Self {
        Self::new()
    }
}

compare_by! { CachingPool: |it| Arc::as_ptr(&it.0) }

debug_by! {
   [] CachingPool: |it| "CachingPool" {
       upstream: it.0.settings.options.upstream, limit: it.limit(), shared: it.0.settings.is_shared()
   }
}

/// Refuses a stream that is captured: if another stream needed one of its blocks, the pool would query an
/// event of the capture, which ends the capture. Memory for operations of a capture is allocated on another
/// stream.
fn require_uncaptured(core: &StreamCore, op: &'static str) -> Result<()> {
    core.timeline().recording().map_or(Ok(()), |recording| Err(recording.refusal(op)))
}

// SAFETY: blocks are cut from segments, at multiples of 256 bytes, and each is allocated to one
// owner until it comes back; other streams' work on it is complete, or the stream waits for it.
unsafe impl DeviceAllocator for CachingPool {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
        let core = stream.core();
        core.ensure()?;
        require_uncaptured(core, "CachingPool::allocate")?;
        if bytes > isize::MAX as usize {
            return Err(Error::SizeOverflow { len: bytes, element_size: 1 });
        }
        let heap = self.serve(core);
        let needed = class::rounded(bytes.max(1));
        let taken = match heap.find(core, needed, LOOKED_AT) {
            Some(taken) => taken,
            None => growth::allocate(&heap, core, needed, bytes)?,
        };
        heap.with(|state| state.counts.allocate(taken.bytes));
        Ok(taken.address)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: CUdeviceptr, _: usize) -> Result<()> {
        let core = stream.core();
        require_uncaptured(core, "CachingPool::deallocate")?;
        let heap = self.serve(core);
        // A new point: events recorded before do not cover what the caller may have made the stream
        // wait for since.
        let bound = core.reach().map_err(Failed::Refused);
        let seq = bound.map_err(|why| why.of_block(address))?.count();
        heap.free(address, core.timeline().at(seq));
        Ok(())
    }

    fn trim(&self, keep: usize) -> Result<usize> {
        self.trim(keep)
    }

    fn is_in_the_context(&self) -> bool {
        self.0.settings.options.upstream.is_in_the_context()
    }

    fn name(&self) -> &str {
        "caching pool"
    }
}
