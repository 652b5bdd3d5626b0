//! Communicators made from others: from some of their ranks, or with more ranks.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{mem, ptr};

use super::call::is_refusal;
use super::communicator::Communicator;
use super::joined::{Joined, LockedRank, await_all};
use super::joining::{GROW, JoinBy};
use super::library::missing;
use super::options::CommunicatorOptions;
use super::polling::NcclScope;
use super::raw::{
    IN_PROGRESS, RawCommunicator, RawConfig, SHRINK_ABORT, SHRINK_DEFAULT, SPLIT_NOCOLOR, SUCCESS,
};
use super::unique_id::UniqueId;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::memory::within;
use crate::process::driver;

/// The rank number that a rank of a growing communicator passes: it keeps its own.
const KEPT_RANK: c_int = -1;

/// The communicator that NCCL reports as in progress while it makes another from it.
enum InProgress {
    This,
    New,
}

/// # Making communicators from others
impl Communicator {
    /// Splits this communicator: the ranks that give the same `color` form a new one, ordered by
    /// `key`, and for equal keys by rank. A rank that passes [`None`] joins no new communicator.
    /// All ranks call it: `ncclCommSplit`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a colour beyond `i32::MAX`; [`Error::Nccl`].
    ///
    /// ```no_run
    /// # fn halves(communicator: cuda_core::nccl::Communicator) -> cuda_core::Result<()> {
    /// let half = communicator.split(Some((communicator.rank() % 2) as u32), 0)?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("ncclCommSplit"))]
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>> {
        let op = "ncclCommSplit";
        driver::ensure()?;
        let split = self.0.nccl.split;
        let color = color.map_or(Ok(SPLIT_NOCOLOR), c_int::try_from);
        let color = color.map_err(|_| Error::invalid(op, "the colour is beyond i32::MAX"))?;
        self.derive(op, InProgress::This, |held, new, config| {
            // SAFETY: `derive` passes a live, locked communicator, a place for another handle that
            // outlives the call, and a configuration that is only read.
            unsafe { split(held.raw(), color, key, new, config) }
        })
    }

    /// Makes a communicator without the `excluded` ranks of this one: `ncclCommShrink`, from NCCL 2.27
    /// on. The other ranks keep their order. They call it, all with the same list, when their work
    /// on this communicator has completed; the excluded ranks do not call it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no rank is excluded, for a rank that does not exist, and for this
    /// rank; [`Error::Nccl`], with [`NcclError::Missing`](crate::NcclError::Missing) for an older
    /// NCCL.
    ///
    /// ```no_run
    /// # fn fewer(communicator: cuda_core::nccl::Communicator) -> cuda_core::Result<()> {
    /// let last = communicator.size() - 1;
    /// if communicator.rank() < last {
    ///     let others = communicator.shrink(&[last])?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("ncclCommShrink", "NCCL_SHRINK_DEFAULT"))]
    pub fn shrink(&self, excluded: &[usize]) -> Result<Self> {
        self.shrink_by(excluded, SHRINK_DEFAULT)
    }

    /// Shrinks as [`shrink`](Self::shrink) does, after ranks were lost; no new [`UniqueId`] has to
    /// be handed out. Ends the pending work of this communicator first, with unspecified results,
    /// and [aborts](Self::abort) the communicator in the end.
    ///
    /// NCCL blocks the thread, without a limit, until the streams have reached that work, and
    /// another thread's abort waits for that. So first abort other communicators whose work these
    /// streams wait for.
    ///
    /// # Errors
    /// As [`shrink`](Self::shrink), after the pending work was ended: NCCL refuses a communicator
    /// with an [error](Self::async_error).
    ///
    /// ```no_run
    /// # fn step(communicator: cuda_core::nccl::Communicator, stream: cuda_core::Stream, lost: usize) -> cuda_core::Result<()> {
    /// if communicator.wait(&stream).is_err() {
    ///     // All that are left have found out that it is this rank.
    ///     let left = communicator.shrink_after_loss(&[lost])?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("ncclCommShrink", "NCCL_SHRINK_ABORT"))]
    pub fn shrink_after_loss(&self, lost: &[usize]) -> Result<Self> {
        let left = self.shrink_by(lost, SHRINK_ABORT)?;
        // Its ranks no longer agree on what was enqueued. Failures go to the drop hook.
        drop(self.abort());
        Ok(left)
    }

