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

use crate::device::Device;
use crate::error::Result;
use crate::memory::device::DeviceSlice;
use crate::memory::view::{Slice, SliceMut};
use crate::memory::{Memory, same_len};
use crate::peer::{Crossing, crossing};
use crate::timeline::core::{StreamCore, same_device};
use crate::timeline::recording::Reached;
use crate::types::pod::Pod;

use linear::LinearCopy;

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
    match (source, destination) {
        (Some(near), Some(far)) => {
            same_device(op, core, near).or_else(|error| same_device(op, core, far).or(Err(error)))
        }
        (Some(device), None) | (None, Some(device)) => same_device(op, core, device),
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
    let crossing = crossing_of(near, far);
    if let (Some(_), Some(recording)) = (&crossing, stream.timeline().recording()) {
        reached(&source, &view).into_iter().for_each(|reached| recording.note_reached(reached));
    }
    let mut touches = [source.read(), destination.write()];
    // SAFETY: both sides are equally long and stay allocated until this copy is done: freeing either
    // waits for the mark that is made of it. So do the accessors of the host's side. The buffers keep
    // both contexts alive.
    stream.submit_copy(op, &mut touches, move |stream| unsafe { copy.enqueue(stream) }).1
}

/// What a captured copy between two devices reaches.
#[cold]
fn reached<T: Pod, A: Memory, B: Memory>(
    source: &Slice<'_, T, A>,
    destination: &Slice<'_, T, B>,
) -> Option<Reached> {
    let ends =
        [(source.owner()?, source.confined()), (destination.owner()?, destination.confined())];
    Some(Reached::by_copy(ends))
}

/// The crossing to hold while a copy is enqueued, if its ends are on two devices.
#[inline]
fn crossing_of(source: Option<Device>, destination: Option<Device>) -> Option<Crossing> {
    let (near, far) = source.zip(destination)?;
    (near != far).then(|| crossing(near, far))
}
