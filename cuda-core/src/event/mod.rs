//! Events: points of a stream that other streams and the host can wait for, and measure between.

use std::fmt;
use std::ops::BitOr;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cuda_sys::{CUevent, CUresult, symbol as cu};

use crate::context::Context;
use crate::driver;
use crate::error::{Error, Result, check};
use crate::stream::{Kind, Stream};

mod ipc;
mod raw;

use raw::{RawHandle, destroy};

pub(crate) use raw::{RawEvent, ready};

pub use ipc::IpcEventHandle;

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
    /// May be opened by another process, see [`Event::ipc_handle`]; goes with
    /// [`EventFlags::DISABLE_TIMING`] only.
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
    /// What was recorded last is behind something that may take any time.
    held_up: AtomicBool,
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
            // Others may record an interprocess event, behind whatever they like.
            held_up: AtomicBool::new(flags.contains(EventFlags::INTERPROCESS)),
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
        self.raw.as_raw()
    }

    /// Marks the point behind everything that is on the stream now: `cuEventRecord`. A later record
    /// replaces an earlier one.
    ///
    /// # Errors
    /// The driver's `INVALID_HANDLE` for a stream of another context.
    pub fn record<K: Kind>(&self, stream: &Stream<K>) -> Result<()> {
        let bound = stream.core().bind()?;
        let timeline = bound.timeline();
        if !self.flags.contains(EventFlags::INTERPROCESS) {
            let held_up = timeline.is_held_up(timeline.issued());
            self.held_up.store(held_up, Ordering::Release);
        }
        // SAFETY: event and stream are live; a pairing that CUDA does not allow is an error.
        check("cuEventRecord", unsafe {
            cu::cuEventRecord(self.raw.as_raw(), bound.raw())
        })
    }

    /// Whether nobody knows when it comes, as far as this crate has recorded it.
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
    pub fn record_current(&self) -> Result<()> {
        self.record(&self.context().current_stream()?)
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
            elapsed(&mut milliseconds, earlier.raw.as_raw(), self.raw.as_raw()),
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
        match destroy(RawHandle(self.raw.as_raw())) {
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
            .field("raw", &self.raw.as_raw())
            .field("flags", &self.flags)
            .finish()
    }
}
