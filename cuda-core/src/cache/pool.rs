//! Caching pools as values: the process's own, and those that a program makes.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use cuda_sys::CUdeviceptr;

use super::heap::Heap;
use super::limit::PoolLimit;
use super::usage::CacheUsage;
use super::{class, growth};
use crate::allocator::DeviceAllocator;
use crate::allocator::handle::{Allocator, Choice};
use crate::context::Context;
use crate::device::Device;
use crate::driver;
use crate::error::{Error, Result};
use crate::memory::ledger::{Fences, Ledger};
use crate::stream::Stream;
use crate::stream_core::StreamCore;
use crate::sync::lock;
use crate::timeline::Mark;

/// A pool of device memory that keeps what is freed, in segments of its own.
///
/// There is one for the whole process, [`CachingPool::shared`], which [`Stream::alloc`] uses unless
/// [another allocator](crate::set_default_allocator) was chosen. Others keep memory apart from it;
/// a clone is a reference. What is allocated stays valid when the pool is gone.
///
/// A freed block is reused on its own stream at once, and on others when work on it is known to be
/// complete. While there is memory, nothing waits; when there is none, segments are given back,
/// streams wait for each other, and at last the host waits.
///
/// A pool of one's own keeps the contexts alive that it has memory of. When its last reference is
/// gone, its memory is freed as soon as the work on it is done: at once where it is known to be, else
/// on a thread of the library's. Freeing is `cuMemFree`, which waits for other work of the device.
///
/// ```no_run
/// use cuda_core::{CachingPool, Device, PoolLimit};
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
pub struct CachingPool(Arc<Pool>);

struct Pool {
    settings: Arc<Settings>,
    heaps: Mutex<Vec<Entry>>,
    /// The process's own, whose memory of a context goes with the context's last stream.
    is_shared: bool,
}

/// The heap of one context, by the address of the context's own bookkeeping.
struct Entry {
    context: usize,
    device: Device,
    heap: Weak<Heap>,
    /// Keeps it; not where it would keep a context that goes with its last reference.
    _kept: Option<Arc<Heap>>,
}

/// What is said of a pool.
pub(crate) struct Settings {
    pub(super) upstream: Allocator,
    limit: Mutex<PoolLimit>,
    pub(super) initial: usize,
    on_shortage: Option<OnShortage>,
}

type OnShortage = Arc<dyn Fn(&Error) -> bool + Send + Sync>;

impl Settings {
    pub(super) fn limit(&self) -> PoolLimit {
        *lock(&self.limit)
    }

    /// Calls `on_shortage`, if one was set, and says whether it freed anything.
    pub(super) fn relieve(&self, error: &Error) -> bool {
        let Some(on_shortage) = &self.on_shortage else {
            return false;
        };
        catch_unwind(AssertUnwindSafe(|| on_shortage(error))).unwrap_or_else(|payload| {
            // Its own drop could panic.
            std::mem::forget(payload);
            false
        })
    }
}

/// Options of a new [`CachingPool`].
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{CachingPool, PoolLimit};
///
/// let pool = CachingPool::builder()
///     .initial(256 << 20) // taken at the first allocation
///     .limit(PoolLimit::Bytes(1 << 30))
///     .on_shortage(|error| {
///         eprintln!("{error}");
///         false // nothing was freed: let the allocation fail
///     })
///     .build()?;
/// let buffer = stream.alloc_with::<u8>(&pool.allocator(), 1 << 20)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct CachingPoolBuilder {
    upstream: Allocator,
    limit: PoolLimit,
    initial: usize,
    on_shortage: Option<OnShortage>,
}

