//! Creating streams.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use cuda_sys::{CUstream, symbol as cu};

use crate::context::{Context, green};
use crate::device::Device;
use crate::error::{Error, Result, check};
use crate::process::driver;
use crate::stream::{NON_BLOCKING, Stream, StreamPool};
use crate::timeline::recording::{Recording, streams};
use crate::timeline::{Flavor, ImplicitOrder, StreamCore, registry};

/// # Streams
impl Device {
    /// A new non-blocking stream in the primary context; see
    /// [`Context::create_stream`](crate::Context::create_stream).
    ///
    /// # Errors
    /// Those of [`Device::context`]; the driver's.
    #[doc(alias("cuStreamCreate", "cudaStreamCreate", "cudaStreamCreateWithFlags"))]
    #[doc(alias("new_stream"))]
    pub fn create_stream(self) -> Result<Stream> {
        self.primary()?.create_stream()
    }
}

/// # Streams
impl Context {
    /// Creates a stream that, unlike one of `cudaStreamCreate`, does not synchronise with the legacy default
    /// stream: `cuStreamCreateWithPriority` with `CU_STREAM_NON_BLOCKING`. For a stream that does, see
    /// [`StreamBuilder::blocking`].
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// let context = cuda_core::Device::get(0)?.context()?;
    /// let (upload, compute) = (context.create_stream()?, context.create_stream()?);
    /// assert_ne!(upload.id(), compute.id());
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamCreateWithPriority", "cuStreamCreate"))]
    #[doc(alias("cudaStreamCreate", "cudaStreamCreateWithPriority", "cudaStreamCreateWithFlags"))]
    #[doc(alias("new_stream"))]
    pub fn create_stream(&self) -> Result<Stream> {
        self.stream_builder().build()
    }

    /// Creates a builder for a stream with options; see [`StreamBuilder`].
    #[doc(alias("cuStreamCreateWithPriority", "cudaStreamCreateWithPriority"))]
    pub fn stream_builder(&self) -> StreamBuilder<'_> {
        StreamBuilder { context: self, order: ImplicitOrder::NonBlocking, priority: 0 }
    }
}

impl Context {
    /// Creates a stream for a capture by this crate; it serves no other purpose.
    pub(crate) fn create_captured(&self, recording: &Arc<Recording>) -> Result<Stream> {
        driver::ensure()?;
        let builder = self.stream_builder();
        let raw = match streams::take(self) {
            Some(kept) => kept.0,
            None => builder.create()?,
        };
        Ok(builder.stream(raw, Flavor::Captured, Some(recording.clone())))
    }
}

/// Options of a new stream.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// let (least, greatest) = context.stream_priority_range()?;
/// let urgent = context.stream_builder().priority(greatest).build()?;
/// assert_eq!(urgent.priority()?, greatest);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct StreamBuilder<'a> {
    context: &'a Context,
    order: ImplicitOrder,
    priority: i32,
}

impl StreamBuilder<'_> {
    /// Makes the stream synchronise with the legacy default stream, as `CU_STREAM_DEFAULT` does.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let stream = context.stream_builder().blocking().build()?;
    /// assert!(stream.is_blocking()?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn blocking(mut self) -> Self {
        self.order = ImplicitOrder::Blocking;
        self
    }

    /// The priority, smaller numbers first; the driver clamps it to
    /// [`Context::stream_priority_range`].
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// The context that the stream is created in.
    pub fn context(&self) -> &Context {
        self.context
    }

    /// Whether the stream is to be [blocking](Self::blocking).
    pub fn is_blocking(&self) -> bool {
        self.order == ImplicitOrder::Blocking
    }

    /// The [priority](Self::priority) that was set; 0 by default. [`Stream::priority`] returns the priority
    /// that the driver gave the stream.
    pub fn get_priority(&self) -> i32 {
        self.priority
    }

    /// Creates the stream: `cuStreamCreateWithPriority`; `cuGreenCtxStreamCreate` in a green
    /// context, from CUDA 12.5 on.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a blocking stream of a green context, which the driver would silently
    /// make non-blocking; the driver's.
    #[doc(alias("cuStreamCreateWithPriority", "cuGreenCtxStreamCreate"))]
    #[doc(alias("cudaStreamCreateWithPriority"))]
    pub fn build(&self) -> Result<Stream> {
        Ok(self.stream(self.create()?, Flavor::Created, None))
    }

    fn create(&self) -> Result<CUstream> {
        let is_blocking = self.is_blocking();
        if let Some(green) = self.context.green() {
            let (op, mut raw) = ("cuGreenCtxStreamCreate", ptr::null_mut());
            let why =
                "streams of a green context do not synchronise with the legacy default stream";
            Error::unless(!is_blocking, op, why)?;
            driver::ensure()?;
            match green::create_stream(green, &mut raw, self.priority) {
                cuda_sys::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER => {}
                code => return check(op, code).map(|()| raw),
            }
        }
        let flags = if is_blocking { 0 } else { NON_BLOCKING };
        self.context.ask("cuStreamCreateWithPriority", ptr::null_mut(), |raw| {
            // SAFETY: the call writes one handle, to an exclusive borrow; a live context is current.
            unsafe { cu::cuStreamCreateWithPriority(raw, flags, self.priority) }
        })
    }

    /// Wraps the handle; `recording` describes the capture that the stream is for, if any.
    fn stream(&self, raw: CUstream, flavor: Flavor, recording: Option<Arc<Recording>>) -> Stream {
        let core = StreamCore::new(self.context, flavor, self.order, raw, None, recording);
        Stream::new(registry::note(core))
    }

    /// Creates a pool of `len` streams with these options; see [`StreamPool`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if `len` is zero; the driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let (_, greatest) = context.stream_priority_range()?;
    /// let urgent = context.stream_builder().priority(greatest).build_pool(4)?;
    /// assert_eq!(urgent.streams().len(), 4);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn build_pool(&self, len: usize) -> Result<StreamPool> {
        let why = "a stream pool needs at least one stream";
        Error::unless(len != 0, "StreamBuilder::build_pool", why)?;
        let streams: Result<_> = (0..len).map(|_| self.build()).collect();
        Ok(StreamPool { streams: streams?, turn: AtomicUsize::new(0) })
    }
}
