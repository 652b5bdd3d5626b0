//! The choice of the allocator of pinned memory.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::{Error, Result};
use crate::util::setting;

/// The allocator of a [`PinnedBuffer`](crate::PinnedBuffer)'s memory, if the buffer has no explicit
/// flags.
///
/// ```no_run
/// use cuda_core::{Device, PinnedBuffer, PinnedPool, pinned::PinnedBackend};
///
/// PinnedPool::set_backend(PinnedBackend::Driver); // to look at the driver's own times, say
/// let buffer = PinnedBuffer::<u8>::new(&Device::get(0)?.context()?, 1 << 20)?; // cuMemHostAlloc
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PinnedBackend {
    /// This crate: slabs in huge pages, registered once, cut into chunks and reused. See
    /// [`PinnedBuffer`](crate::PinnedBuffer).
    Slab,
    /// The driver, for each buffer: `cuMemHostAlloc`, and `cuMemFreeHost`, which stops the device until
    /// it has no work left.
    Driver,
}

/// A [`PinnedBackend`] as a number.
static BACKEND: AtomicU8 = AtomicU8::new(UNKNOWN);

/// The backend is not set, and the environment is not read yet.
const UNKNOWN: u8 = u8::MAX;
const DRIVER: u8 = PinnedBackend::Driver as u8;

/// Implements [`PinnedPool::set_backend`](super::PinnedPool::set_backend).
pub(super) fn set(backend: PinnedBackend) {
    BACKEND.store(backend as u8, Ordering::Relaxed);
}

/// Whether the driver allocates. [`Error::Invalid`] if the environment variable has an unknown value.
#[inline]
pub(super) fn is_driver() -> Result<bool> {
    match BACKEND.load(Ordering::Relaxed) {
        UNKNOWN => look_up(),
        value => Ok(value == DRIVER),
    }
}

#[cold]
fn look_up() -> Result<bool> {
    let text = setting("CUDA_CORE_PINNED").unwrap_or_else(|| "slab".to_owned());
    let backend = match text.trim() {
        "slab" => PinnedBackend::Slab,
        "driver" => PinnedBackend::Driver,
        _ => return Err(Error::malformed("CUDA_CORE_PINNED", &text, "slab or driver")),
    };
    // If `PinnedPool::set_backend` was called in the meantime, it wins.
    let _ = BACKEND.compare_exchange(UNKNOWN, backend as u8, Ordering::Relaxed, Ordering::Relaxed);
    Ok(BACKEND.load(Ordering::Relaxed) == DRIVER)
}
