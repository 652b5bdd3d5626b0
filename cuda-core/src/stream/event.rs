//! Events: points of a stream that streams and the host can wait for, and between which time can be measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cuda_sys::{CU_EVENT_RECORD_EXTERNAL, CUevent, CUresult, symbol as cu};

use crate::context::{Context, of_context};
use crate::error::{ELAPSED, Error, Rejected, Result, WrongContext, asked, check};
use crate::process::RelaxedCaptureMode;
use crate::stream::event_capture::EventCapture;
use crate::stream::last_record::{LastRecord, RecordedPoint};
use crate::stream::{Stream, StreamKind};
use crate::timeline::recording::{GraphTraits, KeptAlive, Notes};
use crate::timeline::{EventFlags, RawEvent};
use crate::util::debug_by;

/// A point of a stream that the program records.
///
/// Copies, fills and buffers of this crate need no events: the crate orders them. Events are for
/// measuring, for blocking a host thread, and for work that other libraries enqueue.
///
/// To wait for a stream, the crate waits for everything enqueued there by then. A wait of the program for an
/// event limits that: after [`synchronize`](Self::synchronize), or a [`query`](Self::query) that returned
/// true, the host does not wait for work before the record; after [`Stream::wait_event`], that stream does
/// not. A [checkpoint](Stream::checkpoint) has the same effect without an event of the program.
///
/// ```no_run
/// use cuda_core::{Device, Event, EventFlags};
///
/// let stream = Device::get(0)?.create_stream()?;
/// let start = Event::new(stream.context(), EventFlags::DEFAULT)?;
/// let end = Event::new(stream.context(), EventFlags::DEFAULT)?; // to be recorded again and again
/// start.record(&stream)?;
/// // … work on the stream …
/// end.record(&stream)?;
/// end.synchronize()?;
/// println!("{:?}", end.elapsed_since(&start)?);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("CudaEvent", "CUevent", "cudaEvent_t"))]
pub struct Event {
    pub(super) raw: RawEvent,
    pub(super) flags: EventFlags,
    /// The event may take any time to complete: it was recorded after work that may take any time, or other
    /// code, another process or a graph may record it.
    held_up: AtomicBool,
    pub(super) captures: EventCapture,
    pub(super) last: LastRecord,
}

/// # Recording, waiting, measuring
impl Event {
    /// A new event of `context`: `cuEventCreate`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an interprocess event with timing.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{Event, EventFlags};
    ///
    /// let timing = Event::new(&context, EventFlags::DEFAULT)?;
    /// let order_alone = Event::new(&context, EventFlags::DISABLE_TIMING)?; // cheaper to wait for
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuEventCreate", "cudaEventCreate", "cudaEventCreateWithFlags"))]
    pub fn new(context: &Context, flags: EventFlags) -> Result<Self> {
        let shared = flags.contains(EventFlags::INTERPROCESS);
        let goes = !shared || flags.contains(EventFlags::DISABLE_TIMING);
        let why = "an INTERPROCESS event takes no times: add DISABLE_TIMING";
        Error::unless(goes, "cuEventCreate", why)?;
        // Other processes may record an interprocess event after any work.
        Ok(Self::of(RawEvent::create(context, flags)?, flags, shared))
    }

    /// Wraps `raw`. `is_shared`: other code may record the event.
    pub(super) fn of(raw: RawEvent, flags: EventFlags, is_shared: bool) -> Self {
        Self {
            raw,
            flags,
            held_up: AtomicBool::new(is_shared),
            captures: EventCapture::default(),
            last: LastRecord::new(is_shared),
        }
    }

    /// The flags that the event was created with.
    pub fn flags(&self) -> EventFlags {
        self.flags
    }

    of_context! { "The context that it belongs to.": |it| &it.raw.context }

    /// The driver's handle, valid while `self` lives; null for an event that was
    /// [given up](Error::GivenUp).
    ///
    /// A stream that waits for an event joins the capture that the event was last recorded into. So after
    /// other code has recorded the event into a capture, wait for it through this crate only once it has been
    /// recorded outside of a capture.
    pub fn as_raw(&self) -> CUevent {
        self.last.share();
        self.raw.as_raw()
    }