impl CachingPoolBuilder {
    /// Where segments come from; `cuMemAlloc` if nothing is said.
    ///
    /// ```no_run
    /// use cuda_core::{Allocator, CachingPool};
    ///
    /// let pool = CachingPool::builder().upstream(&Allocator::driver_pool()).build()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn upstream(mut self, allocator: &Allocator) -> Self {
        self.upstream = allocator.clone();
        self
    }

    /// The most that is taken from a device, in each context.
    pub fn limit(mut self, limit: PoolLimit) -> Self {
        self.limit = limit;
        self
    }

    /// Size of the first segment in each context, in bytes, rounded up to 2 MiB; smaller if the
    /// device has not so much.
    pub fn initial(mut self, bytes: usize) -> Self {
        self.initial = bytes;
        self
    }

    /// Called with the error that an allocation is about to fail with; if it says that it has freed
    /// something, the allocation is tried again. A panic counts as no.
    ///
    /// ```no_run
    /// use cuda_core::CachingPool;
    ///
    /// # fn evict_cached_tiles() -> usize { 0 }
    /// let pool = CachingPool::builder().on_shortage(|_error| evict_cached_tiles() > 0).build()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn on_shortage(mut self, f: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        self.on_shortage = Some(Arc::new(f));
        self
    }

    /// Makes the pool. No driver call.
    ///
    /// # Errors
    /// [`Error::Malformed`] for a fraction that is not between 0 and 1, and for a first segment beyond
    /// a limit in bytes. A limit that is a share is known only at a device's first allocation; a first
    /// segment beyond it is then made smaller.
    pub fn build(self) -> Result<CachingPool> {
        let initial = self.initial.checked_next_multiple_of(class::SEGMENT);
        let limit = self.limit.check()?;
        let most = match limit {
            PoolLimit::Bytes(bytes) => bytes,
            _ => isize::MAX as usize,
        };
        let initial =
            initial
                .filter(|initial| *initial <= most)
                .ok_or_else(|| Error::Malformed {
                    what: "a first segment for that limit",
                    text: self.initial.to_string(),
                    form: "at most as many bytes as the limit",
                })?;
        Ok(CachingPool::of(self, initial, false))
    }
}

impl fmt::Debug for CachingPoolBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachingPoolBuilder")
            .field("upstream", &self.upstream)
            .field("limit", &self.limit)
            .field("initial", &self.initial)
            .finish_non_exhaustive()
    }
}

/// The process's pool.
pub(crate) fn shared() -> Result<&'static CachingPool> {
    static SHARED: OnceLock<Result<CachingPool>> = OnceLock::new();
    // In a forked child, a thread that no longer exists may have been making it.
    if let Some(error) = driver::gone() {
        return SHARED.get().ok_or(error)?.as_ref().map_err(Error::clone);
    }
    let make = || {
        let mut builder = CachingPool::builder();
        if let Ok(limit) = std::env::var("CUDA_CORE_POOL_LIMIT") {
            builder = builder.limit(limit.parse()?);
        }
        Ok(CachingPool::of(builder, 0, true))
    };
    SHARED.get_or_init(make).as_ref().map_err(Error::clone)
}

impl CachingPool {
    /// A pool without a limit that takes its segments from `cuMemAlloc`. No driver call.
    ///
    /// Its blocks are found under one lock for all streams of a context; only those of
    /// [the process's own](Self::shared) are kept by streams.
    pub fn new() -> Self {
        Self::of(Self::builder(), 0, false)
    }

    /// Options of a new pool.
    pub fn builder() -> CachingPoolBuilder {
        CachingPoolBuilder {
            upstream: Allocator::plain(),
            limit: PoolLimit::None,
            initial: 0,
            on_shortage: None,
        }
    }

