include!("types.rs");
include!("constants.rs");
include!("layout.rs");
include!("functions.rs");
include!("header.rs");
pub(crate) mod names {
    pub use super::symbol::*;
    include!("names.rs");
}
