//! All ranks of a communicator in one process.

use std::ffi::c_void;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::call::{grouped, is_refusal};
use super::communicator::Communicator;
use super::failure::{checked, may_have_lost_a_rank};
use super::joined::{Joined, finalize_all};
use super::joining::INIT_RANK;
use super::library::nccl;
use super::on_streams::OnStreams;
use super::options::CommunicatorOptions;
use super::polling::NcclScope;
use super::raw::SUCCESS;
use super::remains::report;
use super::unique_id::UniqueId;
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Result, counted};
use crate::process::{Handle, deferred};
use crate::stream::Stream;
use crate::util::{InlineVec, debug_by};

/// All ranks of a communicator, one for each device of this process.
///
/// Since this process has all ranks, nothing is `unsafe`: one call enqueues an operation at every
/// rank, with memory and a stream for each, which are compared first. NCCL works on the calling
/// thread, unless the [options](CommunicatorOptions::blocking) say otherwise. If NCCL fails a call,
/// all ranks are [aborted](Self::abort).
///
/// Other programs split a communicator to get one for some of the devices. Here, join the contexts
/// of these devices by [`Ranks::init_all`] again.
///
/// **Drop** works as for each [`Communicator`]; if the work of one rank has failed, all are
/// aborted.
///
/// ```no_run
/// use cuda_core::Device;
/// use cuda_core::nccl::{Ranks, Reduction};
///
/// let contexts = Device::contexts(Device::all()?)?;
/// let streams = contexts.iter().map(|it| it.create_stream()).collect::<Result<Vec<_>, _>>()?;
/// let ranks = Ranks::init_all(&contexts)?;
/// let mut gradients = Vec::new();
/// for stream in &streams {
///     gradients.push(stream.alloc_zeroed::<f32>(1 << 20)?); // and a kernel that computes them
/// }
/// ranks.on(&streams)?.all_reduce_in_place(&mut gradients, Reduction::Average)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct Ranks(
    // INVARIANT: all ranks of one communicator, in their order; not empty until dropped or taken
    // apart.
    pub(super) Box<[Communicator]>,
);

/// The method named by errors of joining and of streams.
const INIT_ALL: &str = "Ranks::init_all";

