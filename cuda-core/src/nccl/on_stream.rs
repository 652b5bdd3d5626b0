//! The operations of a rank on a stream.

use std::ffi::c_int;
use std::sync::Arc;

use super::call::{Call, CallShape, Calls, Operation, Used, enqueue, enqueue_nothing};
use super::communicator::Communicator;
use super::element::Element;
use super::joined::Joined;
use super::reduction::Reduction;
use crate::copy::at_home;
use crate::error::{Error, Result};
use crate::memory::{DeviceSlice, DeviceSliceMut, IntoView, same_len, within};
use crate::stream::Stream;
use crate::timeline::StreamCore;
use crate::types::Pod;
use crate::util::debug_by;

/// A [`Communicator`] with the stream that its next operation is enqueued on; made by [`Communicator::on`],
/// and by [`Group::on`](super::Group::on) for an operation of a group.
///
/// Each operation returns at once, and runs when all ranks have enqueued it. If calls
/// [block](super::CommunicatorOptions::blocking), the first operation waits until the other ranks have
/// enqueued it, too. An operation comes after what other streams do with its memory, and later users of the
/// memory wait for it. An operation of no elements enqueues nothing.
///
/// # Errors
/// Before NCCL is called: [`Error::LengthMismatch`] and [`Error::Invalid`] for wrong lengths, and `Invalid`
/// for a rank that does not exist and for a default stream; [`Error::WrongDevice`] and [`Error::WrongContext`] for other memory than
/// the communicator's; [`Error::NotCapturable`] in a body of a [`Condition`](crate::Condition).
/// [`Error::Nccl`] if NCCL refuses, if the communicator's limit passes before a call that does not block has
/// enqueued the work, and for a communicator that was aborted. If a call has failed,
/// [abort](Communicator::abort) the communicator.
#[must_use = "nothing is enqueued until an operation is called"]
pub struct OnStream<'g, 'a> {
    pub(super) joined: &'a Arc<Joined>,
    core: &'a Arc<StreamCore>,
    /// Where an operation with elements is kept until the group ends; [`None`] to enqueue it at once.
    group: Option<&'g mut Calls<'a>>,
}

/// # Operations
impl Communicator {
    /// Returns the operations of this rank on a stream of its context.
    ///
    /// # Errors
    /// [`Error::WrongContext`] for a stream of another context.
    ///
    /// ```no_run
    /// use cuda_core::nccl::{Communicator, Reduction};
    ///
    /// # fn step(communicator: Communicator, stream: cuda_core::Stream) -> cuda_core::Result<()> {
    /// let loss = stream.upload_new(&[0.25f32])?;
    /// let mut sum = stream.alloc(1)?;
    /// communicator.on(&stream)?.all_reduce(&loss, &mut sum, Reduction::Sum)?;
    /// println!("{:?}", stream.download_vec(&sum)?);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn on<'a>(&'a self, stream: &'a Stream) -> Result<OnStream<'a, 'a>> {
        OnStream::new(self, stream, None)
    }
}

impl<'g, 'a> OnStream<'g, 'a> {
    #[inline]
    pub(super) fn new(
        communicator: &'a Communicator,
        stream: &'a Stream,
        group: Option<&'g mut Calls<'a>>,
    ) -> Result<Self> {
        if stream.context() != communicator.context() {
            return Err(communicator.elsewhere(stream));
        }
        Ok(Self::of(communicator, stream, group))
    }

    /// [`OnStream::new`] for a stream that is known to belong to the communicator's context.
    #[inline]
    pub(super) fn of(
        communicator: &'a Communicator,
        stream: &'a Stream,
        group: Option<&'g mut Calls<'a>>,
    ) -> Self {
        Self { joined: &communicator.0, core: stream.core(), group }
    }

