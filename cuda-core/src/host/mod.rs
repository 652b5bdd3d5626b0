//! Host memory that devices use: pinned, registered, and the pool of pinned chunks.

mod access;
pub(crate) mod pin_gate;
pub(crate) mod pinned;
pub(crate) mod pinned_pool;
mod pinning;
pub(crate) mod registered;
pub(crate) mod stable_host;

pub(crate) use pinned::{HostAddress, device_ptr_of};
pub use pinned::{PinnedBuffer, PinnedMemory, PinnedSlice, PinnedSliceMut};
pub use pinned_pool::{PinnedBackend, PinnedPool};
pub use registered::{RegisterFlags, Registered};
pub use stable_host::{ReadOnly, StableHost, StableHostMut};
