//! The error type of every operation: it names the operation and the cause.

use std::borrow::Cow;

use cuda_sys::{CUresult, LoadError};

use crate::types::{Resource, Uuid, Version};

mod allocator;
mod display;
mod launch;
mod module;
mod nccl;
mod payload;
mod queries;
mod rejected;
mod text;

pub use allocator::AllocatorError;
pub(crate) use display::{ELAPSED, FROM_STREAMS, LAUNCH, WAIT_EVENT};
pub use launch::LaunchError;
pub(crate) use launch::{LOAD, NOT_ALLOWED_YET};
pub use module::ModuleError;
pub use nccl::NcclError;
pub use payload::*;
pub use rejected::Rejected;
pub(crate) use text::{ByteCount, c_string, c_text, counted};

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
/// Bad input is found before the driver is called. It is [`Error::Invalid`], or a variant of its own
/// where a program may want to react to it. What the driver reports is [`Error::Driver`] with its code,
/// or a variant that says more: [`Error::OutOfMemory`], or [`Error::Module`] for code that could not be
/// compiled or found. [`Error::code`] returns the code of each, and [`name`](cuda_sys::CUresult::name)
/// the code's name. This crate keeps no "last error". [`Error::check`] converts the result of a raw
/// call.
///
/// The section `# Errors` of a function lists its particular errors. In addition, any call may return:
///
/// * [`Error::NoDriver`], [`Error::DriverTooOld`], and [`Error::Driver`] if initialising the driver fails;
/// * [`Error::InCallback`] in a host function, [`Error::Forked`] in a forked child, [`Error::Exiting`]
///   while the process exits;
/// * [`Error::GivenUp`] for an object that was released, or whose state a failed call has left unknown;
/// * for work on a stream, and waits for it: [`Error::Capturing`] while other code captures the stream,
///   [`Error::NotCapturable`] for what a graph cannot hold on a stream that this crate captures, and the
///   errors of earlier asynchronous work.
///
/// `Debug`, which `fn main() -> Result<()>` prints, shows the variant and the sentence of `Display`:
/// `Driver(cuCtxSynchronize: CUDA_ERROR_LAUNCH_FAILED (719): …)`. The sentence is complete: it includes
/// that of an inner error. Only an error of [`Error::other`] has a [source](std::error::Error::source),
/// which is the source of the program's error.
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
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias("cudaGetLastError", "cudaPeekAtLastError", "cudaError_t"))]
#[doc(alias("cuGetErrorName", "cudaGetErrorName", "cuGetErrorString", "cudaGetErrorString"))]
#[doc(alias("CUresult", "DriverError", "CudaError", "CUDARuntimeError"))]
pub enum Error {
    /// The driver refused an operation, or reports that earlier asynchronous work failed. Custom
    /// allocators return it too. The variant holds only the call and the code.
    Driver {
        /// The driver call.
        op: &'static str,
        /// Its result; it may be a code of a newer driver.
        code: CUresult,
    },

    /// An argument is invalid for the operation: the reason says why. Nothing was done. This crate
    /// checks arguments before it calls the driver; where only the driver can tell, as for a PCI address
    /// that no device has, its refusal becomes this error.
    Invalid(Box<Invalid>),

    /// The host does not have enough memory for a pinned buffer or a vector.
    OutOfHostMemory(Box<OutOfHostMemory>),

    /// The device does not have enough memory.
    OutOfMemory(Box<OutOfMemory>),

    /// A caching pool has no memory left, and can get no more from the device or within its limit.
    PoolExhausted(Box<PoolExhausted>),

    /// No CUDA driver could be loaded on this machine.
    NoDriver(Box<LoadError>),

    /// The driver is older than CUDA 11.8.
    #[non_exhaustive]
    DriverTooOld {
        /// The newest CUDA that it supports.
        found: Version,
    },

    /// No device has that ordinal.
    #[non_exhaustive]
    NoSuchDevice {
        /// The ordinal requested.
        ordinal: u32,
        /// Devices visible to this process.
        count: u32,
    },

    /// No device has that identifier.
    #[non_exhaustive]
    NoSuchUuid {
        /// The identifier requested.
        uuid: Uuid,
        /// Devices visible to this process.
        count: u32,
    },

    /// A device lacks something that the operation needs.
    #[non_exhaustive]
    Unsupported {
        /// What is missing, in CUDA's words.
        feature: &'static str,
        /// The device's ordinal.
        device: u32,
    },

    /// Access to another device's memory cannot be revoked while NCCL has ranks on both devices, or while
    /// other threads keep enqueuing work that needs it.
    PeerAccessInUse(Box<PeerAccessInUse>),

    /// Source and destination differ in length.
    LengthMismatch(Box<LengthMismatch>),

    /// A range is not within the buffer.
    OutOfBounds(Box<OutOfBounds>),

