//! Errors of NCCL.

use std::fmt;
use std::time::Duration;

use crate::types::Version;

/// Why communication between devices failed: the payload of [`Error::Nccl`](crate::Error::Nccl).
///
/// The rank in an error is one of this process: the rank that reports the error, or that waited. NCCL
/// does not say which other rank was lost.
///
/// ```no_run
/// use cuda_core::nccl::UniqueId;
/// use cuda_core::{Error, NcclError};
///
/// match UniqueId::new() {
///     Err(Error::Nccl(why)) if matches!(*why, NcclError::NotFound { .. }) => {
///         println!("one device must do");
///     }
///     other => drop(other?),
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NcclError {
    /// NCCL refused a call, or reports that an operation failed, here or at another rank.
    #[non_exhaustive]
    Failed {
        /// The NCCL function, `wait`, or `drop`.
        op: &'static str,
        /// The `ncclResult_t` of the call, or of earlier work.
        code: i32,
        /// The rank of this process that reports the failure; [`None`] outside a communicator.
        rank: Option<usize>,
        /// NCCL's description of the code, and its message about the last error.
        reason: String,
    },

    /// A call, or the work that the call waited for, did not complete within its time limit.
    #[non_exhaustive]
    TimedOut {
        /// The NCCL function, `wait`, or `drop`.
        op: &'static str,
        /// The rank of this process that waited.
        rank: usize,
        /// The limit.
        after: Duration,
    },

    /// The communicator was aborted: by [`Communicator::abort`](crate::nccl::Communicator::abort), or
    /// because a call did not complete within its time limit.
    #[non_exhaustive]
    Aborted {
        /// The NCCL function, `wait`, or `cuGraphLaunch`.
        op: &'static str,
        /// The rank of this process in the communicator.
        rank: usize,
    },

    /// The communicator was [finalised](crate::nccl::Communicator::finalize).
    #[non_exhaustive]
    Finalized {
        /// The NCCL function.
        op: &'static str,
        /// The rank of this process in the communicator.
        rank: usize,
    },

    /// NCCL could not be loaded on this machine.
    #[non_exhaustive]
    NotFound {
        /// Each library that was tried, with the loader's error.
        tried: String,
    },

    /// NCCL is older than 2.18.
    #[non_exhaustive]
    TooOld {
        /// NCCL's version.
        found: Version,
    },

    /// The installed NCCL lacks a function.
    #[non_exhaustive]
    Missing {
        /// The function.
        op: &'static str,
        /// NCCL's version.
        found: Version,
    },
}

impl fmt::Display for NcclError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { op, rank: Some(rank), reason, .. } => {
                write!(f, "{op}: rank {rank}: {reason}")
            }
            Self::Failed { op, reason, .. } => write!(f, "{op}: {reason}"),
            Self::TimedOut { op, rank, after } => {
                write!(f, "{op}: rank {rank} has waited for the others for {after:?}")
            }
            Self::Aborted { op, rank } => {
                write!(f, "{op}: the communicator of rank {rank} was aborted")
            }
            Self::Finalized { op, rank } => {
                write!(f, "{op}: the communicator of rank {rank} was finalised")
            }
            Self::NotFound { tried } => write!(
                f,
                "NCCL could not be loaded:{tried}. Install NCCL, 2.18 or newer, which comes as a \
                 package of its own; CUDA_CORE_NCCL names another library to load"
            ),
            Self::TooOld { found } => write!(f, "NCCL is {found}; 2.18 is the oldest that works"),
            Self::Missing { op, found } => write!(f, "{op}: NCCL {found} does not have it"),
        }
    }
}
