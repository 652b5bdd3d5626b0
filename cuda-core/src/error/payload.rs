//! The payloads of the variants of [`Error`](crate::Error), which keep it small: a `Result<()>` is
//! three words.

use std::borrow::Cow;
use std::error;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use cuda_sys::CUgraphExecUpdateResult;

use crate::types::{MemoryInfo, PoolUsage};

/// The payload of [`Error::Invalid`](crate::Error::Invalid).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// The operation: its driver call, if there is one.
    pub op: &'static str,
    /// Which argument is wrong, why, and what would be valid.
    pub reason: Cow<'static, str>,
}

/// The payload of [`Error::OutOfHostMemory`](crate::Error::OutOfHostMemory).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OutOfHostMemory {
    /// The driver call, or `alloc_zeroed` of the host.
    pub op: &'static str,
    /// Bytes requested.
    pub requested: usize,
}

/// The payload of [`Error::OutOfMemory`](crate::Error::OutOfMemory).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The driver call.
    pub op: &'static str,
    /// Bytes requested.
    pub requested: usize,
    /// The device that was asked.
    pub device: u32,
    /// The device's free and total memory, if the driver answered.
    pub memory: Option<MemoryInfo>,
}

/// The payload of [`Error::PoolExhausted`](crate::Error::PoolExhausted).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PoolExhausted {
    /// Bytes requested.
    pub requested: usize,
    /// The device that was asked.
    pub device: u32,
    /// What the pool holds, and its limit.
    pub usage: PoolUsage,
    /// The device's free and total memory, if the driver answered.
    pub memory: Option<MemoryInfo>,
}

/// The payload of [`Error::PeerAccessInUse`](crate::Error::PeerAccessInUse).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PeerAccessInUse {
    /// Ordinal of the device that has the access.
    pub device: u32,
    /// Ordinal of the device that holds the memory.
    pub peer: u32,
    /// Why the access is in use.
    pub reason: &'static str,
}

/// The payload of [`Error::LengthMismatch`](crate::Error::LengthMismatch).
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

/// The payload of [`Error::OutOfBounds`](crate::Error::OutOfBounds).
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

/// The payload of [`Error::WrongDevice`](crate::Error::WrongDevice).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WrongDevice {
    /// The operation.
    pub op: &'static str,
    /// The object: "the memory", or which argument of which kernel, numbered from zero.
    pub what: Cow<'static, str>,
    /// The device that holds the memory.
    pub memory: u32,
    /// The device that the stream belongs to.
    pub stream: u32,
}

/// The payload of [`Error::GraphUpdate`](crate::Error::GraphUpdate).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GraphUpdate {
    /// What differs.
    pub why: CUgraphExecUpdateResult,
    /// Which node of the other graph differs, by its index in [`Graph::nodes`](crate::Graph::nodes).
    /// [`None`] if the driver names none, as when the numbers of nodes differ, or names one inside a
    /// node.
    pub node: Option<usize>,
    /// The index of the node that it depends on while its counterpart does not.
    pub dependency: Option<usize>,
    /// The operation of the node that differs, as [`GraphNode`](crate::GraphNode) shows it: the
    /// kernel's name, or how many bytes are copied.
    pub operation: Option<String>,
}

/// The payload of [`Error::Nvrtc`](crate::Error::Nvrtc).
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

/// The payload of [`Error::WrongContext`](crate::Error::WrongContext).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WrongContext {
    /// The operation.
    pub op: &'static str,
    /// The object: "the semaphore", or which argument of which kernel, numbered from zero.
    pub what: Cow<'static, str>,
}

/// An error of the program, returned by [`Error::downcast_ref`](crate::Error::downcast_ref). It equals
/// only its clones.
#[derive(Clone, Debug)]
pub struct Other(pub(super) Arc<dyn error::Error + Send + Sync>);

impl PartialEq for Other {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Other {}

// This crate only passes the error on, and shows it.
impl UnwindSafe for Other {}
impl RefUnwindSafe for Other {}
