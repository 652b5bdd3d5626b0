//! The work of a queued operation.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use crate::engine::clock::{Clock, Point};
use crate::engine::kernel::Run;
use crate::engine::order::overlap;
use crate::graph::condition::{Condition, Rounds};
use crate::handle::Id;
use crate::nccl::operation::Operation;

/// A host pointer, kept as a pointer so that its provenance survives.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct HostPtr(pub(crate) *mut u8);

// SAFETY: the pointer is dereferenced only under the simulator's lock, or by the one thread that
// moves the memory of its operation, or passed to the host function that it came with; the contract
// of each call that passes one allows another thread.
unsafe impl Send for HostPtr {}

/// One end of a copy, bound to its object at enqueue: if an address is reused later, the operation still
/// touches the old object.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Device {
        block: Id,
        offset: usize,
    },
    Pinned {
        block: Id,
        offset: usize,
    },
    /// Pageable memory. The call returns only after the operation has run.
    Pageable(HostPtr),
    /// A pageable source, copied when the call was made.
    Staged(Box<[u8]>),
}

/// Memory that an operation reads or writes.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) target: Target,
    pub(crate) range: Range<usize>,
    pub(crate) kind: AccessKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Device(Id),
    Pinned(Id),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Read,
    Write,
}

pub(crate) type HostFn = unsafe extern "C" fn(*mut c_void);

#[derive(Debug, Clone)]
pub(crate) enum Work {
    Nothing,
    Copy {
        dst: Place,
        src: Place,
        bytes: usize,
    },
    Fill {
        dst: Place,
        pattern: u32,
        width: usize,
        count: usize,
    },
    /// All of these, in sequence.
    Each(Vec<Work>),
    Alloc {
        block: Id,
    },
    Free {
        block: Id,
    },
    Record {
        event: Id,
    },
    Call {
        function: HostFn,
        data: HostPtr,
    },
    Kernel {
        run: Run,
    },
    WriteValue {
        dst: Place,
        value: u64,
        width: usize,
    },
    WaitValue {
        src: Place,
        value: u64,
        width: usize,
        compare: Compare,
    },
    /// An operation of a communicator of NCCL.
    Communicate(Box<Operation>),
    /// The nodes of a graph, on these streams. The operation completes with them.
    Graph {
        branches: Vec<Id>,
        /// User objects that the launch keeps until its end.
        objects: Vec<Id>,
        conditions: Vec<Arc<Condition>>,
    },
    /// Begins a launch that has these conditions.
    Assign {
        conditions: Vec<Arc<Condition>>,
    },
    /// The bodies of a conditional node.
    Conditional(Box<Rounds>),
}

/// How `cuStreamWaitValue` compares memory `m` with the value `v`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Compare {
    /// `m - v` is not negative, cyclically.
    Geq,
    Eq,
    And,
    Nor,
}

#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) seq: u64,
    pub(crate) call: &'static str,
    pub(crate) deps: Vec<Point>,
    /// The clock that the host may know without a call once the operation has begun: a host function can
    /// report it, and so can a value in host memory.
    pub(crate) tells: Option<Clock>,
    pub(crate) work: Work,
}

impl Access {
    /// Returns whether the accesses have bytes in common.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.target == other.target && overlap(&self.range, &other.range)
    }

    /// Returns whether one of the accesses writes what the other one accesses.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        self.overlaps(other) && [self.kind, other.kind].contains(&AccessKind::Write)
    }
}

impl Work {
    /// Returns the work that is done in sequence.
    pub(crate) fn parts(&self) -> &[Work] {
        match self {
            Self::Each(works) => works,
            work => std::slice::from_ref(work),
        }
    }

    /// Returns whether the work waits for memory to change.
    pub(crate) fn waits(&self) -> bool {
        match self {
            Self::WaitValue { .. } => true,
            Self::Kernel { run } => run.spun,
            _ => false,
        }
    }
}

impl Work {
    /// Returns whether the host can notice the operation without a call.
    pub(crate) fn shows(&self) -> bool {
        match self {
            Work::Call { .. } => true,
            Work::WriteValue { dst, .. } => matches!(dst, Place::Pinned { .. }),
            Work::Each(works) => works.iter().any(Work::shows),
            _ => false,
        }
    }
}

impl Place {
    /// Returns the place `at` bytes after this one.
    pub(super) fn behind(self, at: usize) -> Self {
        match self {
            Self::Device { block, offset } => Self::Device { block, offset: offset + at },
            Self::Pinned { block, offset } => Self::Pinned { block, offset: offset + at },
            other => other,
        }
    }

    /// Returns the access to `bytes` at this place, if the simulator can track it.
    pub(crate) fn access(&self, bytes: usize, kind: AccessKind) -> Option<Access> {
        let (target, offset) = match *self {
            Place::Device { block, offset } => (Target::Device(block), offset),
            Place::Pinned { block, offset } => (Target::Pinned(block), offset),
            Place::Pageable(_) | Place::Staged(_) => return None,
        };
        Some(Access { target, range: offset..offset + bytes, kind })
    }
}
