//! The guard that makes a context current for a scope, then restores what was current before.

use std::marker::PhantomData;
use std::ptr;

use crate::context::{self, Context, RawContext, current};
use crate::error::{Error, Result};
use crate::process::{DeferForeignCode, Handle, driver, drop_hook};
use crate::types::Resource;
use crate::util::debug_by;

/// Makes a context current until it is dropped; then it restores what was current before, *none*
/// included.
///
/// The guard asks the driver for the current context when it begins and again when it ends, so
/// other libraries may switch contexts in between. It compares handles, not devices: another
/// context of the same device is another context. Two driver calls if the context is current
/// already, four otherwise, five if nothing was.
///
/// Guards that are dropped out of order restore what each of them saw: the context that the last one restores
/// stays current. A forgotten guard leaves its context current and alive.
///
/// A context that the guard saved stays alive, too, if this crate knows it. A context of another
/// library that was never passed to [`Context::from_raw`] is a bare handle: if its owner destroys
/// it while the guard lives, the guard makes that handle current again, which `cuCtxSetCurrent`
/// does not refuse. Later calls return `CONTEXT_IS_DESTROYED`, or crash inside the driver (seen on
/// an H200); no code above the driver can detect this. The same holds for a context of this crate
/// that a raw call destroys.
///
/// ```no_run
/// use cuda_core::Device;
///
/// let guard = Device::get(1)?.enter()?;
/// // Device 1 is current here.
/// guard.restore()?; // or let it drop
/// # Ok::<(), cuda_core::Error>(())
/// ```
///
/// A guard belongs to its thread, and cannot be cloned:
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// send(cuda_core::Device::get(0).unwrap().enter().unwrap());
/// ```
/// ```compile_fail,E0599
/// let guard = cuda_core::Device::get(0).unwrap().enter().unwrap();
/// let twice = guard.clone();
/// ```
#[must_use = "the context is current only while the guard lives"]
pub struct Guard {
    saved: RawContext,
    /// Keeps the saved context alive, if it needs that.
    saved_keep: Option<Context>,
    entered: Context,
    /// Whether dropping the guard restores what was current.
    restores: bool,
    /// The current context belongs to the thread.
    _not_send: PhantomData<*const ()>,
}

impl Guard {
    #[inline]
    pub(crate) fn enter(context: &Context) -> Result<Self> {
        context.live()?;
        Self::enter_over(current::get()?, context)
    }

    /// [`Guard::enter`] where `saved` is current.
    pub(crate) fn enter_over(saved: RawContext, context: &Context) -> Result<Self> {
        let raw = context.live()?;
        let mut saved_keep = None;
        if saved != raw {
            if !saved.0.is_null() {
                saved_keep = context::known(saved).filter(|saved| !saved.is_primary());
            }
            current::set_or(saved, raw, |_| current::keep_pushed(context))?;
            if saved_keep.is_some() || !context.is_primary() {
                current::keep_replaced(saved, Some(context));
            }
        }
        Ok(Self::over(saved, saved_keep, context))
    }

    fn over(saved: RawContext, saved_keep: Option<Context>, entered: &Context) -> Self {
        let entered = entered.clone();
        Self { saved, saved_keep, entered, restores: true, _not_send: PhantomData }
    }

    /// Makes a guard whose context was current already.
    #[cold]
    pub(crate) fn of_present(context: &Context) -> Self {
        Self::over(context.raw(), None, context)
    }

    /// The context that the guard made current.
    pub fn context(&self) -> &Context {
        &self.entered
    }

    /// Ends the scope now; dropping reports a failure to the hook of
    /// [`drops::set_hook`](crate::drops::set_hook) instead.
    ///
    /// # Errors
    /// The driver's; [`Error::ContextStack`] if entries that were pushed inside the scope cannot be
    /// removed; [`Error::InCallback`].
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let guard = device.enter()?;
    /// // … a library that goes by the current device …
    /// guard.restore()?; // an error is an error here; a drop could only report it
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn restore(mut self) -> Result<()> {
        self.restores = false;
        driver::ensure()?;
        self.leave()
    }

