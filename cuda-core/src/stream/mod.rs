//! Streams: handles of timelines.

use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

use cuda_sys::{CUstream, symbol as cu};

use crate::context::Context;
use crate::device::Device;
use crate::error::{Rejected, Result, asked};
use crate::timeline::{Flavor, ImplicitOrder, StreamCore};
use crate::util::debug_by;

// Separate groups keep rustfmt from reordering them: rustdoc shows their `impl`s in this order.
mod builder;

mod order;

pub(crate) mod event;
mod event_capture;

mod callback;
mod current;
mod default;

pub(crate) mod event_ipc;
mod foreign;
mod last_record;
mod pool;

pub use builder::StreamBuilder;
pub use current::StreamGuard;
pub use pool::StreamPool;

/// Which threads may use a stream's handle.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// use cuda_core::{StreamKind, Result, Stream};
///
/// // Takes created streams, the legacy default stream and per-thread ones.
/// fn is_idle<K: StreamKind>(stream: &Stream<K>) -> Result<bool> {
///     stream.query()
/// }
/// is_idle(&context.create_stream()?)?;
/// is_idle(&context.per_thread_stream()?)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub trait StreamKind: sealed::Sealed {
    #[doc(hidden)]
    type Marker;
}

/// Any thread: created streams and the legacy default stream.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// use cuda_core::{AnyThread, Stream};
///
/// let stream: Stream<AnyThread> = context.create_stream()?; // `Stream` for short
/// std::thread::spawn(move || stream.synchronize());
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug)]
pub enum AnyThread {}

/// The thread that created the handle: the per-thread default stream.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// use cuda_core::{Stream, OneThread};
///
/// let stream: Stream<OneThread> = context.per_thread_stream()?; // stays on this thread
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug)]
pub enum OneThread {}

impl StreamKind for AnyThread {
    type Marker = ();
}

impl StreamKind for OneThread {
    type Marker = *const ();
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::AnyThread {}
    impl Sealed for super::OneThread {}
}

/// A stream: work enqueued on it runs in order, concurrently with the work of other streams.
///
/// The crate orders copies, fills and frees between streams: each buffer knows which streams used
/// it last, and the crate makes a stream wait where it must. No method blocks the calling thread
/// unless its documentation says so.
///
/// Handles are references: clones are equal and name the same stream, as do all handles of a default stream.
/// The stream is destroyed when its last handle and the last buffer allocated on it are gone; its work still
/// completes.
///
/// ```no_run
/// use cuda_core::Device;
///
/// let stream = Device::get(0)?.create_stream()?;
/// let mut buffer = stream.alloc_zeroed::<f32>(1 << 20)?;
/// stream.fill(&mut buffer, 1.0f32)?;
/// stream.synchronize()?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("cudaStream_t", "CUstream"))]
#[doc(alias("CudaStream"))]
pub struct Stream<K: StreamKind = AnyThread> {
    core: Arc<StreamCore>,
    _kind: PhantomData<K::Marker>,
}

/// The calling thread's per-thread default stream in one context. Each thread has another such stream, so the
/// handle stays on its thread. The stream **allocates no memory**: a buffer is freed in the order of the
/// stream that allocated it, but another thread may drop it. [`Stream::alloc`] and its variants,
/// [`Stream::upload_new`], [`Stream::copy_new`] and [`Stream::enter`] therefore exist only on
/// [`Stream<AnyThread>`](Stream). Allocate on any other stream of the context, such as one that all threads
/// share; copies, fills and launches on this one are ordered with that stream's work by the buffer:
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// let shared = context.create_stream()?;
/// let stream = context.per_thread_stream()?;
/// let mut buffer = shared.alloc_zeroed::<f32>(1024)?;
/// stream.upload(&[1.0; 1024], &mut buffer)?; // after the zeros
/// # Ok::<(), cuda_core::Error>(())
/// ```
///
/// These do not compile:
///
/// ```compile_fail,E0599
/// # fn main() -> cuda_core::Result<()> {
/// # let context = cuda_core::Device::get(0)?.context()?;
/// let buffer = context.per_thread_stream()?.alloc::<f32>(1024)?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// let context = cuda_core::Device::get(0).unwrap().context().unwrap();
/// send(context.per_thread_stream().unwrap());
/// ```
pub type PerThreadStream = Stream<OneThread>;

