//! What a device allows launches.

use crate::device::Device;
use crate::error::Result;
use crate::util::get_or_try_init;

/// Limits of a device: the same for all its kernels.
pub(crate) struct DeviceLimits {
    /// Blocks in each dimension.
    pub(crate) grid: [u32; 3],
    /// Threads per block, in each dimension.
    pub(crate) block: [u32; 3],
    /// Shared memory that a block can be allowed to have, in bytes.
    pub(crate) shared: usize,
}

impl DeviceLimits {
    /// Queried from the driver once for a device.
    pub(crate) fn of(device: Device) -> Result<&'static Self> {
        let of = device.attributes();
        get_or_try_init(&device.state.limits, || {
            Ok(Self {
                grid: [of.max_grid_dim_x()?, of.max_grid_dim_y()?, of.max_grid_dim_z()?],
                block: [of.max_block_dim_x()?, of.max_block_dim_y()?, of.max_block_dim_z()?],
                // A device without opt-in reports zero for the first.
                shared: of
                    .max_shared_memory_per_block_optin()?
                    .max(of.max_shared_memory_per_block()?) as usize,
            })
        })
    }
}