    fn leave(&self) -> Result<()> {
        let now = current::get_again();
        match now {
            Ok(now) if now == self.saved => {
                // Other code may have made it current again without keeping it alive.
                if let Some(saved) = self.saved_context() {
                    current::keep_present(saved);
                }
                return Ok(());
            }
            // What is current is unknown: the saved context is restored only if this guard replaced it.
            Err(error) if self.saved == self.entered.raw() => return Err(error),
            _ => current::restore(self.saved).inspect_err(|_| {
                // Despite the error, the call may have taken effect. The entered context is kept already.
                if let Some(saved) = self.saved_context() {
                    current::keep_pushed(saved);
                }
            })?,
        }
        // A reference-counted context that is current now needs a reference of its own. The reference from
        // when it was first made current may be gone, for example if guards are dropped out of order.
        if self.saved.0.is_null() {
            current::release_all();
        } else {
            // If the query failed, which entry was replaced is unknown; it stays kept.
            let before = now.as_ref().map_or(Handle(ptr::null_mut()), |now| *now);
            current::keep_replaced(before, self.saved_context());
        }
        Ok(())
    }

    /// The saved context, if it needs to be kept alive.
    fn saved_context(&self) -> Option<&Context> {
        if self.saved == self.entered.raw() {
            Some(&self.entered)
        } else {
            self.saved_keep.as_ref()
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.restores || driver::is_gone() {
            return;
        }
        if let Err(error) = self.leave() {
            report_lost(self.saved, error);
        }
    }
}

debug_by! { [] Guard: |it| "Guard" { entered: it.entered, saved: it.saved.0 } }

/// A context made current around calls of this crate only.
///
/// No other code runs on the thread between these calls, so what is current at the end is known without
/// asking. This costs one driver call if the context is current already, three otherwise.
pub(crate) struct Entered {
    raw: RawContext,
    /// What to restore, if it was another context or none.
    saved: Option<RawContext>,
    /// The value of [`current::strays`] when it was entered.
    strays: u32,
    /// Ends after the restore.
    _quiet: DeferForeignCode,
}

impl Entered {
    #[inline]
    pub(crate) fn enter(context: &Context) -> Result<Self> {
        let raw = context.live()?;
        let saved = current::get()?;
        let differs = saved != raw;
        if differs {
            // The caller gets the first call's error; the error of undoing it can only be reported.
            current::set_or(saved, raw, |error| {
                current::keep_pushed(context);
                report_lost(saved, error);
            })?;
        }
        Ok(Self {
            raw,
            saved: differs.then_some(saved),
            strays: current::strays(),
            _quiet: DeferForeignCode::begin(),
        })
    }

    /// Makes the context current again if a scope inside this one failed to restore it: a default stream's
    /// handle would otherwise mean another context's stream. Makes no driver call if no scope failed.
    #[inline]
    pub(crate) fn ensure_current(&self) -> Result<()> {
        if self.strays == current::strays() {
            return Ok(());
        }
        Ok(current::set(self.raw)?)
    }

    /// Whether another context, or none, was current before.
    pub(crate) fn changed_what_is_current(&self) -> bool {
        self.saved.is_some()
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        let Some(saved) = self.saved else { return };
        // Setting null pops the one entry that entering pushed.
        if current::set(saved).is_err() {
            set_once_more(saved);
        }
    }
}

/// Tries again, since the wrong context must not stay current.
#[cold]
fn set_once_more(saved: RawContext) {
    let Err(failed) = current::set(saved) else { return };
    current::note_stray();
    // The wrong context stays current, and only this thread keeps it alive.
    if let Some(now) = current::get_again().ok().and_then(context::known) {
        current::keep_present(&now);
    }
    report_lost(saved, failed.into());
}

/// Reports that what was current could not be made current again.
#[cold]
fn report_lost(saved: RawContext, error: Error) {
    drop_hook::report(Resource::Current, saved.number(), 0, Some(error));
}
