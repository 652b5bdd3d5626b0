//! Events: points of a stream that other streams and the host can wait for, and measure between.

use std::fmt;
use std::ops::BitOr;
use std::ptr;
use std::time::Duration;

use cuda_sys::{CUevent, CUresult, symbol as cu};

use crate::context::Context;
use crate::driver;
use crate::drops::{self, Resource};
use crate::error::{Error, Result, check};
use crate::stream::{Kind, Stream};

/// Flags of an [`Event`]: `cuEventCreate`'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventFlags(u32);

impl EventFlags {
    /// Takes times; a waiting thread spins.
    pub const DEFAULT: Self = Self(0);
    /// A thread that waits for the event sleeps instead of spinning.
    pub const BLOCKING_SYNC: Self = Self(1);
    /// Takes no times, and is six times cheaper to record.
    pub const DISABLE_TIMING: Self = Self(2);
    /// May be opened by another process; goes with [`EventFlags::DISABLE_TIMING`] only.
    pub const INTERPROCESS: Self = Self(4);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for EventFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// An event of the driver, alive together with its context.
pub(crate) struct RawEvent {
    // INVARIANT: a live event of `context`, destroyed by `Drop` alone.
    raw: CUevent,
    context: Context,
}

// SAFETY: events may be recorded, waited for and destroyed from any thread; the driver locks.
unsafe impl Send for RawEvent {}
// SAFETY: as above.
unsafe impl Sync for RawEvent {}

impl RawEvent {
    fn create(context: &Context, flags: EventFlags) -> Result<Self> {
        let entered = context.enter_briefly()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid for a write; a live context is current.
        check("cuEventCreate", unsafe {
            cu::cuEventCreate(&mut raw, flags.0)
        })?;
        drop(entered);
        Ok(Self {
            raw,
            context: context.clone(),
        })
    }

    /// An event without timing, for the bookkeeping of streams.
    pub(crate) fn for_ordering(context: &Context) -> Result<Self> {
        Self::create(context, EventFlags::DISABLE_TIMING)
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> CUevent {
        self.raw
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the event is live.
        check("cuEventSynchronize", unsafe {
            cu::cuEventSynchronize(self.raw)
        })
    }

    pub(crate) fn query(&self) -> Result<bool> {
        // SAFETY: the event is live.
        ready("cuEventQuery", unsafe { cu::cuEventQuery(self.raw) })
    }
}

/// What a query says: done, not yet, or an error. An error is never taken for "not yet".
pub(crate) fn ready(op: &'static str, code: CUresult) -> Result<bool> {
    if code == cuda_sys::CUDA_ERROR_NOT_READY {
        return Ok(false);
    }
    check(op, code).map(|()| true)
}

/// Destroys an event; its last record still completes.
fn destroy(raw: RawHandle) -> Result<()> {
    // SAFETY: the only owner gave it up. "It is not an error to destroy an event before it
    // completes."
    check("cuEventDestroy", unsafe { cu::cuEventDestroy_v2(raw.0) })
}

struct RawHandle(CUevent);

// SAFETY: as for `RawEvent`.
unsafe impl Send for RawHandle {}

impl Drop for RawEvent {
    fn drop(&mut self) {
        let raw = RawHandle(self.raw);
        // The context goes along, so that it outlives the event on whatever thread that dies.
        let context = self.context.clone();
        drops::run_or_defer(move || {
            let raw = raw;
            let handle = raw.0.addr() as u64;
            if let Err(error) = destroy(raw) {
                drops::report(Resource::Event, handle, 0, Some(error));
            }
            drop(context);
        });
    }
}

/// A point of a stream, recorded by the caller.
///
/// Copies, fills and buffers of this crate need no events: they are ordered by themselves. Events
/// are for measuring, for waiting with the host, and for work that other libraries enqueue.
///
/// ```no_run
/// use cuda_core::{Device, Event, EventFlags};
///
/// let device = Device::get(0)?;
/// let stream = device.create_stream()?;
/// let start = Event::new(&device.context()?, EventFlags::DEFAULT)?;
/// let end = Event::new(&device.context()?, EventFlags::DEFAULT)?;
/// start.record(&stream)?;
/// // … work on the stream …
/// end.record(&stream)?;
/// end.synchronize()?;
/// println!("{:?}", end.elapsed_since(&start)?);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct Event {
    raw: RawEvent,
    flags: EventFlags,
}

impl Event {
    /// A new event of `context`: `cuEventCreate`.
    ///
    /// # Errors
    /// [`Error::Flags`] for an interprocess event with timing.
    pub fn new(context: &Context, flags: EventFlags) -> Result<Self> {
        if flags.contains(EventFlags::INTERPROCESS) && !flags.contains(EventFlags::DISABLE_TIMING) {
            return Err(Error::Flags {
                op: "cuEventCreate",
                why: "an INTERPROCESS event takes no times: add DISABLE_TIMING",
            });
        }
        Ok(Self {
            raw: RawEvent::create(context, flags)?,
            flags,
        })
    }

