//! What keeps device memory allocated, and how it is freed.

use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use crate::alloc::caching::Home;
use crate::alloc::{Allocator, custom};
use crate::context::{Confined, Context};
use crate::device::Device;
use crate::error::{Result, WrongContext};
use crate::process::FailedRelease;
use crate::timeline::StreamCore;
use crate::timeline::ledger::Access;

/// What keeps a block of device memory allocated.
pub(crate) enum DeviceBacking {
    /// Stream-ordered: allocated and freed on this stream.
    Home(Arc<StreamCore>),
    /// A block of a caching pool.
    // INVARIANT: taken only when the block is freed, by the last operation on it.
    Cached(ManuallyDrop<Home>),
    /// Allocated by `allocator`, which frees it in the order of this stream.
    Served { home: Arc<StreamCore>, allocator: Allocator },
    /// Any other memory: freed by `owner`, once the host has seen that no work uses it.
    Owned { context: Context, owner: Box<dyn MemoryOwner> },
}

/// Frees device memory that is not freed in the order of a stream.
pub(crate) trait MemoryOwner: Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Frees the block. No work uses it any more. This crate has made no context current on the
    /// thread before the call. Called again only if it returned [`Kept`](FailedRelease::Kept).
    fn release(&mut self, address: CUdeviceptr) -> Result<(), FailedRelease>;

    /// Whether streams of all devices use the memory as if it were their own device's.
    fn is_everywhere(&self) -> bool {
        false
    }

    /// Whether the host reaches the memory, in safe code.
    fn is_visible_to_the_host(&self) -> bool {
        false
    }

    /// Whether the memory comes from `cuMemAlloc`, which other processes can open.
    fn is_plain(&self) -> bool {
        false
    }

    /// Whether the memory belongs to its context, as that of `cuMemAlloc` does: other devices reach
    /// it only by peer access.
    fn is_in_the_context(&self) -> bool {
        self.is_plain()
    }

    /// The stream in whose order the owner frees the memory, if there is one.
    fn home(&self) -> Option<&Arc<StreamCore>> {
        None
    }

    /// Whether kernels of the device reach the memory for that access; true if the owner does not know. Asked for
    /// other contexts than the memory's.
    fn is_open_to(&self, _device: Device, _access: Access) -> bool {
        true
    }

    /// Whether work that uses the memory frees it, so that nothing is to be freed here, and no work has to
    /// be waited for.
    fn is_freed_by_work(&self) -> bool {
        false
    }

    /// Whether it is registered with the communicator of NCCL at this address.
    fn is_registered_with(&self, communicator: usize) -> bool {
        let _ = communicator;
        false
    }

    /// Whether work on it may wait for other processes, and so for ever.
    fn waits_for_others(&self) -> bool {
        false
    }

    /// The id of a timeline, and a point of it. The code that the memory is from waits for the work up to that
    /// point before it frees the memory, so that this crate waits only for later work, and for that of other
    /// timelines.
    fn given_at(&self) -> Option<(u64, u64)> {
        None
    }
}

impl DeviceBacking {
    /// The stream in whose order the memory is freed, if there is one.
    #[inline]
    pub(crate) fn home(&self) -> Option<&Arc<StreamCore>> {
        match self {
            DeviceBacking::Cached(home) => Some(&home.core),
            DeviceBacking::Home(home) | DeviceBacking::Served { home, .. } => Some(home),
            DeviceBacking::Owned { owner, .. } => owner.home(),
        }
    }

    /// Whether it is part of a larger block, which a caching pool keeps.
    pub(crate) fn is_cached(&self) -> bool {
        matches!(self, DeviceBacking::Cached(_))
    }

    /// Whether it belongs to [its context](Self::context), as memory from `cuMemAlloc` does.
    #[inline]
    pub(crate) fn is_in_the_context(&self) -> bool {
        match self {
            DeviceBacking::Cached(home) => home.is_in_the_context(),
            DeviceBacking::Home(_) => false,
            DeviceBacking::Served { allocator, .. } => custom::is_in_the_context(allocator),
            DeviceBacking::Owned { owner, .. } => owner.is_in_the_context(),
        }
    }

    /// Refuses memory of another context for operations that reach only what that context does, unlike copies.
    #[inline]
    pub(crate) fn require_home_in(&self, op: &'static str, context: &Context) -> Result<()> {
        let confined = self.is_in_the_context().then(|| Confined::to_context(self.context()));
        if confined.is_some_and(|memory| !memory.is_at_home_in(context)) {
            return Err(WrongContext { op, what: "memory".into() }.into());
        }
        Ok(())
    }

    /// Whether it is registered with the communicator of NCCL at this address.
    #[inline]
    pub(crate) fn is_registered_with(&self, communicator: usize) -> bool {
        matches!(self, DeviceBacking::Owned { owner, .. } if owner.is_registered_with(communicator))
    }

    #[inline]
    pub(crate) fn context(&self) -> &Context {
        match self {
            DeviceBacking::Owned { context, .. } => context,
            DeviceBacking::Cached(home) => home.core.context(),
            DeviceBacking::Home(home) | DeviceBacking::Served { home, .. } => home.context(),
        }
    }

    #[inline]
    pub(crate) fn device(&self) -> Device {
        self.context().device()
    }
}
