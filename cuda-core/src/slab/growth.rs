//! More slabs, and fewer.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::cache::{CACHE, Spent};
use super::class::{self, Class};
use super::mapping::UNIT;
use super::node::Node;
use super::source::Slab;
use super::{Chunk, ask_about_all, find};
use crate::context::Context;
use crate::driver;
use crate::error::{Error, Result};
use crate::sync::lock;

/// The first slab for chunks that have a class: no slower to get than a mebibyte of the driver's.
/// Later ones are as large as all before, so that there are never many.
const FIRST: usize = UNIT;

/// The largest slab for chunks that have a class.
const MOST: usize = 64 * UNIT;

/// Bytes of slabs beyond which idle ones are given back before there is another.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Held by the thread that gets a slab: what others want may be in it.
static GROWTH: Mutex<()> = Mutex::new(());

thread_local! {
    /// This thread holds [`GROWTH`].
    static GROWS: Cell<bool> = const { Cell::new(false) };
}

/// A thread's turn to grow. A drop hook that allocates may run within it, and has it already.
struct Turn {
    others_wait: Option<MutexGuard<'static, ()>>,
}

impl Turn {
    fn take() -> Self {
        let has = GROWS.try_with(|grows| grows.replace(true)).unwrap_or(true);
        Self {
            others_wait: (!has).then(|| lock(&GROWTH)),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.others_wait.is_some() {
            let _ = GROWS.try_with(|grows| grows.set(false));
        }
    }
}

/// A chunk of a new slab, unless another thread brings one first.
pub(super) fn grow(context: &Context, node: Node, asked: usize) -> Result<Chunk> {
    let bytes = class::rounded(asked);
    let primary = context.device().primary()?;
    let _turn = Turn::take();
    if let Some(chunk) = find(node, bytes) {
        return Ok(chunk);
    }
    let is_large = Class::of(bytes).is_large();
    let least = bytes.next_multiple_of(UNIT);
    let wanted = if is_large {
        least
    } else {
        least.max(lock(&CACHE).reserved_for_classes().clamp(FIRST, MOST))
    };
    let limit = LIMIT.load(Ordering::Relaxed);
    if lock(&CACHE).counts().reserved.saturating_add(wanted) > limit {
        // What cannot be given back stays, and is no reason to fail.
        let _ = release_idle(limit.saturating_sub(wanted));
    }
    let slab = Slab::acquire(primary, node, wanted, is_large)
        .or_else(|error| {
            if error.code() != Some(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY) {
                return Err(error);
            }
            ask_about_all();
            let _ = release_idle(0);
            Slab::acquire(primary, node, least, is_large)
        })
        .map_err(|error| of_request(error, asked))?;
    let mut cache = lock(&CACHE);
    // What it is for is cut before others see the rest.
    Ok(cache.adopt(slab, bytes))
}

/// Tells of what was asked for, rather than of the slab around it.
fn of_request(error: Error, asked: usize) -> Error {
    match error {
        Error::OutOfMemory {
            op, device, memory, ..
        } => Error::OutOfMemory {
            op,
            requested: asked,
            device,
            memory,
        },
        other => other,
    }
}

/// Gives idle slabs back until `keep` bytes are left, or none is idle.
fn release_idle(keep: usize) -> Result<()> {
    let mut spent = Spent::new();
    lock(&CACHE).merge(&mut spent);
    drop(spent);
    loop {
        let slab = {
            let mut cache = lock(&CACHE);
            if cache.counts().reserved <= keep {
                return Ok(());
            }
            cache.disown()
        };
        let Some(slab) = slab else {
            return Ok(());
        };
        if let Err((error, slab)) = slab.release() {
            lock(&CACHE).readopt(slab);
            return Err(error);
        }
    }
}

/// Gives back the pinned memory that is kept for [`PinnedBuffer`](crate::PinnedBuffer)s to come:
/// `cuMemHostUnregister`, which takes 15 ms for each gibibyte, and may wait for what devices do.
///
/// Does not wait for copies of its own accord: a slab of which a device still uses a byte, or in
/// which a buffer lives, is kept. Once the streams concerned have been synchronised, nothing is in
/// use but what buffers hold.
///
/// Memory that was dropped before its copies were done is looked at here, and when memory of its
/// size is wanted or dropped. Until then its streams' contexts stay alive.
///
/// # Errors
/// The driver's; what could not be given back is kept.
///
/// ```no_run
/// cuda_core::trim_pinned()?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub fn trim_pinned() -> Result<()> {
    driver::ensure()?;
    ask_about_all();
    release_idle(0)
}

/// Sets how much pinned memory is kept where it is not used; without a limit at first.
///
/// It is looked at when more memory is needed than there is: then idle memory is given back first,
/// as by [`trim_pinned`], until what there is and what is needed are within the limit. What is used
/// is not limited.
///
/// ```
/// cuda_core::set_pinned_limit(4 << 30);
/// ```
pub fn set_pinned_limit(bytes: usize) {
    LIMIT.store(bytes, Ordering::Relaxed);
}