    /// Combines the elements of all ranks, and gives each rank the result in `destination`: `ncclAllReduce`.
    ///
    /// # Errors
    /// As all [operations](OnStream).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let ranks = cuda_core::nccl::Ranks::init_all([stream.context()])?;
    /// # // SAFETY: there is one rank, whose operations match.
    /// # let communicator = &unsafe { ranks.into_communicators() }[0];
    /// use cuda_core::nccl::Reduction;
    ///
    /// let (gradients, mut mean) = (stream.upload_new(&[1.0f32; 100])?, stream.alloc(100)?);
    /// communicator.on(&stream)?.all_reduce(&gradients, &mut mean, Reduction::Average)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclAllReduce"))]
    #[inline]
    pub fn all_reduce<T: Element>(
        self,
        source: impl IntoView<DeviceSlice<'a, T>>,
        destination: impl IntoView<DeviceSliceMut<'a, T>>,
        reduction: Reduction<T>,
    ) -> Result<()> {
        let (source, destination) = (source.into(), destination.into());
        let operation = Operation::AllReduce(reduction.raw());
        same_len(operation.op(), source.len(), destination.len())?;
        let count = source.len();
        self.apart::<T>(operation, count, Some(source), Some(destination))
    }

    /// Runs [`all_reduce`](Self::all_reduce) of a buffer into itself.
    ///
    /// # Errors
    /// As all [operations](OnStream).
    #[doc(alias("ncclAllReduce"))]
    #[inline]
    pub fn all_reduce_in_place<T: Element>(
        self,
        buffer: impl IntoView<DeviceSliceMut<'a, T>>,
        reduction: Reduction<T>,
    ) -> Result<()> {
        let buffer = buffer.into();
        let count = buffer.len();
        self.in_place(Operation::AllReduce(reduction.raw()), count, buffer, (0, 0))
    }

    /// Combines the elements of all ranks at the rank `root`, which is the only one that needs a destination:
    /// `ncclReduce`.
    ///
    /// # Errors
    /// As all [operations](OnStream); [`Error::Invalid`] for a root without destination.
    ///
    /// ```no_run
    /// # use cuda_core::nccl::{Communicator, Reduction};
    /// # fn step(communicator: Communicator, stream: cuda_core::Stream) -> cuda_core::Result<()> {
    /// let parts = stream.alloc_zeroed::<f32>(100)?;
    /// let mut whole = stream.alloc(100)?;
    /// let destination = (communicator.rank() == 0).then(|| whole.as_view_mut());
    /// communicator.on(&stream)?.reduce(&parts, destination, 0, Reduction::Max)?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("ncclReduce"))]
    pub fn reduce<T: Element>(
        self,
        source: impl IntoView<DeviceSlice<'a, T>>,
        destination: Option<DeviceSliceMut<'a, T>>,
        root: usize,
        reduction: Reduction<T>,
    ) -> Result<()> {
        let source = source.into();
        let operation = self.with(root, |root| Operation::Reduce(reduction.raw(), root))?;
        let missing = "the root was given no destination";
        Error::unless(root != self.joined.rank || destination.is_some(), operation.op(), missing)?;
        if let Some(destination) = &destination {
            same_len(operation.op(), source.len(), destination.len())?;
        }
        let count = source.len();
        self.apart(operation, count, Some(source), destination)
    }

    /// Runs [`reduce`](Self::reduce) of a buffer into itself, at the root. The buffers of other ranks are
    /// unspecified afterwards.
    ///
    /// # Errors
    /// As all [operations](OnStream).
    #[doc(alias("ncclReduce"))]
    pub fn reduce_in_place<T: Element>(
        self,
        buffer: impl IntoView<DeviceSliceMut<'a, T>>,
        root: usize,
        reduction: Reduction<T>,
    ) -> Result<()> {
        let operation = self.with(root, |root| Operation::Reduce(reduction.raw(), root))?;
        let buffer = buffer.into();
        let count = buffer.len();
        self.in_place(operation, count, buffer, (0, 0))
    }

