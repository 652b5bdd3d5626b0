//! Streams by their handles, so that whoever comes with a handle finds the timeline there is.

use std::ptr;
use std::sync::{Arc, Mutex, Weak};

use cuda_sys::CUstream;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::timeline::core::StreamCore;
use crate::timeline::{RawStream, capture};
use crate::util::flat_map::FlatMap;
use crate::util::sync::lock;

/// Created and foreign streams by the address that their handle is. Handles are unique among the
/// streams of a process that live.
static STREAMS: Mutex<FlatMap<usize, Weak<StreamCore>>> = Mutex::new(FlatMap::new());

/// Enters a stream, which replaces whatever had the handle before it.
pub(crate) fn note(core: Arc<StreamCore>) -> Arc<StreamCore> {
    lock(&STREAMS).insert(core.raw().addr(), Arc::downgrade(&core));
    core
}

/// The stream of that handle, or the one that `new` makes of it. `new` calls no driver.
pub(crate) fn find_or(raw: CUstream, new: impl FnOnce() -> Arc<StreamCore>) -> Arc<StreamCore> {
    let mut streams = lock(&STREAMS);
    if let Some(core) = streams.get(raw.addr()).and_then(Weak::upgrade) {
        return core;
    }
    let core = new();
    streams.insert(raw.addr(), Arc::downgrade(&core));
    core
}

/// Refuses `op`, which concerns all streams of the context, where other code captures one of those
/// that are known: the [exposed](capture::Exposure) ones, and by the legacy default stream all blocking
/// ones. The context is current.
///
/// What cannot be asked is not known to be captured: green contexts have no legacy stream, and what else
/// is wrong the operation itself will say.
pub(crate) fn refuse_captured_in(context: &Context, op: &'static str) -> Result<()> {
    let refuse = |stream| match capture::refuse_captured(RawStream(stream), op) {
        Err(error @ Error::Capturing { .. }) => Err(error),
        _ => Ok(()),
    };
    refuse(legacy_handle())?;
    refuse(per_thread_handle())?;
    // The last reference to a stream destroys it: not under the lock.
    let streams: Vec<_> = {
        let streams = lock(&STREAMS);
        streams.values().filter_map(Weak::upgrade).collect()
    };
    let mut exposed = streams
        .iter()
        .filter(|core| core.context() == context && core.timeline().exposure().is_exposed());
    exposed.try_for_each(|core| refuse(core.raw()))
}

/// Takes out the entry of a stream that nobody refers to any more, before its handle can be another
/// stream's. An entry that has another stream already stays.
pub(crate) fn forget(raw: CUstream) {
    let mut streams = lock(&STREAMS);
    let dead = |core: &Weak<StreamCore>| core.strong_count() == 0;
    if streams.get(raw.addr()).is_some_and(dead) {
        streams.remove(raw.addr());
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
