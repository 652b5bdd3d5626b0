//! Captures of streams by other code: this crate neither joins nor ends them.
//!
//! # Streams
//! Work that is enqueued on a stream that is being captured does not run: it becomes part of a graph. An
//! event that is recorded there never completes. A stream that waits for such an event joins the capture.
//! Querying or waiting for the stream, or for the event, ends the capture with an error. So before this crate
//! does anything on a stream that other code can capture, it asks the driver whether the stream is being
//! captured, and returns [`Error::Capturing`] if it is: [`refuse_captured`]. Asking disturbs no capture.
//!
//! A stream is [exposed](Timeline::is_exposed) if it may be captured: other code has its handle, or this
//! crate captures it. For a stream that this crate created, and whose handle it has not given out, it does
//! not ask the driver. This crate's own captures also rely on that: the private stream that they capture
//! joins no other capture, and no other code enqueues on it.
//!
//! A late record, by which one stream is ordered after another, asks both before and after the record:
//! another thread may begin a capture in between. An event that was recorded into that capture is not listed
//! as recorded, so nothing waits for it.
//!
//! Memory that a captured stream used last is neither freed nor reused during the capture. A caching pool
//! treats the memory as busy; a release that needs the driver [is kept](crate::process::held) and tried again
//! with later drops.
//!
//! # Threads
//! CUDA calls some functions *potentially unsafe*. On a thread that captures, or on any thread while another
//! one captures in global mode, the default, they fail and end that capture, although they do not concern it,
//! unless the calling thread's mode is relaxed (`cuThreadExchangeStreamCaptureMode`). The waits and
//! allocations of this crate do not concern other code's captures. So the rules are:
//!
//! * This crate makes these calls under [`RelaxedCaptureMode`], also in explicit methods: calls that **wait
//!   or ask** whether work is done, **allocate or free**, **map, import or register** and the reverse, **load
//!   or unload**, create or destroy **arrays, textures and surfaces**, read or set a **pool**'s attributes,
//!   or set a context's **limits**. (An H200 with driver 580 ended captures at synchronising and querying
//!   streams and events, memory of every kind, pools and their attributes, registering, arrays, textures,
//!   unloading modules and libraries, `cuCtxSetLimit`, `cuCtxSetCacheConfig`.)
//! * Calls that **enqueue** on a stream, **create or destroy** streams, events and contexts, **record**, make
//!   a context current or read other attributes are not potentially unsafe, and are made without it. (The
//!   same H200 let all of these pass beside captures of every mode.)
//! * `cuStreamGetFlags` and `cuStreamGetId` end the capture of the stream that they are called for, whatever
//!   the mode, so this crate asks first; `cuStreamGetPriority` and `cuStreamGetCtx` do not.
//! * `cuCtxSynchronize` ends every capture of a stream of its context, whatever the mode. This crate calls it
//!   under [`RelaxedCaptureMode`], and only when none of the streams that it knows of is being captured.
//! * Threads of this crate that call the driver are relaxed [while they
//!   live](crate::process::capture_mode::RelaxedCaptureMode::for_life).
//!
//! [`RelaxedCaptureMode`]: crate::process::capture_mode::RelaxedCaptureMode

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cuda_sys::{CU_STREAM_CAPTURE_STATUS_NONE, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, symbol as cu};

use super::{Flavor, RawStream, Recorded, Timeline};
use crate::error::{Error, Result, asked};
use crate::timeline::event::RawEvent;
use crate::util::lock;

/// Refuses `op` on a stream that other code is capturing: `cuStreamIsCapturing`, which disturbs no
/// capture. A default stream needs its context current.
///
/// The legacy stream cannot be captured, but any call on it ends the capture of a blocking stream of its
/// context, since CUDA orders the two. During such a capture the legacy stream counts as captured.
#[cold]
pub(crate) fn refuse_captured(stream: RawStream, op: &'static str) -> Result<()> {
    // SAFETY: the caller keeps the stream alive, with its context current if it needs that; the call
    // writes one status, to an exclusive borrow.
    let status = asked("cuStreamIsCapturing", CU_STREAM_CAPTURE_STATUS_NONE, |status| unsafe {
        cu::cuStreamIsCapturing(stream.0, status)
    });
    match status {
        Err(error) if error.code() != Some(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) => Err(error),
        Ok(CU_STREAM_CAPTURE_STATUS_NONE) => Ok(()),
        // An invalidated capture continues until it is ended.
        _ => Err(Error::Capturing { op }),
    }
}

impl Timeline {
    /// Notes that the stream's handle is about to leave this crate.
    ///
    /// A thread whose own record went into a capture sees this flag: the record came after the capture's
    /// begin, and to begin it other code needed the handle.
    #[inline]
    pub(crate) fn expose(&self) {
        if !self.is_known_elsewhere() {
            self.exposed.store(true, Ordering::Release);
        }
    }

    /// Whether the stream may be captured: code outside of this crate has its handle, or this crate
    /// captures it.
    #[inline]
    pub(crate) fn is_exposed(&self) -> bool {
        self.is_known_elsewhere() || self.flavor() == Flavor::Captured
    }

    /// Whether code outside of this crate has the stream's handle.
    #[inline]
    pub(crate) fn is_known_elsewhere(&self) -> bool {
        self.exposed.load(Ordering::Acquire)
    }

    /// Refuses `op` on this stream while other code captures it. `raw` is the stream's handle. One driver
    /// call, or none if other code cannot capture the stream. A default stream must have its context current.
    #[inline(always)]
    pub(crate) fn refuse_captured(&self, raw: RawStream, op: &'static str) -> Result<()> {
        match self.recording() {
            Some(recording) => Err(recording.refusal(op)),
            None => self.refuse_foreign_capture(raw, op),
        }
    }

    /// [`Timeline::refuse_captured`] for an `op` that this crate's own captures can record.
    #[inline(always)]
    pub(crate) fn refuse_foreign_capture(&self, raw: RawStream, op: &'static str) -> Result<()> {
        match self.is_known_elsewhere() && self.flavor() != Flavor::Captured {
            true => refuse_captured(raw, op),
            false => Ok(()),
        }
    }

    /// Passes on the `error` of querying or waiting for an event of this stream. An event that was recorded
    /// into a capture which ended before this crate noticed covers nothing: this removes it from the list, so
    /// that the next wait records another.
    pub(crate) fn forget_captured(&self, event: &Arc<RawEvent>, error: Error) -> Error {
        let captured = matches!(
            error.code(),
            Some(cuda_sys::CUDA_ERROR_CAPTURED_EVENT | cuda_sys::CUDA_ERROR_INVALID_VALUE)
        );
        let can_be_captured = matches!(self.flavor, Flavor::Created | Flavor::Foreign);
        if !captured || !can_be_captured || !self.is_exposed() {
            return error;
        }
        let mut events = lock(&self.events);
        let same = |recorded: &Recorded| Arc::ptr_eq(&recorded.event, event);
        if let Some(at) = events.recorded.iter().position(same) {
            let recorded = events.recorded.remove(at);
            events.spare.push(recorded.event);
        }
        Error::Capturing { op: "cuEventRecord" }
    }
}
