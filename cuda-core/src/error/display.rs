//! The texts of errors.

use std::fmt;

use cuda_sys::LoadError;

use super::text::{describe, on_lines_of_its_own, shortage, within};
use super::{AllocatorError, ByteCount, Error, LaunchError, ModuleError};

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver { op, code } => write!(f, "{op}: {}", describe(*code)),
            Self::OutOfMemory { op, requested, device, memory } => write!(
                f,
                "{op}: out of memory (requested {}{})",
                ByteCount(*requested),
                shortage(memory, *device)
            ),
            Self::PoolExhausted { requested, device, usage, memory } => write!(
                f,
                "the caching pool has no memory left (requested {}{}; {} in use, {} \
                 free, {} pending, largest free block {}{})",
                ByteCount(*requested),
                shortage(memory, *device),
                ByteCount(usage.used),
                ByteCount(usage.free),
                ByteCount(usage.pending),
                ByteCount(usage.largest_free),
                within(usage.limit)
            ),
            Self::NoDriver(inner) => inner.fmt(f),
            Self::DriverTooOld { found } => {
                write!(f, "the driver supports CUDA {found}; 11.8 is the oldest that works")
            }
            Self::NoSuchDevice { ordinal, count } => {
                write!(f, "device {ordinal} does not exist: there are {count}")
            }
            Self::NoSuchUuid { uuid, count } => {
                write!(f, "none of the {count} devices of this process is {uuid}")
            }
            Self::NothingGiven { op, what } => write!(f, "{op}: no {what} were given"),
            Self::SeveralDevices { op, first, other } => write!(
                f,
                "{op}: parts of device {first} and of device {other} do not go \
                 together"
            ),
            Self::Malformed { what, text, form } => {
                write!(f, "{text:?} is not {what}; expected {form}")
            }
            Self::Unsupported { feature, device } => {
                write!(f, "device {device} does not support {feature}")
            }
            Self::PeerAccessInUse { device, peer } => write!(
                f,
                "access of device {device} to device {peer} cannot be taken away: work that \
                 needs it keeps being enqueued"
            ),
            Self::LengthMismatch { op, source_len, destination_len } => write!(
                f,
                "{op}: the source holds {source_len} elements, the destination \
                 {destination_len}"
            ),
            Self::OutOfBounds { start, end, len } => {
                write!(f, "range {start}..{end} is out of bounds of a length of {len}")
            }
            Self::SizeOverflow { len, element_size } => write!(
                f,
                "{len} elements of {element_size} bytes are more than an address space \
                 holds"
            ),
            Self::OverAligned { alignment, available } => write!(
                f,
                "elements aligned to {alignment} bytes do not fit memory aligned to \
                 {available}"
            ),
            Self::Recast { bytes, address, element_size, alignment } => write!(
                f,
                "{bytes} bytes at address {address:#x} are no whole number of elements \
                 of {element_size} bytes aligned to {alignment}"
            ),
            Self::Indivisible { op, width, bytes, address } => write!(
                f,
                "{op}: a pattern of {width} bytes does not tile {bytes} bytes at \
                 address {address:#x}"
            ),
            Self::ShapeMismatch { op, from, to } => {
                write!(f, "{op}: the source is {from}, the destination {to}")
            }
            Self::Pitch { row, pitch } => {
                write!(f, "a row of {row} bytes is longer than the pitch of {pitch} bytes")
            }
            Self::SliceHeight { height, slice_height } => {
                write!(f, "slices have {height} rows, but begin only {slice_height} rows apart")
            }
            Self::Overlap { op, from, to, len } => {
                write!(f, "{op}: {len} elements from {from} on and from {to} on overlap")
            }
            Self::Allocator(inner) => inner.fmt(f),
            Self::OnDevice { device, error } => write!(f, "device {device}: {error}"),
            Self::GroupSize { op, members, given } => {
                write!(f, "{op}: {given} given for a group of {members} devices")
            }
            Self::Shares { op, len, members } => {
                write!(f, "{op}: {len} elements cannot be cut into {members} equal parts")
            }
            Self::WrongDevice { op, memory, stream } => write!(
                f,
                "{op}: the memory is on device {memory}, the stream on device \
                 {stream}"
            ),
            Self::NoTiming => {
                f.write_str("elapsed time: the event was created with DISABLE_TIMING")
            }
            Self::Flags { op, why } => write!(f, "{op}: {why}"),
            Self::NotShareable { why } => write!(f, "the memory cannot be shared: {why}"),
            Self::PerThreadHandle => f.write_str(
                "CU_STREAM_PER_THREAD means another stream on every thread: take it \
                 from `Context::per_thread_stream`",
            ),
            Self::ContextInUse => f.write_str("the context is still in use"),
            Self::GivenUp { what } => {
                write!(f, "{what} was given up: whether the driver has released it is unknown")
            }
            Self::Capturing { op } => write!(
                f,
                "{op}: the stream is being captured by other code, and is left alone until that ends"
            ),
            Self::StreamContext => {
                f.write_str("the stream belongs to another context than the one that was named")
            }
            Self::EmptyPool => f.write_str("a stream pool needs at least one stream"),
            Self::EndlessWait { op } => {
                write!(f, "{op}: no value fulfils the condition, so the wait would never end")
            }
            Self::Shape { op, why } => write!(f, "{op}: {why}"),
            Self::StreamOrderedMemory { op } => write!(
                f,
                "{op}: CUDA does not do this in stream-ordered memory; use a `Signal`, \
                 or memory of `Context::alloc`"
            ),
            Self::Nul { what } => write!(f, "{what} holds a NUL byte"),
            Self::Module(inner) => inner.fmt(f),
            Self::Nvrtc { op, reason, log, .. } => {
                write!(f, "{op}: {reason}{}", on_lines_of_its_own(log))
            }
            Self::NoNvrtc { tried } => write!(f, "NVRTC could not be loaded:{tried}"),
            Self::Launch(inner) => inner.fmt(f),
            Self::WrongContext { op, what } => {
                write!(f, "{op}: {what} belongs to another context than the stream")
            }
            Self::UnknownContext => f.write_str(
                "the current context was created elsewhere; name its owner with \
                 `Context::from_raw` first",
            ),
            Self::ContextStack => {
                f.write_str("the thread's context stack holds entries that a guard cannot remove")
            }
            Self::LostStream => {
                f.write_str("a stream was lost before its work could be proven complete")
            }
            Self::NoThread(inner) => {
                write!(f, "no thread could be started to wait for the device: {inner}")
            }
            Self::InCallback => {
                f.write_str("CUDA cannot be called from a host function that a stream runs")
            }
            Self::Forked => f.write_str(
                "CUDA was initialised before this process was forked; the child cannot \
                 use it",
            ),
            Self::Exiting => f.write_str("the process is exiting; the driver is shutting down"),
        }
    }
}

impl From<LoadError> for Error {
    fn from(inner: LoadError) -> Self {
        Self::NoDriver(inner)
    }
}

impl From<AllocatorError> for Error {
    fn from(inner: AllocatorError) -> Self {
        Self::Allocator(inner)
    }
}

impl From<ModuleError> for Error {
    fn from(inner: ModuleError) -> Self {
        Self::Module(inner)
    }
}

impl From<LaunchError> for Error {
    fn from(inner: LaunchError) -> Self {
        Self::Launch(inner)
    }
}

/// `Debug` is the same sentence as `Display`: it is what `fn main() -> Result<()>` prints.
macro_rules! errors {
    ($($error:ty),*) => {$(
        impl std::error::Error for $error {}

        impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}

errors!(Error, AllocatorError, LaunchError, ModuleError);
