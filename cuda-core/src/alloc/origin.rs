//! What keeps device memory allocated, and how it is freed.

use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use crate::alloc::caching::Home;
use crate::alloc::custom;
use crate::alloc::handle::Allocator;
use crate::context::Context;
use crate::device::Device;
use crate::process::release::Unreleased;
use crate::timeline::core::StreamCore;

/// What keeps a block of device memory allocated.
pub(crate) enum Origin {
    /// Stream-ordered: allocated and freed on this stream.
    Home(Arc<StreamCore>),
    /// A block of a caching pool.
    Cached(Home),
    /// Allocated by `allocator`, which frees it in the order of this stream.
    Served {
        home: Arc<StreamCore>,
        allocator: Allocator,
    },
    /// Any other memory: freed by `owner`, once the host has seen that no work uses it.
    Owned {
        context: Context,
        owner: Box<dyn Owner>,
    },
}

/// Frees device memory that is not freed in the order of a stream.
pub(crate) trait Owner: Send + Sync {
    /// Frees the block. No work uses it any more. This crate has made no context current on the
    /// thread before the call. Called again only if it returned [`Kept`](Unreleased::Kept).
    fn release(&mut self, address: CUdeviceptr, bytes: usize) -> Result<(), Unreleased>;

    /// Whether streams of the device use the memory as if it were their own device's.
    fn is_at_home_on(&self, device: Device) -> bool {
        let _ = device;
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
}

impl Origin {
    /// The stream in whose order the memory is freed, if there is one.
    #[inline]
    pub(crate) fn home(&self) -> Option<&Arc<StreamCore>> {
        match self {
            Origin::Cached(home) => Some(home.core()),
            Origin::Home(home) | Origin::Served { home, .. } => Some(home),
            Origin::Owned { .. } => None,
        }
    }

    /// Whether it is part of a larger block, which a caching pool keeps.
    pub(crate) fn is_cached(&self) -> bool {
        matches!(self, Origin::Cached(_))
    }

    /// Whether it belongs to [its context](Self::context), as memory from `cuMemAlloc` does.
    #[inline]
    pub(crate) fn is_in_the_context(&self) -> bool {
        match self {
            Origin::Cached(home) => home.is_in_the_context(),
            Origin::Home(_) => false,
            Origin::Served { allocator, .. } => custom::is_in_the_context(allocator),
            Origin::Owned { owner, .. } => owner.is_in_the_context(),
        }
    }

    #[inline]
    pub(crate) fn context(&self) -> &Context {
        match self {
            Origin::Owned { context, .. } => context,
            Origin::Cached(home) => home.core().context(),
            Origin::Home(home) | Origin::Served { home, .. } => home.context(),
        }
    }

    #[inline]
    pub(crate) fn device(&self) -> Device {
        self.context().device()
    }
}
