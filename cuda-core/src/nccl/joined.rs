//! A rank of a communicator: its handle, the lock around NCCL's calls, and how it is freed.
//!
//! NCCL allows one call at a time on a communicator, and an abort frees the communicator. So each
//! call is made under the communicator's lock. Calls of [`Ranks`](super::Ranks) block, unless the
//! [options](CommunicatorOptions::blocking) say otherwise: an abort waits for them. Calls of other
//! communicators return at once, "in progress"; the caller polls until the call has completed, its
//! time limit passes, or another thread wants to abort. In the last two cases the caller itself
//! aborts, under the lock that it holds, or has another thread do so: NCCL ends the call in
//! progress before it frees anything.

use std::ffi::c_int;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use super::call::{grouped, is_refusal};
use super::failure::{async_result, check, checked, failed_work, may_have_lost_a_rank};
use super::library::Nccl;
use super::options::CommunicatorOptions;
use super::polling::{NcclScope, Polling};
use super::raw::{IN_PROGRESS, RawCommunicator, SUCCESS};
use super::remains::{DROP, Ending, Remains};
use super::unique_id::UniqueId;
use crate::context::{Context, Crossing, Exposed};
use crate::error::{Error, NcclError, Result};
use crate::process::{Handle, deferred, driver};
use crate::timeline::ledger::{Ledger, WHOLE};
use crate::timeline::recording::KeptAlive;
use crate::timeline::{Mark, Timeline};
use crate::util::{InlineVec, OwningInlineVec, lock};

/// A rank, shared by its owner and the graphs that use it.
pub(super) struct Joined {
    pub(super) nccl: &'static Nccl,
    // INVARIANT: primary.
    pub(super) context: Context,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) options: CommunicatorOptions,
    /// Whether NCCL's calls block, as far as is known.
    pub(super) blocks: bool,
    state: Mutex<State>,
    /// NCCL uses memory of peers, by access that it gives itself unless it shares memory in another
    /// way. Work that is pending when the rank is freed is waited for before that access is
    /// revoked.
    _exposed: Exposed,
    /// Set if the rank was aborted, or a thread waits to abort it: calls in progress must end, and
    /// no others begin.
    stop: AtomicBool,
    /// The progress of the abort, and the memory that is let go of after it.
    pub(super) ending: Arc<Ending>,
    /// The operations, as reads of one byte.
    uses: Ledger,
    /// The number of graphs and executables that have operations of the rank.
    in_graphs: AtomicUsize,
    /// Shared by all ranks of a [`Ranks`](super::Ranks); [`None`] for other communicators.
    pub(super) turn: Option<Arc<Turn>>,
}

/// Held by a call that enqueues operations of several ranks, and by a launch of a graph with such
/// operations: otherwise two threads could enqueue theirs in one order at one rank, and in the
/// other order at another. An abort does not take it.
#[derive(Default)]
pub(super) struct Turn {
    lock: Mutex<()>,
    /// The ranks are called one by one. The caller has promised their order, and a call that holds
    /// this lock may wait for another rank's call.
    apart: AtomicBool,
}

impl Turn {
    /// Lets no later call take the lock.
    pub(super) fn end(&self) {
        self.apart.store(true, Ordering::Relaxed);
    }
}

/// A rank that a graph uses.
pub(super) struct InGraph(Arc<Joined>);

impl InGraph {
    pub(super) fn new(joined: &Arc<Joined>) -> Self {
        joined.in_graphs.fetch_add(1, Ordering::Relaxed);
        Self(joined.clone())
    }
}

impl Drop for InGraph {
    fn drop(&mut self) {
        self.0.in_graphs.fetch_sub(1, Ordering::Relaxed);
    }
}

struct State {
    // INVARIANT: live, or null once the communicator was aborted.
    raw: Handle<RawCommunicator>,
    finalized: bool,
    /// The id that this rank has made for the next growth, by which new ranks join.
    growth_id: Option<UniqueId>,
}

/// A communicator that this thread may call.
pub(super) struct LockedRank<'a> {
    pub(super) joined: &'a Joined,
    state: MutexGuard<'a, State>,
}

impl Joined {
    /// Makes a rank of this process, whose handle is known only here, and live or null. Waits for
    /// revocations of access to other devices that are in progress.
    pub(super) fn new(
        nccl: &'static Nccl,
        context: &Context,
        (rank, size): (usize, usize),
        options: CommunicatorOptions,
        raw: RawCommunicator,
    ) -> Self {
        Self {
            nccl,
            context: context.clone(),
            rank,
            size,
            options,
            blocks: options.will_block(),
            _exposed: Exposed::new(context),
            state: Mutex::new(State { raw: Handle(raw), finalized: false, growth_id: None }),
            stop: AtomicBool::new(false),
            ending: Arc::default(),
            uses: Ledger::default(),
            in_graphs: AtomicUsize::new(0),
            turn: None,
        }
    }

