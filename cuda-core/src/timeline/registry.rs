//! Streams by their handles, so that each handle leads to its one timeline.

use std::sync::{Arc, Mutex, Weak};

use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::process::Handle;
use crate::timeline::capture;
use crate::timeline::core::StreamCore;
use crate::util::{Tree, lock};

/// Created and foreign streams, keyed by their handles, which are unique among the live streams of
/// a process.
static STREAMS: Mutex<Tree<u64, Weak<StreamCore>>> = Mutex::new(Tree::new());

/// Adds a stream; it replaces an earlier one with the same handle.
pub(crate) fn note(core: Arc<StreamCore>) -> Arc<StreamCore> {
    lock(&STREAMS).insert(Handle(core.raw()).number(), Arc::downgrade(&core));
    core
}

/// Returns the stream with that handle, or the one that `new` creates for it. `new` makes no driver call.
pub(crate) fn find_or(raw: CUstream, new: impl FnOnce() -> Arc<StreamCore>) -> Arc<StreamCore> {
    let mut streams = lock(&STREAMS);
    if let Some(core) = streams.get(Handle(raw).number()).and_then(Weak::upgrade) {
        return core;
    }
    let core = new();
    streams.insert(Handle(raw).number(), Arc::downgrade(&core));
    core
}

/// Refuses `op`, which affects all streams of the context, if other code captures one that this crate knows.
/// Asks the driver about the [exposed](crate::timeline::Timeline::is_exposed) ones and, through the legacy
/// default stream, about all blocking ones. The context must be current.
///
/// A stream whose state the driver does not report does not count as captured: green contexts have no legacy
/// stream, and the operation itself will return any other error.
pub(crate) fn refuse_captured_in(context: &Context, op: &'static str) -> Result<()> {
    let refuse = |stream| match capture::refuse_captured(Handle(stream), op) {
        Err(error @ Error::Capturing { .. }) => Err(error),
        _ => Ok(()),
    };
    refuse(CU_STREAM_LEGACY)?;
    refuse(CU_STREAM_PER_THREAD)?;
    // Dropping the last reference to a stream destroys it, so it must not happen under the lock.
    let streams: Vec<_> = {
        let streams = lock(&STREAMS);
        streams.values().filter_map(Weak::upgrade).collect()
    };
    let mut exposed =
        streams.iter().filter(|core| core.context() == context && core.timeline().is_exposed());
    exposed.try_for_each(|core| refuse(core.raw()))
}

/// Removes the entry of a stream that nothing refers to any more, before another stream can get its handle.
/// Keeps an entry that already belongs to another stream.
pub(crate) fn forget(raw: CUstream) {
    let mut streams = lock(&STREAMS);
    let dead = |core: &Weak<StreamCore>| core.strong_count() == 0;
    if streams.get(Handle(raw).number()).is_some_and(dead) {
        streams.remove(Handle(raw).number());
    }
}