/// # Joining and leaving
impl Ranks {
    /// Joins these contexts, which are the primary ones of different devices:
    /// `ncclCommInitRankConfig` for each, in a group. There is no time limit, unless the
    /// [options](CommunicatorOptions::blocking) say that calls do not block.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no context, for a device given twice, and for a context that is not
    /// primary; [`Error::Nccl`].
    #[doc(alias("ncclCommInitAll", "ncclCommInitRankConfig"))]
    pub fn init_all<'c>(contexts: impl IntoIterator<Item = &'c Context>) -> Result<Self> {
        Self::init_all_with(contexts, &CommunicatorOptions::new())
    }

    /// Joins as [`Ranks::init_all`] does, with options.
    ///
    /// # Errors
    /// As [`Ranks::init_all`]; [`Error::Invalid`] for options that contradict each other.
    #[doc(alias("ncclCommInitAll"))]
    pub fn init_all_with<'c>(
        contexts: impl IntoIterator<Item = &'c Context>,
        options: &CommunicatorOptions,
    ) -> Result<Self> {
        let contexts = Vec::from_iter(contexts);
        let nccl = nccl()?;
        Error::unless(!contexts.is_empty(), INIT_ALL, "no contexts were given")?;
        for (rank, context) in contexts.iter().enumerate() {
            let anew = contexts[..rank].iter().all(|other| other.device() != context.device());
            Error::unless(anew, INIT_ALL, "a device was given twice")?;
            Joined::require_primary(context)?;
        }
        let id = UniqueId::new()?;
        // Declared outside the group, so that ranks that are given up are freed after it.
        let (mut all, mut begun) = (Vec::new(), Ok(()));
        // The end of a group of blocking calls leaves another context current.
        let _scope = NcclScope::relaxed(contexts[0])?;
        let code = grouped(nccl, || {
            let by_default = options.blocking_by_default();
            begun = Joined::begin_all(&contexts, &id, &by_default, &mut all);
            SUCCESS
        });
        begun?;
        if is_refusal(code) {
            checked(INIT_RANK, nccl, code)?;
        }
        let turn = Arc::default();
        for joined in &mut all {
            joined.turn = Some(Arc::clone(&turn));
            // Communicators made from one of these may have ranks of other processes.
            joined.options = *options;
        }
        Ok(Self(Communicator::finish(INIT_RANK, all)?.into()))
    }

    /// The number of ranks; at least one.
    #[doc(alias("ncclCommCount"))]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The contexts, by rank.
    pub fn contexts(&self) -> impl ExactSizeIterator<Item = &Context> {
        self.0.iter().map(Communicator::context)
    }

    /// Returns [`Communicator::as_raw`] of each rank, in their order.
    pub fn as_raw(&self) -> impl ExactSizeIterator<Item = *mut c_void> {
        self.0.iter().map(Communicator::as_raw)
    }

    /// Returns the ranks one by one, for operations that differ among them, or for a thread for
    /// each rank.
    ///
    /// A call that [blocks](CommunicatorOptions::blocking), as calls do by default, may wait for
    /// the calls of the other ranks. So one thread enqueues operations of several ranks in a
    /// [`group`](super::group()), and [`split`](Communicator::split),
    /// [`shrink`](Communicator::shrink), [`grow`](Communicator::grow) and
    /// [`finalize`](Communicator::finalize) need a thread for each rank. If a thread may leave
    /// early, and then [abort](Communicator::abort) the ranks of the others, join by
    /// [`init_all_with`](Self::init_all_with) and `blocking(false)`.
    ///
    /// # Safety
    /// The second promise of [`Communicator::init_rank`]: the operations of all ranks match.
    pub unsafe fn into_communicators(mut self) -> Vec<Communicator> {
        let ranks = mem::take(&mut self.0).into_vec();
        ranks.iter().filter_map(|rank| rank.0.turn.as_ref()).for_each(|turn| turn.end());
        ranks
    }

    /// Returns the operations of all ranks, on one stream of its context for each rank.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless there is one stream for each rank; [`Error::WrongContext`].
    #[inline]
    pub fn on<'a>(
        &'a self,
        streams: impl IntoIterator<Item = &'a Stream>,
    ) -> Result<OnStreams<'a>> {
        self.on_in(streams, ())
    }

    #[inline]
    pub(super) fn on_in<'a, G>(
        &'a self,
        streams: impl IntoIterator<Item = &'a Stream>,
        group: G,
    ) -> Result<OnStreams<'a, G>> {
        let mut on = OnStreams { ranks: self, streams: InlineVec::new(), group };
        streams.into_iter().for_each(|stream| on.streams.push(|| stream));
        self.one_each("Ranks::on", on.streams.as_slice().len(), "stream")?;
        let mut pairs = self.0.iter().zip(on.streams.as_slice());
        pairs.try_for_each(|(rank, stream)| rank.on(stream).map(drop))?;
        Ok(on)
    }

    /// Runs [`Communicator::wait`] for all ranks, with a stream for each. The wait for a rank's
    /// stream also ends when another rank reports an error.
    ///
    /// # Errors
    /// As [`Communicator::wait`]: the error of the first rank that has one. [`Error::Invalid`] for
    /// another number of streams than of ranks.
    pub fn wait<'s>(&self, streams: impl IntoIterator<Item = &'s Stream>) -> Result<()> {
        self.wait_for(streams, self.0.first().map_or(Duration::ZERO, |rank| rank.0.options.limit))
    }

    /// Waits as [`Ranks::wait`] does, with another limit, for each stream.
    ///
    /// # Errors
    /// As [`Ranks::wait`].
    pub fn wait_for<'s>(
        &self,
        streams: impl IntoIterator<Item = &'s Stream>,
        limit: Duration,
    ) -> Result<()> {
        let streams: Vec<_> = streams.into_iter().collect();
        self.one_each("wait", streams.len(), "stream")?;
        let wait = |rank: &Communicator, stream| rank.wait_beside(stream, limit, &self.0);
        self.0.iter().zip(streams).try_for_each(|(rank, stream)| wait(rank, stream))
    }

    /// Runs [`Communicator::async_error`] for all ranks.
    ///
    /// # Errors
    /// [`Error::Nccl`], which names the first rank whose work has failed.
    #[doc(alias("ncclCommGetAsyncError"))]
    pub fn async_error(&self) -> Result<()> {
        self.0.iter().try_for_each(Communicator::async_error)
    }

    /// Runs [`Communicator::abort`] for all ranks.
    ///
    /// # Errors
    /// As [`Communicator::abort`], after aborting all ranks.
    #[doc(alias("ncclCommAbort"))]
    pub fn abort(&self) -> Result<()> {
        abort_all(&self.0)
    }

    /// Runs [`Communicator::finalize`] for all ranks.
    ///
    /// # Errors
    /// As [`Communicator::finalize`].
    #[doc(alias("ncclCommFinalize", "ncclCommDestroy"))]
    pub fn finalize(&self) -> Result<()> {
        let finalized = finalize_all(&self.0.iter().map(|rank| &rank.0).collect::<Vec<_>>());
        if finalized.as_ref().is_err_and(may_have_lost_a_rank) {
            // Work of one rank may wait for another. Failures go to the drop hook.
            drop(self.abort());
        }
        finalized
    }

    /// Returns whether any rank was aborted, or is to be.
    pub(crate) fn is_aborted(&self) -> bool {
        self.0.iter().any(|rank| rank.0.is_stopped())
    }

    /// Returns the rank of the device.
    pub(super) fn of(&self, device: Device) -> Option<&Communicator> {
        self.0.iter().find(|rank| rank.context().device() == device)
    }

    /// Refuses a number of things that differs from the number of ranks; `what` names one of them.
    #[inline]
    pub(super) fn one_each(&self, op: &'static str, given: usize, what: &str) -> Result<()> {
        match given == self.len() {
            true => Ok(()),
            false => Err(self.not_one_each(op, given, what)),
        }
    }

    #[cold]
    fn not_one_each(&self, op: &'static str, given: usize, what: &str) -> Error {
        let given = counted(given, what, &format!("{what}s"));
        let ranks = counted(self.len(), "rank", "ranks");
        Error::invalid(op, format!("{given} given for {ranks}"))
    }
}

impl Drop for Ranks {
    /// If a context or a rank is lost, aborts all ranks: the others would wait for the lost one.
    fn drop(&mut self) {
        let ranks = mem::take(&mut self.0);
        deferred::run_or_defer(move || {
            let lost = |rank: &Communicator| Some((rank.as_raw(), rank.0.why_lost()?));
            let Some((raw, why)) = ranks.iter().find_map(lost) else {
                return;
            };
            if let Error::Nccl(_) = why {
                report(Handle(raw), &why);
            }
            // Failures go to the drop hook.
            drop(abort_all(&ranks));
        });
    }
}

fn abort_all(ranks: &[Communicator]) -> Result<()> {
    // Before the first abort: that rank may be in a call with the others.
    ranks.iter().for_each(|rank| rank.0.stop());
    ranks.iter().map(Communicator::abort).fold(Ok(()), Result::and)
}

debug_by! { [] Ranks: |it| "Ranks"(it.contexts().map(Context::device).collect::<Vec<_>>()) }