    /// The process's own pool: the default allocator. Its limit is `CUDA_CORE_POOL_LIMIT`, bytes or
    /// a percentage as of [`PoolLimit`], until [`set_limit`](Self::set_limit) says otherwise.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the environment holds anything else; then every allocation from it
    /// fails with this error, too.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let before = cuda_core::CachingPool::shared()?.usage(stream.device()).allocations;
    /// let buffer = stream.alloc::<f32>(1000)?; // comes from there, unless another is the default
    /// let after = cuda_core::CachingPool::shared()?.usage(stream.device()).allocations;
    /// assert_eq!(after, before + 1);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn shared() -> Result<Self> {
        shared().cloned()
    }

    fn of(builder: CachingPoolBuilder, initial: usize, is_shared: bool) -> Self {
        Self(Arc::new(Pool {
            settings: Arc::new(Settings {
                upstream: builder.upstream,
                limit: Mutex::new(builder.limit),
                initial,
                on_shortage: builder.on_shortage,
            }),
            heaps: Mutex::default(),
            is_shared,
        }))
    }

    /// The pool as an allocator to choose.
    ///
    /// ```no_run
    /// use cuda_core::{CachingPool, set_default_allocator};
    ///
    /// let pool = CachingPool::builder().initial(1 << 30).build()?;
    /// set_default_allocator(&pool.allocator())?; // for `Stream::alloc` everywhere
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn allocator(&self) -> Allocator {
        Allocator(if self.0.is_shared {
            Choice::Shared
        } else {
            Choice::Pool(self.clone())
        })
    }

    /// What the pool holds of a device's memory; nothing in a fork's child. No driver call.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let usage = cuda_core::CachingPool::shared()?.usage(device);
    /// println!("{} of {} MiB are in use", usage.used >> 20, usage.reserved >> 20);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn usage(&self, device: Device) -> CacheUsage {
        if driver::is_gone() {
            return CacheUsage::default();
        }
        let heaps = self.heaps_of(device);
        let usages = heaps.iter().map(|heap| heap.usage());
        usages.reduce(CacheUsage::and).unwrap_or_default()
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
        if driver::is_gone() {
            return;
        }
        for heap in self.heaps_of(device) {
            heap.reset_peaks();
        }
    }

    /// The most that the pool takes from a device, in each context; nothing is said in a fork's child.
    pub fn limit(&self) -> PoolLimit {
        if driver::is_gone() {
            return PoolLimit::None;
        }
        self.0.settings.limit()
    }

    /// Sets the limit. What was taken already stays, until it is [trimmed](Self::trim). No driver
    /// call.
    ///
    /// # Errors
    /// [`Error::Malformed`] for a fraction that is not between 0 and 1; [`Error::Forked`] in a fork's
    /// child.
    ///
    /// ```no_run
    /// use cuda_core::{CachingPool, PoolLimit};
    ///
    /// CachingPool::shared()?.set_limit(PoolLimit::Fraction(0.5))?; // of each device
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn set_limit(&self, limit: PoolLimit) -> Result<()> {
        driver::gone().map_or(Ok(()), Err)?;
        *lock(&self.0.settings.limit) = limit.check()?;
        Ok(())
    }

    /// Gives unused segments back to their device, the largest first, until no more than `keep`
    /// bytes are free in each context, and says how many bytes went: `cuMemFree_v2` for each, which
    /// waits for all work of the device. What other streams still use stays.
    ///
    /// # Errors
    /// Those of the allocator that segments come from, the first of several; the other segments
    /// have gone. One that the driver refused to take back may be gone all the same: it is used no
    /// more, and reported to the hook of [`set_drop_hook`](crate::set_drop_hook). One that an
    /// allocator refused with an error of its own is offered once more next time.
    ///
    /// ```no_run
    /// let freed = cuda_core::CachingPool::shared()?.trim(0)?; // keeps nothing that is idle
    /// println!("{} MiB for other processes", freed >> 20);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn trim(&self, keep: usize) -> Result<usize> {
        driver::ensure()?;
        let heaps = self.heaps(|_| true);
        let trimmed: Vec<_> = heaps.iter().map(|heap| heap.trim(keep)).collect();
        trimmed.into_iter().sum()
    }

    /// The heap of a context, made if need be.
    pub(super) fn heap(&self, context: &Context) -> Arc<Heap> {
        let key = std::ptr::from_ref(context.inner()).addr();
        let mut heaps = lock(&self.0.heaps);
        let of = |entry: &&Entry| entry.context == key;
        if let Some(heap) = heaps.iter().find(of).and_then(|entry| entry.heap.upgrade()) {
            return heap;
        }
        let heap = Heap::new(context, &self.0.settings);
        heaps.retain(|entry| entry.heap.strong_count() > 0);
        let kept = context.is_primary() || !self.0.is_shared;
        heaps.push(Entry {
            context: key,
            device: context.device(),
            heap: Arc::downgrade(&heap),
            _kept: kept.then(|| heap.clone()),
        });
        heap
    }

    /// The heap that the stream's blocks come from. The process's own is kept by its streams.
    pub(super) fn heap_of(&self, core: &Arc<StreamCore>) -> Result<Arc<Heap>> {
        if !self.0.is_shared {
            return Ok(self.heap(core.context()));
        }
        let find = || {
            let heap = self.heap(core.context());
            heap.serve(core);
            Ok(heap)
        };
        core.arena.heap_or(find).cloned()
    }

    /// The heaps of a device's contexts, to be dropped where nothing is locked.
    pub(super) fn heaps_of(&self, device: Device) -> Vec<Arc<Heap>> {
        self.heaps(|entry| entry.device == device)
    }

    /// The heaps that `wanted` says, to be dropped where nothing is locked.
    fn heaps(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<Arc<Heap>> {
        let heaps = lock(&self.0.heaps);
        let wanted = heaps.iter().filter(|entry| wanted(entry));
        wanted.filter_map(|entry| entry.heap.upgrade()).collect()
    }

    /// A block, and the heap that it goes back to.
    pub(crate) fn allocate(
        &self,
        core: &Arc<StreamCore>,
        bytes: usize,
    ) -> Result<(CUdeviceptr, Ledger, Arc<Heap>)> {
        driver::ensure()?;
        let needed = class::rounded(bytes);
        let heap = self.heap_of(core)?;
        let piece = match heap.find(core, needed) {
            Some(piece) => piece,
            None => growth::allocate(&heap, core, needed, bytes)?,
        };
        heap.with(|state| state.counts.allocate(piece.bytes));
        let (timeline, seq) = (core.timeline().clone(), piece.seq);
        let ledger = Ledger::behind(0..bytes, Mark { timeline, seq });
        Ok((piece.address, ledger, heap))
    }
}

