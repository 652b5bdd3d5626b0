//! Plain data, without the driver.

pub(crate) mod complex;
pub(crate) mod extent;
pub(crate) mod half;
pub(crate) mod pod;
pub(crate) mod resource;
pub(crate) mod shareable;
pub(crate) mod usage;
pub(crate) mod uuid;
pub(crate) mod version;
