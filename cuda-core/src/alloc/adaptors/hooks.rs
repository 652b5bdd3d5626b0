//! Hooks that are called with what a thread allocates and frees.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuda_sys::CUdeviceptr;

use super::{Around, Ask, Given};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::process::contain;
use crate::stream::Stream;
use crate::util::{OnDrop, debug_by};

/// When a hook is called.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use std::sync::Arc;
///
/// use cuda_core::adaptors::{HookPoint, Hooks};
/// use cuda_core::{Allocator, Stream};
///
/// let hooks = Arc::new(Hooks::new(Allocator::cache()));
/// let allocator = Allocator::new(Arc::clone(&hooks));
/// let hook = |event: &cuda_core::adaptors::HookEvent<'_>| {
///     if event.point == HookPoint::BeforeAllocate {
///         println!("{} bytes", event.bytes);
///     }
/// };
/// let buffer = hooks.with(hook, || stream.alloc_with::<f32>(&allocator, 1024))?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HookPoint {
    /// Before the inner allocator is asked for a block.
    BeforeAllocate,
    /// After the inner allocator has returned.
    AfterAllocate,
    /// Before the inner allocator is given a block back.
    BeforeDeallocate,
    /// After the inner allocator has returned.
    AfterDeallocate,
}

/// The argument of a hook.
///
/// ```
/// use cuda_core::adaptors::HookEvent;
///
/// let hook = |event: &HookEvent<'_>| match (event.address, event.error) {
///     (_, Some(error)) => println!("{:?}: {error}", event.point),
///     (Some(address), None) => println!("{:?}: {address:#x}", event.point),
///     (None, None) => println!("{:?}: {} bytes", event.point, event.bytes),
/// };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HookEvent<'a> {
    /// The moment of the call.
    pub point: HookPoint,
    /// The device that the block is on.
    pub device: Device,
    /// The stream in whose order it is allocated or freed: [`Stream::id`].
    pub stream: u64,
    /// Size of the block in bytes.
    pub bytes: usize,
    /// Its address; [`None`] before it is allocated, and if the allocation failed.
    pub address: Option<CUdeviceptr>,
    /// The inner allocator's error.
    pub error: Option<&'a Error>,
}

impl HookEvent<'_> {
    fn new(point: HookPoint, stream: &Stream, bytes: usize, address: Option<CUdeviceptr>) -> Self {
        let (device, stream) = (stream.device(), stream.id());
        Self { point, device, stream, bytes, address, error: None }
    }
}

/// An allocator that calls the current thread's hooks with what passes through it.
///
/// [`Hooks::with`] runs a function and meanwhile calls a hook with what that thread allocates and frees
/// through this allocator, before and after each call of the inner allocator. Hooks are per thread: if a
/// buffer's drop leaves the free to another thread, that thread's hooks see it, or none.
///
/// Hooks above a caching pool are called for every allocation, hooks below it only when the pool had nothing
/// that fits: use one of each to tell hits from misses. Freed blocks stay in the pool, so hooks below it see
/// the frees only when the pool is trimmed.
///
/// A hook may allocate and free; no hook is called for that. Below a caching pool it must not wait for another
/// thread that allocates from the pool: see [`upstream`](crate::pools::CachingPoolBuilder::upstream). A panic in
/// a hook is caught and ignored. If the inner allocator panics, the hook is not called after it.
///
/// ```
/// use cuda_core::Allocator;
/// use cuda_core::adaptors::{HookEvent, HookPoint, Hooks};
///
/// # fn work() {}
/// let hooks = Hooks::new(Allocator::driver_pool());
/// let print = |event: &HookEvent<'_>| {
///     if event.point == HookPoint::AfterAllocate {
///         println!("{} bytes on {}", event.bytes, event.device);
///     }
/// };
/// hooks.with(print, || work());
/// ```
pub struct Hooks<A> {
    inner: A,
    /// Distinguishes this allocator's hooks in a thread's list.
    id: u64,
}

type Hook = Rc<dyn Fn(&HookEvent<'_>)>;

thread_local! {
    /// This thread's hooks with their allocators. Borrowed only while no foreign code runs.
    static HOOKS: RefCell<Vec<(u64, Hook)>> = const { RefCell::new(Vec::new()) };
    /// Whether a hook is running.
    static IN_HOOK: Cell<bool> = const { Cell::new(false) };
}

impl<A> Hooks<A> {
    /// Wraps `inner`, without hooks yet.
    pub fn new(inner: A) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { inner, id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Runs `f`, and meanwhile calls `hook` with what this thread allocates and frees through this
    /// allocator. Calls may nest; the outermost hook is called first.
    pub fn with<R>(&self, hook: impl Fn(&HookEvent<'_>) + 'static, f: impl FnOnce() -> R) -> R {
        let hook = (self.id, Rc::new(hook) as Hook);
        // A thread whose thread-locals are destroyed has no hooks.
        let _ = HOOKS.try_with(|hooks| hooks.borrow_mut().push(hook));
        // Scopes of one thread end in reverse order. The hook's captures are dropped outside the
        // borrow.
        let _scope = OnDrop::new(|| {
            let hook = HOOKS.try_with(|hooks| hooks.borrow_mut().pop());
            contain(|| drop(hook));
        });
        f()
    }

    fn call_hooks(&self, event: HookEvent<'_>) {
        if IN_HOOK.try_with(Cell::get).unwrap_or(true) {
            return;
        }
        let hooks = HOOKS.try_with(|hooks| {
            let hooks = hooks.borrow();
            let own = hooks.iter().filter(|(id, _)| *id == self.id);
            own.map(|(_, hook)| Rc::clone(hook)).collect::<Vec<_>>()
        });
        let hooks = hooks.unwrap_or_default();
        if hooks.is_empty() {
            return;
        }
        IN_HOOK.set(true);
        for hook in hooks {
            contain(move || hook(&event));
        }
        IN_HOOK.set(false);
    }
}

debug_by! { [A: std::fmt::Debug] Hooks<A>: |it| "Hooks" { inner: it.inner; .. } }

adaptor!(Hooks);

impl<A> Around for Hooks<A> {
    fn allocating(&self, stream: &Stream, bytes: usize, ask: Ask<'_>) -> Result<CUdeviceptr> {
        let mut event = HookEvent::new(HookPoint::BeforeAllocate, stream, bytes, None);
        self.call_hooks(event);
        let result = ask();
        (event.address, event.error) = (result.as_ref().ok().copied(), result.as_ref().err());
        self.call_hooks(HookEvent { point: HookPoint::AfterAllocate, ..event });
        result
    }

    fn deallocating(&self, block: Given<'_>, give: impl FnOnce(usize) -> Result<()>) -> Result<()> {
        let Given { stream, address, bytes } = block;
        let event = HookEvent::new(HookPoint::BeforeDeallocate, stream, bytes, Some(address));
        self.call_hooks(event);
        let result = give(bytes);
        let (point, error) = (HookPoint::AfterDeallocate, result.as_ref().err());
        self.call_hooks(HookEvent { point, error, ..event });
        result
    }
}
