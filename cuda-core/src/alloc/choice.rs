//! Which allocator a stream uses: the scope's, else the device's, else the default.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock, PoisonError, RwLock};

use super::allocator::{Allocator, Choice};
use crate::alloc::caching::builder::SHARED;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::process::driver;
use crate::util::{OnDrop, setting};

/// The allocators that [`Stream::alloc`](crate::Stream::alloc) uses outside of scopes.
#[derive(Default)]
struct Defaults {
    everywhere: Option<Allocator>,
    /// The allocators of devices that have their own, which few do.
    devices: Vec<(Device, Allocator)>,
}

static DEFAULTS: RwLock<Defaults> = RwLock::new(Defaults { everywhere: None, devices: Vec::new() });

thread_local! {
    /// The scopes that the thread is in, innermost last.
    static SCOPES: RefCell<Vec<Allocator>> = const { RefCell::new(Vec::new()) };
}

/// The allocator that `CUDA_CORE_ALLOCATOR` chooses.
fn from_environment() -> Result<Allocator> {
    static CHOSEN: OnceLock<Result<Allocator>> = OnceLock::new();
    let choose = || match setting("CUDA_CORE_ALLOCATOR").as_deref() {
        None | Some("cache") => Ok(Allocator::cache()),
        Some("driver") => Ok(Allocator::driver_pool()),
        Some("plain") => Ok(Allocator::plain()),
        Some(text) => Err(Error::malformed("CUDA_CORE_ALLOCATOR", text, "cache, driver or plain")),
    };
    CHOSEN.get_or_init(choose).clone()
}

/// Whether the shared caching pool is chosen everywhere, on any thread, in scopes too. Costs two loads of a
/// cache line that is hardly ever written.
#[inline]
pub(crate) fn is_cache() -> bool {
    ROUTE.pool.load(Ordering::Acquire) == SHARED && ROUTE.scopes.load(Ordering::Relaxed) == 0
}

/// Returns the id of the caching pool that an allocation on any device uses now, on this thread; [`None`] if
/// [`current`] has to decide. Takes no lock, and counts no reference.
pub(crate) fn pool() -> Option<u64> {
    let scoped = SCOPES.try_with(|scopes| scopes.borrow().last().map(Allocator::pool));
    if let Ok(Some(pool)) = scoped {
        return pool;
    }
    let pool = ROUTE.pool.load(Ordering::Acquire);
    (pool != SEVERAL).then_some(pool)
}

/// The data that [`is_cache`] reads.
#[repr(align(128))]
struct Route {
    /// The id of the caching pool that is the default and that all devices use; [`SEVERAL`] if there is no
    /// such pool, and until the environment has been read.
    pool: AtomicU64,
    /// The number of scopes, of all threads, with an allocator other than the shared pool. A thread sees its
    /// own scopes.
    scopes: AtomicUsize,
}

const SEVERAL: u64 = u64::MAX;

static ROUTE: Route = Route { pool: AtomicU64::new(SEVERAL), scopes: AtomicUsize::new(0) };

impl Defaults {
    /// Updates [`ROUTE`] after a change, or when the environment is first read; the lock is held.
    fn publish(&self) {
        let everywhere = match &self.everywhere {
            Some(allocator) => allocator.pool(),
            None => from_environment().ok().and_then(|chosen| chosen.pool()),
        };
        let mut devices = self.devices.iter();
        let same = devices.all(|(_, allocator)| allocator.pool() == everywhere);
        let pool = everywhere.filter(|_| same).unwrap_or(SEVERAL);
        ROUTE.pool.store(pool, Ordering::Release);
    }
}

/// The allocator that an allocation on `device` uses now, on this thread.
pub(crate) fn current(device: Device) -> Result<Allocator> {
    let scoped = SCOPES.try_with(|scopes| scopes.borrow().last().cloned());
    if let Ok(Some(allocator)) = scoped {
        return Ok(allocator);
    }
    // Other threads' scopes do not concern this thread, so it takes no lock, as without scopes.
    if ROUTE.pool.load(Ordering::Acquire) == SHARED {
        return Ok(Allocator::cache());
    }
    let defaults = DEFAULTS.read().unwrap_or_else(PoisonError::into_inner);
    // The environment decides until a default is set. It is first read here.
    static READ: Once = Once::new();
    READ.call_once(|| defaults.publish());
    let own = defaults.devices.iter().find(|(of, _)| *of == device);
    let chosen = own.map(|(_, allocator)| allocator).or(defaults.everywhere.as_ref());
    chosen.cloned().map_or_else(from_environment, Ok)
}

/// Refuses to change a default inside a scope, or if a thread that no longer exists may hold the lock.
fn may_change(op: &'static str) -> Result<()> {
    driver::ensure_not_gone()?;
    let inside = SCOPES.try_with(|scopes| !scopes.borrow().is_empty());
    let why = "the allocator cannot be changed inside `with_allocator`";
    Error::unless(!inside.unwrap_or(false), op, why)
}

