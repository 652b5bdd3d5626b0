//! What allocators and their adaptors say.

use super::text::Bytes;

/// Why an [allocator](crate::Allocator), or an [adaptor](crate::adaptors) around one, gave no memory
/// or took none back: the inside of [`Error::Allocator`](crate::Error::Allocator).
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AllocatorError {
    /// An allocator of somebody's own panicked, or returned no memory that could be used.
    #[error("the allocator `{allocator}` failed: {why}")]
    Failed {
        /// What the allocator calls itself.
        allocator: String,
        /// What it did.
        why: String,
    },

    /// An allocator returned null, with which one written in C says that it has no memory.
    #[error("the allocator `{allocator}` failed: it returned null")]
    Null {
        /// What the allocator calls itself.
        allocator: String,
    },

    /// A default allocator cannot be changed inside a scope that has another one.
    #[error("{op}: called inside `with_allocator`, which decides for now")]
    Scoped {
        /// The operation.
        op: &'static str,
    },

    /// An allocation would go beyond what a [`Limiting`](crate::adaptors::Limiting) allocator allows.
    #[error("{} more, with {} in use, are over the limit of {}", Bytes(*.requested), Bytes(*.used), Bytes(*.limit))]
    LimitExceeded {
        /// Bytes asked for.
        requested: usize,
        /// Bytes handed out already.
        used: usize,
        /// Bytes that may be.
        limit: usize,
    },

    /// A block was given back that is not allocated, or not any more.
    #[error("there is no block allocated at {address:#x} that could be given back")]
    NotAllocated {
        /// Where the block was said to be.
        address: u64,
    },

    /// Counters of [`Statistics`](crate::adaptors::Statistics) were ended that nobody had begun.
    #[error("there are no inner counters to end")]
    NoInnerCounters,
}

impl AllocatorError {
    /// The allocator of that name returned null.
    pub(crate) fn null(name: &str) -> Self {
        Self::Null {
            allocator: name.to_owned(),
        }
    }
}
