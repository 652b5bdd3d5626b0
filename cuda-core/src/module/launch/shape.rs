//! What a launch asks for besides its arguments.

use std::{fmt, ptr};

use cuda_sys::{CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CUlaunchConfig};

use super::Dimensions;
use super::attributes::Attributes;
use super::limits::LaunchLimits;
use crate::error::Result;
use crate::module::Function;

/// What a launch asks for besides its arguments.
pub(super) struct LaunchShape {
    pub(super) grid: Dimensions,
    pub(super) block: Dimensions,
    pub(super) dynamic_shared: usize,
    pub(super) attributes: Attributes,
}

impl LaunchShape {
    pub(super) const ONE_THREAD: Self = Self {
        grid: Dimensions::ONE,
        block: Dimensions::ONE,
        dynamic_shared: 0,
        attributes: Attributes::NONE,
    };

    /// The driver's description, without the stream. Refuses what can be known to fail.
    #[inline(always)]
    pub(super) fn config(
        &mut self,
        function: &Function,
        limits: &LaunchLimits,
    ) -> Result<CUlaunchConfig> {
        let Self { grid, block, dynamic_shared, attributes } = self;
        limits.check_shape(function, *grid, *block)?;
        let shared = limits.check_shared(function, *dynamic_shared)?;
        let attributes = attributes.as_mut_slice();
        Ok(CUlaunchConfig {
            gridDimX: grid.x,
            gridDimY: grid.y,
            gridDimZ: grid.z,
            blockDimX: block.x,
            blockDimY: block.y,
            blockDimZ: block.z,
            sharedMemBytes: shared,
            hStream: ptr::null_mut(),
            numAttrs: attributes.len() as u32,
            attrs: attributes.as_mut_ptr(),
        })
    }
}

impl fmt::Display for LaunchShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grid, block, dynamic_shared, attributes } = self;
        write!(f, "grid {grid}, block {block}")?;
        if let Some([x, y, z]) = attributes.get(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            write!(f, ", cluster {}", Dimensions { x, y, z })?;
        }
        match dynamic_shared {
            0 => Ok(()),
            bytes => write!(f, ", {bytes} bytes of dynamic shared memory"),
        }
    }
}
