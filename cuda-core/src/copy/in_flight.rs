//! Copies that own their host memory.

use std::future::{Future, IntoFuture};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::slice;
use std::task::{Context as Task, Poll, ready};

use crate::copy::{LinearCopy, at_home, borrowed};
use crate::error::{Error, Rejected, Result};
use crate::host::pin_gate::PageHold;
use crate::host::{StableHost, StableHostMut, pin_gate};
use crate::memory::{DeviceSlice, DeviceSliceMut, IntoView, same_len};
use crate::process::{Contained, DeferForeignCode, deferred, driver, drop_hook};
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::Touch;
use crate::timeline::{Mark, StreamCore};
use crate::types::Resource;
use crate::util::debug_by;
use crate::wait::future::Ready;
use crate::wait::when_reached;

/// A copy that owns its host memory. [`wait`](Self::wait) for it, or `.await` it, to get the owner
/// back.
///
/// If it is dropped before the copy is done, the owner is kept until then and dropped on a thread of
/// this crate; nothing blocks. If the copy cannot be proven complete, the owner is leaked and this is
/// reported to the hook of [`drops::set_hook`](crate::drops::set_hook): memory is never freed under a
/// copy. If it is forgotten, only the owner is leaked.
///
/// ```no_run
/// # use cuda_core::{PinnedBuffer, Result, Stream};
/// # async fn double(stream: &Stream) -> Result<(Vec<f32>, PinnedBuffer<f32>)> {
/// let mut buffer = stream.alloc::<f32>(1000)?;
/// let upload = stream.upload_owned(vec![1.0; 1000], &mut buffer)?;
/// let vec = upload.await?; // back again, to be filled anew
/// let back = stream.download_pinned(&buffer)?; // `download_owned` to a vector usually blocks the thread
/// back.ready().await?;
/// # Ok((vec, back))
/// # }
/// ```
#[must_use = "dropping it drops the owner once the copy is done; `wait` gives it back"]
pub struct InFlight<H: StableHost> {
    /// [`None`] once it was returned.
    held: Option<Held<H>>,
    /// The point at which the copy is done; [`None`] if there is no copy.
    mark: Option<Mark>,
}

/// An owner whose memory a device may use. Dropping this drops no owner.
// Moving a `Box` or a `Vec` asserts that nothing else points to its contents, but the device does.
// `MaybeUninit` makes no such assertion.
struct Held<H> {
    // INVARIANT: initialised.
    host: MaybeUninit<H>,
    /// Keeps pinned memory from being unregistered; notified when the copy has ended.
    pages: Option<PageHold>,
}

impl<H> Held<H> {
    /// Returns the owner. Called when the copy has ended, or never began.
    fn into_inner(self) -> H {
        if let Some(pages) = self.pages {
            pages.copy_is_over();
        }
        // SAFETY: initialised, by the invariant.
        unsafe { self.host.assume_init() }
    }

    /// Ends the hold and drops the owner.
    fn end(self) {
        drop(Contained::new(self.into_inner()));
    }
}

impl<H: StableHost> InFlight<H> {
    /// Creates a flight whose owner no copy uses yet. Also returns the address of the owner's elements
    /// and their number.
    fn new(host: H) -> (Self, *mut H::Element, usize) {
        let mut held = Held { host: MaybeUninit::new(host), pages: None };
        // SAFETY: initialised in the line above.
        let elements = unsafe { held.host.assume_init_mut() }.elements();
        let this = Self { held: Some(held), mark: None };
        (this, elements.as_ptr().cast(), elements.len())
    }

    /// Whether the copy is done.
    ///
    /// # Errors
    /// The driver's errors about the copy.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut buffer = stream.alloc(1 << 20)?;
    /// let upload = stream.upload_owned(vec![7u32; 1 << 20], &mut buffer);
    /// let upload = upload?;
    /// while !upload.is_done()? {
    ///     std::thread::yield_now();
    /// }
    /// let vec = upload.wait()?; // at once
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn is_done(&self) -> Result<bool> {
        self.pending().map_or(Ok(true), |mark| {
            driver::ensure()?;
            mark.timeline.query(mark.seq)
        })
    }

    fn pending(&self) -> Option<&Mark> {
        self.mark.as_ref().filter(|mark| !mark.timeline.has_completed(mark.seq))
    }

