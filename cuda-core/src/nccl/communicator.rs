//! A rank of a communicator.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use std::{ptr, slice};

use super::joined::{Joined, await_all, finalize_all};
use super::joining::JoinBy;
use super::options::CommunicatorOptions;
use super::polling::{NcclScope, Polling};
use super::unique_id::UniqueId;
use crate::context::Context;
use crate::error::{Error, NcclError, Result, WrongContext};
use crate::process::driver;
use crate::stream::{Stream, StreamKind};
use crate::util::debug_by;
use crate::wait::PendingMark;

/// One rank of a group of devices, of this process and others, that communicate.
///
/// [`on`](Self::on) gives its operations on a stream. They are enqueued like kernels, and ordered
/// with the work of all streams that use the same memory, which stays allocated until they have
/// completed.
///
/// **Time limit.** A call that involves other ranks, creation included, fails after the limit of
/// the [`CommunicatorOptions`], unless these make calls [block](CommunicatorOptions::blocking). The
/// communicator is then aborted. [`Communicator::wait`] waits for work with that limit; other
/// waits, such as [`Stream::synchronize`], have none. If a rank is lost, [`abort`](Self::abort)
/// ends the work that waits for it.
///
/// **Drop** does not wait for work. Work in flight keeps the communicator. When the work has
/// completed, the communicator is freed as by [`abort`](Self::abort), which may take a second if
/// graphs use it. Call [`finalize`](Self::finalize) before the drop, if ranks of other machines may
/// still be receiving. If the work has not completed within the limit after the drop, because a
/// rank is lost or for another reason, the communicator is aborted: streams and memory become free.
/// If it had reported an [error](Self::async_error) before, it is aborted at once. Both are failed
/// drops, reported to the hook of [`drops::set_hook`](crate::drops::set_hook). Graphs and
/// [registered](Self::register) memory keep the communicator longer, even memory whose work waits
/// for a lost rank: then call [`abort`](Self::abort).
///
/// Threads may share a communicator; their calls are made one after the other.
///
/// ```no_run
/// use cuda_core::Device;
/// use cuda_core::nccl::{Communicator, Reduction, UniqueId};
///
/// # fn receive() -> [u8; 128] { [0; 128] }
/// # let (rank, size) = (0, 2);
/// let context = Device::get(0)?.context()?;
/// let id = UniqueId::from_bytes(&receive())?; // that rank 0 has sent
/// // SAFETY: all ranks run this program, which makes the same calls at each.
/// let communicator = unsafe { Communicator::init_rank(&context, id, rank, size) }?;
/// let stream = context.create_stream()?;
/// let mut gradients = stream.alloc_zeroed::<f32>(1 << 20)?;
/// communicator.on(&stream)?.all_reduce_in_place(&mut gradients, Reduction::Average)?;
/// communicator.wait(&stream)?; // not for ever
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct Communicator(pub(super) Arc<Joined>);

