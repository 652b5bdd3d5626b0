//! Queries about an error.

use std::iter;

use cuda_sys::CUresult;

use crate::error::{AllocatorError, Error, LaunchError, ModuleError, Other};

/// # Queries
impl Error {
    /// Returns the driver's code; `CUDA_ERROR_OUT_OF_MEMORY` if a pool, a limit or an allocator had no
    /// memory, whether or not the driver was called. For a group's error, returns that of its device.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// use cuda_core::sys;
    ///
    /// let rank = device.p2p_attribute(device, sys::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK);
    /// let error = rank.unwrap_err(); // there is no link from a device to itself
    /// assert_eq!(error.code(), Some(sys::CUDA_ERROR_INVALID_DEVICE));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn code(&self) -> Option<CUresult> {
        match self {
            Error::Driver { code, .. } => Some(*code),
            Error::OutOfHostMemory(_) | Error::OutOfMemory(_) | Error::PoolExhausted(_) => {
                Some(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY)
            }
            Error::Allocator(it) => match **it {
                AllocatorError::LimitExceeded { .. } | AllocatorError::Null { .. } => {
                    Some(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY)
                }
                AllocatorError::Failed { .. } => None,
            },
            Error::NoDriver(_) => Some(cuda_sys::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED),
            Error::Module(it) => match **it {
                ModuleError::Compile { code, .. } => Some(code),
                ModuleError::NotFound { .. } => Some(cuda_sys::CUDA_ERROR_NOT_FOUND),
                ModuleError::File { .. } => None,
            },
            Error::Launch(it) => match **it {
                LaunchError::Refused { code, .. } => Some(code),
                _ => None,
            },
            Error::OnDevice { error, .. } => error.code(),
            // An error of the program that is caused by an error of this crate.
            Error::Other(Other(error)) => {
                let first: &(dyn std::error::Error + 'static) = &**error;
                let mut causes = iter::successors(Some(first), |error| error.source());
                causes.find_map(|cause| cause.downcast_ref::<Error>()?.code())
            }
            _ => None,
        }
    }

    /// Whether the context is lost: every further call on it fails with this error, and only a new
    /// process makes the device usable again; after `CONTEXT_IS_DESTROYED` (709), another context
    /// works, too. `EXTERNAL_DEVICE` (911) does not count, since it is sticky only if earlier work
    /// failed, and not if the call did. Errors of NCCL do not count either, since NCCL names no cause:
    /// after its result 1, `ncclUnhandledCudaError`,
    /// [`Stream::synchronize`](crate::Stream::synchronize) says whether the context is lost.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// if let Err(error) = stream.synchronize() {
    ///     if error.is_sticky() {
    ///         std::process::exit(1); // a kernel went wrong: nothing works here any more
    ///     }
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn is_sticky(&self) -> bool {
        let sticky = [
            cuda_sys::CUDA_ERROR_ECC_UNCORRECTABLE,
            cuda_sys::CUDA_ERROR_NVLINK_UNCORRECTABLE,
            cuda_sys::CUDA_ERROR_ILLEGAL_ADDRESS,
            cuda_sys::CUDA_ERROR_LAUNCH_TIMEOUT,
            cuda_sys::CUDA_ERROR_CONTEXT_IS_DESTROYED,
            cuda_sys::CUDA_ERROR_ASSERT,
            cuda_sys::CUDA_ERROR_HARDWARE_STACK_ERROR,
            cuda_sys::CUDA_ERROR_ILLEGAL_INSTRUCTION,
            cuda_sys::CUDA_ERROR_MISALIGNED_ADDRESS,
            cuda_sys::CUDA_ERROR_INVALID_ADDRESS_SPACE,
            cuda_sys::CUDA_ERROR_INVALID_PC,
            cuda_sys::CUDA_ERROR_LAUNCH_FAILED,
            cuda_sys::CUDA_ERROR_MPS_CLIENT_TERMINATED,
            // CUDA_ERROR_CONTAINED and CUDA_ERROR_TENSOR_MEMORY_LEAK, which older headers lack.
            CUresult(226),
            CUresult(721),
        ];
        self.code().is_some_and(|code| sticky.contains(&code))
    }

