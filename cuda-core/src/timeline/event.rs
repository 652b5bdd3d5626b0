//! Events of the driver, used by this crate's bookkeeping and by the program's [`Event`](crate::Event)s.

use std::ptr;

use cuda_sys::{CUevent, CUresult, symbol as cu};

use crate::context::Context;
use crate::error::{Result, check};
use crate::process::{Failed, ForeignOwner, Handle, Owned, RelaxedCaptureMode, Release, released};
use crate::types::Resource;
use crate::util::flags::flags;

flags! {
    /// Flags of an [`Event`](crate::Event): `cuEventCreate`'s.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{Event, EventFlags};
    ///
    /// let flags = EventFlags::DISABLE_TIMING | EventFlags::BLOCKING_SYNC;
    /// let event = Event::new(&context, flags)?;
    /// assert!(event.flags().contains(EventFlags::BLOCKING_SYNC));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    EventFlags {
        /// The same as [`NONE`](Self::NONE). Measures time; a waiting thread spins:
        /// `CU_EVENT_DEFAULT`.
        DEFAULT = cuda_sys::CU_EVENT_DEFAULT.0;
        /// A thread that waits for the event sleeps instead of spinning: `CU_EVENT_BLOCKING_SYNC`.
        BLOCKING_SYNC = cuda_sys::CU_EVENT_BLOCKING_SYNC.0;
        /// Measures no time, and is six times cheaper to record: `CU_EVENT_DISABLE_TIMING`.
        #[doc(alias("cudaEventDisableTiming"))]
        DISABLE_TIMING = cuda_sys::CU_EVENT_DISABLE_TIMING.0;
        /// Another process may open the event, see [`Event::ipc_handle`](crate::Event::ipc_handle):
        /// `CU_EVENT_INTERPROCESS`. Requires [`EventFlags::DISABLE_TIMING`].
        INTERPROCESS = cuda_sys::CU_EVENT_INTERPROCESS.0;
    }
}

/// An event of the driver, which keeps its context alive.
pub(crate) type RawEvent = Owned<LiveEvent>;

pub(crate) struct LiveEvent {
    // INVARIANT: a live event of `context`, which `release` alone destroys, or `owner` when dropped.
    pub(crate) raw: Handle<CUevent>,
    pub(crate) context: Context,
    /// Keeps an event of other code alive; [`None`] for an event that this crate created.
    pub(crate) owner: Option<ForeignOwner>,
}

impl RawEvent {
    pub(crate) fn create(context: &Context, flags: EventFlags) -> Result<Self> {
        let raw = context.ask("cuEventCreate", ptr::null_mut(), |raw| {
            // SAFETY: the call writes one handle, to an exclusive borrow; a live context is current.
            unsafe { cu::cuEventCreate(raw, flags.0) }
        })?;
        // SAFETY: just created, so no other code has it.
        Ok(unsafe { Self::of(raw, context, None) })
    }

    /// # Safety
    /// `raw` is a live event of `context` until `owner` is dropped; without one, no other code destroys it.
    pub(crate) unsafe fn of(raw: CUevent, context: &Context, owner: Option<ForeignOwner>) -> Self {
        Self::new(LiveEvent { raw: Handle(raw), context: context.clone(), owner })
    }

    /// An event without timing, for the bookkeeping of streams.
    pub(crate) fn for_ordering(context: &Context) -> Result<Self> {
        Self::create(context, EventFlags::DISABLE_TIMING)
    }

    /// An event without timing whose waiting thread sleeps.
    pub(crate) fn for_sleeping(context: &Context) -> Result<Self> {
        Self::create(context, EventFlags::DISABLE_TIMING | EventFlags::BLOCKING_SYNC)
    }

    /// The driver's handle; null for an event that was given up.
    #[inline]
    pub(crate) fn as_raw(&self) -> CUevent {
        self.get().map_or(ptr::null_mut(), |live| live.raw.0)
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        let _relaxed = RelaxedCaptureMode::enter()?;
        // SAFETY: by the invariant a live event, unless null, which the driver refuses as
        // INVALID_HANDLE.
        check("cuEventSynchronize", unsafe { cu::cuEventSynchronize(self.as_raw()) })
    }

    pub(crate) fn query(&self) -> Result<bool> {
        let _relaxed = RelaxedCaptureMode::enter()?;
        // SAFETY: by the invariant a live event, unless null, which the driver refuses as
        // INVALID_HANDLE.
        ready("cuEventQuery", unsafe { cu::cuEventQuery(self.as_raw()) })
    }
}

/// Converts the result of a query: true if done, false if not yet, or an error. An error is never taken for
/// "not yet".
pub(crate) fn ready(op: &'static str, code: CUresult) -> Result<bool> {
    if code == cuda_sys::CUDA_ERROR_NOT_READY {
        return Ok(false);
    }
    check(op, code).map(|()| true)
}

impl Release for LiveEvent {
    const RESOURCE: Resource = Resource::Event;

    fn number(&self) -> u64 {
        self.raw.number()
    }

    /// Destroys the event, or drops its owner. The event's last record still completes.
    fn release(&mut self) -> Result<(), Failed> {
        if let Some(owner) = self.owner.take() {
            drop(owner);
            return Ok(());
        }
        // SAFETY: the only owner gave it up. "It is not an error to destroy an event before it
        // completes."
        released("cuEventDestroy", unsafe { cu::cuEventDestroy_v2(self.raw.0) })
    }
}
