//! Creating contexts.

use std::ptr;

use cuda_sys::symbol as cu;

use super::settings::ContextFlags;
use super::{Context, ContextKind};
use crate::context::current;
use crate::device::Device;
use crate::error::Result;
use crate::process::{attempt, driver};

/// # Creating contexts
impl Context {
    /// Creates a context beside the primary one and leaves the thread's current context unchanged:
    /// `cuCtxCreate_v2`, then `cuCtxPopCurrent_v2`.
    ///
    /// Most programs want [`Device::context`] instead, which other libraries share.
    ///
    /// # Errors
    /// The driver's: `INVALID_VALUE` for flags that it does not know, `OUT_OF_MEMORY` if the device
    /// has no room for the context. The current context stays unchanged.
    ///
    /// ```no_run
    /// use cuda_core::{Context, ContextFlags, Device};
    ///
    /// let context = Context::new(Device::get(0)?, ContextFlags::SCHED_BLOCKING_SYNC)?;
    /// let stream = context.create_stream()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxCreate", "cuCtxPopCurrent"))]
    pub fn new(device: Device, flags: ContextFlags) -> Result<Self> {
        let context = Self::create_pushed(device, flags)?;
        // If the pop fails and the context is still current, pops again: in any case the caller's context
        // must become current again. If the pop fails twice, dropping the context destroys it, which pops it
        // too.
        if let Err(first) = current::pop() {
            if current::get_again()? == context.raw() {
                current::pop().map_err(|_| first)?;
            }
        }
        Ok(context)
    }

    /// Creates a context, pushes it on the thread's stack and leaves it current: `cuCtxCreate_v2`.
    /// [`Context::pop`] makes the former context current again.
    ///
    /// # Errors
    /// Those of [`Context::new`]; nothing is pushed then.
    ///
    /// ```no_run
    /// use cuda_core::{Context, ContextFlags, Device};
    ///
    /// let context = Context::new_current(Device::get(0)?, ContextFlags::SCHED_BLOCKING_SYNC)?;
    /// assert_eq!(Context::current()?, Some(context));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxCreate"))]
    pub fn new_current(device: Device, flags: ContextFlags) -> Result<Self> {
        let context = Self::create_pushed(device, flags)?;
        current::keep_pushed(&context);
        Ok(context)
    }

    fn create_pushed(device: Device, flags: ContextFlags) -> Result<Self> {
        driver::ensure()?;
        device.default_pool()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the driver gave the device's handle; the call writes one context, to a local that
        // outlives it; flags that it does not know are an error.
        let created = attempt("cuCtxCreate", unsafe {
            cu::cuCtxCreate_v2(&mut raw, flags.0, device.as_raw())
        });
        match created {
            Ok(()) => Ok(Self::register(raw, device, ContextKind::Created)),
            Err(failed) => Err(failed.undo(|| {
                // Despite the error, the context may have been created and pushed.
                if !raw.is_null() && current::get_again().is_ok_and(|now| now.0 == raw) {
                    drop(Self::register(raw, device, ContextKind::Created));
                }
            })),
        }
    }
}