    fn shrink_by(&self, excluded: &[usize], flags: c_int) -> Result<Self> {
        let op = "ncclCommShrink";
        driver::ensure()?;
        let shrink = self.0.nccl.shrink.ok_or_else(|| missing(op))?;
        excluded.iter().try_for_each(|&rank| within(op, "excluded rank", rank, self.size()))?;
        Error::unless(!excluded.is_empty(), op, "no rank is excluded")?;
        let own = excluded.contains(&self.rank());
        Error::unless(!own, op, "this rank is excluded; only those that stay call it")?;
        // A communicator's size fits in a `c_int`.
        let mut excluded: Vec<c_int> = excluded.iter().map(|&rank| rank as c_int).collect();
        excluded.sort_unstable();
        excluded.dedup();
        let count = excluded.len() as c_int;
        let made = self.derive(op, InProgress::This, |held, new, config| {
            // SAFETY: the communicator is live and locked, with its context current; the call
            // writes one handle, to a place that `derive` keeps until NCCL has completed. NCCL 2.27
            // and later copy the ranks, which are sorted, to the job (`ncclCommInitChildComm` in
            // `init.cc`) before the function returns.
            unsafe { shrink(held.raw(), excluded.as_mut_ptr(), count, new, config, flags) }
        });
        made?.ok_or_else(|| Error::invalid(op, "NCCL has made no communicator"))
    }

    /// Returns the id by which new ranks join this communicator's ranks at its next growth:
    /// `ncclCommGetUniqueId`, from NCCL 2.29 on. One rank makes the id and sends it to the new
    /// ranks. These call [`join_grown`](Self::join_grown), and all ranks of this communicator call
    /// [`grow`](Self::grow), which has an example. Until then each call returns the same id.
    ///
    /// # Errors
    /// [`Error::Nccl`], with [`NcclError::Missing`](crate::NcclError::Missing) for an older NCCL.
    #[doc(alias("ncclCommGetUniqueId"))]
    pub fn growth_id(&self) -> Result<UniqueId> {
        let op = "ncclCommGetUniqueId";
        driver::ensure()?;
        let growth_id = self.0.nccl.growth_id.ok_or_else(|| missing(op))?;
        let _scope = NcclScope::relaxed(&self.0.context)?;
        let mut held = self.0.hold(op)?;
        // If asked again, NCCL would give the new ranks another id than the existing ranks.
        if let Some(known) = *held.growth_id() {
            return Ok(known);
        }
        let id = UniqueId::made_by(|id| {
            // SAFETY: the communicator is live and locked, with its context current; the call
            // writes one id, to a place that outlives it.
            held.check(op, unsafe { growth_id(held.raw(), id) })
        })?;
        *held.growth_id() = Some(id);
        Ok(id)
    }

    /// Makes a communicator of `size` ranks: those of this one, which keep their numbers, and new
    /// ones, which [join](Self::join_grown) meanwhile: `ncclCommGrow`, from NCCL 2.29 on. All ranks
    /// of this one call it, when their work on it has completed, and then drop this one.
    ///
    /// In a communicator of several ranks, until one of them has made the [id](Self::growth_id),
    /// NCCL blocks the threads of the first and of the last rank, without a limit, and another
    /// thread's abort waits for that. If a rank of this communicator is lost during the call, NCCL
    /// may wait for it beyond the limit: then [abort](Self::abort) this communicator, rather than
    /// [shrink](Self::shrink_after_loss) it.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `size` is greater than this one's; [`Error::SizeOverflow`] for a size
    /// that NCCL cannot count; [`Error::Nccl`], with
    /// [`NcclError::TimedOut`](crate::NcclError::TimedOut) if a new rank did not join, and with
    /// [`NcclError::Missing`](crate::NcclError::Missing) for an older NCCL.
    ///
    /// ```no_run
    /// use cuda_core::nccl::{Communicator, CommunicatorOptions, UniqueId};
    ///
    /// # fn send(_: UniqueId) {}
    /// # fn receive() -> UniqueId { loop {} }
    /// # fn of_two_ranks(communicator: Communicator) -> cuda_core::Result<()> {
    /// if communicator.rank() == 0 {
    ///     send(communicator.growth_id()?); // to the process that is new
    /// }
    /// let communicator = communicator.grow(3)?;
    /// # Ok(())
    /// # }
    /// # fn new_process(context: cuda_core::Context) -> cuda_core::Result<()> {
    /// // In the new process:
    /// let options = CommunicatorOptions::new();
    /// // SAFETY: all ranks run this program, which makes the same calls at each.
    /// let communicator = unsafe { Communicator::join_grown(&context, receive(), 2, 3, &options) }?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("ncclCommGrow"))]
    pub fn grow(&self, size: usize) -> Result<Self> {
        let op = GROW;
        driver::ensure()?;
        let grow = self.0.nccl.grow.ok_or_else(|| missing(op))?;
        let why = || format!("{size} ranks are no more than the {} that there are", self.size());
        Error::unless_with(size > self.size(), op, why)?;
        let count = c_int::try_from(size);
        let count = count.map_err(|_| Error::SizeOverflow { len: size, element_size: 1 })?;
        let made = self.derive(op, InProgress::New, |held, new, config| {
            let id = held.growth_id().map(UniqueId::raw);
            let id = id.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: as for `shrink`; the id is null or a local, which NCCL copies to the job
            // (`ncclCommGrow` in `init.cc`) before the function returns.
            let code = unsafe { grow(held.raw(), count, id, KEPT_RANK, new, config) };
            // New ranks may have the id of a refused growth already.
            if !is_refusal(code) {
                *held.growth_id() = None;
            }
            code
        });
        made?.ok_or_else(|| Error::invalid(op, "NCCL has made no communicator"))
    }

