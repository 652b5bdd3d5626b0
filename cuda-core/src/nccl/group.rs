//! Operations that are enqueued together.

use super::call::{Calls, GROUP, enqueue_together};
use super::communicator::Communicator;
use super::failure::may_have_lost_a_rank;
use super::on_stream::OnStream;
use super::on_streams::OnStreams;
use super::ranks::Ranks;
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::util::{InlineVec, debug_by};

/// The operations of a [`group`].
pub struct Group<'a> {
    pub(super) calls: Calls<'a>,
    /// The ranks to abort if NCCL fails the group.
    ranks: InlineVec<&'a Ranks, 4>,
    /// Why nothing may be enqueued.
    refused: Option<Error>,
}

/// Enqueues operations together, on one stream or several: `ncclGroupStart`, `ncclGroupEnd`.
///
/// `f` only collects the operations: nothing is enqueued before it returns, and nothing at all if
/// it returns an error. The operations run at the same time, as far as they can. So ranks of
/// one thread that wait for each other, and ranks that send to each other, must use a group.
///
/// # Errors
/// Errors of `f`, and of the [operations](OnStream); also if `f` ignores an error of an operation
/// of [`Ranks`]. [`Error::Invalid`] unless all communicators
/// [block](super::CommunicatorOptions::blocking) or none does: by default those of [`Ranks`] do,
/// others do not. [`Error::NotCapturable`] if a stream is captured, unless all streams belong to
/// one capture.
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
///
/// With many small operations of all ranks of a process, without `unsafe`:
///
/// ```no_run
/// use cuda_core::nccl::{Ranks, Reduction, group};
/// use cuda_core::{DeviceBuffer, Stream};
///
/// /// Averages each layer's gradients, of which every rank has one.
/// fn average(
///     ranks: &Ranks,
///     streams: &[Stream],
///     layers: &mut [Vec<DeviceBuffer<f32>>],
/// ) -> cuda_core::Result<()> {
///     group(|group| {
///         layers.iter_mut().try_for_each(|layer| {
///             group.on_ranks(ranks, streams)?.all_reduce_in_place(layer, Reduction::Average)
///         })
///     })
/// }
/// ```
#[doc(alias("ncclGroupStart", "ncclGroupEnd"))]
pub fn group<'a, R>(f: impl FnOnce(&mut Group<'a>) -> Result<R>) -> Result<R> {
    let mut group = Group::new();
    let result = f(&mut group)?;
    group.enqueue()?;
    Ok(result)
}

impl<'a> Group<'a> {
    #[inline]
    pub(super) fn new() -> Self {
        Self { calls: Calls::new(), ranks: InlineVec::new(), refused: None }
    }

    /// Returns the operations of a rank on a stream; the next one is added to the group.
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

    /// Returns the operations of all ranks of this process; the next one is added to the group.
    /// `streams` has one stream for each rank.
    ///
    /// # Errors
    /// As [`Ranks::on`].
    pub fn on_ranks(
        &mut self,
        ranks: &'a Ranks,
        streams: impl IntoIterator<Item = &'a Stream>,
    ) -> Result<OnStreams<'a, &mut Self>> {
        ranks.on_in(streams, self)
    }

    /// Adds operations of several ranks. If that fails, refuses the whole group: it may hold
    /// operations of some ranks without those of the others.
    pub(super) fn add_all_or_refuse(
        &mut self,
        operation: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        // Stays if code of the program, which lists the memory, panics.
        let why = "the memory of an operation was not listed to its end";
        let before = self.refused.replace(Error::invalid(GROUP, why));
        let added = operation(self);
        self.refused = before.or_else(|| added.as_ref().err().cloned());
        added
    }

    /// Has these ranks aborted if NCCL fails the group.
    #[inline]
    pub(super) fn abort_if_failed(&mut self, ranks: &'a Ranks) {
        if self.ranks.as_slice().last().is_none_or(|last| !std::ptr::eq(*last, ranks)) {
            self.ranks.push(|| ranks);
        }
    }

    #[inline]
    // Takes a reference: a group is larger than a kibibyte.
    pub(super) fn enqueue(&mut self) -> Result<()> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        let enqueued = enqueue_together(self.calls.as_mut_slice());
        if enqueued.as_ref().is_err_and(may_have_lost_a_rank) {
            // Some ranks may wait for others that have enqueued nothing. Failures go to the drop hook.
            self.ranks.as_slice().iter().for_each(|ranks| drop(ranks.abort()));
        }
        enqueued
    }
}

debug_by! { [] Group<'_>: |it| "Group of {} operations", it.calls.as_slice().len() }
