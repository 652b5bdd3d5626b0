//! The timelines of a context, for as long as anything refers to them, and the wait for all of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use cuda_sys::symbol as cu;

use crate::context::kept::forget_reached;
use crate::context::{Context, Streams};
use crate::error::{Error, Result, check};
use crate::process::capture_mode::RelaxedCaptureMode;
use crate::timeline::core::StreamCore;
use crate::timeline::{ImplicitOrder, Timeline, registry};
use crate::util::pocket::Pocket;
use crate::util::sync::lock;
use crate::util::tree::Tree;

/// The timelines of a context, including those of destroyed streams while a mark refers to them.
#[derive(Default)]
pub(crate) struct Timelines {
    /// By [`ImplicitOrder`]: those of the legacy stream and of all streams that CUDA orders with
    /// it, and the others.
    by_order: [Mutex<Tree<u64, Weak<Timeline>>>; 2],
    pub(crate) hold_ups: HoldUps,
    /// The legacy default stream, shared by all its handles.
    pub(crate) legacy: Mutex<Weak<StreamCore>>,
}

impl Pocket for Streams {
    type Content = Timelines;
}

/// # Waiting
impl Context {
    #[inline]
    pub(crate) fn timelines(&self) -> &Timelines {
        self.streams_pocket()
    }

    /// Waits for all work of the context: `cuCtxSynchronize`. All that was enqueued on its streams
    /// is then known to be complete, as after [`Stream::synchronize`](crate::Stream::synchronize)
    /// of each.
    ///
    /// `cuCtxSynchronize` ends every capture of a stream of the context. So this method refuses to
    /// call it while any code captures a stream that this crate knows, a blocking stream, or this
    /// thread's default stream. Two kinds of captures are lost all the same, and the method returns the
    /// error then, too: one of a non-blocking stream that this crate never saw, and one that another thread
    /// begins as the method calls the driver.
    ///
    /// # Errors
    /// [`Error::Capturing`]; the driver's, among them errors of earlier
    /// asynchronous work.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let mut buffer = stream.alloc::<u32>(1 << 20)?;
    /// stream.fill(&mut buffer, 7)?;
    /// context.synchronize()?; // all streams of the context
    /// assert!(stream.query()?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxSynchronize", "cudaDeviceSynchronize"))]
    pub fn synchronize(&self) -> Result<()> {
        let op = "cuCtxSynchronize";
        let entered = self.enter_briefly()?;
        registry::refuse_captured_in(self, op)?;
        let relaxed = RelaxedCaptureMode::enter()?;
        let timelines = self.timelines();
        let orphan = timelines.hold_ups.orphan();
        let mut issued = Vec::new();
        for order in [ImplicitOrder::Blocking, ImplicitOrder::NonBlocking] {
            let points = timelines.live(order).into_iter();
            issued.extend(points.map(|timeline| (timeline.issued(), timeline)));
        }
        // SAFETY: takes nothing; a live context is current.
        match unsafe { cu::cuCtxSynchronize() } {
            cuda_sys::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED => return Err(Error::Capturing { op }),
            code => check(op, code)?,
        }
        drop((relaxed, entered));
        for (seq, timeline) in &issued {
            timeline.complete(*seq);
        }
        if let Some(orphan) = &orphan {
            timelines.hold_ups.forget(orphan);
        }
        // A primary context lives on in any case.
        if !self.is_primary() {
            forget_reached();
        }
        Ok(())
    }
}

/// Work that may take any time on the context's legacy and blocking streams; see
/// [`Timeline::hold_up`].
#[derive(Default)]
pub(crate) struct HoldUps {
    /// How often a blocking stream was held up.
    blocking: AtomicU64,
    /// How many of these hold-ups the legacy stream's work has come after.
    passed_on: AtomicU64,
    /// The legacy stream's timeline that was held up last, unless that hold-up is known to be over.
    legacy: Mutex<Option<Weak<Timeline>>>,
}

impl Timelines {
    /// Registers the timeline with that id, until [`Timelines::leave`].
    pub(crate) fn enter(&self, id: u64, timeline: Weak<Timeline>, order: ImplicitOrder) {
        lock(&self.by_order[order as usize]).insert(id, timeline);
    }

    /// Removes a timeline to which nothing refers any more.
    pub(crate) fn leave(&self, id: u64, order: ImplicitOrder) {
        lock(&self.by_order[order as usize]).remove(id);
    }

    /// The legacy stream's timeline with that id.
    pub(crate) fn legacy(&self, id: u64) -> Weak<Timeline> {
        let blocking = lock(&self.by_order[ImplicitOrder::Blocking as usize]);
        blocking.get(id).cloned().unwrap_or_default()
    }

    /// The timelines of the legacy stream and of all streams that CUDA orders with it.
    pub(crate) fn blocking(&self) -> Vec<Arc<Timeline>> {
        self.live(ImplicitOrder::Blocking)
    }

    /// Strong references, collected under the lock and dropped outside: dropping the last one to a
    /// timeline takes the lock.
    fn live(&self, order: ImplicitOrder) -> Vec<Arc<Timeline>> {
        let timelines = lock(&self.by_order[order as usize]);
        let mut live = Vec::with_capacity(timelines.len());
        live.extend(timelines.values().filter_map(Weak::upgrade));
        live
    }
}

impl HoldUps {
    /// Counts that a blocking stream was held up.
    pub(crate) fn add(&self) {
        self.blocking.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of hold-ups, if the legacy stream's work has not come after all of them.
    #[inline]
    pub(crate) fn to_pass_on(&self) -> Option<u64> {
        let blocking = self.blocking.load(Ordering::Acquire);
        (blocking > self.passed_on.load(Ordering::Acquire)).then_some(blocking)
    }

    /// Notes that the legacy stream's work has come after `blocking` hold-ups.
    pub(crate) fn passed_on(&self, blocking: u64) {
        self.passed_on.fetch_max(blocking, Ordering::AcqRel);
    }

    /// Notes that the legacy stream was held up.
    pub(crate) fn hold_up_legacy(&self, legacy: Weak<Timeline>) {
        *lock(&self.legacy) = Some(legacy);
    }

    /// Whether new streams of the set may come after a hold-up of the legacy stream. If that
    /// timeline is gone, the end of its hold-up cannot be observed.
    pub(crate) fn is_legacy_held_up(&self) -> bool {
        let Some(legacy) = lock(&self.legacy).clone() else {
            return false;
        };
        legacy.upgrade().is_none_or(|legacy| legacy.may_be_held_up())
    }

    /// A timeline of the legacy stream that was held up and is gone.
    fn orphan(&self) -> Option<Weak<Timeline>> {
        let legacy = lock(&self.legacy);
        legacy.clone().filter(|legacy| legacy.strong_count() == 0)
    }

    /// Notes that all work of the orphan has completed.
    fn forget(&self, orphan: &Weak<Timeline>) {
        let mut legacy = lock(&self.legacy);
        if legacy.as_ref().is_some_and(|held| held.ptr_eq(orphan)) {
            *legacy = None;
        }
    }
}