/// # Joining
impl Communicator {
    /// Joins the communicator of `size` ranks that the [`UniqueId`] identifies, as rank `rank`,
    /// with a device of this process: `ncclCommInitRankConfig`. Waits until all other ranks have
    /// joined, for [ten minutes](CommunicatorOptions) at most.
    ///
    /// One id serves some hundreds of ranks; beyond that, several ids, made by as many processes, let ranks
    /// join faster: `ncclCommInitRankScalable`, of NCCL 2.23.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `rank` is less than `size`, for no id or more ids than ranks, and
    /// if the context is not the primary one of its device; [`Error::SizeOverflow`] for a size that NCCL
    /// cannot count; [`Error::Nccl`], with [`NcclError::TimedOut`] if a rank did not join, and with
    /// [`NcclError::Missing`] for several ids and an older NCCL.
    ///
    /// # Safety
    /// The caller promises what NCCL cannot check, for the whole life of the communicator and of
    /// those split from it:
    /// * Each rank joins once, with the same ids in the same order, the same `size`, and a device
    ///   of its own.
    /// * All ranks enqueue the same operations in the same order, with the same numbers of elements
    ///   of the same type, the same roots and reductions, with memory that is
    ///   [registered](Self::register) at all ranks or at none, and then lies at the same distance
    ///   from the beginning of what was registered. Each [`send`](super::OnStream::send) meets a
    ///   [`receive`](super::OnStream::receive) of as many elements. All ranks also
    ///   [`split`](Self::split), [`shrink`](Self::shrink) and [`grow`](Self::grow) alike.
    ///
    /// If a rank is lost or aborts, the others wait; this causes no undefined behaviour.
    ///
    /// ```no_run
    /// use cuda_core::nccl::{Communicator, UniqueId};
    ///
    /// # let (rank, size) = (0, 1);
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let id = UniqueId::new()?;
    /// // SAFETY: all ranks run this program, which makes the same calls at each.
    /// let communicator = unsafe { Communicator::init_rank(&context, id, rank, size) }?;
    /// assert_eq!((communicator.rank(), communicator.size()), (rank, size));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclCommInitRankConfig", "ncclCommInitRank", "ncclCommInitRankScalable"))]
    pub unsafe fn init_rank(
        context: &Context,
        ids: impl AsRef<[UniqueId]>,
        rank: usize,
        size: usize,
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::init_rank_with(context, ids, rank, size, &CommunicatorOptions::new()) }
    }

    /// Joins as [`Communicator::init_rank`] does, with options.
    ///
    /// # Errors
    /// As [`Communicator::init_rank`]; [`Error::Invalid`] for options that contradict each other.
    ///
    /// # Safety
    /// As [`Communicator::init_rank`].
    #[doc(alias("ncclCommInitRankConfig"))]
    pub unsafe fn init_rank_with(
        context: &Context,
        ids: impl AsRef<[UniqueId]>,
        rank: usize,
        size: usize,
        options: &CommunicatorOptions,
    ) -> Result<Self> {
        let (mut begun, how) = (Vec::new(), JoinBy::Ids(ids.as_ref()));
        Joined::begin(context, how, (rank, size), options, &mut begun)?;
        Self::finish(how.op(), begun).map(|mut it| it.remove(0))
    }

    /// The error for a stream of another context.
    #[cold]
    pub(super) fn elsewhere(&self, stream: &Stream) -> Error {
        let [own, given] = [self.context(), stream.context()].map(|it| it.device().ordinal());
        let rank = self.rank();
        let what = format!("rank {rank}, of device {own} and given a stream of device {given},");
        Error::from(WrongContext { op: "Communicator::on", what: what.into() })
    }

    /// Waits until ranks that began to join have joined.
    pub(super) fn finish(op: &'static str, ranks: Vec<Joined>) -> Result<Vec<Self>> {
        // Dropped after the guards below, so that foreign code finds the locks free.
        let ranks: Vec<_> = ranks.into_iter().map(Arc::new).collect();
        let Some(first) = ranks.first() else {
            return Ok(Vec::new());
        };
        let _scope = NcclScope::relaxed(&first.context)?;
        let held: Result<Vec<_>> = ranks.iter().map(|rank| rank.hold(op)).collect();
        await_all(op, &mut held?)?;
        // From now on, threads of this crate may free a communicator or deregister its memory at
        // any time.
        static HAS_JOINED: AtomicBool = AtomicBool::new(false);
        driver::watch_exit_first(&HAS_JOINED);
        Ok(ranks.iter().map(|rank| Self(rank.clone())).collect())
    }
}

/// # Asking
impl Communicator {
    /// The number of this rank, as `ncclCommUserRank` returns it. Does not call NCCL.
    #[doc(alias("ncclCommUserRank"))]
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// The number of ranks, as `ncclCommCount` returns it. Does not call NCCL.
    #[doc(alias("ncclCommCount"))]
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// The context that the communicator works in: the primary one of its device.
    #[doc(alias("ncclCommCuDevice"))]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// NCCL's handle, an `ncclComm_t`, for [functions](super::symbol) that this crate lacks; null
    /// once the communicator was aborted, and in a forked child. Waits for another thread's call in
    /// progress. Does not call NCCL.
    ///
    /// A call with the handle must not overlap another thread's call on the communicator, and must
    /// not destroy the communicator.
    pub fn as_raw(&self) -> *mut c_void {
        if driver::is_gone() {
            return ptr::null_mut();
        }
        self.0.hold_as_it_is().raw()
    }

    /// Checks whether earlier enqueued work has failed, here or at a rank that this one
    /// communicates with: `ncclCommGetAsyncError`. Such a communicator can only be aborted.
    ///
    /// # Errors
    /// [`Error::Nccl`] if work has failed.
    #[doc(alias("ncclCommGetAsyncError", "ncclGetLastError"))]
    pub fn async_error(&self) -> Result<()> {
        driver::ensure()?;
        self.0.look(ASYNC_ERROR)
    }
}

const ASYNC_ERROR: &str = "ncclCommGetAsyncError";