    /// Returns the event; an error if it was given up, or if its last record went into a capture.
    pub(crate) fn outside_captures(&self, op: &'static str) -> Result<&RawEvent> {
        if self.captures.is_last() { Err(Error::NotCapturable { op }) } else { self.live() }
    }

    /// Returns the event; an error if it was given up.
    pub(crate) fn live(&self) -> Result<&RawEvent> {
        self.raw.live().map(|_| &self.raw)
    }

    /// Records the point after everything that is on the stream now: `cuEventRecord`. A later record replaces
    /// an earlier one.
    ///
    /// On a stream that is captured, the point belongs to the capture, whose streams can wait for it.
    /// Launches do not record the event: see [`Event::record_each`].
    ///
    /// # Errors
    /// [`Error::WrongContext`] for a stream of another context; the driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::{Event, EventFlags};
    ///
    /// let event = Event::new(&context, EventFlags::DEFAULT)?;
    /// stream.launch_host_func(|| println!("before"))?;
    /// event.record(&stream)?;
    /// event.synchronize()?; // after "before"
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuEventRecord", "cudaEventRecord"))]
    pub fn record<K: StreamKind>(&self, stream: &Stream<K>) -> Result<()> {
        let (op, event) = ("cuEventRecord", self.live()?);
        if self.context() != stream.context() {
            return Err(WrongContext { op, what: "the event".into() }.into());
        }
        let bound = stream.core().bind_work(op)?;
        bound.prepare()?;
        let record = |event: &RawEvent| {
            // SAFETY: `event` is alive while borrowed and `bound` keeps the stream alive, with its
            // context current if it needs that; a pairing that CUDA does not allow is an error.
            check(op, unsafe { cu::cuEventRecord(event.as_raw(), bound.raw()) })
        };
        if let Some(recording) = bound.timeline().recording() {
            return self.captures.record(recording, self.context(), record);
        }
        self.captures.leave();
        // Never cleared: another thread may record the event at the same time, and the order of the two
        // records is unknown.
        let note_hold_up = || {
            if bound.timeline().is_held_up_now() {
                self.held_up.store(true, Ordering::Release);
            }
        };
        // Before the record, for threads that wait for the event as soon as it is recorded.
        note_hold_up();
        self.last.record(bound.timeline(), || {
            let recorded = record(event);
            // After it, since another thread may have held up the stream first.
            note_hold_up();
            recorded
        })
    }

    /// Like [`Event::record`], but on a captured stream the record becomes an operation of the graph, which
    /// keeps the event: `cuEventRecordWithFlags`. Each launch records the event; code outside of the graph
    /// sees a record on the launch's stream. Two such events measure a part of each launch. In a graph [by
    /// access](crate::Graph::capture_by_access) the record is ordered like a host function.
    ///
    /// # Errors
    /// Those of [`Event::record`]; [`Error::NotCapturable`] in a body of a
    /// [`Condition`](crate::Condition).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # let mut x = stream.alloc::<u32>(1 << 20)?;
    /// use std::sync::Arc;
    /// use cuda_core::{Event, EventFlags, Graph};
    ///
    /// let event = || Event::new(&context, EventFlags::DEFAULT).map(Arc::new);
    /// let (start, end) = (event()?, event()?);
    /// let graph = Graph::capture(&context, |stream| {
    ///     start.record_each(stream)?;
    ///     stream.fill(&mut x, 1)?;
    ///     end.record_each(stream)
    /// })?;
    /// graph.instantiate()?.launch(&stream)?;
    /// end.synchronize()?;
    /// println!("the fill takes {:?}", end.elapsed_since(&start)?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuEventRecordWithFlags", "cudaEventRecordWithFlags"))]
    #[doc(alias("cuGraphAddEventRecordNode", "cudaGraphAddEventRecordNode"))]
    #[doc(alias("CU_EVENT_RECORD_EXTERNAL", "cudaEventRecordExternal"))]
    pub fn record_each<K: StreamKind>(self: &Arc<Self>, stream: &Stream<K>) -> Result<()> {
        let op = "cuEventRecordWithFlags";
        if stream.core().timeline().recording().is_none() {
            return self.record(stream);
        }
        let event = self.live()?.as_raw();
        if self.context() != stream.context() {
            return Err(WrongContext { op, what: "the event".into() }.into());
        }
        let bound = stream.core().bind_work(op)?;
        let notes = || Notes::keeping(GraphTraits::EVENT, self.clone());
        // Not called if the capture refuses the operation: the event then stays as it was.
        let call = |stream| {
            self.captures.leave();
            // Any work may precede the graph's launch, and host functions the record in the graph.
            self.held_up.store(true, Ordering::Release);
            self.last.share();
            let flags = CU_EVENT_RECORD_EXTERNAL.0;
            // SAFETY: `bound` keeps the stream alive; the graph and its executables keep the event,
            // which is of the stream's context, until their last launch has completed.
            unsafe { cu::cuEventRecordWithFlags(event, stream, flags) }
        };
        bound.submit(op, &mut [], notes, call).1
    }

