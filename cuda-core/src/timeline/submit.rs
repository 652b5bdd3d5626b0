//! One operation on a stream: behind what conflicts with it, and entered in the ledgers it touches.

use cuda_sys::{CUresult, CUstream};

use crate::error::{Error, Result};
use crate::process::driver;
use crate::timeline::core::{Bound, StreamCore};
use crate::timeline::ledger::{Access, Bytes, Fences, Ledger, Touch};

/// Enqueues one operation: makes the stream wait for what conflicts with it, calls the driver,
/// and marks what was touched, even if the call failed.
///
/// The marks are made under the borrows that the caller holds, so no conflicting access can come
/// in between. No ledger is locked while the driver is called.
#[inline]
pub(crate) fn submit(
    core: &StreamCore,
    stream: &Bound<'_>,
    op: &'static str,
    touches: &mut [Touch<'_>],
    call: impl FnOnce(CUstream) -> CUresult,
) -> (u64, Result<()>) {
    order(core, stream, touches, || stream.enqueue(op, call))
}

/// [`submit`] of what is the same whether it is done once or twice; see [`Bound::enqueue_copy`].
#[inline]
pub(crate) fn submit_copy(
    core: &StreamCore,
    stream: &Bound<'_>,
    op: &'static str,
    touches: &mut [Touch<'_>],
    call: impl FnMut(CUstream) -> CUresult,
) -> (u64, Result<()>) {
    order(core, stream, touches, || stream.enqueue_copy(op, call))
}

#[inline]
fn order(
    core: &StreamCore,
    stream: &Bound<'_>,
    touches: &mut [Touch<'_>],
    enqueue: impl FnOnce() -> (u64, Result<()>),
) -> (u64, Result<()>) {
    let timeline = core.timeline();
    if touches.iter().any(|touch| !touch.is_quiet(timeline)) {
        return order_behind(core, stream, touches, enqueue);
    }
    let (seq, result) = enqueue();
    for touch in touches {
        touch.mark(timeline, seq, &NO_FENCES);
    }
    (seq, result)
}

static NO_FENCES: Fences = Fences::none();

/// [`order`] of an operation that others may have to come before.
#[cold]
fn order_behind(
    core: &StreamCore,
    stream: &Bound<'_>,
    touches: &mut [Touch<'_>],
    enqueue: impl FnOnce() -> (u64, Result<()>),
) -> (u64, Result<()>) {
    let timeline = core.timeline();
    let mut fences: Vec<_> = touches.iter().map(|_| Fences::none()).collect();
    for (touch, fences) in touches.iter_mut().zip(&mut fences) {
        touch.conflicts(timeline, fences);
        if let Err(error) = fences.wait_on(stream) {
            return (0, Err(error));
        }
    }
    let (seq, result) = enqueue();
    for (touch, fences) in touches.iter_mut().zip(&fences) {
        touch.mark(timeline, seq, fences);
    }
    (seq, result)
}

/// Makes the stream wait for what conflicts with an access that is enqueued behind this crate's
/// back, and marks that, even if something failed: the access may be enqueued already.
///
/// The callers are `unsafe`, and not because of the work alone: a write that is noted through a shared
/// borrow supersedes what its own stream has read before in the ledger's order. A read that another
/// thread enqueues on that stream between the counting and the marking here has a later point, whose mark
/// would go with it, and the memory could be freed under that read.
pub(crate) fn note_use(
    core: &StreamCore,
    ledger: &Ledger,
    range: &Bytes,
    access: Access,
) -> Result<()> {
    let timeline = core.timeline();
    let mut fences = Fences::none();
    let mut count = || {
        let bound = core.bind("note_use")?;
        ledger.conflicts(range, access, Some(timeline), &mut fences);
        fences.wait_on(&bound)?;
        bound.prepare()?;
        Ok(bound.count())
    };
    let (seq, noted) = match count() {
        Ok(seq) => (seq, Ok(())),
        Err(error @ Error::GivenUp { .. }) => return Err(error),
        // In a forked child a thread that no longer exists may hold the ledger's lock.
        Err(error) if driver::is_gone() => return Err(error),
        Err(error) => (timeline.issue(), Err(error)),
    };
    // What it may have waited for in part supersedes nothing.
    let fences = if noted.is_ok() { &fences } else { &NO_FENCES };
    ledger.mark(range, access, timeline, seq, fences);
    noted
}
