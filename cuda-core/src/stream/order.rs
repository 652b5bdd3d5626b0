//! Waits of the host for a stream, and of streams for each other.

use std::sync::Arc;

use cuda_sys::{CU_EVENT_WAIT_EXTERNAL, symbol as cu};

use crate::error::{Error, Result, WAIT_EVENT};
use crate::process::RelaxedCaptureMode;
use crate::stream::event::Event;
use crate::stream::last_record::RecordedPoint;
use crate::stream::{Stream, StreamKind};
use crate::timeline::recording::{GraphTraits, Notes, Order};
use crate::timeline::{Flavor, ready};

/// # Waiting
impl<K: StreamKind> Stream<K> {
    /// Blocks the thread until everything on the stream has completed: `cuStreamSynchronize`.
    ///
    /// # Errors
    /// [`Error::Capturing`]; the driver's, among them errors of earlier
    /// asynchronous work.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut buffer = stream.alloc::<u32>(1 << 20)?;
    /// stream.fill(&mut buffer, 7)?; // returns at once
    /// stream.synchronize()?; // waits
    /// assert!(stream.query()?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamSynchronize", "cudaStreamSynchronize"))]
    pub fn synchronize(&self) -> Result<()> {
        self.core.synchronize()
    }

    /// Whether the stream is being captured by [`Graph::capture`](crate::Graph::capture) or a similar
    /// function (no driver call), or by other code that has the stream's handle (`cuStreamIsCapturing`). The
    /// legacy default stream counts as captured while other code captures a blocking stream of its context.
    ///
    /// # Errors
    /// [`Error::GivenUp`]; the driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// assert!(!stream.is_capturing()?);
    /// cuda_core::Graph::capture(&context, |stream| {
    ///     assert!(stream.is_capturing()?);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamIsCapturing", "cudaStreamIsCapturing"))]
    #[doc(alias("cuStreamGetCaptureInfo", "cudaStreamGetCaptureInfo"))]
    pub fn is_capturing(&self) -> Result<bool> {
        match self.core.bind_work("cuStreamIsCapturing") {
            Ok(_) => Ok(self.core.timeline().recording().is_some_and(|own| !own.has_ended())),
            Err(Error::Capturing { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether everything on the stream has completed: `cuStreamQuery`.
    ///
    /// # Errors
    /// [`Error::Capturing`]; the driver's, among them errors of earlier
    /// asynchronous work.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// stream.launch_host_func(|| println!("working"))?;
    /// while !stream.query()? {
    ///     std::thread::yield_now(); // something else could be done here
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamQuery", "cudaStreamQuery"))]
    pub fn query(&self) -> Result<bool> {
        let op = "cuStreamQuery";
        let bound = self.core.bind(op)?;
        let _relaxed = RelaxedCaptureMode::enter()?;
        let issued = self.core.timeline().issued();
        // SAFETY: `bound` keeps the stream alive, with its context current if it needs that.
        let done = ready(op, unsafe { cu::cuStreamQuery(bound.raw()) })?;
        if done {
            self.core.timeline().complete(issued);
        }
        Ok(done)
    }

    /// Makes work enqueued from now on wait for the event's last record: `cuStreamWaitEvent`. The call has no
    /// effect if the event was never recorded. The event may belong to another device.
    ///
    /// If the event was recorded after a host function or a wait for a value, any time may pass before it
    /// completes. Then this method makes a [checkpoint](Stream::checkpoint) first, so that waits for earlier
    /// work of this stream do not include the event. The same holds for events that other processes, or
    /// [graphs](Event::record_each), may record.
    ///
    /// # Errors
    /// [`Error::NotCapturable`] if this stream is captured and the event was recorded outside of the capture,
    /// or the other way round; the driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::{Event, EventFlags};
    ///
    /// let later = context.create_stream()?;
    /// let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
    /// event.record(&stream)?; // after what another library has enqueued there
    /// later.wait_event(&event)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamWaitEvent", "cudaStreamWaitEvent"))]
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        let bound = self.core.bind_work("cuStreamWaitEvent")?;
        if let Some(recording) = bound.timeline().recording() {
            return event.captures.wait(recording, &bound);
        }
        let raw = event.outside_captures(WAIT_EVENT)?;
        let wait = || bound.wait_for_event(raw, event.may_come_at_any_time()).map(|()| true);
        let own = bound.timeline();
        let note = |point: RecordedPoint| {
            if point.stream_id == own.id() || own.note_waited_again(point.stream_id, point.seq) {
                return;
            }
            if let Some(stream) = event.last.stream_of(point) {
                own.note_waited(&stream, point.seq);
            }
        };
        event.last.wait(wait, note).map(drop)
    }

    /// Like [`Stream::wait_event`] (`cuStreamWaitEvent`), but on a captured stream the wait becomes an
    /// operation of the graph, which keeps the event. Each launch waits for the event's last record that was
    /// made outside of captures and before the launch. In a graph
    /// [by access](crate::Graph::capture_by_access) the wait is ordered like a host function.
    ///
    /// # Errors
    /// Those of [`Stream::wait_event`]; [`Error::NotCapturable`] in a body of a
    /// [`Condition`](crate::Condition).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let (stream, other) = (context.create_stream()?, context.create_stream()?);
    /// # let mut x = stream.alloc::<u32>(1 << 20)?;
    /// use std::sync::Arc;
    /// use cuda_core::{Event, EventFlags, Graph};
    ///
    /// let ready = Arc::new(Event::new(&context, EventFlags::DISABLE_TIMING)?);
    /// let graph = Graph::capture(&context, |stream| {
    ///     stream.wait_event_each(&ready)?;
    ///     stream.fill(&mut x, 1)
    /// })?;
    /// let mut exec = graph.instantiate()?;
    /// for _ in 0..10 {
    ///     ready.record(&other)?; // after what another library has enqueued there
    ///     exec.launch(&stream)?;
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamWaitEvent", "cudaStreamWaitEvent"))]
    #[doc(alias("cuGraphAddEventWaitNode", "cudaGraphAddEventWaitNode"))]
    #[doc(alias("CU_EVENT_WAIT_EXTERNAL", "cudaEventWaitExternal"))]
    pub fn wait_event_each(&self, event: &Arc<Event>) -> Result<()> {
        let op = "cuStreamWaitEvent";
        if self.core.timeline().recording().is_none() {
            return self.wait_event(event);
        }
        let raw = event.live()?.as_raw();
        let bound = self.core.bind_work(op)?;
        let notes = || Notes::keeping(GraphTraits::MAY_TAKE_LONG, event.clone());
        let call = |stream| {
            let flags = CU_EVENT_WAIT_EXTERNAL.0;
            // SAFETY: `bound` keeps the stream alive; the graph and its executables keep the event
            // until their last launch has completed. It may be of another device or context.
            unsafe { cu::cuStreamWaitEvent(stream, raw, flags) }
        };
        bound.submit(op, &mut [], notes, call).1
    }

    /// Makes work enqueued on this stream from now on wait for everything that is on `other` now. No driver
    /// call if this stream already waits for that work.
    ///
    /// If `other` is a default stream or a [stream of other code](Stream::from_raw), this always makes driver
    /// calls: the wait includes work that other code enqueued there. This crate does not know of work that
    /// other code enqueues through the handle of a stream of this crate: wait for an [`Event`] that is
    /// recorded after that work.
    ///
    /// # Errors
    /// [`Error::NotCapturable`] if one of the streams is captured and the other is not, or is in another
    /// capture; the driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let (first, second) = (context.create_stream()?, context.create_stream()?);
    /// first.launch_host_func(|| println!("before"))?;
    /// second.wait_stream(&first)?;
    /// second.launch_host_func(|| println!("after"))?;
    /// second.synchronize()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamWaitEvent", "cudaStreamWaitEvent"))]
    #[doc(alias("join"))]
    pub fn wait_stream<L: StreamKind>(&self, other: &Stream<L>) -> Result<()> {
        let op = "cuStreamWaitEvent";
        let timeline = other.core.timeline();
        if !self.core.timeline().is_captured_with(timeline) {
            return Err(Error::NotCapturable { op });
        }
        let seq = match timeline.flavor() {
            Flavor::Created | Flavor::Captured | Flavor::GivenUp => {
                other.core.ensure()?;
                timeline.issued()
            }
            // Counts a point of its own, after work that this crate has not counted.
            Flavor::Foreign | Flavor::Legacy | Flavor::PerThread => {
                let other = other.core.bind(op)?;
                // As before work: the event recorded on `other` comes after what holds up the legacy stream.
                other.prepare()?;
                other.count()
            }
        };
        let bound = self.core.bind_work(op)?;
        let wait = || bound.wait_for(&timeline.at(seq));
        match bound.timeline().recording() {
            // By access, operations are ordered only after what they conflict with.
            Some(recording) => recording.during(op, |order| match order {
                Order::Chain | Order::Streams => wait(),
                Order::Access => Ok(()),
            }),
            None => wait(),
        }
    }

    /// Records an event now, so that other streams can wait for the work enqueued so far without waiting for
    /// later work. No driver call if such an event exists.
    ///
    /// Without a checkpoint, another stream or the host that has to wait for this stream waits for everything
    /// enqueued by then. That may be too much for pipelines that overlap copies and kernels. Host functions
    /// make a checkpoint themselves, and an [event](Event) that the program waits for serves as one.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let compute = context.create_stream()?;
    /// let (mut first, mut second) = (stream.alloc::<u8>(1 << 20)?, stream.alloc::<u8>(1 << 20)?);
    /// stream.fill(&mut first, 1)?;
    /// stream.checkpoint()?;
    /// stream.fill(&mut second, 2)?;
    /// compute.copy_within(&mut first, 0..1000, 5000)?; // waits for the first fill only
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuEventRecord", "cudaEventRecord"))]
    pub fn checkpoint(&self) -> Result<()> {
        let bound = self.core.bind("cuEventRecord")?;
        self.core.timeline().checkpoint(false, bound.entered())
    }
}