    /// Joins the ranks of a communicator that [grows](Self::grow) to `size` ranks, by its
    /// [id](Self::growth_id): `ncclCommGrow`, from NCCL 2.29 on. `rank` is a number that the
    /// communicator does not have yet. [`grow`](Self::grow) has an example.
    ///
    /// # Errors
    /// As [`init_rank_with`](Self::init_rank_with).
    ///
    /// # Safety
    /// As [`init_rank`](Self::init_rank).
    #[doc(alias("ncclCommGrow"))]
    pub unsafe fn join_grown(
        context: &Context,
        id: UniqueId,
        rank: usize,
        size: usize,
        options: &CommunicatorOptions,
    ) -> Result<Self> {
        let place = Arc::new(AtomicPtr::new(ptr::null_mut()));
        let mut begun = Vec::new();
        let how = JoinBy::Growth(id, &place);
        let made = Joined::begin(context, how, (rank, size), options, &mut begun)
            .and_then(|()| Self::finish(GROW, begun));
        if made.is_err() {
            // Another thread may still write to the place.
            mem::forget(place);
        }
        made.map(|mut it| it.remove(0))
    }

    /// Makes a communicator from this one by `call`, which may also make none. `call` gets this
    /// communicator, live and locked, with its context current; a place for a handle, which lives
    /// until neither communicator has a call in progress; and a configuration to read before it
    /// returns.
    fn derive(
        &self,
        op: &'static str,
        in_progress: InProgress,
        call: impl FnOnce(&mut LockedRank<'_>, *mut RawCommunicator, *mut RawConfig) -> c_int,
    ) -> Result<Option<Self>> {
        let Joined { nccl, options, ref context, .. } = *self.0;
        let mut config = options.config(op)?;
        // Made before NCCL gives itself access to the memory of peers.
        let place = (self.rank(), self.size());
        let mut joined = Joined::new(nccl, context, place, options, ptr::null_mut());
        // Another thread may write the handle. So the place is leaked below if the call may still
        // be in progress: an abort that waits for graphs may not yet have ended it.
        let raw = Arc::new(AtomicPtr::new(ptr::null_mut()));
        let _scope = NcclScope::relaxed(context)?;
        let mut held = self.0.hold(op)?;
        let code = call(&mut held, raw.as_ptr(), &mut config);
        // NCCL 2.28 returns success also from a call that is in progress.
        let code = if code == SUCCESS { IN_PROGRESS } else { code };
        let finished = match (code, in_progress) {
            // Waited for below.
            (IN_PROGRESS, InProgress::New) => Ok(()),
            _ => held.finish(op, code),
        };
        let made = raw.load(Ordering::Acquire);
        joined.set_raw(made);
        if let Err(error) = finished {
            if code == IN_PROGRESS {
                mem::forget(raw);
            }
            if !made.is_null() {
                // NCCL has linked this communicator with the one that could not be made, which is
                // freed afterwards; a later abort of this one would use it. Failures go to the drop hook.
                drop(held.abort());
            }
            return Err(error);
        }
        if made.is_null() {
            return Ok(None);
        }
        // Waits for both, since another thread may want to abort this one: NCCL uses it until the
        // new one is made.
        let ready = joined.hold(op).and_then(|new| await_all(op, &mut [held, new]));
        if ready.is_err() {
            mem::forget(raw);
        }
        ready?;
        let held = joined.hold(op)?;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the communicator is live, and known only here; the call writes one number, to a
        // local that outlives it.
        held.check("ncclCommUserRank", unsafe { (nccl.user_rank)(made, &mut rank) })?;
        // SAFETY: as above.
        held.check("ncclCommCount", unsafe { (nccl.count)(made, &mut size) })?;
        drop(held);
        // NCCL returns no negative numbers.
        (joined.rank, joined.size) = (rank as usize, size as usize);
        Ok(Some(Self(Arc::new(joined))))
    }
}
