//! Each device's primary context. It is retained at its first use; its state can be read and changed before
//! that.

use std::ptr;
use std::sync::{Mutex, OnceLock};

use cuda_sys::{CUcontext, symbol as cu};

use crate::context::current::Current;
use crate::context::settings::ContextFlags;
use crate::context::{Context, ContextInner, ContextKind, Guard, Ref, peer};
use crate::device::{self, Device, PrimaryContext};
use crate::error::{Error, Result, asked, check};
use crate::process::{Failed, RelaxedCaptureMode, attempt, driver};
use crate::types::MemoryInfo;
use crate::util::{Pocket, get_or_try_init, lock};

/// The result of `cuDevicePrimaryCtxGetState`.
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// let state = device.primary_state()?;
/// println!("in use: {}, with flags {:?}", state.is_active, state.flags);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PrimaryState {
    /// Whether the context exists, created by this crate or by other code.
    pub is_active: bool,
    /// The context's flags, or those that it will be created with.
    pub flags: ContextFlags,
}

/// A device's primary context, once the process has retained it.
#[derive(Default)]
pub(crate) struct Primary {
    // INVARIANT: once set, the context stays retained until the process ends.
    context: OnceLock<Context>,
    /// Held while the context is being retained; the fast path only reads `context`.
    first_use: Mutex<()>,
}

impl Pocket for PrimaryContext {
    type Content = Primary;
}

/// Iterates over the primary contexts that this process has retained through this crate.
pub(crate) fn retained() -> impl Iterator<Item = &'static Context> {
    device::known().filter_map(Device::retained_primary)
}

const RETAIN: &str = "cuDevicePrimaryCtxRetain";

/// Retains the device's primary context, and never releases it.
pub(super) fn retain(device: Device) -> Result<CUcontext> {
    // SAFETY: the driver gave the device's handle; the call writes one context, to an exclusive borrow.
    asked(RETAIN, ptr::null_mut(), |raw| unsafe {
        cu::cuDevicePrimaryCtxRetain(raw, device.as_raw())
    })
}

/// # The primary context
impl Device {
    /// Returns the primary context, retained at its first use and kept for the life of the process:
    /// `cuDevicePrimaryCtxRetain`. The thread's current context stays unchanged.
    ///
    /// # Errors
    /// The driver's, at the first use: `OUT_OF_MEMORY` among them; [`Error::InCallback`].
    ///
    /// ```no_run
    /// use cuda_core::Device;
    ///
    /// let device = Device::get(0)?;
    /// let context = device.context()?; // retained now
    /// assert_eq!(device.context()?, context); // the same one for ever
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDevicePrimaryCtxRetain"))]
    pub fn context(self) -> Result<Context> {
        self.primary().cloned()
    }