    /// Whether work is still pending, as when a time is queried before the events have completed.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::EventFlags;
    ///
    /// let start = stream.record_event(EventFlags::DEFAULT)?;
    /// let end = stream.record_event(EventFlags::DEFAULT)?;
    /// match end.elapsed_since(&start) {
    ///     Ok(time) => println!("{time:?}"),
    ///     Err(error) if error.is_not_ready() => println!("it is still running"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn is_not_ready(&self) -> bool {
        self.code() == Some(cuda_sys::CUDA_ERROR_NOT_READY)
    }

    /// Whether memory ran out: of a device, of the host, of a pool or within a limit. The call may
    /// succeed once memory has been freed.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut len = 1 << 30;
    /// let scratch = loop {
    ///     match stream.alloc::<u8>(len) {
    ///         Err(error) if error.is_out_of_memory() && len > 1 << 20 => len /= 2,
    ///         other => break other?,
    ///     }
    /// };
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn is_out_of_memory(&self) -> bool {
        self.code() == Some(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Whether the request alone exceeds a limit, so that freeing memory does not help.
    pub(crate) fn is_beyond_a_limit(&self) -> bool {
        match self {
            Error::Allocator(it) => {
                matches!(**it, AllocatorError::LimitExceeded { requested, limit, .. } if requested > limit)
            }
            // A pool may hold more than its limit, if the limit was lowered later.
            Error::PoolExhausted(it) => {
                it.usage.limit.is_some_and(|limit| it.requested > limit.max(it.usage.reserved))
            }
            _ => false,
        }
    }

    /// Adds the name that was looked up, if the driver did not find it.
    pub(crate) fn naming(self, name: &str) -> Self {
        self.naming_one_of(name, Default::default)
    }

    /// [`Error::naming`] where `list` returns the first kernels of the module, and their number.
    pub(crate) fn naming_one_of(
        self,
        name: &str,
        list: impl FnOnce() -> (Vec<String>, usize),
    ) -> Self {
        match self {
            Error::Driver { op, code } if code == cuda_sys::CUDA_ERROR_NOT_FOUND => {
                let (name, (kernels, count)) = (name.to_owned(), list());
                ModuleError::NotFound { op, name, kernels, count }.into()
            }
            other => other,
        }
    }

    /// Whether the driver is shutting down or has shut down: a `Drop` then reports nothing.
    pub(crate) fn is_shutdown(&self) -> bool {
        if let Error::OnDevice { error, .. } = self {
            return error.is_shutdown();
        }
        matches!(self, Error::Exiting | Error::Forked)
            || self.code() == Some(cuda_sys::CUDA_ERROR_DEINITIALIZED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32) -> Error {
        Error::Driver { op: "cuCtxSynchronize", code: CUresult(code as _) }
    }

    /// Checks every code for which cuda.h says that "the process must be terminated and relaunched", or
    /// that the context "cannot be used anymore"; and some that are not sticky.
    #[test]
    fn sticky_is_what_the_reference_calls_so() {
        for code in [226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810] {
            assert!(error(code).is_sticky(), "{code}");
        }
        for code in [1, 2, 201, 600, 701, 720, 801, 807, 911] {
            assert!(!error(code).is_sticky(), "{code}");
        }
    }

    #[test]
    fn memory_runs_out_with_and_without_the_driver() {
        let limit = AllocatorError::LimitExceeded { requested: 2, used: 1, limit: 2 };
        assert!(error(2).is_out_of_memory());
        assert!(Error::from(limit).is_out_of_memory());
        assert!(!error(1).is_out_of_memory());
        assert!(!Error::InCallback.is_out_of_memory());
    }
}