    /// `len * size_of::<T>()` exceeds the maximum size of an object.
    #[non_exhaustive]
    SizeOverflow {
        /// Elements requested.
        len: usize,
        /// Size of one element, in bytes.
        element_size: usize,
    },

    /// An allocator, or an adaptor around one, failed.
    Allocator(Box<AllocatorError>),

    /// The operation failed for one device of a group.
    #[non_exhaustive]
    OnDevice {
        /// The device's ordinal.
        device: u32,
        /// The device's error, which [`Error::code`] and [`Error::is_sticky`] report.
        error: Box<Error>,
    },

    /// Memory of one device was given to a stream of another.
    WrongDevice(Box<WrongDevice>),

    /// A context cannot be destroyed while something uses it.
    ContextInUse,

    /// An earlier `close` failed in the call that releases the resource. CUDA does not say whether
    /// such a call took effect, so the resource is neither used nor released again, and counts
    /// among [`drops::failures`](crate::drops::failures). A buffer is empty afterwards.
    #[non_exhaustive]
    GivenUp {
        /// The resource.
        what: Resource,
    },

    /// Other code is capturing a stream. Until the capture ends, this crate enqueues nothing on the
    /// stream and cannot wait for earlier work on it; the capture is not disturbed. For the legacy
    /// default stream, also returned while a blocking stream of its context is being captured, since
    /// CUDA orders the two. [`Context::synchronize`](crate::Context::synchronize) returns it for
    /// captures of this crate, too; if another thread began one during that call, the call has ended
    /// that capture.
    #[non_exhaustive]
    Capturing {
        /// The refused driver call or method; `cuEventRecord` also if an operation on another stream,
        /// or the host, would have to wait for the captured stream.
        op: &'static str,
    },

    /// The stream is one of [`Graph::capture`](crate::Graph::capture), and the operation cannot be part
    /// of a graph: it waits or queries, takes a slice of the host, or would order the capture with work
    /// outside. The capture continues without the operation. After the capture has ended, every
    /// operation on such a stream returns [`Error::Invalid`].
    ///
    /// Also returned in two other cases: the host, or a stream outside the capture, queries or waits
    /// for an event that was last recorded in such a capture; or the host accesses or waits for memory
    /// that it can see while a conflicting operation is being captured.
    #[non_exhaustive]
    NotCapturable {
        /// The refused driver call or method.
        op: &'static str,
    },

    /// An executable graph cannot be updated to another graph, since the two differ in more than what
    /// their operations act on. The executable is unchanged.
    GraphUpdate(Box<GraphUpdate>),

    /// Device code could not be compiled or loaded, or does not contain the requested name.
    Module(Box<ModuleError>),

    /// NVRTC could not compile a program, or refused an option.
    Nvrtc(Box<Nvrtc>),

    /// NVRTC could not be loaded on this machine.
    #[non_exhaustive]
    NoNvrtc {
        /// Each library that was tried, with the loader's error.
        tried: Box<str>,
    },

    /// Communication between devices failed.
    Nccl(Box<NcclError>),

    /// A launch does not fit its kernel, or the device.
    Launch(Box<LaunchError>),

    /// An object of one context was given to a stream of another.
    WrongContext(Box<WrongContext>),

    /// Other code created the current context, so this crate cannot keep it alive.
    UnknownContext,

    /// A guard could not restore the context that was current before it.
    ContextStack,

    /// The completion of work on a stream that no longer exists cannot be proven.
    LostStream,

    /// The system has no thread left that could wait for a future.
    NoThread(std::io::ErrorKind),

    /// Called from a host function, where the driver allows no CUDA call.
    InCallback,

    /// An error of the program that a closure returned through this crate; see [`Error::other`].
    Other(Other),

    /// Called in a child created by `fork` after CUDA was initialised in the parent.
    Forked,

    /// Called while the process exits.
    Exiting,
}

/// # Creating errors
impl Error {
    /// Converts the result of a raw driver call, so that `?` works.
    ///
    /// # Errors
    /// [`Error::Driver`], unless the code is `CUDA_SUCCESS`.
    ///
    /// ```no_run
    /// use cuda_core::{Error, sys};
    ///
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let (mut flags, raw) = (0, stream.as_raw());
    /// // SAFETY: the stream is live; the call writes one number, to a local that outlives it.
    /// Error::check("cuStreamGetFlags", unsafe { sys::cuStreamGetFlags(raw, &mut flags) })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[inline]
    pub fn check(op: &'static str, code: CUresult) -> Result<()> {
        if code == cuda_sys::CUDA_SUCCESS { Ok(()) } else { Err(Error::Driver { op, code }) }
    }

