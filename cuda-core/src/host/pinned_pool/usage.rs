//! Usage of the slabs.

use super::cache::CACHE;
use crate::error::Result;
use crate::process::driver;
use crate::util::sync::lock;

/// Bytes of pinned memory that the process keeps for [`PinnedBuffer`](crate::PinnedBuffer)s.
///
/// Whole chunks are counted, which are up to an eighth larger than requested, or up to two
/// mebibytes beyond 32 MiB. Memory that the driver allocates is not counted: that with
/// [flags](crate::PinnedFlags) of its own, or all with
/// [`PinnedBackend::Driver`](super::PinnedBackend).
///
/// ```no_run
/// let usage = cuda_core::pinned_usage()?;
/// if usage.cached > 1 << 30 {
///     cuda_core::trim_pinned()?;
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinnedUsage {
    /// Taken from the system: used, cached and pending.
    pub reserved: usize,
    /// The most that was taken since the peaks were reset.
    pub reserved_peak: usize,
    /// In buffers.
    pub used: usize,
    /// The most that was in buffers since the peaks were reset.
    pub used_peak: usize,
    /// Free, kept for later buffers.
    pub cached: usize,
    /// Dropped before the copies that use it were done, as far as known when last checked.
    pub pending: usize,
}

impl PinnedUsage {
    pub(super) const NONE: Self =
        Self { reserved: 0, reserved_peak: 0, used: 0, used_peak: 0, cached: 0, pending: 0 };
}

/// How much pinned memory is used and kept. No driver call.
///
/// # Errors
/// [`Error::Forked`](crate::Error::Forked) in a fork's child, and
/// [`Error::Exiting`](crate::Error::Exiting).
///
/// ```
/// let usage = cuda_core::pinned_usage()?;
/// println!("{} of {} MiB pinned are used", usage.used >> 20, usage.reserved >> 20);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub fn pinned_usage() -> Result<PinnedUsage> {
    driver::gone().map_or(Ok(()), Err)?;
    Ok(lock(&CACHE).counts)
}

/// Sets the peaks of [`pinned_usage`] to the present values. No driver call.
///
/// # Errors
/// Those of [`pinned_usage`].
///
/// ```no_run
/// cuda_core::reset_pinned_peaks()?;
/// // … one step of the program …
/// println!("{} bytes at most", cuda_core::pinned_usage()?.used_peak);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub fn reset_pinned_peaks() -> Result<()> {
    driver::gone().map_or(Ok(()), Err)?;
    lock(&CACHE).reset_peaks();
    Ok(())
}
