//! Waiting without blocking the thread.
//!
//! These futures work with any executor and on any thread: a thread of this crate that sleeps until
//! the device is done wakes them.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context as Task, Poll, Waker};

use crate::error::Result;
use crate::memory::{Buffer, Memory, Slice, SliceMut};
use crate::process::{contain, driver};
use crate::stream::event::Event;
use crate::stream::{Stream, StreamKind};
use crate::timeline::Mark;
use crate::timeline::ledger::Access;
use crate::types::Pod;
use crate::util::{debug_by, lock};
use crate::wait::PendingMark;

/// A future that waits for points of streams: returned by [`Buffer::ready`], [`Stream::ready`] and similar.
///
/// The points are fixed when the future is created, not when it is first polled. Dropping the
/// future loses nothing: buffers still wait by themselves for the work that uses them.
///
/// Threads of this crate wake the task. Up to 16 of them sleep in `cuEventSynchronize`, each for a point of
/// one stream. If more streams are awaited at once, one more thread polls the remaining ones, with pauses
/// that grow from 20 µs to 1 ms, or to four times the duration of a polling round if that is longer.
///
/// # Errors
/// The future yields the driver's errors about the work waited for, and
/// [`Error::NoThread`](crate::Error::NoThread).
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// let mut buffer = stream.alloc::<u32>(1 << 20)?;
/// stream.fill(&mut buffer, 7)?;
/// let task = async move {
///     buffer.ready().await?; // sleeps; no thread is blocked
///     Ok::<_, cuda_core::Error>(buffer)
/// };
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Ready<'a> {
    state: ReadyState,
    /// Keeps the memory that is waited for borrowed.
    _borrow: PhantomData<&'a ()>,
}

enum ReadyState {
    /// Not polled yet.
    New(Result<Vec<PendingMark>>),
    Waiting(Arc<Ticket>),
    /// The result, which the future has returned, and returns again if polled again.
    Done(Result<()>),
}

/// Shared by a future and the threads that wait for it.
struct Ticket(Mutex<Progress>);

struct Progress {
    /// The number of points not reached yet.
    left: usize,
    reached: Result<()>,
    waker: Option<Waker>,
}

impl Ready<'_> {
    pub(crate) fn new(marks: &[Mark]) -> Self {
        let pending = marks.iter().map(PendingMark::of).filter_map(Result::transpose);
        Self::from_state(ReadyState::New(pending.collect()))
    }

    fn from_state(state: ReadyState) -> Self {
        Self { state, _borrow: PhantomData }
    }

    /// Registers the waits that wake the future, unless there is nothing to wait for.
    fn start(pending: Vec<PendingMark>, waker: &mut Option<Waker>) -> Result<Option<Arc<Ticket>>> {
        let mut left = Vec::with_capacity(pending.len());
        for pending in pending {
            if !pending.query()? {
                left.push(pending);
            }
        }
        if left.is_empty() {
            return Ok(None);
        }
        let ticket = Arc::new(Ticket(Mutex::new(Progress {
            left: left.len(),
            reached: Ok(()),
            waker: waker.take(),
        })));
        for pending in left {
            let shared = ticket.clone();
            let then = pending.then(Box::new(move |reached| shared.tell(reached)));
            then.inspect_err(|_| ticket.forget_waker())?;
        }
        Ok(Some(ticket))
    }
}

impl Ticket {
    /// Notes that one point has been reached, or could not be proven to be. Wakes the task if it has nothing
    /// left to wait for.
    fn tell(&self, reached: Result<()>) {
        let waker = {
            let mut progress = lock(&self.0);
            progress.left = progress.left.saturating_sub(1);
            if reached.is_err() && progress.reached.is_ok() {
                progress.reached = reached;
            }
            let over = progress.left == 0 || progress.reached.is_err();
            progress.waker.take_if(|_| over)
        };
        // Called outside the lock, since it is foreign code.
        if let Some(waker) = waker {
            contain(|| waker.wake());
        }
    }

    /// Drops the waker: no task is to be woken any more.
    fn forget_waker(&self) {
        let waker = lock(&self.0).waker.take();
        contain(|| drop(waker));
    }

    fn poll(&self, waker: &Waker) -> Poll<Result<()>> {
        // Cloned, and dropped, outside the lock, since both are foreign code.
        let mut other = Some(waker.clone());
        let mut progress = lock(&self.0);
        if progress.left == 0 || progress.reached.is_err() {
            return Poll::Ready(progress.reached.clone());
        }
        if !progress.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            std::mem::swap(&mut progress.waker, &mut other);
        }
        drop(progress);
        Poll::Pending
    }
}

impl Future for Ready<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let started = match &mut self.state {
            ReadyState::Done(result) => return Poll::Ready(result.clone()),
            // In a fork's child the threads that would wake the task do not exist, and may have held locks.
            ReadyState::Waiting(ticket) => {
                return match driver::ensure_not_gone() {
                    Ok(()) => ticket.poll(task.waker()),
                    gone => Poll::Ready(gone),
                };
            }
            ReadyState::New(pending) => {
                // Cloned before the marks are taken, since it is foreign code, which may panic.
                let mut waker = Some(task.waker().clone());
                let started = std::mem::replace(pending, Ok(Vec::new()))
                    .and_then(|pending| Self::start(pending, &mut waker));
                contain(|| drop(waker));
                started
            }
        };
        match started.transpose() {
            Some(Ok(ticket)) => {
                self.state = ReadyState::Waiting(ticket);
                Poll::Pending
            }
            over => {
                let result = over.map_or(Ok(()), |over| over.map(drop));
                self.state = ReadyState::Done(result.clone());
                Poll::Ready(result)
            }
        }
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        if let (ReadyState::Waiting(ticket), false) = (&self.state, driver::is_gone()) {
            ticket.forget_waker();
        }
    }
}

