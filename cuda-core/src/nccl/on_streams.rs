//! Operations of all ranks of a process, with memory and a stream for each rank.

use super::call::{Call, Calls};
use super::element::Element;
use super::group::Group;
use super::on_stream::OnStream;
use super::ranks::Ranks;
use super::reduction::Reduction;
use crate::error::{Error, Result};
use crate::memory::{DeviceSlice, DeviceSliceMut, IntoView, same_len, within};
use crate::stream::Stream;
use crate::types::Pod;
use crate::util::{InlineVec, debug_by};

/// [`Ranks`] with the streams that their next operation is enqueued on; made by [`Ranks::on`], and
/// by [`Group::on_ranks`] for an operation of a group.
///
/// Operations take memory for each rank, in the order of the ranks.
///
/// # Errors
/// The errors of [`OnStream`], which name the rank, or, in [`Error::OnDevice`], its device if its
/// source and destination do not fit each other; [`Error::Invalid`] unless there is one view for
/// each rank, for ranks whose memory differs in length, and if the memory of some ranks is
/// [registered](Ranks::register) and that of others is not.
#[must_use = "nothing is enqueued until an operation is called"]
pub struct OnStreams<'a, G = ()> {
    pub(super) ranks: &'a Ranks,
    // INVARIANT: one for each rank, of its context.
    pub(super) streams: InlineVec<&'a Stream, 8>,
    pub(super) group: G,
}

