//! Making contexts current on a thread.

use crate::context::current::Current;
use crate::context::{Context, Guard, active_primary, current, known};
use crate::error::{Error, Result};
use crate::process::driver;

/// # Making it current
impl Context {
    /// Makes the context current until the guard is dropped; see [`Guard`].
    ///
    /// # Errors
    /// [`Error::GivenUp`]; the driver's, with the current context unchanged.
    ///
    /// ```no_run
    /// use cuda_core::Device;
    ///
    /// let context = Device::get(0)?.context()?;
    /// {
    ///     let _guard = context.enter()?;
    ///     // … calls of a library that uses the current context …
    /// } // what was current before is current again
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxSetCurrent", "cudaSetDevice"))]
    #[inline]
    pub fn enter(&self) -> Result<Guard> {
        Guard::enter(self)
    }

    /// Runs `f` with the context current, and restores what was current before, also if `f` panics:
    /// [`Context::enter`] for a closure.
    ///
    /// # Errors
    /// Those of `f` and of [`Context::enter`]; those of [`Guard::restore`], which lose the value of `f`.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{Error, sys};
    ///
    /// let range = context.with(|context| context.stream_priority_range())?;
    /// // A raw call: its code becomes a `Result`.
    /// let (mut free, mut total) = (0, 0);
    /// context.with(|_| {
    ///     // SAFETY: the call writes two numbers, to locals that outlive it.
    ///     let code = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
    ///     Error::check("cuMemGetInfo", code)
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxSetCurrent", "cudaSetDevice"))]
    pub fn with<R>(&self, f: impl FnOnce(&Context) -> Result<R>) -> Result<R> {
        let guard = self.enter()?;
        let value = f(self)?;
        guard.restore()?;
        Ok(value)
    }

    /// Makes the context current on this thread in place of what was, and returns what was current:
    /// `cuCtxGetCurrent`, then `cuCtxSetCurrent` if it differs.
    ///
    /// The thread keeps the context alive until another call of this crate replaces or pops it, or
    /// the thread ends. Prefer [`Context::enter`], which restores what was current. There is an
    /// example at [`Current`].
    ///
    /// # Errors
    /// [`Error::GivenUp`]; the driver's, with the current context unchanged.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::Context;
    ///
    /// let before = context.set_current()?;
    /// assert_eq!(Context::current()?, Some(context));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxGetCurrent", "cuCtxSetCurrent", "cudaGetDevice", "cudaSetDevice"))]
    #[doc(alias("bind_to_thread"))]
    pub fn set_current(&self) -> Result<Current> {
        let raw = self.live()?;
        let before = current::get()?;
        // Taken first, since the thread's reference may be the last one to that context.
        let replaced = Current::new(before);
        if before != raw {
            current::set_or(before, raw, |_| current::keep_pushed(self))?;
            current::keep_replaced(before, Some(self));
        } else {
            // Other code may have made it current without keeping it alive.
            current::keep_present(self);
        }
        Ok(replaced)
    }

    /// Returns the context that is current on this thread, [`None`] if none is: `cuCtxGetCurrent`.
    ///
    /// A device's primary context is recognised even if other code made it current.
    ///
    /// # Errors
    /// [`Error::UnknownContext`] for a context that other code created: this crate cannot keep it
    /// alive, so its owner has to be given to [`Context::from_raw`].
    ///
    /// ```no_run
    /// use cuda_core::Context;
    ///
    /// match Context::current()? {
    ///     Some(context) => println!("{} is current", context.device()),
    ///     None => println!("nothing is current"),
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxGetCurrent", "cudaGetDevice"))]
    pub fn current() -> Result<Option<Self>> {
        driver::ensure()?;
        let raw = current::get()?;
        if raw.0.is_null() {
            return Ok(None);
        }
        if let Some(context) = known(raw) {
            return Ok(Some(context));
        }
        let device = current::device()?;
        match active_primary(device)? {
            Some(primary) if primary.raw() == raw => Ok(Some(primary.clone())),
            _ => Err(Error::UnknownContext),
        }
    }

    /// Pushes the context on this thread's stack: `cuCtxPushCurrent_v2`. This crate keeps it alive
    /// while it is there.
    ///
    /// # Errors
    /// [`Error::GivenUp`]; the driver's. If the driver's error may stem from earlier work, the context may be
    /// on the stack, and is kept alive there.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::Context;
    ///
    /// context.push()?;
    /// // … a library that goes by the current context …
    /// assert_eq!(Context::pop()?, context); // what was current before is current again
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxPushCurrent"))]
    pub fn push(&self) -> Result<()> {
        let raw = self.live()?;
        let keep_unless_absent = || {
            // Despite the error, the context may be on the stack.
            if !current::get_again().is_ok_and(|now| now != raw) {
                current::keep_pushed(self);
            }
        };
        current::push(raw).map_err(|failed| failed.undo(keep_unless_absent))?;
        current::keep_pushed(self);
        Ok(())
    }

    /// Pops this thread's current context and returns it: `cuCtxPopCurrent_v2`. The context is then
    /// *floating*: any thread may push it.
    ///
    /// # Errors
    /// The driver's `INVALID_CONTEXT` on an empty stack; [`Error::UnknownContext`], with nothing
    /// popped, for a context that other code created.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::Context;
    ///
    /// context.push()?;
    /// let floating = Context::pop()?; // may be pushed on another thread
    /// std::thread::spawn(move || floating.push());
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxPopCurrent"))]
    pub fn pop() -> Result<Self> {
        let Some(top) = Self::current()? else {
            return Err(Error::Driver {
                op: "cuCtxPopCurrent",
                code: cuda_sys::CUDA_ERROR_INVALID_CONTEXT,
            });
        };
        current::keep_replaced(current::pop()?, None);
        Ok(top)
    }
}
