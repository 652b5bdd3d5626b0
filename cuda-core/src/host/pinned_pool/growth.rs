//! More slabs, and fewer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::cache::{CACHE, Spent};
use super::class::{self, Class};
use super::mapping::UNIT;
use super::node::Node;
use super::source::Slab;
use super::{Chunk, ask_about_all};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::process::driver;
use crate::util::sync::lock;

/// The first slab for chunks that have a class: no slower to get than a mebibyte of the driver's.
/// Later ones are as large as all before, so that there are never many.
const FIRST: usize = UNIT;

/// The largest slab for chunks that have a class.
const MOST: usize = 64 * UNIT;

/// Bytes of slabs beyond which idle ones are given back before there is another.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// A thread gets a slab with room for others' chunks.
static GROWS: AtomicBool = AtomicBool::new(false);

/// A thread's turn to get more than it needs itself. Nobody waits for it: the driver may be
/// waiting for a device, and the device for what another thread does next. Who has no turn gets a
/// slab for itself, and so does a drop hook that runs within the turn.
struct Turn(());

impl Turn {
    fn take() -> Option<Self> {
        let is_taken = GROWS.swap(true, Ordering::Relaxed);
        (!is_taken).then_some(Self(()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        GROWS.store(false, Ordering::Relaxed);
    }
}

/// A chunk of a new slab.
pub(super) fn grow(context: &Context, node: Node, asked: usize) -> Result<Chunk> {
    let bytes = class::rounded(asked);
    let primary = context.device().primary()?;
    let is_large = Class::of(bytes).is_large();
    let least = bytes.next_multiple_of(UNIT);
    let turn = Turn::take();
    let wanted = if is_large || turn.is_none() {
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
            if !error.is_out_of_memory() {
                return Err(error);
            }
            ask_about_all();
            let _ = release_idle(0);
            Slab::acquire(primary, node, least, is_large)
        })
        .map_err(|error| of_request(error, asked))?;
    drop(turn);
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

/// Gives idle slabs back until `keep` bytes are left, or none is idle; how many bytes went.
fn release_idle(keep: usize) -> Result<usize> {
    let mut gone = 0;
    let mut spent = Spent::new();
    lock(&CACHE).merge(&mut spent);
    drop(spent);
    loop {
        let slab = {
            let mut cache = lock(&CACHE);
            if cache.counts().reserved <= keep {
                return Ok(gone);
            }
            cache.disown()
        };
        let Some(slab) = slab else {
            return Ok(gone);
        };
        match slab.release() {
            Ok(bytes) => gone += bytes,
            Err((error, kept)) => {
                if let Some(slab) = kept {
                    lock(&CACHE).readopt(slab);
                }
                return Err(error);
            }
        }
    }
}

/// Gives back the pinned memory that is kept for [`PinnedBuffer`](crate::PinnedBuffer)s to come, and
/// says how many bytes went: `cuMemHostUnregister`, which takes the longer the more there is, and may
/// wait for what devices do.
///
/// Does not wait for copies of its own accord: a slab of which a device still uses a byte, or in
/// which a buffer lives, is kept. Once the streams concerned have been synchronised, nothing is in
/// use but what buffers hold.
///
/// Memory that was dropped before its copies were done is looked at here, and when memory of its
/// size is wanted or dropped. Until then its streams' contexts stay alive.
///
/// # Errors
/// The driver's. It may come although the memory is gone: that piece is not used again, and the
/// hook of [`set_drop_hook`](crate::set_drop_hook) is told of it. All else is kept. What was given
/// back before the error is not counted.
///
/// ```no_run
/// cuda_core::trim_pinned()?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub fn trim_pinned() -> Result<usize> {
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