    pub(crate) fn primary(self) -> Result<&'static Context> {
        driver::ensure()?;
        let primary = self.primary_pocket();
        if let Some(context) = primary.context.get() {
            return Ok(context);
        }
        // One lock per device: contexts of several devices may be retained at the same time.
        let _first_use = lock(&primary.first_use);
        get_or_try_init(&primary.context, || {
            self.default_pool()?;
            let inner = ContextInner::new(retain(self)?, self, ContextKind::Primary);
            Ok(Context(Ref::Primary(Box::leak(Box::new(inner)))))
        })
    }

    /// Returns the primary context, if this crate has retained it.
    pub(crate) fn retained_primary(self) -> Option<&'static Context> {
        self.primary_pocket().context.get()
    }

    /// Makes the primary context current until the guard is dropped; see [`Guard`].
    ///
    /// # Errors
    /// Those of [`Device::context`], and of [`Context::enter`].
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// {
    ///     let _guard = device.enter()?;
    ///     // cuBLAS, NCCL, the runtime API: whatever looks at the current context sees the device.
    /// }
    /// // What was current before is current again.
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxSetCurrent", "cudaSetDevice"))]
    pub fn enter(self) -> Result<Guard> {
        self.primary()?.enter()
    }

    /// Makes the primary context current on this thread until another is made current, as `cudaSetDevice`
    /// does: [`Context::set_current`] on the primary context.
    ///
    /// # Errors
    /// Those of [`Device::context`] and [`Context::set_current`].
    ///
    /// ```no_run
    /// let _before = cuda_core::Device::get(1)?.set_current()?;
    /// // Whatever looks at the current context sees the second device from now on.
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxSetCurrent", "cudaSetDevice"))]
    pub fn set_current(self) -> Result<Current> {
        self.primary()?.set_current()
    }

    /// Runs `f` with the primary context current, and restores what was current before, also if `f`
    /// panics: [`Device::enter`] for a closure.
    ///
    /// # Errors
    /// Those of `f` and of [`Device::enter`]; those of [`Guard::restore`], which lose the value of `f`.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let free = device.with(|context| context.memory_info())?.free;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxSetCurrent", "cudaSetDevice"))]
    pub fn with<R>(self, f: impl FnOnce(&Context) -> Result<R>) -> Result<R> {
        self.primary()?.with(f)
    }

    /// Waits for all work of the primary context: `cuCtxSynchronize`.
    ///
    /// # Errors
    /// Those of [`Device::context`] and [`Context::synchronize`].
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let stream = device.create_stream()?;
    /// let zeros = stream.alloc_zeroed::<f32>(1 << 20)?;
    /// device.synchronize()?; // waits for all streams of the device's primary context
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxSynchronize", "cudaDeviceSynchronize"))]
    pub fn synchronize(self) -> Result<()> {
        self.primary()?.synchronize()
    }

    /// Free and total memory: `cuMemGetInfo_v2`. Needs the primary context.
    ///
    /// # Errors
    /// Those of [`Device::context`]; the driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// if device.memory_info()?.free < 1 << 30 {
    ///     eprintln!("less than a gibibyte is free");
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemGetInfo", "cudaMemGetInfo", "mem_get_info"))]
    pub fn memory_info(self) -> Result<MemoryInfo> {
        self.primary()?.memory_info()
    }

    /// Whether the primary context exists, and with which flags: `cuDevicePrimaryCtxGetState`.
    /// Creates nothing.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuDevicePrimaryCtxGetState"))]
    pub fn primary_state(self) -> Result<PrimaryState> {
        driver::ensure()?;
        // SAFETY: the driver gave the device's handle; the call writes two ints, to exclusive borrows.
        let (flags, active) = asked("cuDevicePrimaryCtxGetState", (0, 0), |to| unsafe {
            cu::cuDevicePrimaryCtxGetState(self.as_raw(), &mut to.0, &mut to.1)
        })?;
        Ok(PrimaryState { is_active: active != 0, flags: ContextFlags(flags) })
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
    #[doc(alias("cuDevicePrimaryCtxSetFlags", "cudaSetDeviceFlags"))]
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
    /// Nothing of the context is left in this process, whatever code created it: no stream, event, buffer,
    /// module or other object of this crate, the runtime API or another library; no green context of the
    /// device; no [`Library`](crate::Library) with a kernel that was launched or looked up in the context; no
    /// memory that a caching pool keeps ([`CachingPool::trim`](crate::CachingPool::trim)); and no host memory
    /// that was pinned in the context, including what is kept for copies of borrowed slices and for captures
    /// ([`staging::trim`](crate::staging::trim)) and for pinned buffers
    /// ([`PinnedPool::trim`](crate::PinnedPool::trim)). Handles of such objects dangle, and even dropping
    /// them is undefined. No thread has the context on its stack.
    ///
    /// # Errors
    /// The driver's; its `CONTEXT_IS_DESTROYED` if the context comes back with another handle: this process
    /// can then no longer use the device. After an error that may stem from earlier work, the context is
    /// retained again, and peer access has to be enabled again.
    #[doc(alias("cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxRetain", "cudaDeviceReset"))]
    pub unsafe fn reset_primary(self) -> Result<()> {
        driver::ensure()?;
        let _relaxed = RelaxedCaptureMode::enter()?;
        // SAFETY: nothing refers to what is destroyed, by the caller's promise.
        let code = unsafe { cu::cuDevicePrimaryCtxReset_v2(self.as_raw()) };
        let reset = attempt("cuDevicePrimaryCtxReset", code);
        let retained = self.retained_primary();
        if let (Some(context), Ok(()) | Err(Failed::Unknown(_))) = (retained, &reset) {
            // The reset revoked peer access from and to the context.
            peer::forget(context.raw());
            let again = retain(self).and_then(|again| match again == context.as_raw() {
                true => Ok(()),
                false => {
                    let code = cuda_sys::CUDA_ERROR_CONTEXT_IS_DESTROYED;
                    Err(Error::Driver { op: RETAIN, code })
                }
            });
            return reset.map_err(Error::from).and(again);
        }
        Ok(reset?)
    }
}
