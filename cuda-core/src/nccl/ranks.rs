//! All ranks of a communicator in one process.

use std::ffi::c_void;
use std::mem;
use std::sync::Arc;

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
/// Since this process has all of them, nothing is `unsafe`: one call enqueues an operation at every rank,
/// with memory and a stream for each, which are compared first. NCCL makes its calls on the thread that makes this
/// call, unless the [options](CommunicatorOptions::blocking) say otherwise. After a call that NCCL fails all ranks
/// are [aborted](Self::abort).
///
/// For communicators of some of the devices, where other programs would split one, join their contexts by
/// [`Ranks::init_all`] again.
///
/// **Drop** is that of each [`Communicator`]; if the work of one of them has failed, all are aborted.
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
    // INVARIANT: all ranks of one communicator, in their order; not empty before the end.
    pub(super) Box<[Communicator]>,
);

/// The method that errors of joining and of streams name.
const INIT_ALL: &str = "Ranks::init_all";

/// # Joining and leaving
impl Ranks {
    /// Joins these contexts, the primary ones of different devices: `ncclCommInitRankConfig` for each, in a group;
    /// without a time limit, unless the [options](CommunicatorOptions::blocking) say that calls do not block.
    ///
    /// # Errors
    /// [`Error::Invalid`] for none, for a device given twice, and for a context that is not primary;
    /// [`Error::Nccl`].
    #[doc(alias("ncclCommInitAll", "ncclCommInitRankConfig"))]
    pub fn init_all<'c>(contexts: impl IntoIterator<Item = &'c Context>) -> Result<Self> {
        Self::init_all_with(contexts, &CommunicatorOptions::new())
    }

    /// [`Ranks::init_all`] with options.
    ///
    /// # Errors
    /// As [`Ranks::init_all`].
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
        // Outside of the group, so that ranks that are given up are freed after it.
        let (mut all, mut begun) = (Vec::new(), Ok(()));
        // The end of a group of calls that block leaves another context current.
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
            // Communicators that are made from one of these may have ranks of other processes.
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

    /// [`Communicator::as_raw`] of each rank, in their order.
    pub fn as_raw(&self) -> impl ExactSizeIterator<Item = *mut c_void> {
        self.0.iter().map(Communicator::as_raw)
    }

    /// The ranks one by one, for operations that differ among them, or for a thread for each.
    ///
    /// A call that [blocks](CommunicatorOptions::blocking), as calls do by default, may wait for those of the other
    /// ranks. So one thread enqueues operations of several of them in a [`group`](super::group()), and
    /// [`split`](Communicator::split), [`shrink`](Communicator::shrink), [`grow`](Communicator::grow) and
    /// [`finalize`](Communicator::finalize) need a thread for each rank. For threads that may leave early, and then
    /// [abort](Communicator::abort) the ranks of the others, join by [`init_all_with`](Self::init_all_with) and
    /// `blocking(false)`.
    ///
    /// # Safety
    /// The second promise of [`Communicator::init_rank`]: the operations of all ranks match.
    pub unsafe fn into_communicators(mut self) -> Vec<Communicator> {
        let ranks = mem::take(&mut self.0).into_vec();
        ranks.iter().filter_map(|rank| rank.0.turn.as_ref()).for_each(|turn| turn.end());
        ranks
    }

    /// The operations of all ranks, on a stream for each, of its context.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number of streams; [`Error::WrongContext`].
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

    /// [`Communicator::wait`] for all ranks, with a stream for each. The wait for a rank's stream also ends
    /// when another rank reports an error.
    ///
    /// # Errors
    /// Those of [`Communicator::wait`]: that of the first rank that has one.
    pub fn wait<'s>(&self, streams: impl IntoIterator<Item = &'s Stream>) -> Result<()> {
        let streams: Vec<_> = streams.into_iter().collect();
        self.one_each("wait", streams.len(), "stream")?;
        let wait =
            |rank: &Communicator, stream| rank.wait_beside(stream, rank.0.options.limit, &self.0);
        self.0.iter().zip(streams).try_for_each(|(rank, stream)| wait(rank, stream))
    }

    /// [`Communicator::async_error`] for all ranks.
    ///
    /// # Errors
    /// [`Error::Nccl`], which names the first rank whose work has failed.
    #[doc(alias("ncclCommGetAsyncError"))]
    pub fn async_error(&self) -> Result<()> {
        self.0.iter().try_for_each(Communicator::async_error)
    }

    /// [`Communicator::abort`] for all ranks.
    ///
    /// # Errors
    /// Those of [`Communicator::abort`], after aborting all.
    #[doc(alias("ncclCommAbort"))]
    pub fn abort(&self) -> Result<()> {
        abort_all(&self.0)
    }

    /// [`Communicator::finalize`] for all ranks.
    ///
    /// # Errors
    /// Those of [`Communicator::finalize`].
    #[doc(alias("ncclCommFinalize", "ncclCommDestroy"))]
    pub fn finalize(&self) -> Result<()> {
        let finalized = finalize_all(&self.0.iter().map(|rank| &rank.0).collect::<Vec<_>>());
        if finalized.as_ref().is_err_and(may_have_lost_a_rank) {
            // Work of one may wait for another. Failures are reported.
            drop(self.abort());
        }
        finalized
    }

    /// Whether some of them are of no use any more.
    pub(crate) fn is_aborted(&self) -> bool {
        self.0.iter().any(|rank| rank.0.is_stopped())
    }

    /// The rank of the device.
    pub(super) fn of(&self, device: Device) -> Option<&Communicator> {
        self.0.iter().find(|rank| rank.context().device() == device)
    }

    /// Refuses a number of things, `what` in the singular, that differs from the number of ranks.
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
    /// Where a context or a rank is lost, the other ranks would wait for that one.
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
            // Failures are reported.
            drop(abort_all(&ranks));
        });
    }
}

fn abort_all(ranks: &[Communicator]) -> Result<()> {
    // Before the first is aborted, which may be in a call with the others.
    ranks.iter().for_each(|rank| rank.0.stop());
    ranks.iter().map(Communicator::abort).fold(Ok(()), Result::and)
}

debug_by! { [] Ranks: |it| "Ranks"(it.contexts().map(Context::device).collect::<Vec<_>>()) }