    /// Sets the handle that a call has made.
    pub(super) fn set_raw(&mut self, raw: RawCommunicator) {
        self.state.get_mut().unwrap_or_else(|it| it.into_inner()).raw = Handle(raw);
    }

    /// Returns what remains of the rank without its owner.
    fn remains(&self, raw: Handle<RawCommunicator>, finalized: bool) -> Remains {
        let context = self.context.clone();
        Remains { nccl: self.nccl, context, rank: self.rank, raw, finalized }
    }

    /// Locks the communicator for a call.
    ///
    /// # Errors
    /// [`NcclError::Aborted`], [`NcclError::Finalized`].
    #[inline]
    pub(super) fn hold(&self, op: &'static str) -> Result<LockedRank<'_>> {
        let held = self.hold_as_it_is();
        let rank = self.rank;
        if held.raw().is_null() || self.is_stopped() {
            return Err(NcclError::Aborted { op, rank }.into());
        }
        if held.state.finalized {
            return Err(NcclError::Finalized { op, rank }.into());
        }
        Ok(held)
    }

    /// Locks the communicator for a call that may come after it was finalised or aborted.
    #[inline]
    pub(super) fn hold_as_it_is(&self) -> LockedRank<'_> {
        LockedRank { joined: self, state: lock(&self.state) }
    }

    /// Returns the error of a communicator that was aborted or whose work has failed. Does not wait
    /// for a thread that is calling the communicator.
    pub(super) fn look(&self, op: &'static str) -> Result<()> {
        let aborted = || Err(NcclError::Aborted { op, rank: self.rank }.into());
        // An abort holds the lock, perhaps long after it has ended the work, which then seems to
        // have completed.
        if self.is_stopped() {
            return aborted();
        }
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let held = LockedRank { joined: self, state };
        if held.raw().is_null() {
            return aborted();
        }
        held.look(op)
    }

    /// Returns the lock that a call holds while it enqueues operations of several ranks.
    #[inline]
    pub(super) fn turn(&self) -> Option<&Mutex<()>> {
        let turn = self.turn.as_deref()?;
        (!turn.apart.load(Ordering::Relaxed)).then_some(&turn.lock)
    }

    /// Notes that an operation was enqueued at this point.
    #[inline]
    pub(super) fn note_use(&self, stream: &Arc<Timeline>, seq: u64) {
        self.uses.mark_whole(stream, seq);
    }

    /// Returns why work can never complete: the context is lost, or NCCL reports an error. An abort
    /// ends such work.
    pub(super) fn why_lost(&self) -> Option<Error> {
        match self.uses.last_uses(&WHOLE).query() {
            Ok(false) => {
                let held = self.hold(DROP).ok()?;
                // SAFETY: the communicator is live and locked.
                unsafe { failed_work(DROP, self.nccl, (held.raw(), Some(self.rank))) }
            }
            Ok(true) => None,
            Err(error) => Some(error).filter(Error::is_sticky),
        }
    }

    /// Makes calls in progress on other threads end, and refuses further ones.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Returns whether the rank was aborted, or is to be.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn abort(&self) -> Result<()> {
        driver::ensure()?;
        self.stop();
        let _scope = NcclScope::relaxed(&self.context)?;
        // A thread that is calling it may wait for a drop that is queued behind this one.
        deferred::hand_over();
        self.hold_as_it_is().abort()
    }
}

