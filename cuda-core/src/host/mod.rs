//! Host memory that devices use: pinned, registered, and the pool of pinned chunks.

mod access;
pub(crate) mod pin_gate;
pub(crate) mod pinned;
pub(crate) mod pinned_pool;
mod pinning;
pub(crate) mod registered;
pub(crate) mod stable_host;
