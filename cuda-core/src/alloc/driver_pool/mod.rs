//! The driver's stream-ordered pools, from which buffers come.

pub(crate) mod attributes;
pub(crate) mod handle;
pub(crate) mod share;
pub(crate) mod stream_ordered;