impl LockedRank<'_> {
    #[inline]
    pub(super) fn raw(&self) -> RawCommunicator {
        self.state.raw.0
    }

    /// Returns the result of the call `op`, which returned `code`, once it is no longer in
    /// progress.
    #[inline]
    pub(super) fn finish(&mut self, op: &'static str, code: c_int) -> Result<()> {
        match code {
            IN_PROGRESS => await_all(op, std::slice::from_mut(self)),
            code => self.check(op, code),
        }
    }

    /// The id that this rank has made for the next growth, if any.
    pub(super) fn growth_id(&mut self) -> &mut Option<UniqueId> {
        &mut self.state.growth_id
    }

    /// Turns NCCL's result into this crate's.
    #[inline]
    pub(super) fn check(&self, op: &'static str, code: c_int) -> Result<()> {
        check(op, self.joined.nccl, code, (self.raw(), Some(self.joined.rank)))
    }

    /// Returns the result of the call in progress or of earlier work; an error if NCCL refuses to
    /// say. The communicator must not have been aborted before it was locked.
    pub(super) fn async_result(&self) -> Result<c_int, c_int> {
        debug_assert!(!self.raw().is_null());
        // SAFETY: the communicator is live and locked.
        unsafe { async_result(self.joined.nccl, self.raw()) }
    }

    /// Returns the error of work that has failed.
    pub(super) fn look(&self, op: &'static str) -> Result<()> {
        match self.async_result() {
            Ok(IN_PROGRESS) => Ok(()),
            Ok(code) | Err(code) => self.check(op, code),
        }
    }

    /// Ends all work of the communicator, including the call in progress, and frees the
    /// communicator, or reports that it may be leaked. Does nothing if that was done before.
    ///
    /// NCCL ends the work at once, but its call may take longer than this function.
    pub(super) fn abort(&mut self) -> Result<()> {
        // Launches of graphs read this, since they must not wait for calls in progress.
        self.joined.stop();
        let raw = mem::replace(&mut self.state.raw, Handle(ptr::null_mut()));
        if raw.0.is_null() {
            return Ok(());
        }
        self.joined.remains(raw, false).end(&self.joined.ending)
    }
}

/// Communicators that are locked together.
pub(super) type HeldRanks<'a> = OwningInlineVec<LockedRank<'a>, 8>;

/// Locks communicators, each once, in the order of their addresses, which all threads follow.
///
/// # Errors
/// As [`Joined::hold`].
#[inline]
pub(super) fn hold_all<'a>(
    op: &'static str,
    all: impl Iterator<Item = &'a Arc<Joined>>,
    held: &mut HeldRanks<'a>,
) -> Result<()> {
    let mut listed = InlineVec::<_, 8>::new();
    all.for_each(|joined| listed.push(|| joined));
    let (listed, mut last) = (listed.as_mut_slice(), ptr::null());
    if !listed.is_sorted_by_key(|joined| Arc::as_ptr(joined)) {
        listed.sort_unstable_by_key(|joined| Arc::as_ptr(joined));
    }
    for joined in listed {
        let next = Arc::as_ptr(joined);
        if next != last {
            held.push(joined.hold(op)?);
        }
        last = next;
    }
    Ok(())
}

/// Returns whether a call may still enqueue work: it is in progress, or NCCL refuses to say.
fn may_go_on(result: &Result<c_int, c_int>) -> bool {
    !matches!(result, Ok(code) if *code != IN_PROGRESS)
}

/// Returns the result of calls that are in progress together. If one fails, if they take longer
/// than the limit, or if another thread is waiting to abort one, aborts those that are still in
/// progress.
pub(super) fn await_all(op: &'static str, all: &mut [LockedRank<'_>]) -> Result<()> {
    let Some(limit) = all.iter().map(|held| held.joined.options.limit).min() else {
        return Ok(());
    };
    let mut polling = Polling::begin(limit);
    loop {
        let results = all.iter().fold(InlineVec::<_, 8>::new(), |mut results, held| {
            results.push(|| held.async_result());
            results
        });
        let results = results.as_slice();
        let known = all.iter().zip(results).filter(|(_, result)| **result != Ok(IN_PROGRESS));
        let checked = known.map(|(held, Ok(code) | Err(code))| held.check(op, *code));
        let mut result = checked.fold(Ok(()), Result::and);
        let Some(first) = results.iter().position(may_go_on) else {
            return result;
        };
        if result.is_ok() {
            result = match all.iter().find(|held| held.joined.is_stopped()) {
                Some(held) => Err(NcclError::Aborted { op, rank: held.joined.rank }.into()),
                None if polling.again() => continue,
                None => {
                    let rank = all[first].joined.rank;
                    Err(NcclError::TimedOut { op, rank, after: limit }.into())
                }
            };
        }
        let pending = all.iter_mut().zip(results).filter(|(_, result)| may_go_on(result));
        // Failures go to the drop hook.
        pending.for_each(|(held, _)| drop(held.abort()));
        return result;
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let State { raw, finalized, .. } =
            *self.state.get_mut().unwrap_or_else(|it| it.into_inner());
        // In a forked child, threads that do not exist there may hold this crate's locks.
        if raw.0.is_null() || driver::is_gone() {
            return;
        }
        let uses = mem::take(&mut self.uses).last_uses(&WHOLE);
        let (limit, remains) = (self.options.limit, self.remains(raw, finalized));
        // If stopped, an abort could not begin. The work may wait for ranks that were aborted.
        let stopped = *self.stop.get_mut();
        deferred::run_or_defer(move || match stopped {
            true => drop(remains.end(&Arc::default())),
            false => remains.end_behind(&uses, limit),
        });
    }
}