/// # Waiting
impl<'a, T: Pod, M: Memory> Slice<'a, T, M> {
    /// Waits, without blocking, for the work that writes these elements.
    pub fn ready(&self) -> Ready<'a> {
        self.clear_for(Access::Read)
    }

    /// Blocks the thread until the work that writes these elements is done. To be called before code that
    /// does not know the stream reads them.
    ///
    /// # Errors
    /// The driver's about that work; [`Error::NotCapturable`](crate::Error::NotCapturable) while that work is
    /// being captured.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # fn mpi_send(_address: u64, _bytes: usize) {}
    /// let field = stream.alloc_zeroed::<f32>(1 << 20)?; // and kernels that compute it
    /// let halo = field.slice(..1024)?;
    /// halo.synchronize()?; // not for work on the rest of it
    /// mpi_send(halo.as_raw(), halo.byte_len());
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn synchronize(&self) -> Result<()> {
        self.ledger().synchronize(&self.range(), Access::Read)
    }

    /// Returns a future that waits for what an access to these elements would have to wait for.
    pub(crate) fn clear_for(&self, access: Access) -> Ready<'a> {
        // In a fork's child, a thread that does not exist there may hold the ledger's lock.
        if let Err(error) = driver::ensure_not_gone() {
            return Ready::from_state(ReadyState::Done(Err(error)));
        }
        match self.ledger().conflicts_with_host(&self.range(), access, "ready") {
            Ok(fences) => Ready::new(fences.marks()),
            Err(error) => Ready::from_state(ReadyState::New(Err(error))),
        }
    }
}

/// # Waiting
impl<T: Pod, M: Memory> SliceMut<'_, T, M> {
    /// Waits, without blocking, for all work that uses these elements.
    pub fn ready_mut(&mut self) -> Ready<'_> {
        self.as_view().clear_for(Access::Write)
    }

    /// Blocks the thread until all work that uses these elements is done. To be called before code that does
    /// not know the stream writes them.
    ///
    /// # Errors
    /// Those of [`Slice::synchronize`].
    pub fn synchronize_mut(&mut self) -> Result<()> {
        let view = self.as_view();
        view.ledger().synchronize(&view.range(), Access::Write)
    }
}

/// # Futures
impl<T: Pod, M: Memory, X> Buffer<T, M, X> {
    /// Waits, without blocking, for the work that writes the buffer. Reading pinned memory does not block
    /// after that. Waits for everything enqueued so far on the streams of that work, unless a
    /// [checkpoint](Stream::checkpoint), or an [event](Event) that was waited for, comes after that work.
    ///
    /// ```no_run
    /// # use cuda_core::{DeviceBuffer, PinnedBuffer, Result, Stream};
    /// # async fn fetch(stream: &Stream, buffer: &DeviceBuffer<f32>) -> Result<f32> {
    /// let mut host = PinnedBuffer::<f32>::new(stream.context(), buffer.len())?;
    /// stream.download(buffer, &mut host)?;
    /// host.ready().await?;
    /// let sum = host.as_slice()?.iter().sum();
    /// # Ok(sum)
    /// # }
    /// ```
    pub fn ready(&self) -> Ready<'_> {
        self.as_view().ready()
    }

    /// Waits, without blocking, for all work that uses the buffer. Neither changing pinned memory
    /// nor dropping it blocks after that. Waits for as much of each stream as [`ready`](Self::ready) does.
    ///
    /// ```no_run
    /// # use cuda_core::{DeviceBuffer, PinnedBuffer, Result, Stream};
    /// # async fn send(stream: &Stream, buffer: &mut DeviceBuffer<f32>) -> Result<()> {
    /// let mut host = PinnedBuffer::from_slice(stream.context(), &[1.0f32; 1000])?;
    /// stream.upload(&host, &mut *buffer)?;
    /// host.ready_mut().await?; // the upload has read it
    /// host.as_mut_slice()?.fill(2.0); // so this waits for nothing
    /// # Ok(())
    /// # }
    /// ```
    pub fn ready_mut(&mut self) -> Ready<'_> {
        self.as_view().clear_for(Access::Write)
    }
}

/// # Futures
impl<K: StreamKind> Stream<K> {
    /// Waits, without blocking, for everything that is on the stream now, work of other libraries
    /// included.
    ///
    /// ```no_run
    /// # use cuda_core::{Result, Stream};
    /// # async fn work(stream: &Stream) -> Result<()> {
    /// // … work on the stream …
    /// stream.ready().await
    /// # }
    /// ```
    pub fn ready(&self) -> Ready<'static> {
        let core = self.core();
        // A new point, after work that this crate has not counted.
        let bound = core.bind("cuEventRecord");
        let mark = bound.map(|bound| core.timeline().at(bound.count()));
        match mark {
            Ok(mark) => Ready::new(&[mark]),
            Err(error) => Ready::from_state(ReadyState::New(Err(error))),
        }
    }
}

/// # Futures
impl Event {
    /// Waits, without blocking, until the point that is recorded now is reached. An event that was never
    /// recorded counts as reached.
    ///
    /// Creates a stream that waits for the event, since only some events let a thread sleep:
    /// [`Stream::ready`] costs less.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # use cuda_core::{Event, EventFlags};
    /// let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
    /// event.record(&stream)?;
    /// let task = async move { event.ready().await };
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn ready(&self) -> Ready<'static> {
        let relay = || {
            let stream = self.context().create_stream()?;
            stream.wait_event(self)?;
            Ok(stream.ready())
        };
        relay().unwrap_or_else(|error| Ready::from_state(ReadyState::New(Err(error))))
    }
}

debug_by! { [] Ready<'_>: |_it| "Ready" }
