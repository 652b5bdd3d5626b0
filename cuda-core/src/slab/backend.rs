//! Who allocates pinned memory.

use std::sync::atomic::{AtomicU8, Ordering};

/// Who allocates the memory of a [`PinnedBuffer`](crate::PinnedBuffer) without flags of its own.
///
/// ```no_run
/// use cuda_core::{Device, PinnedBackend, PinnedBuffer, set_pinned_backend};
///
/// set_pinned_backend(PinnedBackend::Driver); // to look at the driver's own times, say
/// let buffer = PinnedBuffer::<u8>::new(&Device::get(0)?.context()?, 1 << 20)?; // cuMemHostAlloc
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PinnedBackend {
    /// This crate: slabs in huge pages, registered once, cut into chunks and used again. See
    /// [`PinnedBuffer`](crate::PinnedBuffer).
    Slab,
    /// The driver, each time: `cuMemHostAlloc` and `cuMemFreeHost`, which stops the device until it
    /// has nothing left to do.
    Driver,
}

/// As the environment says, and nobody has looked yet.
const UNKNOWN: u8 = 0;
const SLAB: u8 = 1;
const DRIVER: u8 = 2;

static BACKEND: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Sets who allocates pinned memory from now on. Whoever allocated a buffer frees it.
///
/// Without this call the environment decides: `CUDA_CORE_PINNED=driver`, or `slab`, which is also
/// what happens without it.
///
/// ```
/// cuda_core::set_pinned_backend(cuda_core::PinnedBackend::Slab);
/// ```
pub fn set_pinned_backend(backend: PinnedBackend) {
    let value = match backend {
        PinnedBackend::Slab => SLAB,
        PinnedBackend::Driver => DRIVER,
    };
    BACKEND.store(value, Ordering::Relaxed);
}

#[inline]
pub(super) fn is_driver() -> bool {
    match BACKEND.load(Ordering::Relaxed) {
        UNKNOWN => look_up(),
        value => value == DRIVER,
    }
}

#[cold]
fn look_up() -> bool {
    let asked = std::env::var_os("CUDA_CORE_PINNED");
    let driver = asked.is_some_and(|value| value == "driver");
    let value = if driver { DRIVER } else { SLAB };
    // Somebody may have set it meanwhile, who is right.
    let _ = BACKEND.compare_exchange(UNKNOWN, value, Ordering::Relaxed, Ordering::Relaxed);
    BACKEND.load(Ordering::Relaxed) == DRIVER
}