/// What an operation of all ranks is added to: `()` for a group of its own, or an open group.
trait AddTo<'a> {
    fn add(self, operation: impl FnOnce(&mut Group<'a>) -> Result<()>) -> Result<()>;
}

impl<'a> AddTo<'a> for () {
    #[inline]
    fn add(self, operation: impl FnOnce(&mut Group<'a>) -> Result<()>) -> Result<()> {
        let mut own = Group::new();
        operation(&mut own)?;
        own.enqueue()
    }
}

impl<'a> AddTo<'a> for &mut Group<'a> {
    fn add(self, operation: impl FnOnce(&mut Group<'a>) -> Result<()>) -> Result<()> {
        self.add_all_or_refuse(operation)
    }
}

/// The operation's name in errors of [`OnStreams::send_receive`].
const SEND: &str = "ncclSend";

const PARTLY_REGISTERED: &str = "the memory of some ranks is registered, that of others is not";

/// Memory of each rank, until the rank's operation takes it.
type PerRank<V> = InlineVec<Option<V>, 8>;

#[inline]
fn taken<V>(listed: &mut PerRank<V>) -> impl Iterator<Item = V> {
    listed.as_mut_slice().iter_mut().flat_map(Option::take)
}

#[inline]
fn listed<V>(memory: impl IntoIterator<Item = impl Into<V>>) -> PerRank<V> {
    let mut listed = PerRank::new();
    memory.into_iter().for_each(|one| listed.push(|| Some(one.into())));
    listed
}

#[allow(private_bounds, reason = "a group, or none")]
impl<'a, G: AddTo<'a>> OnStreams<'a, G> {
    /// Runs [`OnStream::all_reduce`] at all ranks: `ncclAllReduce`.
    ///
    /// # Errors
    /// As all [operations](OnStreams).
    ///
    /// ```no_run
    /// # use cuda_core::nccl::{Ranks, Reduction};
    /// # let group = cuda_core::DeviceGroup::all()?;
    /// # let (streams, ranks) = (group.streams(), Ranks::init_all(group.contexts())?);
    /// let parts = group.alloc_zeroed::<f32>(100)?;
    /// let mut sums = group.alloc(100)?;
    /// ranks.on(streams)?.all_reduce(&parts, &mut sums, Reduction::Sum)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclAllReduce"))]
    pub fn all_reduce<T: Element>(
        self,
        sources: impl IntoIterator<Item = impl IntoView<DeviceSlice<'a, T>>>,
        destinations: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'a, T>>>,
        reduction: Reduction<T>,
    ) -> Result<()> {
        self.each_pair("ncclAllReduce", sources, destinations, |rank, (from, to)| {
            rank.all_reduce(from, to, reduction)
        })
    }

    /// Runs [`OnStream::all_reduce_in_place`] at all ranks: `ncclAllReduce`.
    ///
    /// # Errors
    /// As all [operations](OnStreams).
    #[doc(alias("ncclAllReduce"))]
    pub fn all_reduce_in_place<T: Element>(
        self,
        buffers: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'a, T>>>,
        reduction: Reduction<T>,
    ) -> Result<()> {
        self.each("ncclAllReduce", buffers, |rank, buffer| {
            rank.all_reduce_in_place(buffer, reduction)
        })
    }

    /// Runs [`OnStream::reduce`] to one destination, at the rank `root`: `ncclReduce`.
    ///
    /// # Errors
    /// As all [operations](OnStreams).
    #[doc(alias("ncclReduce"))]
    pub fn reduce<T: Element>(
        self,
        sources: impl IntoIterator<Item = impl IntoView<DeviceSlice<'a, T>>>,
        destination: impl IntoView<DeviceSliceMut<'a, T>>,
        root: usize,
        reduction: Reduction<T>,
    ) -> Result<()> {
        let mut destination = Some(destination.into());
        self.each("ncclReduce", sources, |rank, source| {
            let to = if rank.rank() == root { destination.take() } else { None };
            rank.reduce(source, to, root, reduction)
        })
    }

    /// Runs [`OnStream::reduce_in_place`] at all ranks: `ncclReduce`.
    ///
    /// # Errors
    /// As all [operations](OnStreams).
    #[doc(alias("ncclReduce"))]
    pub fn reduce_in_place<T: Element>(
        self,
        buffers: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'a, T>>>,
        root: usize,
        reduction: Reduction<T>,
    ) -> Result<()> {
        self.each("ncclReduce", buffers, |rank, buffer| {
            rank.reduce_in_place(buffer, root, reduction)
        })
    }

    /// Runs [`OnStream::broadcast`] of one source, at the rank `root`: `ncclBroadcast`.
    ///
    /// # Errors
    /// As all [operations](OnStreams).
    #[doc(alias("ncclBroadcast"))]
    pub fn broadcast<T: Pod>(
        self,
        source: impl IntoView<DeviceSlice<'a, T>>,
        destinations: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'a, T>>>,
        root: usize,
    ) -> Result<()> {
        let mut source = Some(source.into());
        self.each("ncclBroadcast", destinations, |rank, destination| {
            let from = if rank.rank() == root { source.take() } else { None };
            rank.broadcast(from, destination, root)
        })
    }

    /// Runs [`OnStream::broadcast_in_place`] at all ranks: `ncclBroadcast`.
    ///
    /// # Errors
    /// As all [operations](OnStreams).
    ///
    /// ```no_run
    /// # use cuda_core::nccl::Ranks;
    /// # let group = cuda_core::DeviceGroup::all()?;
    /// # let (streams, ranks) = (group.streams(), Ranks::init_all(group.contexts())?);
    /// let mut weights = group.alloc_zeroed::<f32>(100)?;
    /// streams[0].fill(&mut weights[0], 0.5)?;
    /// ranks.on(streams)?.broadcast_in_place(&mut weights, 0)?; // a half everywhere
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclBroadcast", "ncclBcast"))]
    pub fn broadcast_in_place<T: Pod>(
        self,
        buffers: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'a, T>>>,
        root: usize,
    ) -> Result<()> {
        self.each("ncclBroadcast", buffers, |rank, buffer| rank.broadcast_in_place(buffer, root))
    }

    /// Runs [`OnStream::all_gather`] at all ranks: `ncclAllGather`.
    ///
    /// # Errors
    /// As all [operations](OnStreams).
    ///
    /// ```no_run
    /// # use cuda_core::nccl::Ranks;
    /// # let group = cuda_core::DeviceGroup::all()?;
    /// # let (streams, ranks) = (group.streams(), Ranks::init_all(group.contexts())?);
    /// let parts = group.alloc_zeroed::<f32>(10)?;
    /// let mut wholes = group.alloc(10 * ranks.len())?;
    /// ranks.on(streams)?.all_gather(&parts, &mut wholes)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclAllGather"))]
    pub fn all_gather<T: Pod>(
        self,
        sources: impl IntoIterator<Item = impl IntoView<DeviceSlice<'a, T>>>,
        destinations: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'a, T>>>,
    ) -> Result<()> {
        self.each_pair("ncclAllGather", sources, destinations, |rank, (from, to)| {
            rank.all_gather(from, to)
        })
    }

    /// Runs [`OnStream::all_gather_in_place`] at all ranks: `ncclAllGather`.
    ///
    /// # Errors
    /// As all [operations](OnStreams).
    #[doc(alias("ncclAllGather"))]
    pub fn all_gather_in_place<T: Pod>(
        self,
        buffers: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'a, T>>>,
    ) -> Result<()> {
        self.each("ncclAllGather", buffers, |rank, buffer| rank.all_gather_in_place(buffer))
    }

    /// Runs [`OnStream::reduce_scatter`] at all ranks: `ncclReduceScatter`.
    ///
    /// # Errors
    /// As all [operations](OnStreams).
    ///
    /// ```no_run
    /// # use cuda_core::nccl::{Ranks, Reduction};
    /// # let group = cuda_core::DeviceGroup::all()?;
    /// # let (streams, ranks) = (group.streams(), Ranks::init_all(group.contexts())?);
    /// let wholes = group.alloc_zeroed::<f32>(10 * ranks.len())?;
    /// let mut parts = group.alloc(10)?;
    /// ranks.on(streams)?.reduce_scatter(&wholes, &mut parts, Reduction::Sum)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclReduceScatter"))]
    pub fn reduce_scatter<T: Element>(
        self,
        sources: impl IntoIterator<Item = impl IntoView<DeviceSlice<'a, T>>>,
        destinations: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'a, T>>>,
        reduction: Reduction<T>,
    ) -> Result<()> {
        self.each_pair("ncclReduceScatter", sources, destinations, |rank, (from, to)| {
            rank.reduce_scatter(from, to, reduction)
        })
    }

    /// Runs [`OnStream::reduce_scatter_in_place`] at all ranks: `ncclReduceScatter`.
    ///
    /// # Errors
    /// As all [operations](OnStreams).
    #[doc(alias("ncclReduceScatter"))]
    pub fn reduce_scatter_in_place<T: Element>(
        self,
        buffers: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'a, T>>>,
        reduction: Reduction<T>,
    ) -> Result<()> {
        self.each("ncclReduceScatter", buffers, |rank, buffer| {
            rank.reduce_scatter_in_place(buffer, reduction)
        })
    }

    /// Runs [`OnStream::all_to_all`] at all ranks: `ncclSend` and `ncclRecv` between any two.
    ///
    /// # Errors
    /// As all [operations](OnStreams).
    #[doc(alias("ncclAlltoAll", "ncclSend", "ncclRecv"))]
    pub fn all_to_all<T: Pod>(
        self,
        sources: impl IntoIterator<Item = impl IntoView<DeviceSlice<'a, T>>>,
        destinations: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'a, T>>>,
    ) -> Result<()> {
        self.each_pair("ncclSend", sources, destinations, |rank, (from, to)| {
            rank.all_to_all(from, to)
        })
    }

    /// Copies between ranks, all at once: `ncclSend` and `ncclRecv` for each copy. A copy is given
    /// as its source with the source's rank, and its destination with that one's rank, which may be
    /// the same.
    ///
    /// # Errors
    /// As all [operations](OnStreams), but each rank may have memory for any number of copies.
    ///
    /// ```no_run
    /// # use cuda_core::nccl::Ranks;
    /// # let group = cuda_core::DeviceGroup::all()?;
    /// # let (streams, ranks) = (group.streams(), Ranks::init_all(group.contexts())?);
    /// let parts = group.alloc_zeroed::<f32>(100)?;
    /// let mut edges = group.alloc::<f32>(10)?;
    /// let mut copies = Vec::new(); // the last ten of each to the next
    /// for (rank, edge) in edges.iter_mut().enumerate().skip(1) {
    ///     copies.push(((rank - 1, parts[rank - 1].slice(90..)?), (rank, edge)));
    /// }
    /// ranks.on(streams)?.send_receive(copies)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclSend", "ncclRecv"))]
    pub fn send_receive<T: Pod, S, D>(
        self,
        copies: impl IntoIterator<Item = ((usize, S), (usize, D))>,
    ) -> Result<()>
    where
        S: IntoView<DeviceSlice<'a, T>>,
        D: IntoView<DeviceSliceMut<'a, T>>,
    {
        let Self { ranks, streams, group } = self;
        group.add(|group| {
            group.abort_if_failed(ranks);
            let (calls, streams) = (&mut group.calls, streams.as_slice());
            copies.into_iter().try_for_each(|((from, source), (to, destination))| {
                let (source, destination) = (source.into(), destination.into());
                same_len(SEND, source.len(), destination.len())?;
                let before = calls.as_slice().len();
                within(SEND, "rank", from, ranks.len())?;
                ranks.describe(from, streams, calls, |rank| rank.send(source, to))?;
                within(SEND, "rank", to, ranks.len())?;
                ranks.describe(to, streams, calls, |rank| rank.receive(destination, from))?;
                match &calls.as_slice()[before..] {
                    [sent, received] if sent.registered[0] != received.registered[1] => {
                        Err(Error::invalid(SEND, PARTLY_REGISTERED))
                    }
                    _ => Ok(()),
                }
            })
        })
    }

    /// Runs [`Self::each`] with a source and a destination for each rank.
    #[inline]
    fn each_pair<T: Pod>(
        self,
        op: &'static str,
        sources: impl IntoIterator<Item = impl IntoView<DeviceSlice<'a, T>>>,
        destinations: impl IntoIterator<Item = impl IntoView<DeviceSliceMut<'a, T>>>,
        describe: impl FnMut(
            OnStream<'_, 'a>,
            (DeviceSlice<'a, T>, DeviceSliceMut<'a, T>),
        ) -> Result<()>,
    ) -> Result<()> {
        let (mut sources, mut destinations) = (listed(sources), listed(destinations));
        self.ranks.one_each(op, destinations.as_slice().len(), "destination")?;
        self.ranks.one_each(op, sources.as_slice().len(), "source")?;
        self.each(op, taken(&mut sources).zip(taken(&mut destinations)), describe)
    }

    /// Describes an operation of each rank with its memory, and enqueues them together if they match.
    #[inline]
    fn each<V>(
        self,
        op: &'static str,
        memory: impl IntoIterator<Item = V>,
        describe: impl FnMut(OnStream<'_, 'a>, V) -> Result<()>,
    ) -> Result<()> {
        let Self { ranks, streams, group } = self;
        group.add(|group| ranks.add_to(op, group, streams.as_slice(), memory.into_iter(), describe))
    }
}

impl Ranks {
    /// Adds an operation of each rank to a group.
    #[inline]
    fn add_to<'a, V>(
        &'a self,
        op: &'static str,
        group: &mut Group<'a>,
        streams: &[&'a Stream],
        mut memory: impl Iterator<Item = V>,
        mut describe: impl FnMut(OnStream<'_, 'a>, V) -> Result<()>,
    ) -> Result<()> {
        group.abort_if_failed(self);
        let (calls, mut given) = (&mut group.calls, 0);
        let before = calls.as_slice().len();
        for rank in 0..self.len() {
            let Some(memory) = memory.next() else { break };
            given += 1;
            self.describe(rank, streams, calls, |rank| describe(rank, memory))?;
        }
        self.one_each(op, given + memory.count(), "buffer")?;
        let calls = &calls.as_slice()[before..];
        let Some(shape) = calls.first().map(|call| call.shape) else {
            return Ok(());
        };
        if calls.len() < given || calls.iter().any(|call| call.shape != shape) {
            return Err(unequal(calls, given));
        }
        let alike = calls.iter().all(|call| call.is_registered_as(&calls[0]));
        Error::unless(alike, shape.operation.op(), PARTLY_REGISTERED)
    }

    /// Describes an operation of one of the ranks.
    #[inline]
    fn describe<'a>(
        &'a self,
        rank: usize,
        streams: &[&'a Stream],
        calls: &mut Calls<'a>,
        describe: impl FnOnce(OnStream<'_, 'a>) -> Result<()>,
    ) -> Result<()> {
        let stream = streams[rank];
        describe(OnStream::of(&self.0[rank], stream, Some(calls))).map_err(|error| match error {
            Error::LengthMismatch(_) => error.on(stream.device()),
            other => other.of_argument(format!("memory of rank {rank}").into()),
        })
    }
}

/// The error for operations of `ranks` ranks that differ; `calls` lacks those of no elements.
#[cold]
fn unequal(calls: &[Call<'_>], ranks: usize) -> Error {
    let counts = (0..ranks).map(|rank| {
        let call = calls.iter().find(|call| call.joined.rank == rank);
        call.map_or(0, |call| call.shape.count)
    });
    let mut counts = counts.enumerate();
    let one = counts.next().map_or(0, |(_, count)| count);
    let (rank, other) = counts.find(|(_, count)| *count != one).unwrap_or((0, one));
    let why = format!("rank 0 has {one} elements and rank {rank} has {other}");
    Error::invalid(calls[0].op(), why)
}

debug_by! { [G] OnStreams<'_, G>: |it| "OnStreams"(it.streams.as_slice()) }