    /// Copies the elements of the rank `root`, which alone needs a source, to all ranks: `ncclBroadcast`.
    ///
    /// # Errors
    /// As all [operations](OnStream); [`Error::Invalid`] for a root without source.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let ranks = cuda_core::nccl::Ranks::init_all([stream.context()])?;
    /// # // SAFETY: there is one rank, whose operations match.
    /// # let communicator = &unsafe { ranks.into_communicators() }[0];
    /// let weights = stream.upload_new(&[0.5f32; 100])?; // of use at the root alone
    /// let mut same = stream.alloc(100)?;
    /// let source = (communicator.rank() == 0).then(|| weights.as_view());
    /// communicator.on(&stream)?.broadcast(source, &mut same, 0)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclBroadcast"))]
    pub fn broadcast<T: Pod>(
        self,
        source: Option<DeviceSlice<'a, T>>,
        destination: impl IntoView<DeviceSliceMut<'a, T>>,
        root: usize,
    ) -> Result<()> {
        let destination = destination.into();
        let operation = self.with(root, Operation::Broadcast)?;
        let missing = "the root was given no source";
        Error::unless(root != self.joined.rank || source.is_some(), operation.op(), missing)?;
        if let Some(source) = &source {
            same_len(operation.op(), source.len(), destination.len())?;
        }
        let count = destination.len();
        self.apart(operation, count, source, Some(destination))
    }

    /// Copies the elements of the rank `root` to the same buffer of all others: `ncclBroadcast`.
    ///
    /// # Errors
    /// As all [operations](OnStream).
    #[doc(alias("ncclBroadcast", "ncclBcast"))]
    pub fn broadcast_in_place<T: Pod>(
        self,
        buffer: impl IntoView<DeviceSliceMut<'a, T>>,
        root: usize,
    ) -> Result<()> {
        let (operation, buffer) = (self.with(root, Operation::Broadcast)?, buffer.into());
        let count = buffer.len();
        self.in_place(operation, count, buffer, (0, 0))
    }

    /// Copies the elements of each rank to all ranks, in the order of the ranks: `ncclAllGather`. The
    /// destination holds as many elements for each rank as a source.
    ///
    /// # Errors
    /// As all [operations](OnStream).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let ranks = cuda_core::nccl::Ranks::init_all([stream.context()])?;
    /// # // SAFETY: there is one rank, whose operations match.
    /// # let communicator = &unsafe { ranks.into_communicators() }[0];
    /// let own = stream.upload_new(&[communicator.rank() as u32; 10])?;
    /// let mut all = stream.alloc(10 * communicator.size())?;
    /// communicator.on(&stream)?.all_gather(&own, &mut all)?; // ten zeroes, ten ones, and so on
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclAllGather"))]
    pub fn all_gather<T: Pod>(
        self,
        source: impl IntoView<DeviceSlice<'a, T>>,
        destination: impl IntoView<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let (source, destination) = (source.into(), destination.into());
        let operation = Operation::AllGather;
        let count = source.len();
        self.all(operation, "destination", destination.len(), count)?;
        self.apart(operation, count, Some(source), Some(destination))
    }

    /// Runs [`all_gather`](Self::all_gather) from this rank's part of the buffer to the whole buffer.
    ///
    /// # Errors
    /// As all [operations](OnStream).
    #[doc(alias("ncclAllGather"))]
    pub fn all_gather_in_place<T: Pod>(
        self,
        buffer: impl IntoView<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let buffer = buffer.into();
        let part = self.part(Operation::AllGather, buffer.len())?;
        let from = self.joined.rank * part;
        self.in_place(Operation::AllGather, part, buffer, (from, 0))
    }

