//! The process: whether the driver may be called, and what outlives the call that began it.

pub(crate) mod capture_mode;
pub(crate) mod driver;
pub(crate) mod drops;
pub(crate) mod effect;
pub(crate) mod foreign_code;
pub(crate) mod held;
pub(crate) mod release;
pub(crate) mod workers;
