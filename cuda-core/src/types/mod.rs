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

pub use complex::{Complex32, Complex64};
pub use extent::{Extent, Origin};
pub use half::{bf16, f16};
pub use pod::Pod;
pub(crate) use pod::{bytes_of, bytes_of_mut};
pub use resource::Resource;
pub use shareable::ShareableHandle;
pub use usage::{MemoryInfo, PoolUsage};
pub use uuid::Uuid;
pub use version::Version;
