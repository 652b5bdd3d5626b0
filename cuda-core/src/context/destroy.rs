//! Destroying contexts.

use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cuda_sys::symbol as cu;

use super::{Context, ContextInner, ContextKind, REGISTRY, RawContext, Ref, green};
use super::{forget_reached, peer};
use crate::context::current;
use crate::error::{Error, Rejected, Result};
use crate::process::{
    Failed, RelaxedCaptureMode, deferred, driver, drop_hook, foreign_code, released,
};
use crate::types::Resource;
use crate::util::lock;

/// # Closing
impl Context {
    /// Waits for the context's work and destroys it, if this crate created it: `cuCtxSynchronize`, then
    /// `cuCtxDestroy_v2` or `cuGreenCtxDestroy`. Dropping the context reports a failure to the hook of
    /// [`drops::set_hook`](crate::drops::set_hook) instead.
    ///
    /// A primary context stays until the process ends. Closing a foreign context drops its owner.
    ///
    /// # Errors
    /// [`Error::ContextInUse`], with the context unchanged, while something keeps it alive: clones, streams,
    /// buffers, events or guards, a thread on which it is current, or work that is not known to be done.
    /// [`Context::synchronize`] completes such work, and [`drops::flush`](crate::drops::flush) ends all waits
    /// for it. The driver's error of the call that destroys the context, which is then
    /// [given up](Error::GivenUp).
    ///
    /// ```no_run
    /// use cuda_core::{Context, ContextFlags, Device};
    ///
    /// let context = Context::new(Device::get(0)?, ContextFlags::default())?;
    /// let stream = context.create_stream()?;
    /// let rejected = context.close().expect_err("the stream needs it");
    /// drop(stream);
    /// rejected.value.close()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxSynchronize", "cuCtxDestroy", "cuGreenCtxDestroy", "cudaDeviceSynchronize"))]
    pub fn close(self) -> Result<(), Rejected<Self>> {
        let (raw, this) = Rejected::unless(self.live(), self)?;
        let Ref::Counted(shared) = this.0 else { return Ok(()) };
        let sole = Arc::try_unwrap(shared).or_else(|shared| {
            // Marks of completed work keep the context alive, too.
            forget_reached();
            Arc::try_unwrap(shared)
        });
        let in_use = |shared| Rejected::new(Error::ContextInUse, Self(Ref::Counted(shared)));
        let mut inner = sole.map_err(in_use)?;
        let Some(kind) = inner.retire() else { return Ok(()) };
        destroy(raw, kind).map_err(|why| {
            let error = why.into_reported(Resource::Context, raw.number(), 0);
            let nothing = ContextInner::new(ptr::null_mut(), inner.device, ContextKind::GivenUp);
            Rejected::new(error, Self(Ref::Counted(Arc::new(nothing))))
        })
    }

    /// Makes sure that the context is never destroyed, and reports that once: work may still use memory in
    /// it. A primary context is never destroyed in any case.
    pub(crate) fn leave_behind(&self, why: &Error) {
        let Ref::Counted(inner) = &self.0 else { return };
        if !inner.left_behind.swap(true, Ordering::AcqRel) {
            mem::forget(inner.clone());
            drop_hook::report(Resource::Context, self.raw().number(), 0, Some(why.clone()));
        }
    }
}

/// Reports memory that a `Drop` could not release. If the driver still has the memory, its context is kept
/// until the process ends: destroying the context would free the memory, which unfinished work of this or
/// another context may use.
pub(crate) fn leave_behind(
    context: &Context,
    what: Resource,
    handle: u64,
    bytes: usize,
    why: Failed,
) {
    if let Failed::Refused(error) = &why {
        context.leave_behind(error);
    }
    drop_hook::report(what, handle, bytes, Some(why.into()));
}

impl ContextInner {
    /// Removes the handle from the bookkeeping, and returns what is to be destroyed, if anything.
    fn retire(&mut self) -> Option<ContextKind> {
        let kind = mem::replace(&mut self.kind, ContextKind::GivenUp);
        if let ContextKind::Primary | ContextKind::GivenUp = kind {
            return None;
        }
        // In a fork's child, this crate's locks may be held by threads that do not exist there, and
        // the owner's destructor is foreign code.
        if driver::is_gone() {
            mem::forget(kind);
            return None;
        }
        let raw = self.raw;
        // Removed before the handle dies, so that a new context with the same handle is not mistaken for this
        // one.
        lock(&REGISTRY).retain(|(known, weak)| *known != raw || weak.strong_count() > 0);
        peer::forget(raw);
        Some(kind)
    }
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        let raw = self.raw;
        if let Some(kind) = self.retire() {
            deferred::run_or_defer(move || {
                if let Err(error) = destroy(raw, kind) {
                    drop_hook::report(Resource::Context, raw.number(), 0, Some(error.into()));
                }
            });
        }
    }
}

/// Waits for the context's work, with the context current. Ignores an error of the wait: the work's own error
/// was reported where that work was waited for. `Err` holds the context that was current but could not be
/// restored, and why.
fn wait_for_work(raw: RawContext) -> Result<(), (RawContext, Error)> {
    let Ok(before) = current::get() else { return Ok(()) };
    match current::set_or(before, raw, drop) {
        Ok(()) => {
            // If the mode cannot be set, the context is waited for nevertheless.
            let relaxed = RelaxedCaptureMode::enter();
            // SAFETY: takes nothing; a live context is current.
            deferred::while_waiting(|| unsafe { cu::cuCtxSynchronize() });
            drop(relaxed);
            current::restore(before).map_err(|error| (before, error))
        }
        // If the change was undone, nothing was waited for. Otherwise the wrong context is still current.
        Err(_) if current::get_again().is_ok_and(|now| now == before) => Ok(()),
        Err(error) => Err((before, error)),
    }
}

/// Waits for the context's work, then destroys it, or drops its owner. Everything made in it is
/// gone by now, but the work itself may still run.
fn destroy(raw: RawContext, kind: ContextKind) -> Result<(), Failed> {
    let green = match kind {
        ContextKind::Created => None,
        ContextKind::Green(green) => Some(green),
        ContextKind::Foreign(owner) => {
            foreign_code::after(|| drop(owner));
            return Ok(());
        }
        ContextKind::Primary | ContextKind::GivenUp => return Ok(()),
    };
    if let Err((before, error)) = wait_for_work(raw) {
        if green.is_some() {
            // The context may be current on this thread, and destroying it would leave it current.
            return Err(Failed::Unknown(error));
        }
        drop_hook::report(Resource::Current, before.number(), 0, Some(error));
    }
    match green {
        Some(green) => green::destroy(green),
        // SAFETY: the last reference is gone, so no code uses the handle after this call.
        None => released("cuCtxDestroy", unsafe { cu::cuCtxDestroy_v2(raw.0) }),
    }
}
