//! Names and descriptions of results, without a driver.

use std::ffi::CStr;

use crate::CUresult;

impl CUresult {
    /// The name of the code, such as `CUDA_ERROR_OUT_OF_MEMORY`; [`None`] for a code that CUDA 13.5 does not
    /// have. Unlike [`cuGetErrorName`](crate::cuGetErrorName), this needs no driver, and is the same with
    /// every driver.
    ///
    /// ```
    /// use cuda_sys::{CUDA_ERROR_ILLEGAL_ADDRESS, CUresult};
    ///
    /// assert_eq!(CUDA_ERROR_ILLEGAL_ADDRESS.name(), Some("CUDA_ERROR_ILLEGAL_ADDRESS"));
    /// assert_eq!(CUresult(12345).name(), None);
    /// ```
    pub fn name(self) -> Option<&'static str> {
        self.texts()?.0.to_str().ok()
    }

    /// The meaning of the code, in a few words; [`None`] for a code that CUDA 13.5 does not have.
    ///
    /// ```
    /// assert_eq!(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY.description(), Some("out of memory"));
    /// ```
    pub fn description(self) -> Option<&'static str> {
        self.texts()?.1.to_str().ok()
    }

    /// The name and the description as C strings, for drivers that are built on this crate.
    #[doc(hidden)]
    pub fn texts(self) -> Option<(&'static CStr, &'static CStr)> {
        let found = CODES.binary_search_by_key(&i64::from(self.0), |(code, ..)| i64::from(*code));
        found.ok().map(|at| (CODES[at].1, CODES[at].2))
    }
}

