//! What a program asks of an error.

use cuda_sys::CUresult;

use crate::device::Device;
use crate::error::{AllocatorError, Error, ModuleError};

impl Error {
    /// The driver's code; and `CUDA_ERROR_OUT_OF_MEMORY` where a pool, a limit or an allocator had no
    /// memory, whether or not the driver was asked. Of a group's error, that of its device.
    pub fn code(&self) -> Option<CUresult> {
        match self {
            Error::Driver { code, .. } => Some(*code),
            Error::OutOfMemory { .. }
            | Error::PoolExhausted { .. }
            | Error::Allocator(
                AllocatorError::LimitExceeded { .. } | AllocatorError::Null { .. },
            ) => Some(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY),
            Error::NoDriver(_) => Some(cuda_sys::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED),
            Error::Module(ModuleError::Compile { code, .. }) => Some(*code),
            Error::Module(ModuleError::NotFound { .. }) => Some(cuda_sys::CUDA_ERROR_NOT_FOUND),
            Error::OnDevice { error, .. } => error.code(),
            _ => None,
        }
    }

    /// `true`: the context is lost; every further call on it fails with this error, and only a new
    /// process brings the device back.
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
        let code = match self {
            Error::Driver { code, .. } => code,
            Error::OnDevice { error, .. } => return error.is_sticky(),
            _ => return false,
        };
        [
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
        ]
        .contains(code)
    }

    /// Work is still pending: `cuEventElapsedTime` before the events have completed.
    pub fn is_not_ready(&self) -> bool {
        self.code() == Some(cuda_sys::CUDA_ERROR_NOT_READY)
    }

    /// Says which device of several it concerns.
    pub(crate) fn on(self, device: Device) -> Self {
        Error::OnDevice {
            device: device.ordinal(),
            error: Box::new(self),
        }
    }

    /// Says what was not found, where that is what the driver says.
    pub(crate) fn naming(self, name: &str) -> Self {
        match self {
            Error::Driver { op, code } if code == cuda_sys::CUDA_ERROR_NOT_FOUND => {
                let name = name.to_owned();
                ModuleError::NotFound { op, name }.into()
            }
            other => other,
        }
    }

    /// The driver is shutting down with the process, or has: nothing a `Drop` could report.
    pub(crate) fn is_shutdown(&self) -> bool {
        if let Error::OnDevice { error, .. } = self {
            return error.is_shutdown();
        }
        matches!(self, Error::Exiting | Error::Forked)
            || self.code() == Some(cuda_sys::CUDA_ERROR_DEINITIALIZED)
    }
}
