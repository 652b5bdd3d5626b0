//! Raw FFI of the CUDA driver API.

#[macro_use]
mod api;
mod load;

/// Everything that is generated from `cuda.h`.
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    reason = "generated: C's own names, C's own layout"
)]
mod bindings {
    include!("bindings/types.rs");
    include!("bindings/constants.rs");
    include!("bindings/layout.rs");
    include!("bindings/functions.rs");

    /// Symbols, and the plain names that the header maps to suffixed ones.
    pub mod names {
        pub use super::symbol::*;
        include!("bindings/names.rs");
    }
}

pub use bindings::names::*;
pub use bindings::symbol;
pub use bindings::*;
pub use load::{LoadError, install, load};
