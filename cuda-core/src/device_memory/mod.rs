//! Device memory, and its stream-ordered allocation.

// Apart from each other, so that rustfmt leaves this order, in which rustdoc shows their `impl`s.
mod allocation;

mod resize;

pub(crate) mod managed;
pub(crate) mod placement;

pub(crate) mod foreign;

pub(crate) mod external;
pub(crate) mod ipc;

pub mod virtual_memory;

pub mod dlpack;
