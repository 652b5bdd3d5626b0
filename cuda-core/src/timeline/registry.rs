//! Streams by their handles, so that each handle leads to the one timeline there is.

use std::ptr;
use std::sync::{Arc, Mutex, Weak};

use cuda_sys::CUstream;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::process::Handle;
use crate::timeline::capture;
use crate::timeline::core::StreamCore;
use crate::util::{Tree, lock};

/// Created and foreign streams, keyed by their handles, which are unique among the live streams of
/// a process.
static STREAMS: Mutex<Tree<u64, Weak<StreamCore>>> = Mutex::new(Tree::new());

/// Adds a stream, in place of any earlier one with the same handle.
pub(crate) fn note(core: Arc<StreamCore>) -> Arc<StreamCore> {
    lock(&STREAMS).insert(Handle(core.raw()).number(), Arc::downgrade(&core));
    core
}

/// The stream with that handle, or the one that `new` creates for it. `new` makes no driver call.
pub(crate) fn find_or(raw: CUstream, new: impl FnOnce() -> Arc<StreamCore>) -> Arc<StreamCore> {
    let mut streams = lock(&STREAMS);
    if let Some(core) = streams.get(Handle(raw).number()).and_then(Weak::upgrade) {
        return core;
    }
    let core = new();
    streams.insert(Handle(raw).number(), Arc::downgrade(&core));
    core
}

/// Refuses `op`, which affects all streams of the context, if other code captures one of those that
/// this crate knows: it asks about the [exposed](crate::timeline::Timeline::is_exposed) ones and,
/// through the legacy default stream, about all blocking ones. The context must be current.
///
/// A stream whose state the driver does not report does not count as captured: green contexts have no
/// legacy stream, and any other error will be returned by the operation itself.
pub(crate) fn refuse_captured_in(context: &Context, op: &'static str) -> Result<()> {
    let refuse = |stream| match capture::refuse_captured(Handle(stream), op) {
        Err(error @ Error::Capturing { .. }) => Err(error),
        _ => Ok(()),
    };
    refuse(legacy_handle())?;
    refuse(per_thread_handle())?;
    // Dropping the last reference to a stream destroys it: not under the lock.
    let streams: Vec<_> = {
        let streams = lock(&STREAMS);
        streams.values().filter_map(Weak::upgrade).collect()
    };
    let mut exposed =
        streams.iter().filter(|core| core.context() == context && core.timeline().is_exposed());
    exposed.try_for_each(|core| refuse(core.raw()))
}

/// Removes the entry of a stream to which nothing refers any more, before its handle can become
/// another stream's. An entry that already belongs to another stream stays.
pub(crate) fn forget(raw: CUstream) {
    let mut streams = lock(&STREAMS);
    let dead = |core: &Weak<StreamCore>| core.strong_count() == 0;
    if streams.get(Handle(raw).number()).is_some_and(dead) {
        streams.remove(Handle(raw).number());
    }
}

/// `CU_STREAM_LEGACY`, a macro with a cast that bindgen does not translate.
pub(crate) fn legacy_handle() -> CUstream {
    ptr::without_provenance_mut(1)
}

/// `CU_STREAM_PER_THREAD`, likewise.
pub(crate) fn per_thread_handle() -> CUstream {
    ptr::without_provenance_mut(2)
}
