//! The primary context's state, read and changed without creating it.

use std::ptr;

use cuda_sys::symbol as cu;

use crate::capture::Relaxed;
use crate::context::settings::ContextFlags;
use crate::device::Device;
use crate::driver;
use crate::error::{Error, Result, check};

/// The result of `cuDevicePrimaryCtxGetState`.
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// let state = device.primary_state()?;
/// println!("in use: {}, with flags {:?}", state.is_active, state.flags);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrimaryState {
    /// Whether the context exists, created by this crate or by other code.
    pub is_active: bool,
    /// Its flags, or those that it will be created with.
    pub flags: ContextFlags,
}

impl Device {
    /// Whether the primary context exists, and with which flags: `cuDevicePrimaryCtxGetState`.
    /// Creates nothing.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let state = device.primary_state()?;
    /// println!("active: {}, flags: {:?}", state.is_active, state.flags);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn primary_state(self) -> Result<PrimaryState> {
        driver::ensure()?;
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the driver gave the device's handle; the call writes two ints, to locals that
        // outlive it.
        check("cuDevicePrimaryCtxGetState", unsafe {
            cu::cuDevicePrimaryCtxGetState(self.as_raw(), &mut flags, &mut active)
        })?;
        Ok(PrimaryState {
            is_active: active != 0,
            flags: ContextFlags(flags),
        })
    }

    /// Whether the primary context exists, created by this crate or by other code:
    /// `cuDevicePrimaryCtxGetState`.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let before = device.is_primary_active()?; // unless others did, nobody has made it yet
    /// device.context()?;
    /// assert!(device.is_primary_active()?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn is_primary_active(self) -> Result<bool> {
        self.primary_state().map(|state| state.is_active)
    }

    /// Sets how threads wait in the primary context, immediately if it exists, else when it is
    /// created: `cuDevicePrimaryCtxSetFlags_v2`.
    ///
    /// # Errors
    /// The driver's: `INVALID_VALUE` for flags that exclude each other.
    ///
    /// ```no_run
    /// use cuda_core::{ContextFlags, Device};
    ///
    /// let device = Device::get(0)?;
    /// device.set_primary_flags(ContextFlags::SCHED_BLOCKING_SYNC)?;
    /// assert_eq!(device.context()?.flags()?, ContextFlags::SCHED_BLOCKING_SYNC);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn set_primary_flags(self, flags: ContextFlags) -> Result<()> {
        driver::ensure()?;
        // SAFETY: takes no pointer; flags that exclude each other are an error.
        check("cuDevicePrimaryCtxSetFlags", unsafe {
            cu::cuDevicePrimaryCtxSetFlags_v2(self.as_raw(), flags.0)
        })
    }

    /// Destroys everything in the primary context: `cuDevicePrimaryCtxReset_v2`. If this crate had
    /// retained it, it is retained again: `cuDevicePrimaryCtxRetain`.
    ///
    /// # Safety
    /// Nothing of the context is left in this process, by whatever code it was created: no stream,
    /// event, buffer, module or other object of this crate, the runtime API's or another library's,
    /// no green context of the device; no memory that a caching pool keeps
    /// ([`CachingPool::trim`](crate::CachingPool::trim)); and no host memory that was pinned in it,
    /// including what is kept for copies of borrowed slices ([`trim_staging`](crate::trim_staging))
    /// and for pinned buffers ([`trim_pinned`](crate::trim_pinned)). Handles of such objects
    /// dangle, and even dropping them is undefined. No thread has the context on its stack.
    ///
    /// # Errors
    /// The driver's; its `CONTEXT_IS_DESTROYED` if the context comes back with another handle: this
    /// process can then not use the device any more.
    pub unsafe fn reset_primary(self) -> Result<()> {
        driver::ensure()?;
        let _relaxed = Relaxed::enter()?;
        // SAFETY: nothing refers to what is destroyed, by the caller's promise.
        check("cuDevicePrimaryCtxReset", unsafe {
            cu::cuDevicePrimaryCtxReset_v2(self.as_raw())
        })?;
        let Some(context) = self.retained_primary() else {
            return Ok(());
        };
        let op = "cuDevicePrimaryCtxRetain";
        let mut raw = ptr::null_mut();
        // SAFETY: the driver gave the device's handle; the call writes one context, to a local that
        // outlives it.
        check(op, unsafe {
            cu::cuDevicePrimaryCtxRetain(&mut raw, self.as_raw())
        })?;
        if raw != context.as_raw() {
            let code = cuda_sys::CUDA_ERROR_CONTEXT_IS_DESTROYED;
            return Err(Error::Driver { op, code });
        }
        Ok(())
    }
}
