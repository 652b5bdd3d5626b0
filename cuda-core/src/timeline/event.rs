//! Events of the driver: shared by the bookkeeping of streams and the caller's events.

use std::{mem, ptr};

use cuda_sys::{CUevent, CUresult, symbol as cu};

use crate::context::Context;
use crate::error::{Result, check};
use crate::process::capture_mode::Relaxed;
use crate::process::release::{Unreleased, released};
use crate::process::{deferred, drop_hook};
use crate::types::resource::Resource;
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
        DEFAULT = 0;
        /// A thread that waits for the event sleeps instead of spinning: `CU_EVENT_BLOCKING_SYNC`.
        BLOCKING_SYNC = 1;
        /// Measures no time, and is six times cheaper to record: `CU_EVENT_DISABLE_TIMING`.
        DISABLE_TIMING = 2;
        /// May be opened by another process, see [`Event::ipc_handle`](crate::Event::ipc_handle); goes with
        /// [`EventFlags::DISABLE_TIMING`] only: `CU_EVENT_INTERPROCESS`.
        INTERPROCESS = 4;
    }
}

/// An event of the driver, alive together with its context.
pub(crate) struct RawEvent {
    // INVARIANT: a live event of `context`; null from its destruction on.
    raw: CUevent,
    pub(crate) context: Context,
}

// SAFETY: events may be recorded, waited for and destroyed from any thread; the driver locks.
unsafe impl Send for RawEvent {}
// SAFETY: what a shared reference allows (recording, waiting, querying) the driver lets any threads
// do at once.
unsafe impl Sync for RawEvent {}

impl RawEvent {
    pub(crate) fn create(context: &Context, flags: EventFlags) -> Result<Self> {
        let entered = context.enter_briefly()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the call writes one handle, to a local that outlives it; a live context is
        // current.
        check("cuEventCreate", unsafe {
            cu::cuEventCreate(&mut raw, flags.0)
        })?;
        drop(entered);
        // SAFETY: just created, so no other code has it.
        Ok(unsafe { Self::own(raw, context) })
    }

    /// # Safety
    /// `raw` is a live event of `context` that no other code destroys.
    pub(crate) unsafe fn own(raw: CUevent, context: &Context) -> Self {
        Self {
            raw,
            context: context.clone(),
        }
    }

    /// An event without timing, for the bookkeeping of streams.
    pub(crate) fn for_ordering(context: &Context) -> Result<Self> {
        Self::create(context, EventFlags::DISABLE_TIMING)
    }

    /// An event without timing whose waiting thread sleeps.
    pub(crate) fn for_sleeping(context: &Context) -> Result<Self> {
        Self::create(
            context,
            EventFlags::DISABLE_TIMING | EventFlags::BLOCKING_SYNC,
        )
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> CUevent {
        self.raw
    }

    /// What `Drop` does, but returns the error. The event must not be used after this.
    pub(crate) fn destroy(&mut self) -> Result<()> {
        let raw = mem::replace(&mut self.raw, ptr::null_mut());
        destroy(RawHandle(raw)).map_err(|why| why.into_told(Resource::Event, raw.addr() as u64, 0))
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        let _relaxed = Relaxed::enter()?;
        // SAFETY: by the invariant a live event, unless null, which the driver refuses as
        // INVALID_HANDLE.
        check("cuEventSynchronize", unsafe {
            cu::cuEventSynchronize(self.raw)
        })
    }

    pub(crate) fn query(&self) -> Result<bool> {
        let _relaxed = Relaxed::enter()?;
        // SAFETY: by the invariant a live event, unless null, which the driver refuses as
        // INVALID_HANDLE.
        ready("cuEventQuery", unsafe { cu::cuEventQuery(self.raw) })
    }
}

/// The result of a query: done, not yet, or an error. An error is never taken for "not yet".
pub(crate) fn ready(op: &'static str, code: CUresult) -> Result<bool> {
    if code == cuda_sys::CUDA_ERROR_NOT_READY {
        return Ok(false);
    }
    check(op, code).map(|()| true)
}

/// Destroys an event; its last record still completes.
fn destroy(raw: RawHandle) -> Result<(), Unreleased> {
    // SAFETY: the only owner gave it up. "It is not an error to destroy an event before it
    // completes."
    released("cuEventDestroy", unsafe { cu::cuEventDestroy_v2(raw.0) })
}

struct RawHandle(CUevent);

// SAFETY: an event's handle, which any thread may destroy; the driver locks.
unsafe impl Send for RawHandle {}

impl Drop for RawEvent {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        let raw = RawHandle(self.raw);
        // Moved along, so that the context outlives the event on whichever thread that is
        // destroyed.
        let context = self.context.clone();
        deferred::run_or_defer(move || {
            let raw = raw;
            let handle = raw.0.addr() as u64;
            if let Err(error) = destroy(raw) {
                drop_hook::report(Resource::Event, handle, 0, Some(error.into()));
            }
            drop(context);
        });
    }
}