/// The codes of CUDA 13.5, in ascending order.
const CODES: &[(u16, &CStr, &CStr)] = &[
    (0, c"CUDA_SUCCESS", c"no error"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (4, c"CUDA_ERROR_DEINITIALIZED", c"driver shutting down"),
    (5, c"CUDA_ERROR_PROFILER_DISABLED", c"the profiler is not initialised for this run"),
    (6, c"CUDA_ERROR_PROFILER_NOT_INITIALIZED", c"the profiler is not initialised"),
    (7, c"CUDA_ERROR_PROFILER_ALREADY_STARTED", c"the profiler is already started"),
    (8, c"CUDA_ERROR_PROFILER_ALREADY_STOPPED", c"the profiler is already stopped"),
    (34, c"CUDA_ERROR_STUB_LIBRARY", c"the loaded libcuda is the toolkit's stub, not a driver"),
    (
        36,
        c"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
        c"API call is not supported in the installed CUDA driver",
    ),
    (46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"CUDA-capable device(s) is/are busy or unavailable"),
    (47, c"CUDA_ERROR_MULTICAST_RESOURCE_FULL", c"no multicast resources are left"),
    (100, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (102, c"CUDA_ERROR_DEVICE_NOT_LICENSED", c"the device has no licence for this operation"),
    (200, c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid"),
    (201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (202, c"CUDA_ERROR_CONTEXT_ALREADY_CURRENT", c"the context is already current"),
    (205, c"CUDA_ERROR_MAP_FAILED", c"mapping the resource failed"),
    (206, c"CUDA_ERROR_UNMAP_FAILED", c"unmapping the resource failed"),
    (207, c"CUDA_ERROR_ARRAY_IS_MAPPED", c"the array is mapped"),
    (208, c"CUDA_ERROR_ALREADY_MAPPED", c"resource already mapped"),
    (209, c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"no kernel image is available for this device"),
    (210, c"CUDA_ERROR_ALREADY_ACQUIRED", c"the resource is already acquired"),
    (211, c"CUDA_ERROR_NOT_MAPPED", c"the resource is not mapped"),
    (212, c"CUDA_ERROR_NOT_MAPPED_AS_ARRAY", c"the resource is not mapped as an array"),
    (213, c"CUDA_ERROR_NOT_MAPPED_AS_POINTER", c"the resource is not mapped as a pointer"),
    (214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"uncorrectable ECC error encountered"),
    (215, c"CUDA_ERROR_UNSUPPORTED_LIMIT", c"limit is not supported on this architecture"),
    (216, c"CUDA_ERROR_CONTEXT_ALREADY_IN_USE", c"the context is current to another thread"),
    (
        217,
        c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
        c"peer access is not supported between these two devices",
    ),
    (218, c"CUDA_ERROR_INVALID_PTX", c"the PTX could not be compiled"),
    (219, c"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", c"the OpenGL or DirectX context is invalid"),
    (220, c"CUDA_ERROR_NVLINK_UNCORRECTABLE", c"uncorrectable NVLink error encountered"),
    (221, c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", c"the library of the PTX compiler was not found"),
    (222, c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", c"the PTX is newer than the driver's compiler"),
    (223, c"CUDA_ERROR_JIT_COMPILATION_DISABLED", c"compilation of PTX is disabled"),
    (
        224,
        c"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY",
        c"the device does not support this execution affinity",
    ),
    (
        225,
        c"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC",
        c"the code calls cudaDeviceSynchronize on the device",
    ),
    (226, c"CUDA_ERROR_CONTAINED", c"an error on the device ended the context and was contained"),
    (
        227,
        c"CUDA_ERROR_INSUFFICIENT_LOADER_VERSION",
        c"the code needs a newer loader than the driver has",
    ),
    (300, c"CUDA_ERROR_INVALID_SOURCE", c"the device code is invalid"),
    (301, c"CUDA_ERROR_FILE_NOT_FOUND", c"file not found"),
    (
        302,
        c"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
        c"a symbol of a shared object was not found",
    ),
    (303, c"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", c"shared object initialization failed"),
    (304, c"CUDA_ERROR_OPERATING_SYSTEM", c"OS call failed or operation not supported on this OS"),
    (400, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (401, c"CUDA_ERROR_ILLEGAL_STATE", c"the operation cannot be performed in the present state"),
    (402, c"CUDA_ERROR_LOSSY_QUERY", c"the query would lose information"),
    (500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (600, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
    (701, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", c"too many resources requested for launch"),
    (702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the launch timed out and was terminated"),
    (703, c"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", c"the launch uses incompatible texturing"),
    (704, c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", c"peer access is already enabled"),
    (705, c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", c"peer access has not been enabled"),
    (
        708,
        c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
        c"cannot set while device is active in this process",
    ),
    (709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed"),
    (710, c"CUDA_ERROR_ASSERT", c"a kernel's assertion failed"),
    (711, c"CUDA_ERROR_TOO_MANY_PEERS", c"peer mapping resources exhausted"),
    (
        712,
        c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        c"part or all of the requested memory range is already mapped",
    ),
    (
        713,
        c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
        c"pointer does not correspond to a registered memory region",
    ),
    (
        714,
        c"CUDA_ERROR_HARDWARE_STACK_ERROR",
        c"the call stack of a kernel is corrupt or overflowed",
    ),
    (715, c"CUDA_ERROR_ILLEGAL_INSTRUCTION", c"an illegal instruction was encountered"),
    (716, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"a misaligned address was accessed"),
    (
        717,
        c"CUDA_ERROR_INVALID_ADDRESS_SPACE",
        c"an instruction got an address of the wrong address space",
    ),
    (718, c"CUDA_ERROR_INVALID_PC", c"the program counter is invalid"),
    (719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
    (
        720,
        c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        c"more blocks in a cooperative launch than fit the device at once",
    ),
    (721, c"CUDA_ERROR_TENSOR_MEMORY_LEAK", c"a block ended without freeing its tensor memory"),
    (800, c"CUDA_ERROR_NOT_PERMITTED", c"operation not permitted"),
    (801, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
    (802, c"CUDA_ERROR_SYSTEM_NOT_READY", c"the system is not ready for CUDA"),
    (
        803,
        c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        c"the display driver does not match the CUDA driver",
    ),
    (
        804,
        c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        c"the device does not support forward compatibility",
    ),
    (805, c"CUDA_ERROR_MPS_CONNECTION_FAILED", c"no connection to the MPS control daemon"),
    (806, c"CUDA_ERROR_MPS_RPC_FAILURE", c"a call to the MPS server failed"),
    (807, c"CUDA_ERROR_MPS_SERVER_NOT_READY", c"the MPS server takes no new clients at the moment"),
    (
        808,
        c"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
        c"the MPS server has as many clients as it can have",
    ),
    (
        809,
        c"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
        c"the device has as many MPS connections as it can have",
    ),
    (810, c"CUDA_ERROR_MPS_CLIENT_TERMINATED", c"the MPS server terminated the client"),
    (
        811,
        c"CUDA_ERROR_CDP_NOT_SUPPORTED",
        c"the module uses dynamic parallelism, which MPS does not support",
    ),
    (
        812,
        c"CUDA_ERROR_CDP_VERSION_MISMATCH",
        c"the modules use different versions of dynamic parallelism",
    ),
    (
        900,
        c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        c"operation not permitted when stream is capturing",
    ),
    (
        901,
        c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        c"operation failed due to a previous error during capture",
    ),
    (
        902,
        c"CUDA_ERROR_STREAM_CAPTURE_MERGE",
        c"operation would result in a merge of separate capture sequences",
    ),
    (
        903,
        c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        c"capture was not ended in the same stream as it began",
    ),
    (904, c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", c"capturing stream has unjoined work"),
    (
        905,
        c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        c"dependency created on uncaptured work in another stream",
    ),
    (
        906,
        c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        c"operation would make the legacy stream depend on a capturing blocking stream",
    ),
    (
        907,
        c"CUDA_ERROR_CAPTURED_EVENT",
        c"operation not permitted on an event last recorded in a capturing stream",
    ),
    (
        908,
        c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
        c"attempt to terminate a thread-local capture sequence from another thread",
    ),
    (909, c"CUDA_ERROR_TIMEOUT", c"a time limit was exceeded"),
    (
        910,
        c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
        c"the changes cannot be made to an instantiated graph",
    ),
    (
        911,
        c"CUDA_ERROR_EXTERNAL_DEVICE",
        c"an error occurred in a device outside of CUDA's control",
    ),
    (912, c"CUDA_ERROR_INVALID_CLUSTER_SIZE", c"the launch's cluster size is invalid"),
    (913, c"CUDA_ERROR_FUNCTION_NOT_LOADED", c"the function is not loaded"),
    (914, c"CUDA_ERROR_INVALID_RESOURCE_TYPE", c"a resource has the wrong type"),
    (
        915,
        c"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
        c"resources are too few, or their configuration is invalid",
    ),
    (916, c"CUDA_ERROR_KEY_ROTATION", c"a key is being rotated"),
    (917, c"CUDA_ERROR_STREAM_DETACHED", c"the stream is detached from its context"),
    (918, c"CUDA_ERROR_GRAPH_RECAPTURE_FAILURE", c"the graph cannot be captured again"),
    (919, c"CUDA_ERROR_FABRIC_NOT_READY", c"the fabric is not ready"),
    (999, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_header_has_its_name() {
        let constants = include_str!("bindings/constants.rs");
        let codes = constants.split("pub const ").filter_map(|constant| {
            let (name, value) = constant.split_once(": cudaError_enum =")?;
            let (number, _) = value.trim().strip_prefix("cudaError_enum(")?.split_once(')')?;
            Some((name, number.trim_matches([' ', ',', '\n']).parse().ok()?))
        });
        let mut seen = 0;
        for (name, number) in codes {
            assert_eq!(CUresult(number).name(), Some(name));
            seen += 1;
        }
        assert_eq!(seen, CODES.len());
        assert!(CODES.is_sorted_by(|one, next| one.0 < next.0));
    }
}