    /// Blocks the thread until the copy is done and returns the owner. Waits for all work that the
    /// stream has by now, unless a [checkpoint](Stream::checkpoint) follows the copy.
    ///
    /// # Errors
    /// The driver's errors about the copy, with the `InFlight` itself, which still owns the memory.
    pub fn wait(self) -> Result<H, Rejected<Self>> {
        let done = self.pending().map_or(Ok(()), |mark| {
            driver::ensure()?;
            mark.timeline.wait_host(mark.seq)
        });
        let ((), mut this) = Rejected::unless(done, self)?;
        this.mark = None;
        let held = this.held.take();
        held.map(Held::into_inner).ok_or_else(|| Rejected::new(Error::LostStream, this))
    }
}

/// # Copies that own their memory
impl<K: StreamKind> Stream<K> {
    /// Copies host memory to the stream's device, and owns the host memory until the copy is done:
    /// `cuMemcpyHtoDAsync_v2`.
    ///
    /// The driver stages memory that is not pinned: the call may take as long as reading that memory.
    /// While another thread unregisters memory on the same page, this crate stages the elements. No
    /// driver call if there are no elements.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] and [`Error::WrongDevice`] before any driver call. Every error comes
    /// with the owner, which [`InFlight::wait`] returns.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut buffer = stream.alloc::<f32>(1000)?;
    /// let upload = stream.upload_owned(vec![1.0; 1000], &mut buffer)?;
    /// let vector = upload.wait()?; // the same one
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpyHtoDAsync", "cudaMemcpyAsync"))]
    pub fn upload_owned<'b, H: StableHost>(
        &self,
        source: H,
        destination: impl IntoView<DeviceSliceMut<'b, H::Element>>,
    ) -> Result<InFlight<H>, Rejected<InFlight<H>>> {
        let destination = destination.into();
        let (flight, from, len) = InFlight::new(source);
        let copy = LinearCopy::up(from.cast(), destination.as_raw(), destination.byte_len());
        let core = self.core();
        let checked = same_len(copy.op(), len, destination.len())
            .and_then(|()| at_home(copy.op(), core, &destination.as_view()));
        let stage = |destination: DeviceSliceMut<'_, _>| {
            // SAFETY: the owner's elements are initialised, and not written until the copy is done, by
            // `StableHost`.
            let source = unsafe { slice::from_raw_parts(from, len) };
            borrowed::upload(core, source, destination)
        };
        // SAFETY: the destination stays allocated until its mark has completed; no other code writes
        // the source until then, by `StableHost`.
        unsafe {
            enqueue_owned(core, copy, checked, flight, destination, DeviceSliceMut::write, stage)
        }
    }

    /// Copies from the stream's device to host memory, and owns the host memory until the copy is done:
    /// `cuMemcpyDtoHAsync_v2`.
    ///
    /// The driver stages memory that is not pinned, and the call then usually returns only after all of
    /// it was written. [`Stream::download`] to pinned memory does not block.
    ///
    /// # Errors
    /// Those of [`Stream::upload_owned`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let buffer = stream.alloc_zeroed::<u32>(1000)?;
    /// let download = stream.download_owned(&buffer, vec![1; 1000]);
    /// let download = download?;
    /// // … something else …
    /// assert_eq!(download.wait()?, [0; 1000]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpyDtoHAsync", "cudaMemcpyAsync"))]
    pub fn download_owned<'a, H: StableHostMut>(
        &self,
        source: impl IntoView<DeviceSlice<'a, H::Element>>,
        destination: H,
    ) -> Result<InFlight<H>, Rejected<InFlight<H>>> {
        let source = source.into();
        let (flight, to, len) = InFlight::new(destination);
        let copy = LinearCopy::down(source.as_raw(), to.cast(), source.byte_len());
        let core = self.core();
        let checked =
            same_len(copy.op(), source.len(), len).and_then(|()| at_home(copy.op(), core, &source));
        let stage = |source: DeviceSlice<'_, _>| {
            // SAFETY: the owner's elements are initialised, and not accessed until the copy is done, by
            // `StableHostMut`.
            let destination = unsafe { slice::from_raw_parts_mut(to, len) };
            borrowed::download(core, source, destination)
        };
        // SAFETY: the source stays allocated until its mark has completed; no other code accesses the
        // destination until then, by `StableHostMut`.
        unsafe { enqueue_owned(core, copy, checked, flight, source, |source| source.read(), stage) }
    }
}