impl KeptAlive for InGraph {
    /// Freeing the communicator waits for the launch.
    fn note_last_launch(&self, mark: &Mark) -> bool {
        self.0.note_use(&mark.timeline, mark.seq);
        true
    }

    fn turn(&self) -> Option<&Mutex<()>> {
        self.0.turn()
    }

    /// Takes no lock: a launch may block until work has ended that waits for a lost rank, and only
    /// an abort ends this work. So another thread may abort between this answer and the launch. The
    /// launch then uses nothing that is freed: NCCL polls "until all CUDA graphs referencing the
    /// communicator are destroyed" before it frees what they use, also after an abort, which
    /// "prevents launching CUDA graphs on an already-destroyed communicator" (NVIDIA's guide to
    /// CUDA graphs).
    fn admits(&self, op: &'static str) -> Result<Option<Crossing>> {
        let aborted = NcclError::Aborted { op, rank: self.0.rank };
        if self.0.is_stopped() { Err(aborted.into()) } else { Ok(None) }
    }
}

/// Locks these ranks once their work has ended and no graph has any of them, within their limit: a
/// blocking call would wait for both without a limit. Does not wait under the locks, since ending
/// the use may need them: a graph that is dropped takes its memory off a rank's registrations.
fn hold_unused<'a>(
    op: &'static str,
    ranks: &[&'a Arc<Joined>],
    held: &mut HeldRanks<'a>,
) -> Result<()> {
    let limit = ranks.iter().map(|joined| joined.options.limit).min().unwrap_or_default();
    let mut polling = Polling::begin(limit);
    loop {
        hold_all(op, ranks.iter().copied(), held)?;
        let mut used = None;
        for held in held.as_mut_slice() {
            let joined = held.joined;
            let is_over = joined.uses.last_uses(&WHOLE).query()?;
            if !is_over || joined.in_graphs.load(Ordering::Relaxed) > 0 {
                used = Some(joined.rank);
            }
            held.look(op)?;
        }
        let Some(rank) = used else { return Ok(()) };
        *held = HeldRanks::new();
        if !polling.again() {
            return Err(NcclError::TimedOut { op, rank, after: limit }.into());
        }
    }
}

/// Finalises ranks of one communicator together.
pub(super) fn finalize_all(ranks: &[&Arc<Joined>]) -> Result<()> {
    let op = "ncclCommFinalize";
    driver::ensure()?;
    let Some(first) = ranks.first() else {
        return Ok(());
    };
    let _scope = NcclScope::relaxed(&first.context)?;
    let mut held = HeldRanks::new();
    let locked = match first.blocks {
        true => hold_unused(op, ranks, &mut held),
        false => hold_all(op, ranks.iter().copied(), &mut held),
    };
    if first.blocks && locked.as_ref().is_err_and(may_have_lost_a_rank) {
        held = HeldRanks::new();
        // An abort, as after a call that does not block. Failures go to the drop hook.
        ranks.iter().for_each(|joined| drop(joined.abort()));
    }
    locked?;
    let all = held.as_mut_slice();
    let mut refused = None;
    // Makes the calls of all ranks before any is waited for.
    let mut calls = || {
        for held in all.iter() {
            // SAFETY: the communicator is live and locked.
            let code = unsafe { (held.joined.nccl.finalize)(held.raw()) };
            if is_refusal(code) {
                refused.get_or_insert((held, code));
            }
        }
        SUCCESS
    };
    // A blocking call may wait for the calls of the other ranks.
    let ended = if first.blocks { grouped(first.nccl, calls) } else { calls() };
    let made = match refused {
        Some((held, code)) => held.check(op, code),
        None if is_refusal(ended) => checked(op, first.nccl, ended),
        None => Ok(()),
    };
    let result = match made {
        Ok(()) => await_all(op, all),
        Err(error) => {
            // The calls in progress would wait for the refused one. Failures go to the drop hook.
            let waiting = all.iter_mut().filter(|held| may_go_on(&held.async_result()));
            waiting.for_each(|held| drop(held.abort()));
            Err(error)
        }
    };
    all.iter_mut().for_each(|held| held.state.finalized = result.is_ok());
    result
}
