//! The ids by which the ranks of a communicator find each other.

use std::fmt;
use std::slice;

use super::failure::checked;
use super::library::nccl;
use super::raw::{RawUniqueId, UNIQUE_ID_BYTES};
use crate::error::{Error, Result};

/// The id by which the ranks of a communicator find each other. One rank makes it, and all others
/// receive its bytes by any means: a file, a socket, MPI.
///
/// ```no_run
/// use cuda_core::nccl::UniqueId;
///
/// let id = UniqueId::new()?; // at rank 0
/// let bytes = id.to_bytes(); // to be sent
/// assert_eq!(UniqueId::from_bytes(&bytes)?, id); // at the others
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UniqueId([u8; UNIQUE_ID_BYTES]);

impl UniqueId {
    /// The size of an id in bytes.
    pub const LEN: usize = UNIQUE_ID_BYTES;

    /// Makes a new id, for one communicator: `ncclGetUniqueId`. The process that makes it serves
    /// the others while they join: it must live until they have joined, and they must reach it over
    /// the network. For an id that not all ranks use, NCCL keeps a socket and a thread.
    ///
    /// # Errors
    /// [`Error::Nccl`].
    #[doc(alias("ncclGetUniqueId"))]
    pub fn new() -> Result<Self> {
        let nccl = nccl()?;
        Self::made_by(|id| {
            // SAFETY: the function writes one id, to a place that outlives the call.
            checked("ncclGetUniqueId", nccl, unsafe { (nccl.unique_id)(id) })
        })
    }

    /// Returns the id that `make` writes to the place it is given.
    pub(super) fn made_by(make: impl FnOnce(*mut RawUniqueId) -> Result<()>) -> Result<Self> {
        let mut id = RawUniqueId { internal: [0; UNIQUE_ID_BYTES] };
        make(&mut id)?;
        Ok(Self(id.internal))
    }

    /// The id's bytes.
    pub const fn to_bytes(self) -> [u8; UNIQUE_ID_BYTES] {
        self.0
    }

    /// Returns the id with these bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless there are 128 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let id = bytes.try_into().map(Self);
        id.map_err(|_| {
            let why = format!("an id has {UNIQUE_ID_BYTES} bytes; {} were given", bytes.len());
            Error::invalid("UniqueId::from_bytes", why)
        })
    }

    pub(super) fn raw(self) -> RawUniqueId {
        RawUniqueId { internal: self.0 }
    }
}

/// One id, for calls that take [several](super::Communicator::init_rank).
impl AsRef<[UniqueId]> for UniqueId {
    fn as_ref(&self) -> &[UniqueId] {
        slice::from_ref(self)
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId(")?;
        self.0[..16].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…)")
    }
}
