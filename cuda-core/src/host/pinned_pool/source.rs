//! Allocation and release of a slab.

use std::mem;

use cuda_sys::CUdeviceptr;

use super::host_mapping::HostMapping;
use super::room;
use super::{NumaNode, PinnedChunk};
use crate::alloc::caching::class::SegmentKind;
use crate::alloc::caching::space::{Fate, Segment, TakenRange};
use crate::context::Context;
use crate::error::{Error, Rejected, Result};
use crate::host::{HostAddress, RegisterFlags, pinned, pinning};
use crate::memory::is_pinned;
use crate::process::{Failed, drop_hook};
use crate::types::Resource;

/// The source of the memory of slabs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SlabSource {
    /// Mappings near their device, each registered as a whole.
    Mappings,
    /// Small allocations of the driver, which devices reach by the host's addresses. They are released
    /// only on request: `cuMemFreeHost` waits for all work, some of which may wait for a signal.
    Driver,
}

/// One contiguous range of pinned memory.
pub(super) struct Slab {
    // INVARIANT: the first of `bytes` bytes that are initialised, pinned in `context` and portable;
    // only holders of chunks access them.
    base: HostAddress,
    pub(super) bytes: usize,
    pub(super) kind: SegmentKind,
    pub(super) node: NumaNode,
    context: Context,
    /// The registered mapping; [`None`] if the driver allocated the memory.
    mapping: Option<HostMapping>,
}

impl Slab {
    /// Acquires memory near `node` that every context can use; the driver allocates it if no mapping is
    /// available. `context` is a primary one, which outlives the slab.
    pub(super) fn acquire(
        context: &Context,
        node: NumaNode,
        bytes: usize,
        kind: SegmentKind,
        source: SlabSource,
    ) -> Result<Self> {
        let mapping = match source {
            SlabSource::Mappings => map(context, node, bytes),
            SlabSource::Driver => None,
        };
        let base = match &mapping {
            Some(mapping) => mapping.base,
            None => pinned::alloc_raw(context, bytes, 0)?,
        };
        Ok(Self { base, bytes, kind, node, context: context.clone(), mapping })
    }

    /// Unregisters or frees an unused slab (`cuMemHostUnregister` or `cuMemFreeHost`); returns the
    /// bytes released. If the driver certainly still has the memory, the error returns the slab.
    pub(super) fn release(self) -> Result<usize, Rejected<Option<Self>>> {
        let released = match &self.mapping {
            // SAFETY: registered in this context by `map`, unused, and released once.
            Some(_) => unsafe { pinning::unpin(&self.context, self.base) },
            // SAFETY: memory of `alloc_raw`, unused, and released once.
            None => unsafe { pinned::free_raw(self.base) },
        };
        match released {
            Ok(()) => Ok(self.bytes),
            Err(Failed::Refused(error)) => Err(Rejected::new(error, Some(self))),
            Err(Failed::Unknown(error)) => {
                self.leak(error.clone());
                Err(Rejected::new(error, None))
            }
        }
    }

    /// Leaves the memory allocated permanently, and reports why: a device may still use it, or the
    /// driver may have released it already. A mapping stays mapped, so that no other is placed at an
    /// address that the driver may still consider pinned.
    pub(super) fn leak(self, why: Error) {
        let (address, bytes) = (self.address(), self.bytes);
        mem::forget(self);
        drop_hook::report(Resource::PinnedMemory, address, bytes, Some(why));
    }

    /// Returns the chunk of a range of this slab.
    pub(super) fn chunk(&self, range: &TakenRange) -> PinnedChunk {
        let offset = (range.address - self.address()) as usize;
        // SAFETY: the range is in this slab, so it begins within it.
        let base = HostAddress(unsafe { self.base.0.add(offset) });
        PinnedChunk { base, bytes: range.bytes, is_cached: true, node: self.node }
    }

    /// Returns the address, which identifies the slab: a slab that is given up stays mapped, so no
    /// other gets the same address.
    pub(super) fn address(&self) -> CUdeviceptr {
        self.base.0.addr().get() as CUdeviceptr
    }

    /// Whether the address is within the slab.
    pub(super) fn has(&self, address: CUdeviceptr) -> bool {
        (self.address()..self.address() + self.bytes as CUdeviceptr).contains(&address)
    }

    /// Returns the slab as a segment that chunks are cut from.
    pub(super) fn segment(&self) -> Segment {
        let (base, bytes, kind) = (self.address(), self.bytes, self.kind);
        Segment { base, bytes, kind, home: None, fate: Fate::Kept }
    }
}

/// Maps and registers memory; [`None`] if the system or the driver refuses.
fn map(context: &Context, node: NumaNode, bytes: usize) -> Option<HostMapping> {
    if !room::has(bytes) {
        return None;
    }
    let mapping = HostMapping::new(bytes, node)?;
    // `MAPPED` too, since memory from `cuMemHostAlloc` is mapped whatever its flags, if devices share
    // the host's addresses.
    let flags = RegisterFlags::PORTABLE | RegisterFlags::MAPPED;
    match pinning::pin(context, mapping.base, bytes, flags) {
        Ok(()) => Some(mapping),
        Err(_) => {
            if !matches!(is_pinned(mapping.base.0.as_ptr()), Ok(false)) {
                // The driver still reports the address as pinned, or cannot answer: no other mapping
                // may be placed there.
                mem::forget(mapping);
            }
            None
        }
    }
}
