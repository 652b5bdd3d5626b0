//! One error for every operation: what was asked, and what stood in the way.

use cuda_sys::{CUresult, LoadError};

use crate::types::extent::Extent;
use crate::types::resource::Resource;
use crate::types::usage::{CacheUsage, MemoryInfo};
use crate::types::uuid::Uuid;
use crate::types::version::Version;

mod allocator;
mod display;
mod launch;
mod module;
mod queries;
mod text;

pub use allocator::AllocatorError;
pub use launch::LaunchError;
pub use module::ModuleError;
pub(crate) use text::{Bytes, c_text};

/// `Result` with this crate's [`Error`].
///
/// ```no_run
/// use cuda_core::{DeviceBuffer, Result, Stream};
///
/// fn ones(stream: &Stream, len: usize) -> Result<DeviceBuffer<f32>> {
///     let mut buffer = stream.alloc(len)?;
///     stream.fill(&mut buffer, 1.0)?;
///     Ok(buffer)
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
///
/// Bad input is found before the driver is called and has a variant of its own. What the driver reports
/// is [`Error::Driver`] with its code, or says more: [`Error::OutOfMemory`], or [`Error::Module`] of code
/// that could not be compiled or found. [`Error::code`] has the code of each.
///
/// ```no_run
/// use cuda_core::{Device, Error};
///
/// match Device::get(0).and_then(|device| device.create_stream()) {
///     Ok(stream) => println!("{stream:?}"),
///     Err(Error::NoDriver(why)) => println!("no GPU here: {why}"),
///     Err(error) if error.is_sticky() => panic!("start the process anew: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// The driver refused an operation, or reports that earlier asynchronous work failed. Allocators of
    /// one's own return it too, and it has no more to say than a call and its code.
    Driver {
        /// The driver call.
        op: &'static str,
        /// Its result; codes of newer drivers are values like any other.
        code: CUresult,
    },

    /// The device, or the host for pinned memory and vectors, has not enough memory.
    #[non_exhaustive]
    OutOfMemory {
        /// The driver call, or `alloc_zeroed` of the host.
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
    #[non_exhaustive]
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
    NoDriver(LoadError),

    /// The driver is older than CUDA 11.8.
    #[non_exhaustive]
    DriverTooOld {
        /// The newest CUDA that it supports.
        found: Version,
    },

    /// No device has that ordinal.
    #[non_exhaustive]
    NoSuchDevice {
        /// The ordinal asked for.
        ordinal: u32,
        /// Devices visible to this process.
        count: u32,
    },

    /// No device has that identifier.
    #[non_exhaustive]
    NoSuchUuid {
        /// The identifier asked for.
        uuid: Uuid,
        /// Devices visible to this process.
        count: u32,
    },

    /// An operation that needs at least one of something was given none.
    #[non_exhaustive]
    NothingGiven {
        /// The operation.
        op: &'static str,
        /// What it needs.
        what: &'static str,
    },

    /// Parts of several devices were given where all have to be of one.
    #[non_exhaustive]
    SeveralDevices {
        /// The operation.
        op: &'static str,
        /// Ordinal of one device.
        first: u32,
        /// Ordinal of another.
        other: u32,
    },

    /// A text is not of the form that it should have.
    #[non_exhaustive]
    Malformed {
        /// What it was taken for.
        what: &'static str,
        /// The text.
        text: String,
        /// The form that it should have.
        form: &'static str,
    },

    /// A device lacks something that the operation rests on.
    #[non_exhaustive]
    Unsupported {
        /// What is missing, in CUDA's words.
        feature: &'static str,
        /// The device's ordinal.
        device: u32,
    },

    /// Access to another device's memory cannot be taken away while copies that need it are
    /// enqueued without a pause.
    #[non_exhaustive]
    PeerAccessInUse {
        /// Ordinal of the device that has the access.
        device: u32,
        /// Ordinal of the device whose memory it is.
        peer: u32,
    },

    /// Source and destination differ in length.
    #[non_exhaustive]
    LengthMismatch {
        /// The operation.
        op: &'static str,
        /// Elements of the source.
        source_len: usize,
        /// Elements of the destination.
        destination_len: usize,
    },

    /// A range or an index is not within the buffer.
    #[non_exhaustive]
    OutOfBounds {
        /// First element asked for.
        start: usize,
        /// The element behind the last one asked for.
        end: usize,
        /// Elements there are.
        len: usize,
    },

    /// `len * size_of::<T>()` is more than an object may have.
    #[non_exhaustive]
    SizeOverflow {
        /// Elements asked for.
        len: usize,
        /// Size of one, in bytes.
        element_size: usize,
    },

    /// The element type wants a stricter alignment than the memory has.
    #[non_exhaustive]
    OverAligned {
        /// Alignment of the element type, in bytes.
        alignment: usize,
        /// Alignment that the allocation guarantees, in bytes.
        available: usize,
    },

    /// Bytes cannot be looked at as elements of another type.
    #[non_exhaustive]
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
    #[non_exhaustive]
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
    #[non_exhaustive]
    ShapeMismatch {
        /// The operation.
        op: &'static str,
        /// Elements of the source in each direction: width, height and depth.
        from: Extent,
        /// Those of the destination.
        to: Extent,
    },

    /// Rows are longer than the distance between them.
    #[non_exhaustive]
    Pitch {
        /// Bytes in a row.
        row: usize,
        /// Bytes from row to row.
        pitch: usize,
    },

    /// Slices are longer than the distance between them.
    #[non_exhaustive]
    SliceHeight {
        /// Rows in a slice.
        height: usize,
        /// Rows from slice to slice.
        slice_height: usize,
    },

    /// A copy within a buffer would read what it writes.
    #[non_exhaustive]
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
    Allocator(AllocatorError),

    /// One device of a group stood in the way.
    #[non_exhaustive]
    OnDevice {
        /// Its ordinal.
        device: u32,
        /// What was wrong there; [`Error::code`] and [`Error::is_sticky`] look into it.
        error: Box<Error>,
    },

    /// A group was given one thing for each of another number of members than it has.
    #[non_exhaustive]
    GroupSize {
        /// The operation.
        op: &'static str,
        /// Members of the group.
        members: usize,
        /// How many of something were given.
        given: usize,
    },

    /// Elements cannot be cut into as many equal parts as a group has members.
    #[non_exhaustive]
    Shares {
        /// The operation.
        op: &'static str,
        /// Elements there are.
        len: usize,
        /// Members of the group.
        members: usize,
    },

    /// `cuMemset` knows patterns of 1, 2 and 4 bytes.
    #[non_exhaustive]
    FillWidth {
        /// The operation.
        op: &'static str,
        /// Size of the value, in bytes.
        width: usize,
    },

    /// Memory of one device was given to a stream of another.
    #[non_exhaustive]
    WrongDevice {
        /// The operation.
        op: &'static str,
        /// The device that holds the memory.
        memory: u32,
        /// The device that the stream belongs to.
        stream: u32,
    },

    /// An event without timing was asked for a time.
    NoTiming,

    /// Flags that CUDA does not allow together.
    #[non_exhaustive]
    Flags {
        /// The operation.
        op: &'static str,
        /// Which flags, and what would be allowed.
        why: &'static str,
    },

    /// Memory that other processes cannot be given.
    #[non_exhaustive]
    NotShareable {
        /// What stands in the way.
        why: &'static str,
    },

    /// `CU_STREAM_PER_THREAD` was given as a stream that any thread may use.
    PerThreadHandle,

    /// A context cannot be destroyed while something needs it.
    ContextInUse,

    /// An earlier `close` failed in the very call that releases this. CUDA does not say whether such a
    /// call took effect, so what there was is neither used nor released again, and counts among
    /// [`drop_failures`](crate::drop_failures). Of memory an empty buffer is left.
    #[non_exhaustive]
    GivenUp {
        /// What there was.
        what: Resource,
    },

    /// Other code is capturing a stream: nothing is enqueued on it here, and what is on it since before
    /// cannot be waited for, until the capture ends; the capture is not disturbed. For the legacy
    /// default stream also where a blocking stream of its context is being captured, since CUDA puts
    /// one behind the other.
    #[non_exhaustive]
    Capturing {
        /// The driver call, or the method, that was refused: `cuEventRecord` also where an operation on
        /// another stream, or the host, would have to wait for the one that is being captured.
        op: &'static str,
    },

    /// A stream was said to belong to a context that it does not belong to.
    StreamContext,

    /// A stream pool without streams.
    EmptyPool,

    /// No value fulfils the condition of a wait.
    #[non_exhaustive]
    EndlessWait {
        /// The operation.
        op: &'static str,
    },

    /// Extents that an array, a texture or a copy of theirs cannot have.
    #[non_exhaustive]
    Shape {
        /// The operation.
        op: &'static str,
        /// What is wrong with them.
        why: &'static str,
    },

    /// Streams write and wait for values in memory of `cuMemAlloc` and of the host only.
    #[non_exhaustive]
    StreamOrderedMemory {
        /// The operation.
        op: &'static str,
    },

    /// A string holds a NUL byte, which C cannot be given.
    #[non_exhaustive]
    Nul {
        /// What the string was for.
        what: &'static str,
    },

    /// Device code could not be compiled or loaded, or does not hold what was looked for.
    Module(ModuleError),

    /// NVRTC could not compile a program, or refused an option.
    #[non_exhaustive]
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
    #[non_exhaustive]
    NoNvrtc {
        /// Each library that was tried, and what the loader answered.
        tried: String,
    },

    /// A launch does not fit its kernel, or the device.
    Launch(LaunchError),

    /// Something of one context was given to a stream of another.
    #[non_exhaustive]
    WrongContext {
        /// The operation.
        op: &'static str,
        /// What was given.
        what: &'static str,
    },

    /// The current context was made by somebody else, and nothing here keeps it alive.
    UnknownContext,

    /// A guard could not bring back the context that was current before it.
    ContextStack,

    /// Work of a stream that no longer exists cannot be proven complete.
    LostStream,

    /// The system has no thread left that could wait for a future's sake.
    NoThread(std::io::ErrorKind),

    /// Called from a host function, where the driver allows no CUDA call.
    InCallback,

    /// Called in a child made by `fork` after CUDA was initialised in the parent.
    Forked,

    /// Called while the process exits.
    Exiting,
}

/// Turns a driver's result into ours.
#[inline]
pub(crate) fn check(op: &'static str, code: CUresult) -> Result<()> {
    if code == cuda_sys::CUDA_SUCCESS {
        Ok(())
    } else {
        Err(Error::Driver { op, code })
    }
}