/// Returns the allocator that [`Stream::alloc`](crate::Stream::alloc) uses on every device without one of its
/// own, outside of [`with_allocator`]: that of [`set_default_allocator`], else the environment's. Makes no
/// driver call.
///
/// # Errors
/// [`Error::Invalid`] if the environment variable `CUDA_CORE_ALLOCATOR` decides, and its value names no
/// allocator; [`Error::Forked`] in a fork's child.
///
/// ```
/// println!("{:?}", cuda_core::default_allocator()?);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub fn default_allocator() -> Result<Allocator> {
    driver::ensure_not_gone()?;
    let defaults = DEFAULTS.read().unwrap_or_else(PoisonError::into_inner);
    defaults.everywhere.clone().map_or_else(from_environment, Ok)
}

/// Makes `allocator` the one that [`Stream::alloc`](crate::Stream::alloc) uses, on every thread and
/// every device without one of its own, and returns the former default. Existing blocks go back to the
/// allocator that they came from. Makes no driver call.
///
/// Initially the environment chooses: `CUDA_CORE_ALLOCATOR=cache`, the default, for the caching
/// pool, `driver` for the driver's own pool, `plain` for `cuMemAlloc`.
///
/// # Errors
/// [`Error::Invalid`] inside [`with_allocator`], and if the environment variable holds anything else;
/// [`Error::Forked`] in a fork's child. On error nothing has changed.
///
/// ```no_run
/// use cuda_core::{Allocator, set_default_allocator};
///
/// let before = set_default_allocator(&Allocator::driver_pool())?;
/// set_default_allocator(&before)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub fn set_default_allocator(allocator: &Allocator) -> Result<Allocator> {
    may_change("set_default_allocator")?;
    let initial = from_environment()?;
    let mut defaults = DEFAULTS.write().unwrap_or_else(PoisonError::into_inner);
    let before = defaults.everywhere.replace(allocator.clone());
    defaults.publish();
    drop(defaults);
    Ok(before.unwrap_or(initial))
}

/// # The allocator
impl Device {
    /// Returns the allocator that [`Stream::alloc`](crate::Stream::alloc) uses on this device now, on this
    /// thread: that of [`with_allocator`], else the device's own, else the [default](set_default_allocator).
    /// Makes no driver call.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the environment variable `CUDA_CORE_ALLOCATOR` decides, and its value names
    /// no allocator; [`Error::Forked`] in a fork's child.
    ///
    /// ```no_run
    /// println!("{:?}", cuda_core::Device::get(0)?.allocator()?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn allocator(self) -> Result<Allocator> {
        driver::ensure_not_gone()?;
        current(self)
    }

    /// Makes `allocator` the one that [`Stream::alloc`](crate::Stream::alloc) uses on this device; [`None`]
    /// for the [default](set_default_allocator). Returns the device's former allocator. Makes no driver call.
    ///
    /// # Errors
    /// [`Error::Invalid`] inside [`with_allocator`]; [`Error::Forked`] in a fork's child.
    ///
    /// ```no_run
    /// use cuda_core::{Allocator, CachingPool, Device, pools::PoolLimit};
    ///
    /// // The first device is shared with others: no more than a quarter of it.
    /// let pool = CachingPool::builder().limit(PoolLimit::Fraction(0.25)).build()?;
    /// Device::get(0)?.set_allocator(Some(&pool.allocator()))?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn set_allocator(self, allocator: Option<&Allocator>) -> Result<Option<Allocator>> {
        may_change("set_allocator")?;
        let mut defaults = DEFAULTS.write().unwrap_or_else(PoisonError::into_inner);
        let at = defaults.devices.iter().position(|(of, _)| *of == self);
        let before = at.map(|at| defaults.devices.swap_remove(at).1);
        if let Some(allocator) = allocator {
            defaults.devices.push((self, allocator.clone()));
        }
        defaults.publish();
        drop(defaults);
        Ok(before)
    }
}

/// Runs `f`, on this thread, with `allocator` in place of all defaults. Scopes nest; each ends with
/// its closure, also if that panics. Other threads are not affected.
///
/// ```no_run
/// use cuda_core::{Allocator, with_allocator};
///
/// let stream = cuda_core::Device::get(0)?.create_stream()?;
/// let buffer = with_allocator(&Allocator::plain(), || stream.alloc::<u8>(1 << 20))?;
/// drop(buffer); // given back to where it came from
/// // With `?` in the closure, the type of its result is written.
/// with_allocator(&Allocator::plain(), || -> cuda_core::Result<()> {
///     let mut buffer = stream.alloc::<u8>(1 << 20)?;
///     stream.fill(&mut buffer, 1)
/// })?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("using_allocator"))]
pub fn with_allocator<R>(allocator: &Allocator, f: impl FnOnce() -> R) -> R {
    // A thread whose thread-locals are destroyed uses the defaults.
    let entered = SCOPES.try_with(|scopes| scopes.borrow_mut().push(allocator.clone()));
    let is_counted = entered.is_ok() && !matches!(allocator.0, Choice::Shared);
    if is_counted {
        ROUTE.scopes.fetch_add(1, Ordering::Relaxed);
    }
    let _scope = OnDrop::new(|| {
        if is_counted {
            ROUTE.scopes.fetch_sub(1, Ordering::Relaxed);
        }
        // Dropping the last reference may run arbitrary user code: not under the borrow.
        let left = SCOPES.try_with(|scopes| scopes.borrow_mut().pop());
        drop(left);
    });
    f()
}
