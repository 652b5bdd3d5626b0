//! Ranges for profilers that were started with recording off.

use std::ffi::{CStr, c_void};
use std::ptr;

use cuda_sys::{CUresult, symbol as cu};

use crate::context::Context;
use crate::error::{Error, Rejected, Result, check};
use crate::process::{Failed, Owned, Release};
use crate::types::Resource;
use crate::util::{debug_by, library};

/// # Profiling
impl Context {
    /// Starts recording of the context by a profiler that was started with recording off, as with
    /// `nsys profile --capture-range=cudaProfilerApi`: `cuProfilerStart`. Does nothing without a profiler.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// context.start_profiler()?;
    /// // … what is to be looked at …
    /// context.stop_profiler()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuProfilerStart", "cudaProfilerStart"))]
    pub fn start_profiler(&self) -> Result<()> {
        let _entered = self.enter_briefly()?;
        call("cuProfilerStart", c"cuProfilerStart")
    }

    /// Stops recording by profilers: `cuProfilerStop`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuProfilerStop", "cudaProfilerStop"))]
    pub fn stop_profiler(&self) -> Result<()> {
        let _entered = self.enter_briefly()?;
        call("cuProfilerStop", c"cuProfilerStop")
    }

    /// Records while the range lives: [`Context::start_profiler`] now, and [`Context::stop_profiler`] when
    /// the range is dropped.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// {
    ///     let _range = context.profile()?;
    ///     // … what is to be looked at, also if it returns early or panics …
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuProfilerStart", "cudaProfilerStart"))]
    pub fn profile(&self) -> Result<ProfilerRange> {
        self.start_profiler()?;
        Ok(ProfilerRange(Owned::new(ProfiledContext(self.clone()))))
    }
}

/// Calls one of the two functions, which `cudaProfiler.h` declares and `cuda.h` does not:
/// `cuGetProcAddress` finds them.
fn call(op: &'static str, symbol: &CStr) -> Result<()> {
    /// The oldest supported CUDA release, which has both functions with the signature below.
    const SINCE: i32 = 11080;
    let mut function: *mut c_void = ptr::null_mut();
    // SAFETY: the name is NUL-terminated and read during the call only, which writes one pointer,
    // to a local that outlives it; flags may be zero.
    check("cuGetProcAddress", unsafe {
        cu::cuGetProcAddress(symbol.as_ptr(), &mut function, SINCE, 0)
    })?;
    // SAFETY: "CUresult cuProfilerStart(void)", and Stop alike, since CUDA 4.0; null is `None`.
    let function = unsafe { library::function::<unsafe extern "C" fn() -> CUresult>(function) };
    let Some(function) = function else {
        let code = cuda_sys::CUDA_ERROR_NOT_FOUND;
        return Err(Error::Driver { op, code });
    };
    // SAFETY: takes nothing.
    check(op, unsafe { function() })
}

/// A range that profilers record, while it lives; see [`Context::profile`].
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// let range = context.profile()?;
/// // … what is to be looked at …
/// range.close()?; // says whether it worked; a drop does not
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[must_use = "the profiler records only while the range lives"]
pub struct ProfilerRange(Owned<ProfiledContext>);

/// A context that profilers record.
struct ProfiledContext(Context);

impl ProfilerRange {
    /// Ends the range. Dropping it reports a failure to the hook of
    /// [`drops::set_hook`](crate::drops::set_hook) instead.
    ///
    /// # Errors
    /// The driver's, with the range itself.
    pub fn close(mut self) -> Result<(), Rejected<Self>> {
        self.0.release().map_err(|error| Rejected::new(error, self))
    }
}

impl Release for ProfiledContext {
    const RESOURCE: Resource = Resource::ProfilerRange;

    fn number(&self) -> u64 {
        0
    }

    /// After a failure, profilers may still be recording.
    fn release(&mut self) -> Result<(), Failed> {
        Ok(self.0.stop_profiler()?)
    }
}

debug_by! { [] ProfilerRange: |it| "ProfilerRange"(it.0.0) }
