//! The driver's stream-ordered pools.

pub(crate) mod attributes;
pub(crate) mod ipc;
pub(crate) mod memory_pool;
pub(crate) mod stream_ordered;
