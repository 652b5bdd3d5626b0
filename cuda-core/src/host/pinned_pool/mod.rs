//! Slabs: pinned memory of our own, cut into chunks that are used again and again.
//!
//! The driver takes a third of a millisecond for each mebibyte that it pins, and stops the device
//! when it frees one. So memory comes from the system in large mappings, which are registered whole,
//! and goes back only when it is asked for. A chunk that is given back waits, if need be, until the
//! copies that touch it are done: the ledger of its buffer knows which, and no event is recorded for
//! it before somebody wants the memory.
//!
//! The memory is portable, and belongs to the process: slabs are registered in primary contexts,
//! which outlive them.

mod backend;
mod cache;
mod class;
mod growth;
mod mapping;
mod node;
mod room;
mod source;
mod spans;
mod usage;

pub use backend::{PinnedBackend, set_pinned_backend};
pub use growth::{set_pinned_limit, trim_pinned};
pub use usage::{PinnedUsage, pinned_usage, reset_pinned_peaks};

use cache::{CACHE, Spent};
use class::Class;
use node::Node;
use spans::{SlabId, Span};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::host::pinned::{self, HostAddress, PinnedFlags};
use crate::process::driver;
use crate::process::release::Unreleased;
use crate::timeline::ledger::Fences;
use crate::util::sync::lock;

/// Pinned memory that is the holder's alone, from [`take`] to [`give`].
#[derive(Clone, Copy)]
pub(crate) struct Chunk {
    // INVARIANT: the first of `bytes` initialised bytes that are pinned, portable, and this chunk's
    // alone. Aligned to 256 bytes.
    pub(crate) base: HostAddress,
    /// As many as were asked for, or some more.
    pub(crate) bytes: usize,
    offset: usize,
    /// [`None`]: allocated by the driver, and freed by it.
    slab: Option<SlabId>,
    node: Node,
}

impl Chunk {
    fn span(&self, slab: SlabId) -> Span {
        Span {
            slab,
            offset: self.offset,
            bytes: self.bytes,
        }
    }

    /// Whether it is a part of a slab, rather than an allocation of the driver's.
    pub(crate) fn is_cached(&self) -> bool {
        self.slab.is_some()
    }
}

/// Pending chunks that the driver is asked about before memory is cut anew.
const ASKED_ABOUT: usize = 4;

/// A chunk of at least `bytes`, which are not zero, near the context's device; usable in every
/// context. Its bytes have whatever values they have.
///
/// No driver call if a chunk of this size is idle.
#[inline]
pub(crate) fn take(context: &Context, bytes: usize) -> Result<Chunk> {
    driver::ensure()?;
    if backend::is_driver()? {
        return allocate(context, bytes);
    }
    let node = Node::of(context.device());
    if let Some(chunk) = lock(&CACHE).pop(node, Class::of(bytes)) {
        return Ok(chunk);
    }
    take_slowly(context, node, bytes)
}

/// Takes a chunk back, which others may get once the fences are reached. No driver call for one of
/// a slab. One of the driver's is waited for and freed; if it is [kept](Unreleased::Kept), it is
/// still the caller's, and otherwise nobody's.
#[inline]
pub(crate) fn give(chunk: Chunk, fences: Fences) -> Result<(), Unreleased> {
    let Some(slab) = chunk.slab else {
        fences.wait_host().map_err(Unreleased::Kept)?;
        return pinned::free_raw(chunk.base);
    };
    if fences.is_empty() {
        lock(&CACHE).put(chunk, slab);
    } else {
        let spent = lock(&CACHE).put_pending(chunk, slab, fences);
        drop(spent);
    }
    Ok(())
}

/// Forgets points that are known to have been reached, with what they name. No driver call.
fn prune() {
    let mut spent = Spent::new();
    lock(&CACHE).settle_all(&mut spent);
}

/// The driver's own.
#[cold]
fn allocate(context: &Context, bytes: usize) -> Result<Chunk> {
    Ok(Chunk {
        base: pinned::alloc_raw(context, bytes, PinnedFlags::PORTABLE)?,
        bytes,
        offset: 0,
        slab: None,
        node: Node::ANY,
    })
}

/// Where there is none of just this size.
#[cold]
fn take_slowly(context: &Context, node: Node, asked: usize) -> Result<Chunk> {
    let bytes = class::rounded(asked);
    if let Some(chunk) = find(node, bytes) {
        return Ok(chunk);
    }
    if let Some(chunk) = ask(node, bytes) {
        return Ok(chunk);
    }
    // What has the wrong size may have the right one with what is beside it.
    if let Some(chunk) = find_merged(node, bytes) {
        return Ok(chunk);
    }
    growth::grow(context, node, asked)
}

/// A chunk of what is known to be idle.
fn find(node: Node, bytes: usize) -> Option<Chunk> {
    let mut spent = Spent::new();
    let found = lock(&CACHE).find(node, bytes, &mut spent);
    drop(spent);
    found
}

/// [`find`] after all idle chunks were made one with their neighbours.
fn find_merged(node: Node, bytes: usize) -> Option<Chunk> {
    let mut spent = Spent::new();
    let mut cache = lock(&CACHE);
    cache.merge(&mut spent);
    let found = cache.find(node, bytes, &mut spent);
    drop(cache);
    drop(spent);
    found
}

/// A chunk of what the driver, when asked, says is done with.
fn ask(node: Node, bytes: usize) -> Option<Chunk> {
    let bin = Class::of(bytes).index();
    for _ in 0..ASKED_ABOUT {
        let (chunk, fences) = lock(&CACHE).take_pending(node.index(), bin)?;
        if ask_about(chunk, fences) {
            if let Some(found) = find(node, bytes) {
                return Some(found);
            }
        }
    }
    None
}

/// Asks about all that is pending.
fn ask_about_all() {
    let pending = lock(&CACHE).pending();
    for (node, bin, count) in pending {
        for _ in 0..count {
            let Some((chunk, fences)) = lock(&CACHE).take_pending(node, bin) else {
                break;
            };
            ask_about(chunk, fences);
        }
    }
}

/// Puts a pending chunk where it belongs by now, and says whether it is idle.
fn ask_about(chunk: Chunk, fences: Fences) -> bool {
    let done = match fences.query() {
        Ok(done) => done,
        Err(Error::LostStream) => {
            set_aside(chunk);
            return false;
        }
        // What the driver says of other work is not for this one to tell.
        Err(_) => false,
    };
    let fences = if done { Fences::none() } else { fences };
    // It is of a slab, so this asks no driver and does not fail.
    let _ = give(chunk, fences);
    done
}

/// Gives up the slab of a chunk that a device may use for all that anybody can prove. The chunks
/// of it that are in use stay what they are.
fn set_aside(chunk: Chunk) {
    let Some(id) = chunk.slab else {
        return;
    };
    let mut spent = Spent::new();
    let retired = {
        let mut cache = lock(&CACHE);
        let retired = cache.retire(id, &mut spent);
        cache.put(chunk, id);
        retired
    };
    drop(spent);
    if let Some(slab) = retired {
        slab.leak(Error::LostStream);
    }
}