    /// Whether the event may take any time to complete, as far as this crate knows.
    pub(crate) fn may_come_at_any_time(&self) -> bool {
        self.held_up.load(Ordering::Acquire)
    }

    /// [Records](Event::record) the event on the calling thread's
    /// [current stream](Context::current_stream) in the event's own context.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # use cuda_core::{Device, Event, EventFlags};
    /// # let context = Device::get(0)?.context()?;
    /// let stream = context.create_stream()?;
    /// let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
    /// let _current = stream.enter()?;
    /// event.record_current()?; // on `stream`
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuEventRecord", "cudaEventRecord"))]
    pub fn record_current(&self) -> Result<()> {
        self.record(&self.context().current_stream()?)
    }

    /// Blocks the thread until the recorded point has been reached: `cuEventSynchronize`. An event that was
    /// never recorded counts as reached.
    ///
    /// # Errors
    /// [`Error::GivenUp`]; the driver's, among them errors of earlier asynchronous work.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # use cuda_core::{Event, EventFlags};
    /// // A thread that waits for long sleeps, and leaves its core to others.
    /// let event = Event::new(&context, EventFlags::BLOCKING_SYNC)?;
    /// stream.launch_host_func(|| std::thread::sleep(std::time::Duration::from_millis(10)))?;
    /// event.record(&stream)?;
    /// event.synchronize()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuEventSynchronize", "cudaEventSynchronize"))]
    pub fn synchronize(&self) -> Result<()> {
        let event = self.outside_captures("cuEventSynchronize")?;
        let wait = || event.synchronize().map(|()| true);
        self.last.wait(wait, |point| self.note_reached(point)).map(drop)
    }

    /// Whether the recorded point has been reached: `cuEventQuery`. An event that was never
    /// recorded counts as reached.
    ///
    /// # Errors
    /// [`Error::GivenUp`]; the driver's, except `NOT_READY`, which is `Ok(false)`.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # use cuda_core::{Event, EventFlags};
    /// let event = Event::new(&context, EventFlags::DEFAULT)?;
    /// assert!(event.query()?); // never recorded
    /// event.record(&stream)?;
    /// while !event.query()? {
    ///     std::thread::yield_now();
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuEventQuery", "cudaEventQuery", "is_complete"))]
    pub fn query(&self) -> Result<bool> {
        let event = self.outside_captures("cuEventQuery")?;
        self.last.wait(|| event.query(), |point| self.note_reached(point))
    }

    /// Notes that the stream has completed everything before the recorded point.
    fn note_reached(&self, point: RecordedPoint) {
        if let Some(stream) = self.last.stream_of(point) {
            stream.complete(point.seq);
        }
    }

