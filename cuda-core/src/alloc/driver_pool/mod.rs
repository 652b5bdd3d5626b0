//! The driver's stream-ordered pools.

pub(crate) mod attributes;
pub(crate) mod handle;
pub(crate) mod share;
pub(crate) mod stream_ordered;
