//! Copies between buffers: one driver call each, ordered by the buffers' ledgers.

// Separated by blank lines, so that rustfmt keeps this order, in which rustdoc shows their `impl`s.
mod buffers;

mod new;

pub(crate) mod fill;

pub(crate) mod borrowed;

pub(crate) mod in_flight;

pub(crate) mod batch;
pub(crate) mod host_slice;
mod linear;
pub(crate) mod pitched;
pub(crate) mod shape;
pub(crate) mod side;
pub(crate) mod trim;

use cuda_sys::{CUDA_MEMCPY3D, symbol as cu};

use crate::context::{Context, Crossing, Entered, crossing};
use crate::error::Result;
use crate::memory::{DeviceSlice, Memory, Slice, SliceMut, same_len};
use crate::timeline::ledger::Touch;
use crate::timeline::recording::{CopiesBetween, CopyEnd, Notes};
use crate::timeline::{Bound, StreamCore};
use crate::types::Pod;

pub use host_slice::{HostSlice, HostSliceMut};
pub(crate) use host_slice::{either_len, from_host_memory};
use linear::LinearCopy;
pub use pitched::{Pitched, PitchedMut};
pub use shape::Shape;
pub(crate) use shape::{Geometry, same_extent};
pub(crate) use side::CopySide;

/// Returns an error for memory that only streams of another device may use.
pub(crate) fn at_home<T: Pod>(
    op: &'static str,
    core: &StreamCore,
    memory: &DeviceSlice<'_, T>,
) -> Result<()> {
    at_one_end(op, core, [memory.owner_for(core), None])
}

/// Returns an error for a copy with no end on the stream's device. Host memory counts as being on any
/// device.
fn at_one_end(op: &'static str, core: &StreamCore, ends: [Option<&Context>; 2]) -> Result<()> {
    let require = |memory: &Context| core.device().require_same(op, memory.device());
    match ends {
        [Some(near), Some(far)] => require(near).or_else(|error| require(far).or(Err(error))),
        [Some(memory), None] | [None, Some(memory)] => require(memory),
        [None, None] => Ok(()),
    }
}

/// Copies all of `source` to `destination`, of equal length: checks, orders, enqueues, marks. No driver
/// call if there is nothing to copy.
#[inline]
fn transfer<T: Pod, A: Memory, B: Memory>(
    core: &StreamCore,
    source: Slice<'_, T, A>,
    mut destination: SliceMut<'_, T, B>,
) -> Result<()> {
    let view = destination.as_view();
    let (near, far) = (source.owner_for(core), view.owner_for(core));
    let copy = LinearCopy::of((&source, near), (&view, far)).on(core);
    let op = copy.op();
    same_len(op, source.len(), view.len())?;
    at_one_end(op, core, [near, far])?;
    if source.byte_len() == 0 {
        return Ok(());
    }
    let stream = core.bind_work(op)?;
    let crossing = cross([near, far]);
    let ends = || ends((&source, near), (&view, far));
    let (_entered, copies) = if_captured(op, &stream, crossing.is_some(), ends)?;
    let mut touches = [source.read(), destination.write()];
    // SAFETY: both sides have equal length and stay allocated until this copy is done: freeing either
    // waits for the mark that follows the copy. So does access to the host's side. The buffers and
    // the stream keep both contexts alive.
    let call = move |stream| unsafe { copy.enqueue(stream) };
    let notes = || Notes { copies, ..Notes::default() };
    stream.submit_copy(op, &mut touches, notes, call).1
}

/// Returns the ends of a copy between two devices, with the contexts that they count as being of.
#[cold]
pub(crate) fn ends<'a, T: Pod, A: Memory, B: Memory>(
    (source, near): (&Slice<'_, T, A>, Option<&'a Context>),
    (destination, far): (&Slice<'_, T, B>, Option<&'a Context>),
) -> Option<[CopyEnd<'a>; 2]> {
    Some([(near?, source.confined()), (far?, destination.confined())])
}

/// Returns the crossing to hold while a copy is enqueued, if its ends are on two devices.
#[inline]
fn cross(ends: [Option<&Context>; 2]) -> Option<Crossing> {
    match ends.map(|end| end.map(Context::device)) {
        [Some(near), Some(far)] if near != far => Some(crossing(near, far)),
        _ => None,
    }
}

/// If the stream is captured, [enters the context](enter_if_captured), and makes the graph's note of a copy
/// between devices. The caller holds the [crossing](cross) of such a copy.
///
/// # Errors
/// Those of [`CopiesBetween::captured`].
#[inline]
fn if_captured<'a>(
    op: &'static str,
    stream: &Bound<'_>,
    crosses: bool,
    ends: impl FnOnce() -> Option<[CopyEnd<'a>; 2]>,
) -> Result<(Option<Entered>, Vec<CopiesBetween>)> {
    if stream.timeline().recording().is_none() {
        return Ok((None, Vec::new()));
    }
    when_captured(op, stream.core().context(), if crosses { ends() } else { None })
}

#[cold]
fn when_captured(
    op: &'static str,
    context: &Context,
    ends: Option<[CopyEnd<'_>; 2]>,
) -> Result<(Option<Entered>, Vec<CopiesBetween>)> {
    let copies = ends.map(|ends| CopiesBetween::captured(op, context, ends)).transpose()?;
    Ok((Some(context.enter_briefly()?), copies.into_iter().collect()))
}

/// Makes the stream's context current while a copy is captured. The driver checks the access of the current
/// context's device. Of copies that were captured without a current context, it cannot instantiate some, and
/// cannot replace those of memory of its pools.
#[inline]
pub(crate) fn enter_if_captured(core: &StreamCore) -> Result<Option<Entered>> {
    let captured = core.timeline().recording().is_some();
    captured.then(|| core.context().enter_briefly()).transpose()
}

/// The call of [`enqueue_3d`], as errors name it.
pub(crate) const OP_3D: &str = "cuMemcpy3DAsync";

/// Enqueues a copy of up to three dimensions after conflicting work: `cuMemcpy3DAsync_v2`.
///
/// # Safety
/// Both sides have the copy's extent. `touches` cover all memory that the copy reads and writes, or the
/// caller keeps that memory until the copy is done.
pub(crate) unsafe fn enqueue_3d(
    stream: &Bound<'_>,
    copy: &CUDA_MEMCPY3D,
    touches: &mut [Touch<'_>],
) -> (u64, Result<()>) {
    let _entered = match enter_if_captured(stream.core()) {
        Ok(entered) => entered,
        Err(error) => return (0, Err(error)),
    };
    // SAFETY: the call reads the description, a borrow. Both sides have the extent and stay allocated
    // until this copy is done, by the caller's promise: freeing memory that `touches` cover waits for
    // their marks, and the caller keeps the rest.
    let call = |stream| unsafe { cu::cuMemcpy3DAsync_v2(copy, stream) };
    stream.submit_copy(OP_3D, touches, Default::default, call)
}
