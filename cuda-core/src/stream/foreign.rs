//! Streams and events that other code created, and events handed over to other code.

use std::any::Any;
use std::ptr;

use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUevent, CUstream, symbol as cu};

use crate::context::Context;
use crate::error::{Error, Rejected, Result, asked};
use crate::process::{Contained, ForeignOwner, Handle, contain, driver};
use crate::stream::event::Event;
use crate::stream::{NON_BLOCKING, Stream};
use crate::timeline::registry;
use crate::timeline::{EventFlags, Flavor, ImplicitOrder, RawEvent, StreamCore, capture};

/// # Streams of other code
impl Stream {
    /// Creates a handle for a stream that other code created; `owner` keeps the stream alive. This crate
    /// never destroys it.
    ///
    /// All wrappers of one stream are equal, with one timeline and one [id](Stream::id). The first one's
    /// `owner` is kept until the last wrapper, and the last buffer allocated on the stream, is gone; the
    /// `owner` of a later wrapper, or of a stream that this crate created, is dropped. Null and
    /// `CU_STREAM_LEGACY` (1) are the context's [default stream](Context::default_stream).
    ///
    /// Keep the wrapper, in a map by `raw` if need be: each call of `from_raw` asks the driver about the
    /// stream, and dropping the last wrapper of a stream with work records an event.
    ///
    /// Buffers do not know of work that other code enqueues on the stream: see
    /// [`Buffer::note_use`](crate::Buffer::note_use).
    ///
    /// # Errors
    /// [`Error::Invalid`] for `CU_STREAM_PER_THREAD` (2) and for a stream of another context
    /// (`cuStreamGetCtx`); [`Error::Capturing`] for a stream that is being captured (`cuStreamIsCapturing`);
    /// the driver's. The error has the owner.
    ///
    /// # Safety
    /// `raw` is a stream, and stays one until `owner` is dropped.
    ///
    /// Raw calls may capture the stream. During the capture, operations of this crate that would enqueue on
    /// it, or would have to wait for earlier work on it, are refused with [`Error::Capturing`], and the
    /// capture is not disturbed. But no capture begins or ends on the stream while another thread is inside
    /// an operation of this crate on it: work enqueued into the capture by accident would count as done once
    /// the stream continues.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # struct Library;
    /// # fn take_in(raw: cuda_core::sys::CUstream, library: Arc<Library>) -> cuda_core::Result<()> {
    /// use cuda_core::{Device, Stream};
    ///
    /// let context = Device::get(0)?.context()?;
    /// // SAFETY: `library` made the stream, and destroys it with its own last reference.
    /// let stream = unsafe { Stream::from_raw(raw, &context, library) }?;
    /// let zeros = stream.alloc_zeroed::<f32>(1024)?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("ExternalStream", "wrap_borrowed_stream"))]
    pub unsafe fn from_raw<O: Any + Send + Sync>(
        raw: CUstream,
        context: &Context,
        owner: O,
    ) -> Result<Self, Rejected<O>> {
        if raw.is_null() || raw == CU_STREAM_LEGACY {
            let (stream, owner) = Rejected::unless(context.default_stream(), owner)?;
            contain(|| drop(owner));
            return Ok(stream);
        }
        // SAFETY: the caller's promise is the same.
        let (order, owner) = Rejected::unless(unsafe { order_of(raw, context) }, owner)?;
        let owner: ForeignOwner = Contained::new(Box::new(owner));
        let core = registry::find_or(raw, || {
            StreamCore::new(context, Flavor::Foreign, order, raw, Some(owner), None)
        });
        Ok(Self::new(core))
    }
}