impl Default for CachingPool {
    fn default() -> Self {
        Self::new()
    }
}

/// The same pool.
impl PartialEq for CachingPool {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CachingPool {}

impl Hash for CachingPool {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl fmt::Debug for CachingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachingPool")
            .field("upstream", &self.0.settings.upstream)
            .field("limit", &self.limit())
            .field("shared", &self.0.is_shared)
            .finish()
    }
}

// SAFETY: blocks are cut from segments, at multiples of 256 bytes, and are nobody else's until they
// come back; other streams' work on them is complete, or the stream waits for it.
unsafe impl DeviceAllocator for CachingPool {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
        stream.core().ensure()?;
        self.allocate(stream.core(), bytes)
            .map(|(address, _, _)| address)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: CUdeviceptr, _: usize) -> Result<()> {
        let core = stream.core();
        let heap = self.heap_of(core)?;
        // A number of its own: events that were recorded before do not cover what the caller may have
        // made the stream wait for since.
        let seq = core.bind()?.count();
        let timeline = core.timeline().clone();
        heap.free(address, Mark { timeline, seq }, Fences::none());
        Ok(())
    }

    fn trim(&self, keep: usize) -> Result<usize> {
        self.trim(keep)
    }

    fn is_in_the_context(&self) -> bool {
        self.0.settings.upstream.is_in_the_context()
    }

    fn name(&self) -> &str {
        "caching pool"
    }
}
