//! Options of a caching pool.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::limit::PoolLimit;
use super::{CachingPool, class};
use crate::alloc::{Allocator, custom};
use crate::error::{ByteCount, Error, Result};
use crate::process::{Contained, unless_panic};
use crate::util::{debug_by, lock};

/// Id of the process-wide shared pool.
pub(crate) const SHARED: u64 = 0;

/// A pool's options.
pub(super) struct Settings {
    /// The id under which streams file the pool's blocks. Never reused.
    pub(super) pool: u64,
    limit: Mutex<PoolLimit>,
    /// Whether the blocks belong to their context, as memory from `cuMemAlloc` does.
    pub(super) is_in_the_context: bool,
    pub(super) options: CachingPoolBuilder,
}

type OnShortage = Contained<Arc<dyn Fn(&Error) -> bool + Send + Sync>>;

impl Settings {
    /// Whether this is the shared pool, whose memory in a context is freed with the context's last
    /// stream.
    pub(super) fn is_shared(&self) -> bool {
        self.pool == SHARED
    }

    pub(super) fn limit(&self) -> PoolLimit {
        *lock(&self.limit)
    }

    pub(super) fn set_limit(&self, limit: PoolLimit) -> Result<()> {
        *lock(&self.limit) = limit.check()?;
        Ok(())
    }

    /// Calls `on_shortage`, if set, and returns whether it freed anything.
    pub(super) fn relieve(&self, error: &Error) -> bool {
        let freed = |on_shortage: &OnShortage| unless_panic(|| on_shortage(error)) == Some(true);
        self.options.on_shortage.as_ref().is_some_and(freed)
    }
}

/// Options of a new [`CachingPool`].
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{CachingPool, pools::PoolLimit};
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
    pub(super) upstream: Allocator,
    limit: PoolLimit,
    pub(super) initial: usize,
    on_shortage: Option<OnShortage>,
}

impl CachingPoolBuilder {
    pub(super) const fn new() -> Self {
        Self { upstream: Allocator::plain(), limit: PoolLimit::None, initial: 0, on_shortage: None }
    }

    /// Sets the allocator that segments come from; `cuMemAlloc` by default.
    ///
    /// While one thread calls this allocator, other threads that find no free memory in the pool wait for
    /// that call. So the allocator may itself allocate from the pool, but must not wait for another thread
    /// that does.
    ///
    /// ```no_run
    /// use cuda_core::{Allocator, CachingPool};
    ///
    /// let pool = CachingPool::builder().upstream(&Allocator::driver_pool()).build()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemAlloc", "cudaMalloc"))]
    pub fn upstream(mut self, allocator: &Allocator) -> Self {
        self.upstream = allocator.clone();
        self
    }

    /// Sets the most that the pool takes from a device in each context.
    pub fn limit(mut self, limit: impl Into<PoolLimit>) -> Self {
        self.limit = limit.into();
        self
    }

    /// Sets the size of the first segment in each context, in bytes, rounded up to 2 MiB; the
    /// segment is smaller if the device has less.
    pub fn initial(mut self, bytes: usize) -> Self {
        self.initial = bytes;
        self
    }

    /// Sets a function to call with the error that an allocation is about to fail with. If the function
    /// returns `true` (it freed something), the allocation is tried again. If that fails, the function is
    /// called again, as often as it returns `true`, since it may free one thing at a time. So it must return
    /// `false` when it has freed nothing; a panic counts as `false`. It is not called for a request that is
    /// larger than the limit, or than the memory of the device.
    ///
    /// ```no_run
    /// use cuda_core::CachingPool;
    ///
    /// # fn evict_cached_tiles() -> usize { 0 }
    /// let pool = CachingPool::builder().on_shortage(|_error| evict_cached_tiles() > 0).build()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn on_shortage(mut self, f: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        self.on_shortage = Some(Contained::new(Arc::new(f)));
        self
    }

    /// The [allocator](Self::upstream) that segments come from.
    pub fn get_upstream(&self) -> &Allocator {
        &self.upstream
    }

    /// The [most](Self::limit) that the pool takes from a device in each context.
    pub fn get_limit(&self) -> PoolLimit {
        self.limit
    }

    /// The size of the [first segment](Self::initial) in bytes, as it was given; 0 by default.
    pub fn get_initial(&self) -> usize {
        self.initial
    }

    /// Builds the pool. Makes no driver call.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a limit of zero, a fraction that is not between 0 and 1, and a first segment
    /// beyond a limit in bytes. A fractional limit becomes a number of bytes only at a device's first
    /// allocation; a larger first segment is then made smaller.
    pub fn build(mut self) -> Result<CachingPool> {
        let initial = self.initial.checked_next_multiple_of(class::SEGMENT);
        self.limit = self.limit.check()?;
        let most = match self.limit {
            PoolLimit::Bytes(bytes) => bytes,
            _ => isize::MAX as usize,
        };
        let initial = initial.filter(|initial| *initial <= most).ok_or_else(|| {
            let first = ByteCount(self.initial);
            let why = format!("a first segment of {first} is larger than the limit");
            Error::invalid("CachingPoolBuilder::build", why)
        })?;
        Ok(CachingPool::of(self.initial(initial).into_settings(numbered())))
    }

    /// Turns these options into settings of the pool with id `pool`.
    pub(super) fn into_settings(self, pool: u64) -> Settings {
        let is_in_the_context = custom::is_in_the_context(&self.upstream);
        Settings { pool, limit: Mutex::new(self.limit), is_in_the_context, options: self }
    }
}

debug_by! {
   [] CachingPoolBuilder: |it| "CachingPoolBuilder" {
       upstream: it.upstream, limit: it.limit, initial: it.initial; ..
   }
}

/// Returns the id of a new pool.
pub(super) fn numbered() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(SHARED + 1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