/// Returns how CUDA orders a stream of other code with the legacy stream; an error for a stream that cannot be
/// wrapped.
///
/// # Safety
/// `raw` is a stream, and not the legacy stream.
unsafe fn order_of(raw: CUstream, context: &Context) -> Result<ImplicitOrder> {
    driver::ensure()?;
    let op = "Stream::from_raw";
    let why = "CU_STREAM_PER_THREAD is another stream on every thread: use \
                   `Context::per_thread_stream`";
    Error::unless(raw != CU_STREAM_PER_THREAD, op, why)?;
    let nothing = ptr::null_mut();
    // SAFETY: the stream is live by the caller's promise; the call writes one handle, to an
    // exclusive borrow.
    let found = asked("cuStreamGetCtx", nothing, |of| unsafe { cu::cuStreamGetCtx(raw, of) })?;
    Error::unless(found == context.as_raw(), op, "the stream belongs to another context")?;
    capture::refuse_captured(Handle(raw), op)?;
    // SAFETY: the stream is live by the caller's promise, and no default stream; the call writes one
    // number, to an exclusive borrow.
    let flags = asked("cuStreamGetFlags", 0, |n| unsafe { cu::cuStreamGetFlags(raw, n) })?;
    Ok(match flags & NON_BLOCKING {
        0 => ImplicitOrder::Blocking,
        _ => ImplicitOrder::NonBlocking,
    })
}

/// # Events of other code
impl Event {
    /// Wraps an event that other code created with `flags`; `owner` keeps the event alive. This
    /// crate never destroys the event. No driver call.
    ///
    /// The owner is dropped together with the [`Event`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for null. The error has the owner.
    ///
    /// # Safety
    /// `raw` is an event of `context`, and stays one until `owner` is dropped. If its last record went
    /// into a capture, no stream waits for it through this crate: such a wait would join the capture.
    ///
    /// ```no_run
    /// # struct Theirs(cuda_core::sys::CUevent);
    /// # // SAFETY: an event may be used by any thread.
    /// # unsafe impl Send for Theirs {}
    /// # // SAFETY: the same.
    /// # unsafe impl Sync for Theirs {}
    /// # fn take_in(theirs: Theirs) -> cuda_core::Result<()> {
    /// use cuda_core::{Device, Event, EventFlags};
    ///
    /// let context = Device::get(0)?.context()?;
    /// let (raw, flags) = (theirs.0, EventFlags::DISABLE_TIMING);
    /// // SAFETY: `theirs` destroys its event when it is dropped.
    /// let event = unsafe { Event::from_raw(raw, flags, &context, theirs) }?;
    /// context.create_stream()?.wait_event(&event)?;
    /// # Ok(())
    /// # }
    /// ```
    pub unsafe fn from_raw<O: Any + Send + Sync>(
        raw: CUevent,
        flags: EventFlags,
        context: &Context,
        owner: O,
    ) -> Result<Self, Rejected<O>> {
        let null = || Error::unless(!raw.is_null(), "Event::from_raw", "null is no event");
        let ((), owner) = Rejected::unless(driver::ensure().and_then(|()| null()), owner)?;
        let owner: ForeignOwner = Contained::new(Box::new(owner));
        // SAFETY: the caller's promise is the same.
        let raw = unsafe { RawEvent::of(raw, context, Some(owner)) };
        // Other code may record it after any work.
        Ok(Self::of(raw, flags, true))
    }

    /// Hands the event over to other code, which destroys it with `cuEventDestroy`. Its last record
    /// stays. No driver call.
    ///
    /// The event does not outlive its context: keep a [created](Context::new) context alive.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an event that [has an owner](Event::from_raw) (use [`Event::as_raw`]);
    /// [`Error::GivenUp`]. The event is unchanged.
    ///
    /// ```no_run
    /// # fn take_over(_raw: cuda_core::sys::CUevent) {}
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let event = stream.record_event(cuda_core::EventFlags::DISABLE_TIMING)?;
    /// take_over(event.into_raw()?); // destroys it
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuEventDestroy", "cudaEventDestroy"))]
    pub fn into_raw(mut self) -> Result<CUevent, Rejected<Self>> {
        let free = self.raw.owner.is_none();
        let why = "an owner keeps the event alive: use `as_raw`";
        let live = Error::unless(free, "Event::into_raw", why).and_then(|()| self.raw.disown());
        live.map(|live| live.raw.0).map_err(|error| Rejected::new(error, self))
    }
}
