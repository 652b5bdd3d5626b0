//! Library handles: one for each thread and context that uses a library.

use std::any::Any;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::{Arc, OnceLock, Weak};

use crate::context::{Context, thread};
use crate::error::{Error, Result};
use crate::process::{contain, deferred, driver, drop_hook};
use crate::types::Resource;
use crate::util::debug_by;

/// A value for each thread and context, created on first use: for libraries like cuBLAS, whose
/// handles belong to a thread and a device.
///
/// Each value is created, used and dropped on the one thread that asked for it, with its context
/// current, so its type need not be [`Send`]. It is dropped when its thread ends, or after the slot is
/// dropped: at once on the thread that drops the slot, and on any other thread when that thread next uses a
/// slot. Until then the value keeps its context alive.
///
/// If the driver is gone, at the end of the process or in a fork's child, or if the context cannot
/// be made current, values are leaked: a library's own destructor would call the driver where it
/// must not.
///
/// ```no_run
/// # struct Handle;
/// # impl Handle { fn new() -> cuda_core::Result<Self> { Ok(Self) } fn gemm(&self) {} }
/// use cuda_core::{Context, ContextLocal, Device};
///
/// static BLAS: ContextLocal<Handle> = ContextLocal::new(|_: &Context| Handle::new());
///
/// let context = Device::get(0)?.context()?;
/// BLAS.with(&context, |handle| Ok(handle.gemm()))?; // created with device 0 current
/// BLAS.with(&context, |handle| Ok(handle.gemm()))?; // the same
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct ContextLocal<H: 'static, F = fn(&Context) -> Result<H>> {
    create: F,
    /// Dropped with the slot. A thread that finds it gone drops its values of the slot.
    identity: OnceLock<Arc<()>>,
    /// Values stay on their threads.
    _values: PhantomData<fn() -> H>,
}

impl<H: 'static, F> ContextLocal<H, F> {
    /// Makes an empty slot; `create` makes the values, with the context current.
    pub const fn new(create: F) -> Self {
        Self { create, identity: OnceLock::new(), _values: PhantomData }
    }

    /// Runs `f` on this thread's value for `context`, with the context current, and then restores
    /// what was current before, also if `f` panics.
    ///
    /// `f` may use this slot and others.
    ///
    /// # Errors
    /// Those of `f`; those of `create`, which leave no value; those of [`Context::enter`] and of
    /// [`Guard::restore`](crate::Guard::restore).
    pub fn with<R, E: From<Error>>(
        &self,
        context: &Context,
        f: impl FnOnce(&H) -> Result<R, E>,
    ) -> Result<R, E>
    where
        F: Fn(&Context) -> Result<H, E>,
    {
        driver::ensure()?;
        drop_abandoned();
        let guard = context.enter()?;
        let slot = self.identity.get_or_init(Arc::default);
        let value = match find::<H>(slot, context) {
            Some(value) => value,
            None => keep(slot, context, (self.create)(context)?),
        };
        let result = f(&value.handle)?;
        // On a thread that is ending, this may be the last reference.
        drop(value);
        guard.restore()?;
        Ok(result)
    }
}

impl<H: 'static, F> Drop for ContextLocal<H, F> {
    fn drop(&mut self) {
        // Drops the last reference before checking which values are abandoned.
        drop(self.identity.take());
        // Where the driver must not be called, the values stay until the next use of a slot on this thread,
        // or the thread's end, drops them; a process that exits leaks them.
        if !deferred::must_not_run_here() {
            drop_abandoned();
        }
    }
}

debug_by! { [H: 'static, F] ContextLocal<H, F>: |_it| "ContextLocal" }

/// A value with its context.
struct Local<H> {
    context: Context,
    // INVARIANT: taken only by `Drop`.
    handle: ManuallyDrop<H>,
}

impl<H> Drop for Local<H> {
    fn drop(&mut self) {
        if driver::is_gone() {
            return;
        }
        let guard = match self.context.enter().or_else(|_| self.context.enter()) {
            Ok(guard) => guard,
            Err(error) => return drop_hook::report(Resource::LibraryHandle, 0, 0, Some(error)),
        };
        // SAFETY: the field is not touched after this, the only place that takes it.
        let handle = unsafe { ManuallyDrop::take(&mut self.handle) };
        // A panic must neither escape the thread's last destructors nor keep other values from being dropped.
        contain(|| drop(handle));
        drop(guard);
    }
}

/// A value in a thread's list.
pub(crate) struct ThreadValue {
    slot: Weak<()>,
    context: Context,
    /// An `Rc` of a [`Local`].
    local: Rc<dyn Any>,
}

fn find<H: 'static>(slot: &Arc<()>, context: &Context) -> Option<Rc<Local<H>>> {
    let local = thread::with(|thread| {
        let kept = thread.values.borrow();
        let slot = Arc::as_ptr(slot);
        let found = kept.iter().find(|kept| kept.slot.as_ptr() == slot && kept.context == *context);
        found.map(|kept| Rc::clone(&kept.local))
    });
    local?.downcast().ok()
}

/// Keeps a new value and returns it. If creating it created another for the same slot and context, returns
/// that one instead. A thread that is ending keeps nothing: the value serves this one call.
fn keep<H: 'static>(slot: &Arc<()>, context: &Context, handle: H) -> Rc<Local<H>> {
    let local = Rc::new(Local { context: context.clone(), handle: ManuallyDrop::new(handle) });
    if let Some(earlier) = find(slot, context) {
        return earlier;
    }
    thread::with(|thread| {
        if thread.is_ended_with() {
            thread.values.borrow_mut().push(ThreadValue {
                slot: Arc::downgrade(slot),
                context: context.clone(),
                local: Rc::clone(&local) as Rc<dyn Any>,
            });
        }
    });
    local
}

/// Drops this thread's values of slots that are gone. Does so outside the borrow: their destructors may call
/// back into this module.
fn drop_abandoned() {
    let abandoned = thread::with(|thread| {
        let values = thread.values.take().into_iter();
        let (kept, abandoned): (Vec<_>, Vec<_>) =
            values.partition(|value| value.slot.strong_count() > 0);
        thread.values.replace(kept);
        abandoned
    });
    drop(abandoned);
}
