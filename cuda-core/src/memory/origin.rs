//! Where device memory comes from, and goes back to.

use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use crate::context::Context;
use crate::device::Device;
use crate::error::Result;
use crate::stream_core::StreamCore;

/// What keeps a block of device memory allocated.
pub(crate) enum Origin {
    /// Stream-ordered: allocated and freed on this stream.
    Home(Arc<StreamCore>),
    /// Anything else: given back by `owner`, once the host has seen that no work uses it.
    Owned {
        context: Context,
        owner: Box<dyn Owner>,
    },
}

/// Who gives device memory back that is not freed in the order of a stream.
pub(crate) trait Owner: Send + Sync {
    /// Gives the block back. No work uses it any more, and nothing is current that the caller of
    /// `Drop` did not make so. Called again only after it failed.
    fn release(&mut self, address: CUdeviceptr, bytes: usize) -> Result<()>;

    /// Whether the memory comes from `cuMemAlloc`, which other processes can open.
    fn is_plain(&self) -> bool {
        false
    }
}

impl Origin {
    #[inline]
    pub(crate) fn context(&self) -> &Context {
        match self {
            Origin::Home(home) => home.context(),
            Origin::Owned { context, .. } => context,
        }
    }

    #[inline]
    pub(crate) fn device(&self) -> Device {
        match self {
            Origin::Home(home) => home.device(),
            Origin::Owned { context, .. } => context.device(),
        }
    }
}
