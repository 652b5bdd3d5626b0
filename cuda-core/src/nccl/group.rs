//! Operations that are enqueued together.

use super::call::{Calls, enqueue_together};
use super::communicator::Communicator;
use super::on_stream::OnStream;
use crate::error::Result;
use crate::stream::Stream;
use crate::util::by_parts::debug_by;

/// The operations of a [`group`].
pub struct Group<'a> {
    calls: Calls<'a>,
}

/// Enqueues operations together, on one stream or several: `ncclGroupStart`, `ncclGroupEnd`.
///
/// `f` only says which: nothing is enqueued before it returns, and nothing at all if it returns an error.
/// They run at the same time, as far as they can; so ranks of one thread that wait for each other, and
/// ranks that both send to each other, must be in a group.
///
/// # Errors
/// Those of `f`, and of the [operations](OnStream). [`Error::NotCapturable`](crate::Error::NotCapturable)
/// for several streams one of which is captured.
///
/// ```no_run
/// use cuda_core::nccl::{Communicator, group};
///
/// # fn step(communicator: Communicator, stream: cuda_core::Stream) -> cuda_core::Result<()> {
/// let (rank, size) = (communicator.rank(), communicator.size());
/// let mine = stream.alloc_zeroed::<f32>(1000)?;
/// let mut theirs = stream.alloc::<f32>(1000)?;
/// group(|group| {
///     group.on(&communicator, &stream)?.send(&mine, (rank + 1) % size)?;
///     group.on(&communicator, &stream)?.receive(&mut theirs, (rank + size - 1) % size)
/// })?;
/// # Ok(())
/// # }
/// ```
#[doc(alias("ncclGroupStart", "ncclGroupEnd"))]
pub fn group<'a, R>(f: impl FnOnce(&mut Group<'a>) -> Result<R>) -> Result<R> {
    let mut group = Group { calls: Calls::new() };
    let result = f(&mut group)?;
    enqueue_together(group.calls.as_mut_slice())?;
    Ok(result)
}

impl<'a> Group<'a> {
    /// The operations of a rank on a stream, of which the next is added to the group.
    ///
    /// # Errors
    /// As [`Communicator::on`].
    pub fn on(
        &mut self,
        communicator: &'a Communicator,
        stream: &'a Stream,
    ) -> Result<OnStream<'_, 'a>> {
        OnStream::new(communicator, stream, Some(&mut self.calls))
    }
}

debug_by! { [] Group<'_>: |it| "Group of {} operations", it.calls.as_slice().len() }
