//! Limits and capabilities of devices, queried from the driver once.

use cuda_sys::{
    CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS as WIDE,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM as REGISTERED,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR as NOR,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING as UNIFIED,
};

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
    /// Returns the device's limits, queried from the driver once.
    pub(crate) fn of(device: Device) -> Result<&'static Self> {
        let of = device.attributes();
        get_or_try_init(&device.state.limits, || {
            Ok(Self {
                grid: [of.max_grid_dim_x()?, of.max_grid_dim_y()?, of.max_grid_dim_z()?],
                block: [of.max_block_dim_x()?, of.max_block_dim_y()?, of.max_block_dim_z()?],
                // A device without opt-in reports zero for the opt-in limit.
                shared: of
                    .max_shared_memory_per_block_optin()?
                    .max(of.max_shared_memory_per_block()?) as usize,
            })
        })
    }
}

/// Whether the device's streams can write 64-bit values and wait for them, and whether they can wait for the
/// NOR of a value. Queried from the driver once for each device.
pub(crate) fn stream_values(device: Device) -> Result<[bool; 2]> {
    let ask = || Ok([device.attribute(WIDE)? != 0, device.attribute(NOR)? != 0]);
    get_or_try_init(&device.state.stream_values, ask).copied()
}

/// Whether the device reaches pinned memory, registered memory included, at the host's addresses. Queried
/// from the driver once for each device.
pub(crate) fn has_host_addresses(device: Device) -> Result<bool> {
    let ask = || Ok(device.attribute(UNIFIED)? != 0 && device.attribute(REGISTERED)? != 0);
    get_or_try_init(&device.state.host_addresses, ask).copied()
}
