//! One error for every operation: what was asked, and what stood in the way.

use std::fmt;

use cuda_sys::{CUresult, LoadError};

use crate::cache::usage::CacheUsage;
use crate::context::settings::MemoryInfo;
use crate::device::uuid::Uuid;
use crate::drops::Resource;

mod allocator;
mod launch;
mod module;
mod queries;
mod text;

pub use allocator::AllocatorError;
pub use launch::LaunchError;
pub use module::ModuleError;
pub(crate) use text::Bytes;
use text::{describe, dimensions, on_lines_of_its_own, shortage, within};

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
///
/// Bad input is found before the driver is called and has a variant of its own. What the driver reports
/// is [`Error::Driver`] with its code, or says more: [`Error::OutOfMemory`], or [`Error::Module`] of code
/// that could not be compiled or found. [`Error::code`] has the code of each.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver refused an operation, or reports that earlier asynchronous work failed.
    #[error("{op}: {}", describe(*.code))]
    Driver {
        /// The driver call.
        op: &'static str,
        /// Its result; codes of newer drivers are values like any other.
        code: CUresult,
    },

    /// The device, or the host for pinned memory, has not enough memory.
    #[error("{op}: out of memory (requested {}{})", Bytes(*.requested), shortage(.memory, *.device))]
    OutOfMemory {
        /// The driver call.
        op: &'static str,
        /// Bytes asked for.
        requested: usize,
        /// The device that was asked.
        device: u32,
        /// What the device had left, where it would say so.
        memory: Option<MemoryInfo>,
    },

    /// A caching pool has no memory left, and can get no more: neither from the device, nor within
    /// its limit.
    #[error(
        "the caching pool has no memory left (requested {}{}; {} in use, {} free, {} pending, \
         largest free block {}{})",
        Bytes(*.requested),
        shortage(.memory, *.device),
        Bytes(.usage.used),
        Bytes(.usage.free),
        Bytes(.usage.pending),
        Bytes(.usage.largest_free),
        within(.usage.limit)
    )]
    PoolExhausted {
        /// Bytes asked for.
        requested: usize,
        /// The device that was asked.
        device: u32,
        /// What the pool holds, and its limit.
        usage: Box<CacheUsage>,
        /// What the device had left, where it would say so.
        memory: Option<MemoryInfo>,
    },

    /// No CUDA driver could be loaded on this machine.
    #[error(transparent)]
    NoDriver(#[from] LoadError),

    /// The driver is older than CUDA 11.8.
    #[error("the driver supports CUDA {}.{}; 11.8 is the oldest that works", .found / 1000, .found % 1000 / 10)]
    DriverTooOld {
        /// `cuDriverGetVersion`, 12040 for CUDA 12.4.
        found: i32,
    },

    /// No device has that ordinal.
    #[error("device {ordinal} does not exist: there are {count}")]
    NoSuchDevice {
        /// The ordinal asked for.
        ordinal: u32,
        /// Devices visible to this process.
        count: u32,
    },

    /// No device has that identifier.
    #[error("none of the {count} devices of this process is {uuid}")]
    NoSuchUuid {
        /// The identifier asked for.
        uuid: Uuid,
        /// Devices visible to this process.
        count: u32,
    },

    /// An operation that needs at least one of something was given none.
    #[error("{op}: no {what} were given")]
    NothingGiven {
        /// The operation.
        op: &'static str,
        /// What it needs.
        what: &'static str,
    },

    /// Parts of several devices were given where all have to be of one.
    #[error("{op}: parts of device {first} and of device {other} do not go together")]
    SeveralDevices {
        /// The operation.
        op: &'static str,
        /// Ordinal of one device.
        first: u32,
        /// Ordinal of another.
        other: u32,
    },

    /// A text is not of the form that it should have.
    #[error("{text:?} is not {what}: {form}")]
    Malformed {
        /// What it was taken for.
        what: &'static str,
        /// The text.
        text: String,
        /// The form that it should have.
        form: &'static str,
    },

    /// A device lacks something that the operation rests on.
    #[error("device {device} does not support {feature}")]
    Unsupported {
        /// What is missing, in CUDA's words.
        feature: &'static str,
        /// The device's ordinal.
        device: u32,
    },

    /// Access to another device's memory cannot be taken away while copies that need it are
    /// enqueued without a pause.
    #[error("device {device} copies from or to device {peer} all the time")]
    PeerAccessInUse {
        /// Ordinal of the device that has the access.
        device: u32,
        /// Ordinal of the device whose memory it is.
        peer: u32,
    },

    /// Source and destination differ in length.
    #[error("{op}: the source holds {source_len} elements, the destination {destination_len}")]
    LengthMismatch {
        /// The operation.
        op: &'static str,
        /// Elements of the source.
        source_len: usize,
        /// Elements of the destination.
        destination_len: usize,
    },

    /// A range or an index is not within the buffer.
    #[error("elements {start}..{end} are not within the {len} there are")]
    OutOfBounds {
        /// First element asked for.
        start: usize,
        /// The element behind the last one asked for.
        end: usize,
        /// Elements there are.
        len: usize,
    },

    /// `len * size_of::<T>()` is more than an object may have.
    #[error("{len} elements of {element_size} bytes are more than an address space holds")]
    SizeOverflow {
        /// Elements asked for.
        len: usize,
        /// Size of one, in bytes.
        element_size: usize,
    },

    /// The element type wants a stricter alignment than the memory has.
    #[error("elements aligned to {alignment} bytes do not fit memory aligned to {available}")]
    OverAligned {
        /// Alignment of the element type, in bytes.
        alignment: usize,
        /// Alignment that the allocation guarantees, in bytes.
        available: usize,
    },

    /// Bytes cannot be looked at as elements of another type.
    #[error(
        "{bytes} bytes at address {address:#x} are no whole number of elements of {element_size} bytes aligned to {alignment}"
    )]
    Recast {
        /// Size of the memory, in bytes.
        bytes: usize,
        /// Where it begins.
        address: u64,
        /// Size of the new element type, in bytes.
        element_size: usize,
        /// Its alignment, in bytes.
        alignment: usize,
    },

    /// A fill pattern does not divide the memory, or does not sit on its own alignment.
    #[error("{op}: a pattern of {width} bytes does not tile {bytes} bytes at address {address:#x}")]
    Indivisible {
        /// The operation.
        op: &'static str,
        /// Size of the pattern, in bytes.
        width: usize,
        /// Size of the memory, in bytes.
        bytes: usize,
        /// Where the memory begins.
        address: u64,
    },

    /// Two ends of a copy have different shapes.
    #[error("{op}: the source is {}, the destination {}", dimensions(*.from), dimensions(*.to))]
    ShapeMismatch {
        /// The operation.
        op: &'static str,
        /// Elements of the source in each direction: width, height and depth.
        from: [usize; 3],
        /// Those of the destination.
        to: [usize; 3],
    },

    /// Rows are longer than the distance between them, or slices than that between those.
    #[error("{needed} {what} do not fit {there} {of}")]
    Pitch {
        /// What does not fit.
        what: &'static str,
        /// How much of it there is.
        needed: usize,
        /// What it has to fit.
        of: &'static str,
        /// How much of that there is.
        there: usize,
    },

    /// A copy within a buffer would read what it writes.
    #[error("{op}: {len} elements from {from} on and from {to} on overlap")]
    Overlap {
        /// The operation.
        op: &'static str,
        /// The first element read.
        from: usize,
        /// The first element written.
        to: usize,
        /// Elements to copy.
        len: usize,
    },

    /// An allocator, or an adaptor around one, said no or did wrong.
    #[error(transparent)]
    Allocator(#[from] AllocatorError),

    /// One device of a group stood in the way.
    #[error("device {device}: {error}")]
    OnDevice {
        /// Its ordinal.
        device: u32,
        /// What was wrong there; [`Error::code`] and [`Error::is_sticky`] look into it.
        error: Box<Error>,
    },

    /// A group was given one thing for each of another number of members than it has.
    #[error("{op}: {given} given, to a group of {members}")]
    GroupSize {
        /// The operation.
        op: &'static str,
        /// Members of the group.
        members: usize,
        /// How many of something were given.
        given: usize,
    },

    /// Elements cannot be cut into as many equal parts as a group has members.
    #[error("{op}: {len} elements cannot be cut into {members} equal parts")]
    Shares {
        /// The operation.
        op: &'static str,
        /// Elements there are.
        len: usize,
        /// Members of the group.
        members: usize,
    },

    /// `cuMemset` knows patterns of 1, 2 and 4 bytes.
    #[error("{op}: a value of {width} bytes that is no repeated pattern of 1, 2 or 4")]
    FillWidth {
        /// The operation.
        op: &'static str,
        /// Size of the value, in bytes.
        width: usize,
    },

    /// Memory of one device was given to a stream of another.
    #[error("{op}: the memory is on device {memory}, the stream on device {stream}")]
    WrongDevice {
        /// The operation.
        op: &'static str,
        /// The device that holds the memory.
        memory: u32,
        /// The device that the stream belongs to.
        stream: u32,
    },

    /// An event without timing was asked for a time.
    #[error("elapsed time: the event was created with DISABLE_TIMING")]
    NoTiming,

    /// Flags that CUDA does not allow together.
    #[error("{op}: {why}")]
    Flags {
        /// The operation.
        op: &'static str,
        /// Which flags, and what would be allowed.
        why: &'static str,
    },

    /// Memory that other processes cannot be given.
    #[error("the memory cannot be shared: {why}")]
    NotShareable {
        /// What stands in the way.
        why: &'static str,
    },

    /// `CU_STREAM_PER_THREAD` was given as a stream that any thread may use.
    #[error(
        "CU_STREAM_PER_THREAD means another stream on every thread: take it from \
         `Context::per_thread_stream`"
    )]
    PerThreadHandle,

    /// A context cannot be destroyed while something needs it.
    #[error("the context is still in use")]
    ContextInUse,

    /// An earlier `close` failed in the very call that releases this. CUDA does not say whether such a
    /// call took effect, so what there was is neither used nor released again, and counts among
    /// [`drop_failures`](crate::drop_failures). Of memory an empty buffer is left.
    #[error("{what:?}: given up, since nobody knows whether the driver has released it")]
    GivenUp {
        /// What there was.
        what: Resource,
    },

    /// A stream was said to belong to a context that it does not belong to.
    #[error("the stream belongs to another context than the one that was named")]
    StreamContext,

    /// A stream pool without streams.
    #[error("a stream pool needs at least one stream")]
    EmptyPool,

    /// No value fulfils the condition of a wait.
    #[error("{op}: no value fulfils the condition, so the wait would never end")]
    EndlessWait {
        /// The operation.
        op: &'static str,
    },

    /// Extents that an array, a texture or a copy of theirs cannot have.
    #[error("{op}: {why}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// What is wrong with them.
        why: &'static str,
    },

    /// Streams write and wait for values in memory of `cuMemAlloc` and of the host only.
    #[error(
        "{op}: CUDA does not do this in stream-ordered memory; use a `Signal`, or memory of \
         `Context::alloc`"
    )]
    StreamOrderedMemory {
        /// The operation.
        op: &'static str,
    },

    /// A string holds a NUL byte, which C cannot be given.
    #[error("{what} holds a NUL byte")]
    Nul {
        /// What the string was for.
        what: &'static str,
    },

    /// Device code could not be compiled or loaded, or does not hold what was looked for.
    #[error(transparent)]
    Module(#[from] ModuleError),

    /// NVRTC could not compile a program, or refused an option.
    #[error("{op}: {reason}{}", on_lines_of_its_own(.log))]
    Nvrtc {
        /// The function of NVRTC.
        op: &'static str,
        /// Its result, an `nvrtcResult`.
        code: i32,
        /// The result's name.
        reason: String,
        /// What the compiler had to say.
        log: String,
    },

    /// NVRTC could not be loaded on this machine.
    #[error("NVRTC could not be loaded:{tried}")]
    NoNvrtc {
        /// Each library that was tried, and what the loader answered.
        tried: String,
    },

    /// A launch does not fit its kernel, or the device.
    #[error(transparent)]
    Launch(#[from] LaunchError),

    /// Something of one context was given to a stream of another.
    #[error("{op}: {what} belongs to another context than the stream")]
    WrongContext {
        /// The operation.
        op: &'static str,
        /// What was given.
        what: &'static str,
    },

    /// The current context was made by somebody else, and nothing here keeps it alive.
    #[error(
        "the current context was created elsewhere; name its owner with `Context::from_raw` first"
    )]
    UnknownContext,

    /// A guard could not bring back the context that was current before it.
    #[error("the thread's context stack holds entries that a guard cannot remove")]
    ContextStack,

    /// Work of a stream that no longer exists cannot be proven complete.
    #[error("a stream was lost before its work could be proven complete")]
    LostStream,

    /// The system has no thread left that could wait for a future's sake.
    #[error("no thread could be started to wait for the device: {0}")]
    NoThread(std::io::ErrorKind),

    /// Called from a host function, where the driver allows no CUDA call.
    #[error("CUDA cannot be called from a host function that a stream runs")]
    InCallback,

    /// Called in a child made by `fork` after CUDA was initialised in the parent.
    #[error("CUDA was initialised before this process was forked; the child cannot use it")]
    Forked,

    /// Called while the process exits.
    #[error("the process is exiting; the driver is shutting down")]
    Exiting,
}

/// The same sentence as `Display`: it is what `fn main() -> Result<()>` prints.
macro_rules! debug_as_display {
    ($($error:ty),*) => {$(
        impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}

debug_as_display!(Error, AllocatorError, LaunchError, ModuleError);

/// Turns a driver's result into ours.
#[inline]
pub(crate) fn check(op: &'static str, code: CUresult) -> Result<()> {
    if code == cuda_sys::CUDA_SUCCESS {
        Ok(())
    } else {
        Err(Error::Driver { op, code })
    }
}
