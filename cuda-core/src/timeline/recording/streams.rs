//! Streams of ended captures, kept for later ones: creating and destroying a stream takes as long as
//! capturing some fifteen launches.

use std::sync::Mutex;

use cuda_sys::symbol as cu;

use crate::context::{Context, RawContext};
use crate::error::Result;
use crate::process::{Failed, released};
use crate::timeline::capture::refuse_captured;
use crate::timeline::{RawStream, Timeline};
use crate::types::Resource;
use crate::util::lock;

/// The greatest number of streams that are kept.
const MOST: usize = 16;

// INVARIANT: live non-blocking streams whose handles no other code has had and that are not captured, with
// their contexts, which are primary and so live as long as the process.
static KEPT: Mutex<Vec<(RawContext, RawStream)>> = Mutex::new(Vec::new());

/// Takes a kept stream of that context, for a capture.
pub(crate) fn take(context: &Context) -> Option<RawStream> {
    let mut kept = lock(&KEPT);
    let at = kept.iter().rposition(|(of, _)| *of == context.raw())?;
    Some(kept.swap_remove(at).1)
}

/// Keeps a capture's stream, or destroys it. Its timeline is closed and nothing refers to the stream any
/// more. A stream whose handle other code had is destroyed: it may have attributes, or work, of that code.
pub(crate) fn keep_or_destroy(timeline: &Timeline, stream: RawStream) -> Result<(), Failed> {
    let context = timeline.context();
    let is_private = !timeline.is_known_elsewhere();
    // If the driver failed to end the capture, the stream may still be captured.
    let is_free = || refuse_captured(stream, "cuStreamBeginCapture").is_ok();
    if is_private && context.is_primary() && is_free() {
        let mut kept = lock(&KEPT);
        if kept.len() < MOST {
            kept.push((context.raw(), stream));
            return Ok(());
        }
    }
    destroy(stream)
}

/// Destroys the kept streams: `cuStreamDestroy`.
pub(crate) fn trim() -> Result<()> {
    loop {
        // Not under the lock.
        let Some((_, stream)) = lock(&KEPT).pop() else {
            return Ok(());
        };
        let number = stream.number();
        destroy(stream).map_err(|why| why.into_reported(Resource::Stream, number, 0))?;
    }
}

/// Destroys a stream that nothing refers to any more.
pub(crate) fn destroy(stream: RawStream) -> Result<(), Failed> {
    // SAFETY: a live stream, by the caller's promise, whose handle is not used after this. Pending work
    // completes: cuStreamDestroy returns at once and "the resources associated with hStream will be released
    // automatically once the device has completed all work".
    released("cuStreamDestroy", unsafe { cu::cuStreamDestroy_v2(stream.0) })
}
