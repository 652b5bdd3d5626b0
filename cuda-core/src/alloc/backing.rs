//! The owners of device memory, and how they free it.

use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use crate::alloc::caching::Home;
use crate::alloc::{Allocator, custom};
use crate::context::{Confined, Context};
use crate::device::Device;
use crate::error::{Result, WrongContext};
use crate::process::Failed;
use crate::timeline::StreamCore;
use crate::timeline::ledger::Access;

/// The owner of a block of device memory.
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
    /// Frees the block, which no work uses any more. The caller has made no context current for this. Called
    /// again only if it returned [`Refused`](Failed::Refused).
    fn release(&mut self, address: CUdeviceptr) -> Result<(), Failed>;

    fn traits(&self) -> OwnerTraits {
        OwnerTraits::default()
    }

    /// The stream in whose order the owner frees the memory, if there is one.
    fn home(&self) -> Option<&Arc<StreamCore>> {
        None
    }

    /// Whether kernels of the device can access the memory in that way; true if the owner does not know.
    /// Called for contexts other than the memory's.
    fn is_open_to(&self, _device: Device, _access: Access) -> bool {
        true
    }

    /// Whether the memory is registered with the NCCL communicator at this address.
    fn is_registered_with(&self, communicator: usize) -> bool {
        let _ = communicator;
        false
    }

    /// Returns the id of a timeline and a point of it. The code that provided the memory waits for the work
    /// up to that point before it frees the memory, so this crate waits only for later work, and for other
    /// timelines' work.
    fn given_at(&self) -> Option<(u64, u64)> {
        None
    }
}

/// What an owner says of its memory.
#[derive(Clone, Copy, Default)]
pub(crate) struct OwnerTraits {
    /// Streams of all devices use the memory as if it were their own device's.
    pub(crate) everywhere: bool,
    /// Safe code on the host reaches the memory.
    pub(crate) visible_to_the_host: bool,
    /// The memory comes from `cuMemAlloc`: other processes can open such memory.
    pub(crate) plain: bool,
    /// The memory belongs to its context, as that of `cuMemAlloc` does: other devices reach it only by peer
    /// access.
    pub(crate) in_the_context: bool,
    /// Work that uses the memory frees it. Then this crate neither frees it nor waits for work.
    pub(crate) freed_by_work: bool,
    /// Work on the memory may wait for other processes, and so forever.
    pub(crate) waits_for_others: bool,
}

impl DeviceBacking {
    /// What the owner says of the memory; the default if there is none.
    #[inline]
    pub(crate) fn traits(&self) -> OwnerTraits {
        match self {
            DeviceBacking::Owned { owner, .. } => owner.traits(),
            _ => OwnerTraits::default(),
        }
    }

    /// The stream in whose order the memory is freed, if there is one.
    #[inline]
    pub(crate) fn home(&self) -> Option<&Arc<StreamCore>> {
        match self {
            DeviceBacking::Cached(home) => Some(&home.core),
            DeviceBacking::Home(home) | DeviceBacking::Served { home, .. } => Some(home),
            DeviceBacking::Owned { owner, .. } => owner.home(),
        }
    }

    /// Whether the memory is part of a larger block, which a caching pool keeps.
    pub(crate) fn is_cached(&self) -> bool {
        matches!(self, DeviceBacking::Cached(_))
    }

    /// Whether the memory belongs to [its context](Self::context), as memory from `cuMemAlloc` does.
    #[inline]
    pub(crate) fn is_in_the_context(&self) -> bool {
        match self {
            DeviceBacking::Cached(home) => home.is_in_the_context(),
            DeviceBacking::Home(_) => false,
            DeviceBacking::Served { allocator, .. } => custom::is_in_the_context(allocator),
            DeviceBacking::Owned { owner, .. } => owner.traits().in_the_context,
        }
    }

    /// Refuses another context's memory. For operations that, unlike copies, reach only what `context`
    /// reaches.
    #[inline]
    pub(crate) fn require_home_in(&self, op: &'static str, context: &Context) -> Result<()> {
        let confined = self.is_in_the_context().then(|| Confined::to_context(self.context()));
        if confined.is_some_and(|memory| !memory.is_at_home_in(context)) {
            return Err(WrongContext { op, what: "memory".into() }.into());
        }
        Ok(())
    }

    /// Whether the memory is registered with the NCCL communicator at this address.
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