const NON_BLOCKING: u32 = cuda_sys::CU_STREAM_NON_BLOCKING.0;

/// # The stream itself
impl<K: StreamKind> Stream<K> {
    pub(crate) fn new(core: Arc<StreamCore>) -> Self {
        core.handle_made();
        Self { core, _kind: PhantomData }
    }

    #[inline]
    pub(crate) fn core(&self) -> &Arc<StreamCore> {
        &self.core
    }

    /// The context that the stream belongs to.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let host = cuda_core::PinnedBuffer::<u8>::new(stream.context(), 4096)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn context(&self) -> &Context {
        self.core.context()
    }

    /// The device that the stream belongs to.
    pub fn device(&self) -> Device {
        self.core.device()
    }

    /// The driver's handle, valid while `self` lives. Null for a stream that was [given
    /// up](crate::Error::GivenUp).
    ///
    /// Buffers do not know of work that other code enqueues through the handle: see
    /// [`Buffer::note_use`](crate::Buffer::note_use). Other code may capture the stream. During the capture,
    /// operations of this crate on the stream are refused ([`Error::Capturing`](crate::Error::Capturing)),
    /// and so are those that would have to wait for earlier work on the stream; the capture is not disturbed.
    /// After the first call of this method, each operation on the stream asks the driver whether it is being
    /// captured (28 ns on an H200).
    ///
    /// Such a capture must not begin or end while another thread is inside an operation of this crate on the
    /// same stream: work enqueued into the capture by accident would count as done once the stream continues.
    /// Operations on other streams may run meanwhile, whatever they wait for.
    ///
    /// ```no_run
    /// # fn library_call(_stream: cuda_core::sys::CUstream) {}
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// library_call(stream.as_raw()); // enqueues work of its own
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn as_raw(&self) -> CUstream {
        self.core.timeline().expose();
        self.core.raw()
    }

    /// The stream's id, which is never reused within the process, unlike its handle. This crate assigns the
    /// id; the driver's is [`Stream::driver_id`].
    pub fn id(&self) -> u64 {
        self.core.timeline().id()
    }

    /// Whether the stream synchronises with the legacy default stream. No driver call: for a stream that
    /// other code created, [`Stream::from_raw`] has called `cuStreamGetFlags`.
    ///
    /// # Errors
    /// [`Error::GivenUp`](crate::Error::GivenUp).
    #[doc(alias("cuStreamGetFlags", "cudaStreamGetFlags"))]
    pub fn is_blocking(&self) -> Result<bool> {
        self.core.ensure()?;
        Ok(self.core.timeline().order() == ImplicitOrder::Blocking)
    }

    /// The priority that the driver gave the stream, smaller numbers first: `cuStreamGetPriority`.
    ///
    /// # Errors
    /// The driver's.
    #[doc(alias("cuStreamGetPriority", "cudaStreamGetPriority"))]
    pub fn priority(&self) -> Result<i32> {
        let bound = self.core.reach()?;
        // SAFETY: `bound` keeps the stream alive, with its context current if it needs that; the
        // call writes one number, to an exclusive borrow.
        asked("cuStreamGetPriority", 0, |n| unsafe { cu::cuStreamGetPriority(bound.raw(), n) })
    }

    fn kind(&self) -> &'static str {
        match self.core.timeline().flavor() {
            Flavor::Created => "created",
            Flavor::Foreign => "foreign",
            Flavor::Captured => "captured",
            Flavor::Legacy => "legacy default",
            Flavor::PerThread => "per-thread default",
            Flavor::GivenUp => "given up",
        }
    }

    /// The driver's own id of the stream, which tools and other libraries use, and which is never reused
    /// either: `cuStreamGetId`, from CUDA 12.0 on.
    ///
    /// # Errors
    /// The driver's `CALL_REQUIRES_NEWER_DRIVER` (36) if it is older than CUDA 12.0.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let (one, two) = (context.create_stream()?, context.create_stream()?);
    /// assert_ne!(one.driver_id()?, two.driver_id()?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamGetId", "cudaStreamGetId"))]
    pub fn driver_id(&self) -> Result<u64> {
        let bound = self.core.bind("cuStreamGetId")?;
        // SAFETY: bound, so the stream is kept alive, with its context current if it needs that;
        // the call writes one number, to an exclusive borrow.
        asked("cuStreamGetId", 0, |id| unsafe { cu::cuStreamGetId(bound.raw(), id) })
    }
}

