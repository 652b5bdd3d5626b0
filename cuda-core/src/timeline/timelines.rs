//! The registered timelines of a context, and the wait for all of them.

use std::sync::{Arc, Mutex, Weak};

use cuda_sys::symbol as cu;

use crate::context::{Context, Streams, forget_reached};
use crate::error::{Error, Result, check};
use crate::process::RelaxedCaptureMode;
use crate::timeline::core::StreamCore;
use crate::timeline::held_up::HoldUps;
use crate::timeline::{ImplicitOrder, Timeline, registry};
use crate::util::{Pocket, Tree, lock};

/// The timelines of a context, including those of destroyed streams while a mark refers to them.
#[derive(Default)]
pub(crate) struct Timelines {
    /// Indexed by [`ImplicitOrder`]: first the legacy stream's timelines and those of all streams that CUDA
    /// orders with it, then the others.
    by_order: [Mutex<Tree<u64, Weak<Timeline>>>; 2],
    pub(super) hold_ups: HoldUps,
    /// The legacy default stream, shared by all its handles.
    pub(crate) legacy: Mutex<Weak<StreamCore>>,
}

impl Pocket for Streams {
    type Content = Timelines;
}

/// # Waiting
impl Context {
    /// Waits for all work of the context: `cuCtxSynchronize`. Everything that was enqueued on its streams
    /// before the call is then known to be complete, as after
    /// [`Stream::synchronize`](crate::Stream::synchronize) of each.
    ///
    /// `cuCtxSynchronize` ends every capture of a stream of the context. So this method refuses to call it
    /// while any code captures a stream that this crate knows, a blocking stream, or this thread's default
    /// stream. Two kinds of captures still end, and the method then also returns the error: a capture of a
    /// non-blocking stream that this crate does not know, and one that another thread begins while the method
    /// calls the driver.
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
        // A primary context continues to exist in any case.
        if !self.is_primary() {
            forget_reached();
        }
        Ok(())
    }
}

impl Timelines {
    /// Registers the timeline with that id, until [`Timelines::leave`].
    pub(crate) fn enter(&self, id: u64, timeline: Weak<Timeline>, order: ImplicitOrder) {
        lock(&self.by_order[order as usize]).insert(id, timeline);
    }

    /// Removes a timeline that nothing refers to any more.
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

    /// Collects strong references under the lock; the caller drops them outside, since dropping the last one
    /// to a timeline takes the lock.
    fn live(&self, order: ImplicitOrder) -> Vec<Arc<Timeline>> {
        let timelines = lock(&self.by_order[order as usize]);
        let mut live = Vec::with_capacity(timelines.len());
        live.extend(timelines.values().filter_map(Weak::upgrade));
        live
    }
}