    /// Combines the elements of all ranks, and gives each a part of the result, in rank order:
    /// `ncclReduceScatter`. The source holds as many elements for each rank as a destination.
    ///
    /// # Errors
    /// As all [operations](OnStream).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// # let ranks = cuda_core::nccl::Ranks::init_all([stream.context()])?;
    /// # // SAFETY: there is one rank, whose operations match.
    /// # let communicator = &unsafe { ranks.into_communicators() }[0];
    /// use cuda_core::nccl::Reduction;
    ///
    /// let gradients = stream.alloc_zeroed::<f32>(10 * communicator.size())?;
    /// let mut own = stream.alloc(10)?; // ten sums for each rank
    /// communicator.on(&stream)?.reduce_scatter(&gradients, &mut own, Reduction::Sum)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclReduceScatter"))]
    pub fn reduce_scatter<T: Element>(
        self,
        source: impl IntoView<DeviceSlice<'a, T>>,
        destination: impl IntoView<DeviceSliceMut<'a, T>>,
        reduction: Reduction<T>,
    ) -> Result<()> {
        let (source, destination) = (source.into(), destination.into());
        let operation = Operation::ReduceScatter(reduction.raw());
        let count = destination.len();
        self.all(operation, "source", source.len(), count)?;
        self.apart(operation, count, Some(source), Some(destination))
    }

    /// Runs [`reduce_scatter`](Self::reduce_scatter) of a buffer into this rank's part of it. The other parts
    /// are unspecified afterwards.
    ///
    /// # Errors
    /// As all [operations](OnStream).
    #[doc(alias("ncclReduceScatter"))]
    pub fn reduce_scatter_in_place<T: Element>(
        self,
        buffer: impl IntoView<DeviceSliceMut<'a, T>>,
        reduction: Reduction<T>,
    ) -> Result<()> {
        let (operation, buffer) = (Operation::ReduceScatter(reduction.raw()), buffer.into());
        let part = self.part(operation, buffer.len())?;
        let to = self.joined.rank * part;
        self.in_place(operation, part, buffer, (0, to))
    }

    /// Copies part *j* of rank *i* to part *i* of rank *j*: `ncclSend` and `ncclRecv` for each, in a group.
    /// There are as many parts, of equal size, as ranks.
    ///
    /// # Errors
    /// As all [operations](OnStream).
    #[doc(alias("ncclAlltoAll", "ncclSend", "ncclRecv"))]
    pub fn all_to_all<T: Pod>(
        self,
        source: impl IntoView<DeviceSlice<'a, T>>,
        destination: impl IntoView<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let (source, destination) = (source.into(), destination.into());
        let operation = Operation::AllToAll;
        same_len(operation.op(), source.len(), destination.len())?;
        let count = self.part(operation, source.len())?;
        self.apart(operation, count, Some(source), Some(destination))
    }

    /// Sends the elements to the rank `to`, which [receives](Self::receive) as many: `ncclSend`. If two ranks
    /// send to each other, each sends and receives in a [group](super::group()).
    ///
    /// # Errors
    /// As all [operations](OnStream).
    #[doc(alias("ncclSend"))]
    pub fn send<T: Pod>(self, source: impl IntoView<DeviceSlice<'a, T>>, to: usize) -> Result<()> {
        let (operation, source) = (self.with(to, Operation::Send)?, source.into());
        let count = source.len();
        self.apart(operation, count, Some(source), None)
    }

    /// Receives the elements that the rank `from` [sends](Self::send): `ncclRecv`.
    ///
    /// # Errors
    /// As all [operations](OnStream).
    #[doc(alias("ncclRecv"))]
    pub fn receive<T: Pod>(
        self,
        destination: impl IntoView<DeviceSliceMut<'a, T>>,
        from: usize,
    ) -> Result<()> {
        let (operation, destination) = (self.with(from, Operation::Receive)?, destination.into());
        let count = destination.len();
        self.apart(operation, count, None, Some(destination))
    }

    /// The rank whose operations these are.
    pub fn rank(&self) -> usize {
        self.joined.rank
    }

    /// Returns an operation with another rank.
    fn with(&self, rank: usize, operation: impl FnOnce(c_int) -> Operation) -> Result<Operation> {
        // A communicator's size fits in a `c_int`, and so does a rank within it.
        let operation = operation(rank as c_int);
        within(operation.op(), "rank", rank, self.joined.size)?;
        Ok(operation)
    }