/// Enqueues the copy between the owner in `flight` and `memory` of the device, unless `checked` is an
/// error. If the pages are being unregistered, `stage` makes the copy through chunks instead.
///
/// # Safety
/// The device's end stays allocated until the copy's mark has completed. The host's end is the elements
/// of the owner, to which no other code has conflicting access until then.
unsafe fn enqueue_owned<H: StableHost, V>(
    core: &StreamCore,
    copy: LinearCopy,
    checked: Result<()>,
    flight: InFlight<H>,
    mut memory: V,
    touch: impl FnOnce(&mut V) -> Touch<'_>,
    stage: impl FnOnce(V) -> Result<()>,
) -> Result<InFlight<H>, Rejected<InFlight<H>>> {
    let op = copy.op();
    if checked.is_ok() && copy.bytes == 0 {
        return Ok(flight);
    }
    // Declared first, so that it is dropped last: a drop hook may unregister these very pages.
    let quiet = DeferForeignCode::begin();
    let (bound, mut flight) = Rejected::unless(checked.and_then(|()| core.bind(op)), flight)?;
    let Some(pages) = pin_gate::hold_pages(copy.host().addr(), copy.bytes) else {
        drop((bound, quiet));
        // Even if staging fails, no device uses the owner's memory.
        let ((), mut flight) = Rejected::unless(stage(memory), flight)?;
        flight.mark = Some(core.timeline().here());
        return Ok(flight);
    };
    // SAFETY: both sides have equal length; the device's stays allocated, by the caller's promise. The
    // owner's elements, which are the host's side, stay in place until the flight returns the owner,
    // and the flight first waits for this copy.
    let call = |stream| unsafe { copy.enqueue(stream) };
    let (seq, enqueued) = bound.submit_copy(op, &mut [touch(&mut memory)], Default::default, call);
    // Mark even on failure: the error may come from earlier work.
    let mark = core.timeline().at(seq);
    pages.enqueued(mark.clone());
    flight.mark = Some(mark);
    if let Some(held) = &mut flight.held {
        held.pages = Some(pages);
    }
    Rejected::unless(enqueued, flight).map(|((), flight)| flight)
}

impl<H: StableHost> Drop for InFlight<H> {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        match self.mark.take() {
            Some(mark) if !mark.timeline.has_completed(mark.seq) => {
                // Drops the owner when its copy is done, and not before.
                let then = Box::new(|reached| match reached {
                    Ok(()) => held.end(),
                    // Leaks the owner: a device may use its memory, and the copy cannot be proven
                    // complete.
                    Err(error) => {
                        drop(held);
                        drop_hook::report(Resource::HostMemory, 0, 0, Some(error));
                    }
                });
                deferred::run_or_defer(move || when_reached(mark, then));
            }
            _ => held.end(),
        }
    }
}

impl<H: StableHost> IntoFuture for InFlight<H> {
    type Output = Result<H, Rejected<Self>>;
    type IntoFuture = InFlightFuture<H>;

    fn into_future(self) -> InFlightFuture<H> {
        let ready = Ready::new(self.mark.as_slice());
        InFlightFuture { flight: Some(self), ready }
    }
}

/// The future of an [`InFlight`]: yields the owner when the copy is done.
///
/// Dropping it drops the [`InFlight`].
///
/// # Errors
/// Those of [`InFlight::wait`], with the `InFlight`, which still owns the memory.
#[must_use = "futures do nothing unless polled"]
pub struct InFlightFuture<H: StableHost> {
    flight: Option<InFlight<H>>,
    ready: Ready<'static>,
}

// No field is structurally pinned, the owner included.
impl<H: StableHost> Unpin for InFlightFuture<H> {}

impl<H: StableHost> Future for InFlightFuture<H> {
    type Output = Result<H, Rejected<InFlight<H>>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let reached = ready!(Pin::new(&mut self.ready).poll(task));
        // If polled again after completion, there is no flight left.
        self.flight.take().map_or(Poll::Pending, |flight| {
            Poll::Ready(Rejected::unless(reached, flight).and_then(|((), flight)| flight.wait()))
        })
    }
}

debug_by! { [H: StableHost] InFlight<H>: |_it| "InFlight" }

debug_by! { [H: StableHost] InFlightFuture<H>: |_it| "InFlightFuture" }
