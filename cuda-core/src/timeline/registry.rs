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
static STREAMS: Mutex<Tree<u64, Entry>> = Mutex::new(Tree::new());

struct Entry {
    core: Weak<StreamCore>,
    /// The [identity](Context::identity) of the stream's context. It can be compared without a reference to
    /// the stream, which would keep another thread from closing that context.
    context: Weak<()>,
}

impl Entry {
    fn of(core: &Arc<StreamCore>) -> Self {
        Self { core: Arc::downgrade(core), context: Arc::downgrade(core.context().identity()) }
    }
}

/// Adds a stream; it replaces an earlier one with the same handle.
pub(crate) fn note(core: Arc<StreamCore>) -> Arc<StreamCore> {
    lock(&STREAMS).insert(Handle(core.raw()).number(), Entry::of(&core));
    core
}

/// Returns the stream with that handle, or the one that `new` creates for it. `new` makes no driver call.
pub(crate) fn find_or(raw: CUstream, new: impl FnOnce() -> Arc<StreamCore>) -> Arc<StreamCore> {
    let mut streams = lock(&STREAMS);
    if let Some(core) = streams.get(Handle(raw).number()).and_then(|entry| entry.core.upgrade()) {
        return core;
    }
    let core = new();
    streams.insert(Handle(raw).number(), Entry::of(&core));
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
        let is_its = |entry: &&Entry| entry.context.as_ptr() == Arc::as_ptr(context.identity());
        streams.values().filter(is_its).filter_map(|entry| entry.core.upgrade()).collect()
    };
    let mut exposed = streams.iter().filter(|core| core.timeline().is_exposed());
    exposed.try_for_each(|core| refuse(core.raw()))
}

/// Removes the entry of a stream that nothing refers to any more, before another stream can get its handle.
/// Keeps an entry that already belongs to another stream.
pub(crate) fn forget(raw: CUstream) {
    let mut streams = lock(&STREAMS);
    let dead = |entry: &Entry| entry.core.strong_count() == 0;
    if streams.get(Handle(raw).number()).is_some_and(dead) {
        streams.remove(Handle(raw).number());
    }
}
