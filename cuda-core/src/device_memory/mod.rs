//! Device memory, and its stream-ordered allocation.

// Separated by blank lines, so that rustfmt keeps this order, in which rustdoc shows their `impl`s.
mod allocation;

mod resize;

pub(crate) mod managed;
pub(crate) mod placement;

pub(crate) mod foreign;

pub(crate) mod external;
pub(crate) mod ipc;

pub mod virtual_memory;

pub mod dlpack;