    /// Refuses memory, called `which`, unless it has `each` elements for each rank.
    fn all(&self, operation: Operation, which: &str, len: usize, each: usize) -> Result<()> {
        let size = self.joined.size;
        if each.checked_mul(size) == Some(len) {
            return Ok(());
        }
        let why = format!("the {which} holds {len} elements, not {each} for each of {size} ranks");
        Err(Error::invalid(operation.op(), why))
    }

    /// Returns the number of elements of each rank.
    fn part(&self, operation: Operation, len: usize) -> Result<usize> {
        let size = self.joined.size;
        if len % size != 0 {
            let why = format!("{len} elements cannot be divided equally among {size} ranks");
            return Err(Error::invalid(operation.op(), why));
        }
        Ok(len / size)
    }

    /// Enqueues an operation with separate source and destination, or adds it to the group.
    #[inline]
    fn apart<T: Pod>(
        self,
        operation: Operation,
        count: usize,
        source: Option<DeviceSlice<'a, T>>,
        destination: Option<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let (mut from, mut to, mut registered) = (0, 0, [None; 2]);
        if let Some(source) = &source {
            from = source.as_raw();
            registered[0] = Some(self.admit(operation, source)?);
        }
        if let Some(destination) = &destination {
            let view = destination.as_view();
            to = view.as_raw();
            registered[1] = Some(self.admit(operation, &view)?);
        }
        let used = match (source, destination) {
            (Some(source), Some(destination)) => {
                Used::Two([source.read(), destination.into_touch()])
            }
            (Some(source), None) => Used::One([source.read()]),
            (None, Some(destination)) => Used::One([destination.into_touch()]),
            (None, None) => unreachable!("each operation has a side"),
        };
        self.call::<T>(operation, count, (from, to), used, registered)
    }

    /// As [`Self::apart`], within one buffer: source and destination begin at these elements.
    #[inline]
    fn in_place<T: Pod>(
        self,
        operation: Operation,
        count: usize,
        buffer: DeviceSliceMut<'a, T>,
        (from, to): (usize, usize),
    ) -> Result<()> {
        let view = buffer.as_view();
        let registered = [Some(self.admit(operation, &view)?), None];
        let address = view.as_raw();
        let at = |element: usize| address + (element * size_of::<T>()) as u64;
        let used = Used::One([buffer.into_touch()]);
        self.call::<T>(operation, count, (at(from), at(to)), used, registered)
    }

    /// Refuses memory that the communicator's kernels cannot use as their own. Returns whether the memory is
    /// registered with the communicator.
    #[inline]
    fn admit<T: Pod>(&self, operation: Operation, view: &DeviceSlice<'_, T>) -> Result<bool> {
        let backing = &view.block().backing;
        // Memory of this same stream belongs to the communicator's device.
        if backing.home().is_some_and(|home| Arc::ptr_eq(home, self.core)) {
            return Ok(false);
        }
        self.admit_other(operation.op(), view)
    }

    /// The part of [`OnStream::admit`] for memory of other streams.
    // Kept apart from `admit`, which is compiled into each operation.
    #[inline(never)]
    fn admit_other<T: Pod>(&self, op: &'static str, view: &DeviceSlice<'_, T>) -> Result<bool> {
        let backing = &view.block().backing;
        at_home(op, self.core, view)?;
        backing.require_home_in(op, &self.joined.context)?;
        Ok(backing.is_registered_with(Arc::as_ptr(self.joined).addr()))
    }

    #[inline]
    fn call<T: Pod>(
        self,
        operation: Operation,
        count: usize,
        (from, to): (u64, u64),
        used: Used<'a>,
        registered: [Option<bool>; 2],
    ) -> Result<()> {
        let Self { joined, core, group } = self;
        // Elements may be zero-sized.
        if count * size_of::<T>() == 0 {
            return enqueue_nothing(operation.op(), joined, core);
        }
        let shape = CallShape { operation, count, size: size_of::<T>() };
        let call = || Call { joined, core, shape, from, to, used, registered };
        let Some(group) = group else { return enqueue(call()) };
        group.push(call);
        Ok(())
    }
}

debug_by! { [] OnStream<'_, '_>: |it| "OnStream of rank {}", it.joined.rank }