    /// Wraps an error of the program, for closures that return this crate's error: those of
    /// [`Context::with`](crate::Context::with), [`Graph::capture`](crate::Graph::capture),
    /// [`Stream::scope`](crate::Stream::scope) and the like. If one of its
    /// [sources](std::error::Error::source) is an error of this crate, the result has that error's
    /// [`code`](Self::code).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{Error, Graph};
    ///
    /// let graph = Graph::capture(&context, |_stream| {
    ///     let text = std::fs::read_to_string("value").map_err(Error::other)?;
    ///     println!("{text}"); // … operations that depend on it
    ///     Ok(())
    /// });
    /// match graph {
    ///     Err(error) if error.downcast_ref::<std::io::Error>().is_some() => println!("{error}"),
    ///     other => drop(other?),
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[cold]
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        match error.into().downcast() {
            Ok(own) => *own, // it was this crate's
            Err(error) => Self::Other(Other(error.into())),
        }
    }

    /// Returns the error that was passed to [`Error::other`], if it is of type `E`.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Other(Other(error)) => error.downcast_ref(),
            Self::OnDevice { error, .. } => error.downcast_ref(),
            _ => None,
        }
    }

    /// Returns the error for an invalid argument.
    #[cold]
    pub(crate) fn invalid(op: &'static str, reason: impl Into<Cow<'static, str>>) -> Self {
        Invalid { op, reason: reason.into() }.into()
    }

    /// Returns the error for memory on one device and a stream on another.
    #[cold]
    pub(crate) fn wrong_device(op: &'static str, memory: u32, stream: u32) -> Self {
        WrongDevice { op, what: "the memory".into(), memory, stream }.into()
    }

    /// Returns the error for the kernel argument `which`, which cannot be passed to the stream.
    #[cold]
    pub(crate) fn of_argument(mut self, which: Cow<'static, str>) -> Self {
        match &mut self {
            Self::WrongDevice(it) => it.what = which,
            Self::WrongContext(it) => it.what = which,
            _ => {}
        }
        self
    }

    /// Returns an error for an argument unless `holds`.
    #[inline]
    pub(crate) fn unless(holds: bool, op: &'static str, reason: &'static str) -> Result<()> {
        if holds { Ok(()) } else { Err(Self::invalid(op, reason)) }
    }

    /// [`Error::unless`] with a reason that is built only if needed.
    #[inline]
    pub(crate) fn unless_with(
        holds: bool,
        op: &'static str,
        reason: impl FnOnce() -> String,
    ) -> Result<()> {
        if holds { Ok(()) } else { Err(Self::invalid(op, reason())) }
    }

    /// Returns the error for a text, such as the value of an environment variable, that does not have
    /// the expected form.
    #[cold]
    pub(crate) fn malformed(op: &'static str, text: &str, form: &str) -> Self {
        Self::invalid(op, format!("{text:?} was given; expected {form}"))
    }
}

/// [`Error::check`].
#[inline]
pub(crate) fn check(op: &'static str, code: CUresult) -> Result<()> {
    Error::check(op, code)
}

/// Passes a place that holds `to` to `call`, and returns what the call wrote there.
#[inline]
pub(crate) fn asked<T>(
    op: &'static str,
    mut to: T,
    call: impl FnOnce(&mut T) -> CUresult,
) -> Result<T> {
    check(op, call(&mut to))?;
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_three_words() {
        assert_eq!(size_of::<Result<()>>(), 3 * size_of::<usize>());
    }

    #[test]
    fn an_error_of_the_program_passes_through() {
        let own = Error::OnDevice { device: 1, error: Box::new(Error::other(std::fmt::Error)) };
        assert!(own.downcast_ref::<std::fmt::Error>().is_some());
        assert!(own.downcast_ref::<std::io::Error>().is_none() && own.code().is_none());
        assert_eq!(own.clone(), own);
        assert_ne!(Error::other(std::fmt::Error), Error::other(std::fmt::Error));
        assert_eq!(own.to_string(), format!("device 1: {}", std::fmt::Error));
        assert_eq!(Error::other(Error::Exiting), Error::Exiting);

        /// Its source is the inner one.
        #[derive(Debug)]
        struct Caused<E>(E);
        impl<E> std::fmt::Display for Caused<E> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("caused")
            }
        }
        impl<E: std::error::Error + 'static> std::error::Error for Caused<E> {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        // An error of the program that wraps an error of this crate has its code.
        let code = cuda_sys::CUDA_ERROR_OUT_OF_MEMORY;
        let around = Error::other(Caused(Error::Driver { op: "cuMemAlloc", code }));
        assert!(around.code() == Some(code) && around.is_out_of_memory());

        let source = |error: Error| std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(source(Error::other("a text")), None);
        assert_eq!(
            source(Error::other(Caused(std::fmt::Error))),
            Some(std::fmt::Error.to_string())
        );
    }
}
