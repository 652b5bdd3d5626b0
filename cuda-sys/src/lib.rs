//! Raw FFI of the CUDA driver API.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("CUDA has 64-bit drivers only");

#[macro_use]
mod api;
mod load;

/// Everything that is generated from `cuda.h`; the build script may put another header's in place.
#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "generated: C's own names, C's own layout"
)]
#[cfg(not(cuda_sys_generated))]
mod bindings;

#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "generated: C's own names, C's own layout"
)]
#[cfg(cuda_sys_generated)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings/mod.rs"));
}

pub use bindings::names::*;
pub use bindings::symbol;
pub use bindings::*;
pub use load::{Attempt, InstallError, LoadError, install, load};

/// A function was called that the loaded driver does not have.
///
/// Declared here because headers name it only from CUDA 13.0 on.
pub const CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER: CUresult = bindings::cudaError_enum(36);