/// # Closing
impl Stream {
    /// Destroys the stream, if nothing else refers to it: `cuStreamDestroy_v2`. Dropping the stream reports a
    /// failure to the hook of [`drops::set_hook`](crate::drops::set_hook) instead. Pending work completes in
    /// either case.
    ///
    /// A stream that has other handles, or buffers allocated on it, stays alive with them. This crate never
    /// destroys a stream that other code created.
    ///
    /// # Errors
    /// [`Error::Capturing`](crate::Error::Capturing), with the stream unchanged, if other code captures the
    /// stream while memory waits for its work. The driver's, returned with a stream that is [given
    /// up](crate::Error::GivenUp) and has another [`id`](Self::id).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let stream = context.create_stream()?;
    /// stream.close()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamDestroy", "cudaStreamDestroy"))]
    pub fn close(self) -> Result<(), Rejected<Self>> {
        let ((), this) = Rejected::unless(self.core.ensure(), self)?;
        let core = this.core.clone();
        // Dropped first: the cached blocks that the stream keeps for its handles would otherwise keep it
        // alive.
        drop(this);
        match Arc::try_unwrap(core) {
            Ok(core) => core.close().map_err(|rejected| rejected.map(Self::new)),
            Err(_shared) => Ok(()),
        }
    }
}

/// # For other libraries and tools
impl<K: StreamKind> Stream<K> {
    /// Returns the result of `__cuda_stream__`: the protocol's version, 0, and the driver's handle, as
    /// [`Stream::as_raw`] returns it (1 for the legacy default stream, 2 for a per-thread one). No driver
    /// call.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// assert_eq!(context.default_stream()?.protocol_handle(), (0, 1));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("__cuda_stream__"))]
    pub fn protocol_handle(&self) -> (u32, usize) {
        (0, self.as_raw().addr())
    }

    /// Names the stream for profilers, which show it in place of a number: `nvtxNameCuStreamA`. Costs one
    /// atomic load without a profiler; see [`nvtx`](crate::nvtx).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// stream.set_name("uploads");
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("nvtxNameCuStream"))]
    pub fn set_name(&self, name: &str) {
        let timeline = self.core.timeline();
        if timeline.recording().is_some() {
            // Exposed, so that the named stream is not kept for later captures.
            timeline.expose();
        }
        crate::process::nvtx::name_stream(self.core.raw(), name);
    }
}

impl<K: StreamKind> Drop for Stream<K> {
    fn drop(&mut self) {
        self.core.handle_dropped();
    }
}

impl<K: StreamKind> Clone for Stream<K> {
    fn clone(&self) -> Self {
        Self::new(self.core.clone())
    }
}

impl<K: StreamKind, L: StreamKind> PartialEq<Stream<L>> for Stream<K> {
    fn eq(&self, other: &Stream<L>) -> bool {
        self.id() == other.id()
    }
}

impl<K: StreamKind> Eq for Stream<K> {}

impl<K: StreamKind> Hash for Stream<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

debug_by! {
    [K: StreamKind] Stream<K>: |it| "Stream" { id: it.id(), kind: it.kind(), context: it.context() }
}
