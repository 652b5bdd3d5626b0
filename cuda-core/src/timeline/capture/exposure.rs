//! Which streams other code can capture, and whether it does.

use std::sync::atomic::{AtomicBool, Ordering};

use cuda_sys::{CU_STREAM_CAPTURE_STATUS_NONE, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, symbol as cu};

use crate::error::{Error, Result, check};
use crate::timeline::RawStream;

/// Whether code outside of this crate has a stream's handle, and so can capture the stream.
pub(crate) struct Exposure(AtomicBool);

impl Exposure {
    /// For a stream of this crate's, whose handle has not been given out.
    pub(crate) const fn private() -> Self {
        Self(AtomicBool::new(false))
    }

    /// For a default stream, whose handle all code knows, or one that other code created.
    pub(crate) const fn exposed() -> Self {
        Self(AtomicBool::new(true))
    }

    /// Notes that the handle is about to leave this crate.
    ///
    /// A thread whose own record went into a capture sees this flag: the driver made the record
    /// after the begin of the capture, for which other code needed the handle.
    #[inline]
    pub(crate) fn expose(&self) {
        if !self.is_exposed() {
            self.0.store(true, Ordering::Release);
        }
    }

    #[inline]
    pub(crate) fn is_exposed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Whether other code is capturing the stream: `cuStreamIsCapturing`, which disturbs no capture. A
/// default stream needs its context current.
///
/// The legacy stream cannot be captured, but any call on it ends the capture of a blocking stream
/// of its context, since CUDA orders the two. While there is such a capture, the legacy stream
/// counts as captured.
fn is_captured(stream: RawStream) -> Result<bool> {
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the caller keeps the stream alive, with its context current if it needs that; the
    // call writes one status, to a local that outlives it.
    let code = unsafe { cu::cuStreamIsCapturing(stream.0, &mut status) };
    if code == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT {
        return Ok(true);
    }
    check("cuStreamIsCapturing", code)?;
    // An invalidated capture goes on until it is ended.
    Ok(status != CU_STREAM_CAPTURE_STATUS_NONE)
}

/// Refuses `op` on a stream that other code [is capturing](is_captured).
#[cold]
pub(crate) fn refuse_captured(stream: RawStream, op: &'static str) -> Result<()> {
    match is_captured(stream)? {
        true => Err(Error::Capturing { op }),
        false => Ok(()),
    }
}
