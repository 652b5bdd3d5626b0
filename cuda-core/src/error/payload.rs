//! What the variants of [`Error`](crate::Error) hold, so that an error is small: a `Result<()>` is three words.

use std::borrow::Cow;
use std::error;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use cuda_sys::CUgraphExecUpdateResult;

use crate::types::{MemoryInfo, PoolUsage};

/// What [`Error::Invalid`](crate::Error::Invalid) says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// The operation: the driver call that it stands for, if there is one.
    pub op: &'static str,
    /// What is wrong with which argument, and what would be right.
    pub reason: Cow<'static, str>,
}

/// What [`Error::OutOfHostMemory`](crate::Error::OutOfHostMemory) says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OutOfHostMemory {
    /// The driver call, or `alloc_zeroed` of the host.
    pub op: &'static str,
    /// Bytes requested.
    pub requested: usize,
}

/// What [`Error::OutOfMemory`](crate::Error::OutOfMemory) says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The driver call.
    pub op: &'static str,
    /// Bytes requested.
    pub requested: usize,
    /// The device that was asked.
    pub device: u32,
    /// What the device had left, if the driver answered.
    pub memory: Option<MemoryInfo>,
}

/// What [`Error::PoolExhausted`](crate::Error::PoolExhausted) says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PoolExhausted {
    /// Bytes requested.
    pub requested: usize,
    /// The device that was asked.
    pub device: u32,
    /// What the pool holds, and its limit.
    pub usage: PoolUsage,
    /// What the device had left, if the driver answered.
    pub memory: Option<MemoryInfo>,
}

/// What [`Error::PeerAccessInUse`](crate::Error::PeerAccessInUse) says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PeerAccessInUse {
    /// Ordinal of the device that has the access.
    pub device: u32,
    /// Ordinal of the device whose memory it is.
    pub peer: u32,
    /// What uses it.
    pub reason: &'static str,
}

/// What [`Error::LengthMismatch`](crate::Error::LengthMismatch) says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LengthMismatch {
    /// The operation.
    pub op: &'static str,
    /// Elements of the source.
    pub source_len: usize,
    /// Elements of the destination.
    pub destination_len: usize,
}

/// What [`Error::OutOfBounds`](crate::Error::OutOfBounds) says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OutOfBounds {
    /// First element requested.
    pub start: usize,
    /// The element after the last one requested.
    pub end: usize,
    /// The number of elements.
    pub len: usize,
}

/// What [`Error::WrongDevice`](crate::Error::WrongDevice) says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WrongDevice {
    /// The operation.
    pub op: &'static str,
    /// What was given: "the memory", or which argument of which kernel, numbered from zero.
    pub what: Cow<'static, str>,
    /// The device that holds the memory.
    pub memory: u32,
    /// The device that the stream belongs to.
    pub stream: u32,
}

/// What [`Error::GraphUpdate`](crate::Error::GraphUpdate) says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GraphUpdate {
    /// What differs.
    pub why: CUgraphExecUpdateResult,
    /// Which node of the other graph differs, by its index in [`Graph::nodes`](crate::Graph::nodes).
    /// [`None`] if the driver names none, as where the numbers of nodes differ, or one inside a node.
    pub node: Option<usize>,
    /// Which node it depends on that its counterpart does not depend on, by its index, too.
    pub dependency: Option<usize>,
    /// What the node that differs does, as [`GraphNode`](crate::GraphNode) shows it: the kernel's name,
    /// or how many bytes are copied.
    pub operation: Option<String>,
}

/// What [`Error::Nvrtc`](crate::Error::Nvrtc) says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Nvrtc {
    /// The function of NVRTC.
    pub op: &'static str,
    /// Its result, an `nvrtcResult`.
    pub code: i32,
    /// The result's name.
    pub reason: String,
    /// The compiler's log.
    pub log: String,
}

/// What [`Error::WrongContext`](crate::Error::WrongContext) says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WrongContext {
    /// The operation.
    pub op: &'static str,
    /// What was given: "the semaphore", or which argument of which kernel, numbered from zero.
    pub what: Cow<'static, str>,
}

/// An error of the program: [`Error::downcast_ref`](crate::Error::downcast_ref) returns it. Equal to its clones alone.
#[derive(Clone, Debug)]
pub struct Other(pub(super) Arc<dyn error::Error + Send + Sync>);

impl PartialEq for Other {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Other {}

// This crate only passes it on, and shows it.
impl UnwindSafe for Other {}
impl RefUnwindSafe for Other {}
