//! Errors of allocators and their adaptors.

use std::fmt;

use super::text::ByteCount;

/// Why an [allocator](crate::Allocator), or an [adaptor](crate::adaptors) around one, failed to
/// allocate or to free: the payload of [`Error::Allocator`](crate::Error::Allocator).
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::adaptors::Limiting;
/// use cuda_core::{Allocator, AllocatorError, Error};
///
/// let allocator = Allocator::new(Limiting::new(Allocator::driver_pool(), 1 << 20));
/// match stream.alloc_with::<u8>(&allocator, 2 << 20) {
///     Err(Error::Allocator(why)) => match *why {
///         AllocatorError::LimitExceeded { requested, limit, .. } => {
///             println!("{requested} bytes are over the limit of {limit}");
///         }
///         why => return Err(why.into()),
///     },
///     other => drop(other?),
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocatorError {
    /// A custom allocator panicked, or returned memory that cannot be used.
    #[non_exhaustive]
    Failed {
        /// The allocator's name.
        allocator: String,
        /// What the allocator did wrong.
        why: String,
    },

    /// An allocator returned null, the way in which an allocator written in C reports that it has no
    /// memory.
    #[non_exhaustive]
    Null {
        /// The allocator's name.
        allocator: String,
    },

    /// An allocation would exceed the limit of a [`Limiting`](crate::adaptors::Limiting) allocator.
    #[non_exhaustive]
    LimitExceeded {
        /// Bytes requested.
        requested: usize,
        /// Bytes in use before the request.
        used: usize,
        /// The most bytes that may be in use.
        limit: usize,
    },
}

impl fmt::Display for AllocatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { allocator, why } => {
                write!(f, "the allocator `{allocator}` failed: {why}")
            }
            Self::Null { allocator } => {
                write!(f, "the allocator `{allocator}` failed: it returned null")
            }
            Self::LimitExceeded { requested, used, limit } => write!(
                f,
                "{} on top of the {} in use would exceed the limit of {}",
                ByteCount(*requested),
                ByteCount(*used),
                ByteCount(*limit)
            ),
        }
    }
}
