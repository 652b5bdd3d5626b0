//! NCCL's own types and numbers, as in `nccl.h` of 2.18 and newer.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

pub(crate) use cuda_sys::os::NcclUniqueId as UniqueId;

/// `ncclComm_t`: a handle.
pub(crate) type RawComm = *mut c_void;

/// `ncclResult_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Code(pub(crate) c_int);

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const UNHANDLED_CUDA_ERROR: Self = Self(1);
    pub(crate) const SYSTEM_ERROR: Self = Self(2);
    pub(crate) const INTERNAL_ERROR: Self = Self(3);
    pub(crate) const INVALID_ARGUMENT: Self = Self(4);
    pub(crate) const INVALID_USAGE: Self = Self(5);
    pub(crate) const IN_PROGRESS: Self = Self(7);

    pub(crate) fn text(self) -> &'static CStr {
        match self.0 {
            0 => c"no error",
            1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
            2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
            3 => c"internal error - please report this issue to the NCCL developers",
            4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
            5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
            6 => c"remote process exited or there was a network error",
            7 => c"NCCL operation in progress",
            _ => c"unknown result code",
        }
    }
}

/// The result of a function: success, or an error code.
pub(crate) type Answer<T = ()> = Result<T, Code>;

/// The first fields of `ncclConfig_t`, which all versions have.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Config {
    pub(crate) size: usize,
    pub(crate) magic: c_uint,
    pub(crate) version: c_uint,
    pub(crate) blocking: c_int,
}

pub(crate) const MAGIC: c_uint = 0xcafe_beef;

/// `NCCL_CONFIG_UNDEF_INT`.
pub(crate) const UNDEFINED: c_int = c_int::MIN;

/// `NCCL_SPLIT_NOCOLOR`.
pub(crate) const NO_COLOR: c_int = -1;

/// `NCCL_SHRINK_DEFAULT` and `NCCL_SHRINK_ABORT`.
pub(crate) const SHRINK_DEFAULT: c_int = 0;
pub(crate) const SHRINK_ABORT: c_int = 1;

/// The version of the simulated NCCL: 2.29.3.
pub(crate) const VERSION: c_int = 22903;

/// `ncclNumOps`: the least number of a reduction that a program created.
pub(crate) const BUILT_IN: c_int = 5;

/// `ncclScalarDevice`; the other residence is the host.
pub(crate) const SCALAR_ON_DEVICE: c_int = 0;

/// C's `const char *`.
pub(crate) type Text = *const c_char;
