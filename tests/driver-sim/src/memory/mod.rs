//! Memory: device blocks at invented addresses, pinned host memory, pools.

pub(crate) mod block;
pub(crate) mod external;
pub(crate) mod image;
pub(crate) mod pages;
pub(crate) mod pinned;
pub(crate) mod place;
pub(crate) mod pool;
pub(crate) mod reservation;
pub(crate) mod space;
