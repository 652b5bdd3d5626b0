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

pub(crate) use complex::{Complex32, Complex64};
pub(crate) use extent::{Extent, Origin};
pub(crate) use half::{bf16, f16};
pub(crate) use pod::{Pod, bytes_of, bytes_of_mut};
pub(crate) use resource::Resource;
pub(crate) use shareable::ShareableHandle;
pub(crate) use usage::{MemoryInfo, PoolUsage};
pub(crate) use uuid::Uuid;
pub(crate) use version::Version;
