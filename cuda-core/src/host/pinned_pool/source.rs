//! Slabs: where they come from, and how they go.

use std::mem;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Chunk;
use super::mapping::Mapping;
use super::node::Node;
use super::room;
use super::spans::{SlabId, Span};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::host::pinned::{self, HostAddress, PinnedFlags};
use crate::host::pinning;
use crate::host::registered::RegisterFlags;
use crate::process::drop_hook;
use crate::process::release::Unreleased;
use crate::types::resource::Resource;

/// Pinned memory, in one piece.
pub(super) struct Slab {
    id: SlabId,
    // INVARIANT: the first of `bytes` bytes that are initialised, pinned in `context`, portable,
    // and of which nobody but holders of chunks touches any.
    base: HostAddress,
    bytes: usize,
    /// For chunks that have no class.
    is_large: bool,
    node: Node,
    context: Context,
    /// What is registered; [`None`]: the memory is the driver's own.
    mapping: Option<Mapping>,
}

static IDS: AtomicU64 = AtomicU64::new(1);

impl Slab {
    /// Memory that every context can use, near `node`. `context` is a primary one, which outlives
    /// the slab.
    pub(super) fn acquire(
        context: &Context,
        node: Node,
        bytes: usize,
        is_large: bool,
    ) -> Result<Self> {
        let mapping = map(context, node, bytes);
        let base = match &mapping {
            Some(mapping) => mapping.base(),
            None => pinned::alloc_raw(context, bytes, PinnedFlags::PORTABLE)?,
        };
        Ok(Self {
            id: NonZeroU64::new(IDS.fetch_add(1, Ordering::Relaxed)).unwrap_or(NonZeroU64::MAX),
            base,
            bytes,
            is_large,
            node,
            context: context.clone(),
            mapping,
        })
    }

    /// Gives the memory back, of which nobody uses any: `cuMemHostUnregister` or `cuMemFreeHost`; how
    /// many bytes. The slab comes back with the error if the driver was not asked.
    pub(super) fn release(self) -> Result<usize, (Error, Option<Self>)> {
        let released = match &self.mapping {
            Some(_) => pinning::unpin(&self.context, self.base),
            None => pinned::free_raw(self.base),
        };
        match released {
            Ok(()) => Ok(self.bytes),
            Err(Unreleased::Kept(error)) => Err((error, Some(self))),
            Err(Unreleased::Unknown(error)) => {
                self.leak(error.clone());
                Err((error, None))
            }
        }
    }

    /// Leaves the memory as it is for good, and says why: a device may still use it, or it may be
    /// gone. A mapping stays where it is, so that no other comes to be at an address that the
    /// driver may know as pinned.
    pub(super) fn leak(self, why: Error) {
        let address = self.base.0.addr().get() as u64;
        let bytes = self.bytes;
        mem::forget(self);
        drop_hook::report(Resource::PinnedMemory, address, bytes, Some(why));
    }

    /// A chunk of a stretch that is nobody else's.
    pub(super) fn chunk(&self, span: Span) -> Chunk {
        // SAFETY: the stretch is one of this slab's, so it begins within it.
        let base = unsafe { self.base.0.add(span.offset) };
        Chunk {
            base: HostAddress(base),
            bytes: span.bytes,
            offset: span.offset,
            slab: Some(self.id),
            node: self.node,
        }
    }

    pub(super) fn whole(&self) -> Span {
        Span {
            slab: self.id,
            offset: 0,
            bytes: self.bytes,
        }
    }

    pub(super) fn id(&self) -> SlabId {
        self.id
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_large(&self) -> bool {
        self.is_large
    }

    pub(super) fn node(&self) -> Node {
        self.node
    }
}

/// A registered mapping; [`None`] where the system or the driver refuses one.
fn map(context: &Context, node: Node, bytes: usize) -> Option<Mapping> {
    if !room::has(bytes) {
        return None;
    }
    let mapping = Mapping::new(bytes, node)?;
    // Mapped as well, since what `cuMemHostAlloc` gives is, whatever its flags, where devices share the
    // host's addresses.
    let flags = RegisterFlags::PORTABLE | RegisterFlags::MAPPED;
    match pinning::pin(context, mapping.base(), bytes, flags) {
        Ok(()) => Some(mapping),
        Err(error) => {
            if error.is_sticky() {
                // It may be about earlier work, and nobody can know whether the memory is
                // registered: no other may come to be at its address.
                mem::forget(mapping);
            }
            None
        }
    }
}
