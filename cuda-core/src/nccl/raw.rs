//! Types and constants of `nccl.h` in NCCL 2.18, which later versions have not changed.
//! `tests/abi.rs` compares them with a header, if there is one.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

/// `ncclComm_t`.
pub(super) type RawCommunicator = *mut c_void;

pub(super) use cuda_sys::os::NcclUniqueId as RawUniqueId;

/// `NCCL_UNIQUE_ID_BYTES`.
pub(super) const UNIQUE_ID_BYTES: usize = 128;

// `ncclResult_t`.
pub(super) const SUCCESS: c_int = 0;
pub(super) const IN_PROGRESS: c_int = 7;

// `ncclRedOp_t`.
pub(super) const SUM: c_int = 0;
pub(super) const PROD: c_int = 1;
pub(super) const MAX: c_int = 2;
pub(super) const MIN: c_int = 3;
pub(super) const AVG: c_int = 4;

/// A number of no `ncclRedOp_t`, which NCCL refuses.
pub(super) const NO_REDUCTION: c_int = -1;

// `ncclDataType_t`.
pub(super) const INT8: c_int = 0;
pub(super) const UINT8: c_int = 1;
pub(super) const INT32: c_int = 2;
pub(super) const UINT32: c_int = 3;
pub(super) const INT64: c_int = 4;
pub(super) const UINT64: c_int = 5;
pub(super) const FLOAT16: c_int = 6;
pub(super) const FLOAT32: c_int = 7;
pub(super) const FLOAT64: c_int = 8;
pub(super) const BFLOAT16: c_int = 9;

/// `ncclScalarHostImmediate`.
pub(super) const SCALAR_HOST_IMMEDIATE: c_int = 1;

/// `NCCL_SPLIT_NOCOLOR`.
pub(super) const SPLIT_NOCOLOR: c_int = -1;

/// `NCCL_SHRINK_DEFAULT` and `NCCL_SHRINK_ABORT`, of NCCL 2.27.
pub(super) const SHRINK_DEFAULT: c_int = 0;
pub(super) const SHRINK_ABORT: c_int = 1;

/// `NCCL_CONFIG_UNDEF_INT`.
pub(super) const UNDEF_INT: c_int = c_int::MIN;
/// `NCCL_API_MAGIC`.
const API_MAGIC: c_uint = 0xcafe_beef;
/// `NCCL_VERSION_CODE` of NCCL 2.18.1: later versions read the fields of 2.18.1 from the
/// configuration, and use their defaults for the others.
const VERSION_CODE: c_uint = 21801;

/// `ncclConfig_t` of NCCL 2.18.
#[repr(C)]
pub(super) struct RawConfig {
    size: usize,
    magic: c_uint,
    version: c_uint,
    pub(super) blocking: c_int,
    pub(super) cga_cluster_size: c_int,
    pub(super) min_ctas: c_int,
    pub(super) max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    /// Padding in 2.18, but within its size; a field since 2.25, for which this value selects the
    /// default.
    traffic_class: c_int,
}

/// The size of the configuration in NCCL 2.18, with its padding.
const CONFIG_BYTES: usize = 48;

const _: () = assert!(size_of::<RawConfig>() == CONFIG_BYTES);

impl RawConfig {
    /// `NCCL_CONFIG_INITIALIZER`.
    pub(super) const DEFAULT: Self = Self {
        size: CONFIG_BYTES,
        magic: API_MAGIC,
        version: VERSION_CODE,
        blocking: UNDEF_INT,
        cga_cluster_size: UNDEF_INT,
        min_ctas: UNDEF_INT,
        max_ctas: UNDEF_INT,
        net_name: ptr::null(),
        split_share: UNDEF_INT,
        traffic_class: UNDEF_INT,
    };
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::RawConfig;

    /// `tests/oracle/nccl.rs` checks the same in C.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn the_configuration_is_laid_out_as_in_c() {
        let offsets = [
            offset_of!(RawConfig, size),
            offset_of!(RawConfig, magic),
            offset_of!(RawConfig, version),
            offset_of!(RawConfig, blocking),
            offset_of!(RawConfig, cga_cluster_size),
            offset_of!(RawConfig, min_ctas),
            offset_of!(RawConfig, max_ctas),
            offset_of!(RawConfig, net_name),
            offset_of!(RawConfig, split_share),
        ];
        assert_eq!(offsets, [0, 8, 12, 16, 20, 24, 28, 32, 40]);
    }
}