    /// The flags it was made with.
    pub fn flags(&self) -> EventFlags {
        self.flags
    }

    /// The context it belongs to.
    pub fn context(&self) -> &Context {
        &self.raw.context
    }

    /// The driver's handle, valid while `self` lives.
    pub fn as_raw(&self) -> CUevent {
        self.raw.raw
    }

    /// Marks the point behind everything that is on the stream now: `cuEventRecord`. A later record
    /// replaces an earlier one.
    ///
    /// # Errors
    /// The driver's `INVALID_HANDLE` for a stream of another context.
    pub fn record<K: Kind>(&self, stream: &Stream<K>) -> Result<()> {
        let bound = stream.core().bind()?;
        // SAFETY: event and stream are live; a pairing that CUDA does not allow is an error.
        check("cuEventRecord", unsafe {
            cu::cuEventRecord(self.raw.raw, bound.raw())
        })
    }

    /// Blocks the thread until the recorded point is reached: `cuEventSynchronize`. An event that
    /// was never recorded counts as reached.
    pub fn synchronize(&self) -> Result<()> {
        driver::ensure()?;
        self.raw.synchronize()
    }

    /// Whether the recorded point has been reached: `cuEventQuery`. An event that was never
    /// recorded counts as reached.
    pub fn query(&self) -> Result<bool> {
        driver::ensure()?;
        self.raw.query()
    }

    /// Time from `earlier`'s point to this one's: `cuEventElapsedTime`, in steps of about half a
    /// microsecond. A negative time, where the events are given in the wrong order, is zero.
    ///
    /// # Errors
    /// [`Error::NoTiming`]; the driver's `INVALID_HANDLE` for events never recorded or of different
    /// contexts, and `NOT_READY` before both points are reached ([`Error::is_not_ready`]).
    pub fn elapsed_since(&self, earlier: &Event) -> Result<Duration> {
        driver::ensure()?;
        for event in [earlier, self] {
            if event.flags.contains(EventFlags::DISABLE_TIMING) {
                return Err(Error::NoTiming);
            }
        }
        let mut milliseconds = 0.0;
        check(
            "cuEventElapsedTime",
            elapsed(&mut milliseconds, earlier.raw.raw, self.raw.raw),
        )?;
        Ok(Duration::from_secs_f64(
            f64::from(milliseconds).max(0.0) / 1e3,
        ))
    }

    /// Destroys the event and says whether that worked; dropping it reports a failure to the hook
    /// of [`set_drop_hook`](crate::set_drop_hook) instead.
    ///
    /// # Errors
    /// The driver's, with the event itself, which still lives.
    pub fn close(self) -> Result<(), (Error, Self)> {
        if let Err(error) = driver::ensure() {
            return Err((error, self));
        }
        match destroy(RawHandle(self.raw.raw)) {
            Ok(()) => {
                let this = std::mem::ManuallyDrop::new(self);
                // SAFETY: `this` is never touched again, so the context is moved out once. The
                // event itself is gone already.
                drop(unsafe { ptr::read(&this.raw.context) });
                Ok(())
            }
            Err(error) => Err((error, self)),
        }
    }
}

/// The newest form of the call that header and driver have.
fn elapsed(milliseconds: &mut f32, start: CUevent, end: CUevent) -> CUresult {
    #[cfg(cuda_12_8)]
    {
        // SAFETY: both events are live; the pointer is valid for a write.
        let code = unsafe { cu::cuEventElapsedTime_v2(milliseconds, start, end) };
        if code != cuda_sys::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER {
            return code;
        }
    }
    // SAFETY: as above.
    unsafe { cu::cuEventElapsedTime(milliseconds, start, end) }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("raw", &self.raw.raw)
            .field("flags", &self.flags)
            .finish()
    }
}
