//! The process: whether the driver may be called, and what outlives the call that began it.

pub(crate) mod capture_mode;
pub(crate) mod contained;
pub(crate) mod deferred;
pub(crate) mod driver;
pub(crate) mod drop_hook;
pub(crate) mod effect;
pub(crate) mod foreign_code;
pub(crate) mod handle;
pub(crate) mod held;
pub mod nvtx;
pub(crate) mod owned;
pub(crate) mod pinned_pass;
pub(crate) mod release;
pub(crate) mod workers;
