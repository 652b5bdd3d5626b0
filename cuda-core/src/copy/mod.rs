//! Copies between buffers: one driver call each, ordered by the buffers' ledgers.

// Apart from each other, so that rustfmt leaves this order, in which rustdoc shows their `impl`s.
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

use crate::context::{Crossing, Entered, crossing};
use crate::device::Device;
use crate::error::Result;
use crate::memory::{DeviceSlice, Memory, Slice, SliceMut, same_len};
use crate::timeline::recording::{CopiesBetween, CopyEnd};
use crate::timeline::{Bound, StreamCore};
use crate::types::Pod;

pub use host_slice::{HostSlice, HostSliceMut};
pub(crate) use host_slice::{either_len, from_host_memory};
use linear::LinearCopy;
pub use pitched::{Pitched, PitchedMut};
pub use shape::Shape;
pub(crate) use shape::{Geometry, same_extent};
pub(crate) use side::CopySide;

/// Refuses memory that only streams of another device may use.
pub(crate) fn at_home<T: Pod>(
    op: &'static str,
    core: &StreamCore,
    memory: &DeviceSlice<'_, T>,
) -> Result<()> {
    at_one_end(op, core, memory.on_for(core), None)
}

/// Refuses a copy with no end on the stream's device. Host memory counts as being on any.
fn at_one_end(
    op: &'static str,
    core: &StreamCore,
    source: Option<Device>,
    destination: Option<Device>,
) -> Result<()> {
    let require = |memory| core.device().require_same(op, memory);
    match (source, destination) {
        (Some(near), Some(far)) => require(near).or_else(|error| require(far).or(Err(error))),
        (Some(device), None) | (None, Some(device)) => require(device),
        (None, None) => Ok(()),
    }
}

/// Copies all of `source` to `destination`, of equal length: checks, orders, enqueues, marks. No
/// driver call if there is nothing to copy.
#[inline]
fn transfer<T: Pod, A: Memory, B: Memory>(
    core: &StreamCore,
    source: Slice<'_, T, A>,
    mut destination: SliceMut<'_, T, B>,
) -> Result<()> {
    let view = destination.as_view();
    let (near, far) = (source.on_for(core), view.on_for(core));
    let copy = LinearCopy::of((&source, near), (&view, far)).on(core);
    let op = copy.op();
    same_len(op, source.len(), view.len())?;
    at_one_end(op, core, near, far)?;
    if source.byte_len() == 0 {
        return Ok(());
    }
    let stream = core.bind_work(op)?;
    let _crossing = cross(op, &stream, [near, far], || ends(&source, &view))?;
    let _entered = enter_if_captured(&stream)?;
    let mut touches = [source.read(), destination.write()];
    // SAFETY: both sides are equally long and stay allocated until this copy is done: freeing either
    // waits for the mark that is made of it. So do the accessors of the host's side. The buffers keep
    // both contexts alive.
    stream.submit_copy(op, &mut touches, move |stream| unsafe { copy.enqueue(stream) }).1
}

/// The ends of a copy between two devices.
#[cold]
pub(crate) fn ends<'a, T: Pod, A: Memory, B: Memory>(
    source: &Slice<'a, T, A>,
    destination: &Slice<'a, T, B>,
) -> Option<[CopyEnd<'a>; 2]> {
    Some([(source.owner()?, source.confined()), (destination.owner()?, destination.confined())])
}

/// The crossing to hold while a copy is enqueued, if its ends are on two devices. A capture notes it.
///
/// # Errors
/// In a capture, those of [`CopiesBetween::captured`].
#[inline]
fn cross<'a>(
    op: &'static str,
    stream: &Bound<'_>,
    devices: [Option<Device>; 2],
    ends: impl FnOnce() -> Option<[CopyEnd<'a>; 2]>,
) -> Result<Option<Crossing>> {
    let crossing = match devices {
        [Some(near), Some(far)] if near != far => crossing(near, far),
        _ => return Ok(None),
    };
    if let (Some(recording), Some(ends)) = (stream.timeline().recording(), ends()) {
        let copies = CopiesBetween::captured(op, stream.core().context(), ends)?;
        recording.note_copies(copies);
    }
    Ok(Some(crossing))
}

/// The stream's context, to be current while a copy is captured: the driver looks at the access of the
/// current context's device, and cannot instantiate some copies that were captured without one.
#[inline]
pub(crate) fn enter_if_captured(stream: &Bound<'_>) -> Result<Option<Entered>> {
    let captured = stream.timeline().recording().is_some();
    captured.then(|| stream.core().context().enter_briefly()).transpose()
}