    /// Returns the time from `earlier`'s point to this event's: `cuEventElapsedTime`, in steps of about half
    /// a microsecond. A negative time, if the events are given in the wrong order, is zero.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an event that was never recorded, or that was created with
    /// [`EventFlags::DISABLE_TIMING`], and for events of different devices; the driver's `INVALID_HANDLE` for
    /// events of different contexts of a device, and `NOT_READY` until both points have been reached
    /// ([`Error::is_not_ready`]).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::EventFlags;
    ///
    /// let start = stream.record_event(EventFlags::DEFAULT)?;
    /// // … work on the stream …
    /// let end = stream.record_event(EventFlags::DEFAULT)?;
    /// end.synchronize()?;
    /// println!("{:?}", end.elapsed_since(&start)?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuEventElapsedTime", "cudaEventElapsedTime"))]
    #[doc(alias("get_elapsed_time", "elapsed_ms"))]
    pub fn elapsed_since(&self, earlier: &Event) -> Result<Duration> {
        let op = ELAPSED;
        let (start, end) = (earlier.outside_captures(op)?, self.outside_captures(op)?);
        for event in [earlier, self] {
            let timed = !event.flags.contains(EventFlags::DISABLE_TIMING);
            Error::unless(timed, op, "the event was created with DISABLE_TIMING")?;
        }
        let (first, last) = (earlier.device().ordinal(), self.device().ordinal());
        let why = || {
            let clocks = "time is taken between events of one device";
            format!("the earlier event is of device {first}, the later of device {last}: {clocks}")
        };
        Error::unless_with(first == last, op, why)?;
        let _relaxed = RelaxedCaptureMode::enter()?;
        let time = asked(op, 0.0, |to| elapsed(to, start.as_raw(), end.as_raw()));
        let milliseconds = time.map_err(|error| {
            let code = cuda_sys::CUDA_ERROR_INVALID_HANDLE;
            // The driver also returns this error for a single event that was never recorded.
            let unrecorded =
                |event: &RawEvent| elapsed(&mut 0.0, event.as_raw(), event.as_raw()) == code;
            if error.code() != Some(code) {
                error
            } else if unrecorded(start) {
                Error::invalid(op, "the earlier event was never recorded")
            } else if unrecorded(end) {
                Error::invalid(op, "the later event was never recorded")
            } else {
                error
            }
        })?;
        let seconds = f64::from(milliseconds).max(0.0) / 1e3;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// Destroys the event; dropping it reports a failure to the hook of
    /// [`drops::set_hook`](crate::drops::set_hook) instead.
    ///
    /// # Errors
    /// The driver's, with the event, which is [given up](Error::GivenUp).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # use cuda_core::{Event, EventFlags};
    /// let event = Event::new(&context, EventFlags::DEFAULT)?;
    /// event.close()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuEventDestroy", "cudaEventDestroy"))]
    pub fn close(mut self) -> Result<(), Rejected<Self>> {
        self.raw.release().map_err(|error| Rejected::new(error, self))
    }
}

/// A graph keeps the events that it records or waits for.
impl KeptAlive for Event {}

/// # Events
impl<K: StreamKind> Stream<K> {
    /// A new event, [recorded](Event::record) on this stream; for [measuring](Event::elapsed_since),
    /// pass [`EventFlags::DEFAULT`].
    ///
    /// # Errors
    /// Those of [`Event::new`] and [`Event::record`].
    #[doc(alias("cuEventRecord", "cudaEventRecord"))]
    pub fn record_event(&self, flags: EventFlags) -> Result<Event> {
        let event = Event::new(self.context(), flags)?;
        event.record(self)?;
        Ok(event)
    }
}

/// Calls the newest version of `cuEventElapsedTime` that the driver has.
fn elapsed(milliseconds: &mut f32, start: CUevent, end: CUevent) -> CUresult {
    // SAFETY: the caller holds both events, which live as long as it does; the call writes one
    // float, to an exclusive borrow.
    let code = unsafe { cu::cuEventElapsedTime_v2(milliseconds, start, end) };
    if code != cuda_sys::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER {
        return code;
    }
    // SAFETY: the caller holds both events, which live as long as it does; the call writes one
    // float, to an exclusive borrow.
    unsafe { cu::cuEventElapsedTime(milliseconds, start, end) }
}

debug_by! { [] Event: |it| "Event" { raw: it.raw.as_raw(), flags: it.flags } }
