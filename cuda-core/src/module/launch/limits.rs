//! Limits of a launch, checked before any driver call.

use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_sys::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as MAX_DYNAMIC;

use super::Dimensions;
use crate::device::limits::DeviceLimits;
use crate::error::{Error, LaunchError, NOT_ALLOWED_YET, Result};
use crate::module::Function;

/// Limits of a kernel and of its device.
pub(crate) struct LaunchLimits {
    device: &'static DeviceLimits,
    threads: u32,
    /// Shared memory that the kernel declares, in bytes.
    static_shared: usize,
    /// Dynamic shared memory that was allowed when last queried, in bytes.
    max_dynamic: AtomicUsize,
    /// Sizes of the parameters, if the driver reports them.
    parameters: Option<Vec<usize>>,
}

impl LaunchLimits {
    /// Queries the limits from the driver, with the function's context current throughout.
    pub(crate) fn of(function: &Function) -> Result<Self> {
        let _entered = function.context().enter_briefly()?;
        let number = |attribute| function.number(attribute);
        Ok(Self {
            device: DeviceLimits::of(function.context().device())?,
            threads: number(cuda_sys::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            static_shared: number(cuda_sys::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)? as usize,
            max_dynamic: AtomicUsize::new(number(MAX_DYNAMIC)? as usize),
            parameters: function.parameters_entered()?,
        })
    }

    #[inline]
    pub(super) fn check_shape(
        &self,
        function: &Function,
        grid: Dimensions,
        block: Dimensions,
    ) -> Result<()> {
        let fits = grid.is_within(self.device.grid)
            && block.is_within(self.device.block)
            && block.volume() <= u128::from(self.threads);
        if fits { Ok(()) } else { Err(self.wrong_shape(function, grid, block)) }
    }

    #[cold]
    fn wrong_shape(&self, function: &Function, grid: Dimensions, block: Dimensions) -> Error {
        let asked = [grid.x, grid.y, grid.z, block.x, block.y, block.z];
        let most = [self.device.grid, self.device.block].concat();
        let names = ["grid.x", "grid.y", "grid.z", "block.x", "block.y", "block.z"];
        match (0..names.len()).find(|at| !(1..=most[*at]).contains(&asked[*at])) {
            Some(at) => limited(function, names[at], asked[at].into(), most[at].into()),
            // The product fits: each factor is at most 1024.
            None => {
                limited(function, "threads a block", block.volume() as u64, self.threads.into())
            }
        }
    }

    /// Refuses more dynamic shared memory than any block of the kernel can have.
    pub(crate) fn check_dynamic(&self, function: &Function, bytes: usize) -> Result<i32> {
        let limit = self.device.shared.saturating_sub(self.static_shared);
        match i32::try_from(bytes) {
            Ok(value) if bytes <= limit => Ok(value),
            _ => {
                let what = "bytes of dynamic shared memory";
                Err(limited(function, what, bytes as u64, limit as u64))
            }
        }
    }

    /// Refuses more dynamic shared memory than the kernel is allowed.
    #[inline]
    pub(super) fn check_shared(&self, function: &Function, bytes: usize) -> Result<u32> {
        if bytes > self.max_dynamic.load(Ordering::Relaxed) {
            self.check_more_shared(function, bytes)?;
        }
        Ok(bytes as u32)
    }

    /// Asks the driver again: other code may have allowed more, by the raw call or another handle.
    #[cold]
    fn check_more_shared(&self, function: &Function, bytes: usize) -> Result<()> {
        self.check_dynamic(function, bytes)?;
        let limit = usize::try_from(function.attribute(MAX_DYNAMIC)?).unwrap_or(0);
        self.note_max_dynamic(limit);
        match bytes <= limit {
            true => Ok(()),
            false => Err(limited(function, NOT_ALLOWED_YET, bytes as u64, limit as u64)),
        }
    }

    pub(crate) fn note_max_dynamic(&self, bytes: usize) {
        self.max_dynamic.store(bytes, Ordering::Relaxed);
    }

    /// Refuses arguments whose number or sizes differ from the parameters'.
    #[inline]
    pub(crate) fn check_arguments(
        &self,
        op: &'static str,
        function: &Function,
        given: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<()> {
        match &self.parameters {
            Some(expected) if !given.clone().eq(expected.iter().copied()) => {
                Err(wrong_arguments(op, function, expected, given))
            }
            _ => Ok(()),
        }
    }
}

#[cold]
fn wrong_arguments(
    op: &'static str,
    function: &Function,
    expected: &[usize],
    given: impl ExactSizeIterator<Item = usize>,
) -> Error {
    let kernel = function.name().to_owned();
    let counts = (expected.len(), given.len());
    let mut pairs = expected.iter().zip(given).enumerate();
    let differ = pairs.find(|(_, (expected, given))| *expected != given);
    Error::from(match differ {
        Some((index, (&expected, given))) if counts.0 == counts.1 => {
            LaunchError::ArgumentSize { op, kernel, index, name: None, expected, given }
        }
        _ => LaunchError::ArgumentCount { op, kernel, expected: counts.0, given: counts.1 },
    })
}

#[cold]
fn limited(function: &Function, what: &'static str, asked: u64, limit: u64) -> Error {
    let kernel = function.name().to_owned();
    LaunchError::Limit { kernel, what, asked, limit }.into()
}