/// # Waiting and ending
impl Communicator {
    /// Blocks the calling thread until all work on the stream has completed, the communicator's
    /// limit has passed, or its work has failed: `cuEventQuery`, `ncclCommGetAsyncError`. In
    /// contrast, a future, such as [`Stream::ready`], waits for a lost rank until the communicator
    /// is aborted.
    ///
    /// # Errors
    /// [`Error::Nccl`]: [`NcclError::TimedOut`], after which the work is still pending, and the
    /// communicator can be waited for again, or [aborted](Self::abort); [`NcclError::Failed`] if a
    /// rank has reported an error; [`NcclError::Aborted`]. The driver's.
    ///
    /// ```no_run
    /// # fn step(communicator: cuda_core::nccl::Communicator, stream: cuda_core::Stream) -> cuda_core::Result<()> {
    /// if let Err(error) = communicator.wait(&stream) {
    ///     communicator.abort()?; // a rank is lost: the stream goes on without it
    ///     return Err(error);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("ncclCommGetAsyncError", "cuEventQuery", "cudaEventQuery"))]
    pub fn wait<K: StreamKind>(&self, stream: &Stream<K>) -> Result<()> {
        self.wait_for(stream, self.0.options.limit)
    }

    /// Waits as [`Communicator::wait`] does, with another limit.
    ///
    /// # Errors
    /// As [`Communicator::wait`].
    pub fn wait_for<K: StreamKind>(&self, stream: &Stream<K>, limit: Duration) -> Result<()> {
        self.wait_beside(stream, limit, slice::from_ref(self))
    }

    /// Waits as [`Communicator::wait_for`] does, but also ends when the work of any of `ranks` has
    /// failed.
    pub(super) fn wait_beside<K: StreamKind>(
        &self,
        stream: &Stream<K>,
        limit: Duration,
        ranks: &[Self],
    ) -> Result<()> {
        let (op, rank, timeline) = ("wait", self.0.rank, stream.core().timeline());
        let look = || ranks.iter().try_for_each(|rank| rank.0.look(op));
        // A point of its own, which also covers work of other libraries.
        let seq = stream.core().bind(op)?.count();
        let Some(pending) = PendingMark::of(&timeline.at(seq))? else {
            return look();
        };
        let mut polling = Polling::begin(limit);
        loop {
            let reached = pending.query()?;
            look()?;
            if reached {
                return Ok(());
            }
            if !polling.again() {
                return Err(NcclError::TimedOut { op, rank, after: limit }.into());
            }
        }
    }

    /// Ends all work of the communicator, pending or in progress, at this rank, and frees the
    /// communicator: `ncclCommAbort`. Streams continue; what the work would have written is
    /// unspecified. A call in progress on another thread, and every later call, returns
    /// [`NcclError::Aborted`], and so does every later launch of a graph that uses the
    /// communicator. If a call in progress [blocks](CommunicatorOptions::blocking), `abort` waits
    /// for it, and it returns as it would without `abort`.
    ///
    /// The call that frees the last rank in a process waits until no graph uses any of these ranks.
    /// So a thread of this crate makes that call, and `abort` waits for it for a second at most. A
    /// failure is also reported to the hook of [`drops::set_hook`](crate::drops::set_hook). Until
    /// the call has returned, memory of the operation that was in progress, and
    /// [registered](crate::nccl::Ranks::register) memory, are not freed.
    ///
    /// # Errors
    /// [`Error::Nccl`], [`Error::NoThread`]; the communicator is no longer used then, either.
    ///
    /// ```no_run
    /// # fn watch(communicator: cuda_core::nccl::Communicator) {
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| communicator.abort()); // from any thread
    /// });
    /// # }
    /// ```
    #[doc(alias("ncclCommAbort"))]
    pub fn abort(&self) -> Result<()> {
        self.0.abort()
    }

    /// Waits until everything has been sent and received, at this rank: `ncclCommFinalize`. If the
    /// ranks are on several machines, all ranks must call it before they drop the communicator.
    /// Afterwards the communicator enqueues nothing, and dropping it destroys it. Drop graphs that
    /// use it before this call.
    ///
    /// # Errors
    /// [`Error::Nccl`]: [`NcclError::TimedOut`] if work is pending or a graph uses the communicator
    /// when the limit has passed; the communicator is then aborted.
    #[doc(alias("ncclCommFinalize", "ncclCommDestroy"))]
    pub fn finalize(&self) -> Result<()> {
        finalize_all(&[&self.0])
    }
}

debug_by! { [] Communicator: |it| "Communicator" { rank: it.rank(), size: it.size(); .. } }
