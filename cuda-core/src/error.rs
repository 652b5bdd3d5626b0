//! One error for every operation: what was asked, and what stood in the way.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr;

use cuda_sys::{CUresult, LoadError, symbol as cu};

use crate::context::MemoryInfo;
use crate::driver;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
///
/// Bad input is found before the driver is called and has a variant of its own; everything that the
/// driver reports is [`Error::Driver`] with its code, or [`Error::OutOfMemory`].
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

    /// A device lacks something that the operation rests on.
    #[error("device {device} does not support {feature}")]
    Unsupported {
        /// What is missing, in CUDA's words.
        feature: &'static str,
        /// The device's ordinal.
        device: u32,
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

    /// A string holds a NUL byte, which C cannot be given.
    #[error("{what} holds a NUL byte")]
    Nul {
        /// What the string was for.
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
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// The driver's code, where the driver was asked.
    pub fn code(&self) -> Option<CUresult> {
        match self {
            Error::Driver { code, .. } => Some(*code),
            Error::OutOfMemory { .. } => Some(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY),
            Error::NoDriver(_) => Some(cuda_sys::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED),
            _ => None,
        }
    }

    /// `true`: the context is lost; every further call on it fails with this error, and only a new
    /// process brings the device back.
    pub fn is_sticky(&self) -> bool {
        let Error::Driver { code, .. } = self else {
            return false;
        };
        [
            cuda_sys::CUDA_ERROR_ECC_UNCORRECTABLE,
            cuda_sys::CUDA_ERROR_NVLINK_UNCORRECTABLE,
            cuda_sys::CUDA_ERROR_ILLEGAL_ADDRESS,
            cuda_sys::CUDA_ERROR_LAUNCH_TIMEOUT,
            cuda_sys::CUDA_ERROR_CONTEXT_IS_DESTROYED,
            cuda_sys::CUDA_ERROR_ASSERT,
            cuda_sys::CUDA_ERROR_HARDWARE_STACK_ERROR,
            cuda_sys::CUDA_ERROR_ILLEGAL_INSTRUCTION,
            cuda_sys::CUDA_ERROR_MISALIGNED_ADDRESS,
            cuda_sys::CUDA_ERROR_INVALID_ADDRESS_SPACE,
            cuda_sys::CUDA_ERROR_INVALID_PC,
            cuda_sys::CUDA_ERROR_LAUNCH_FAILED,
        ]
        .contains(code)
    }

    /// Work is still pending: `cuEventElapsedTime` before the events have completed.
    pub fn is_not_ready(&self) -> bool {
        self.code() == Some(cuda_sys::CUDA_ERROR_NOT_READY)
    }

    /// The driver is shutting down with the process, or has: nothing a `Drop` could report.
    pub(crate) fn is_shutdown(&self) -> bool {
        matches!(self, Error::Exiting | Error::Forked)
            || self.code() == Some(cuda_sys::CUDA_ERROR_DEINITIALIZED)
    }
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

/// The code's name and sentence, as the driver gives them: "CUDA_ERROR_INVALID_VALUE (1): invalid
/// argument".
fn describe(code: CUresult) -> String {
    if driver::in_callback() || driver::is_gone() {
        return format!("error {}", code.0);
    }
    let mut name: *const c_char = ptr::null();
    let mut text: *const c_char = ptr::null();
    // SAFETY: the pointer is valid for a write; the call needs neither initialisation nor context.
    let named = unsafe { cu::cuGetErrorName(code, &mut name) };
    // SAFETY: as above.
    let told = unsafe { cu::cuGetErrorString(code, &mut text) };
    let known = named == cuda_sys::CUDA_SUCCESS && told == cuda_sys::CUDA_SUCCESS;
    if !known || name.is_null() || text.is_null() {
        return format!("error {}", code.0);
    }
    // SAFETY: on success both are static NUL-terminated strings (cuGetErrorName: "the address of
    // the NULL-terminated string").
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    // SAFETY: as above.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    format!("{name} ({}): {text}", code.0)
}

fn shortage(memory: &Option<MemoryInfo>, device: u32) -> String {
    match memory {
        Some(info) => format!(
            ", {} of {} free on device {device}",
            Bytes(info.free),
            Bytes(info.total)
        ),
        None => format!(" on device {device}"),
    }
}

/// A byte count that a person reads: "64 GiB", "1.5 MiB", "12 bytes".
pub(crate) struct Bytes(pub(crate) usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} bytes", self.0);
        }
        let power = (self.0.ilog2() / 10).min(UNITS.len() as u32);
        let unit = 1u128 << (10 * power);
        let tenths = (self.0 as u128 * 10 + unit / 2) / unit;
        write!(f, "{}", tenths / 10)?;
        if tenths % 10 != 0 {
            write!(f, ".{}", tenths % 10)?;
        }
        write!(f, " {}", UNITS[power as usize - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_like_a_person_writes_them() {
        assert_eq!(Bytes(12).to_string(), "12 bytes");
        assert_eq!(Bytes(64 << 30).to_string(), "64 GiB");
        assert_eq!(Bytes(3 << 19).to_string(), "1.5 MiB");
        assert_eq!(Bytes(usize::MAX).to_string(), "16 EiB");
    }

    #[test]
    fn out_of_memory_says_what_was_asked_and_what_was_left() {
        let error = Error::OutOfMemory {
            op: "cuMemAllocAsync",
            requested: 64 << 30,
            device: 0,
            memory: Some(MemoryInfo {
                free: 12 << 30,
                total: 139 << 30,
            }),
        };
        assert_eq!(
            error.to_string(),
            "cuMemAllocAsync: out of memory (requested 64 GiB, 12 GiB of 139 GiB free on device 0)"
        );
    }
}
