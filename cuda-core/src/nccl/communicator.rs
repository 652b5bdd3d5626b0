//! A rank of a communicator: its handle, the lock around NCCL's calls, and its end.
//!
//! NCCL allows one call at a time on a communicator, and frees it when it is aborted. So each call is
//! made under the lock of its communicator, and none blocks: communicators are created so that calls
//! return at once, "in progress", and the caller asks until that is over, its time limit passes, or
//! another thread wants to abort. In the last two cases it is the caller itself that aborts, under the
//! lock that it has: NCCL then ends the call in progress before it frees anything.

use std::ffi::{CStr, c_char, c_int};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use super::library::{Nccl, nccl};
use super::raw::{IN_PROGRESS, RawCommunicator, RawConfig, SPLIT_NOCOLOR, SUCCESS};
use super::unique_id::UniqueId;
use crate::context::Context;
use crate::context::guard::Guard;
use crate::error::{Error, NcclError, Result};
use crate::memory::within;
use crate::process::capture_mode::RelaxedCaptureMode;
use crate::process::foreign_code::DeferForeignCode;
use crate::process::handle::Handle;
use crate::process::{deferred, driver, drop_hook};
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::{Access, Fences, Ledger, Use};
use crate::timeline::recording::KeptAlive;
use crate::timeline::{Mark, Timeline};
use crate::types::resource::Resource;
use crate::util::by_parts::debug_by;
use crate::util::inline_vec::InlineVec;
use crate::util::sync::lock;
use crate::wait::{PendingMark, when_reached};

/// One rank of a group of devices, of this process and others, that communicate.
///
/// [`on`](Self::on) gives its operations on a stream, which are enqueued like kernels: ordered with
/// the work of all streams that use the same memory, which stays allocated until they are done.
///
/// **Time limit.** What involves the other ranks, creation included, is given up after the limit of
/// its [`CommunicatorOptions`], and the communicator is then aborted. [`Communicator::wait`] waits for
/// work with that limit; other waits, such as [`Stream::synchronize`], have none. Where a rank was
/// lost, [`abort`](Self::abort) ends the work that waits for it.
///
/// **Drop** never blocks. Work that is in flight keeps the communicator; when it is done, the
/// communicator is freed as by [`abort`](Self::abort): call [`finalize`](Self::finalize) before, if
/// ranks of other machines may still be receiving. Work that waits for a lost rank is never done:
/// call [`abort`](Self::abort).
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
/// let communicator = unsafe { Communicator::init_rank(&context, &id, rank, size) }?;
/// let stream = context.create_stream()?;
/// let mut gradients = stream.alloc_zeroed::<f32>(1 << 20)?;
/// communicator.on(&stream)?.all_reduce_in_place(&mut gradients, Reduction::Average)?;
/// communicator.wait(&stream)?; // not for ever
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct Communicator(pub(super) Arc<Joined>);

/// How a communicator is created.
///
/// ```no_run
/// use std::time::Duration;
///
/// let options = cuda_core::nccl::CommunicatorOptions::new().limit(Duration::from_secs(30));
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct CommunicatorOptions {
    limit: Duration,
}

impl CommunicatorOptions {
    /// Ten minutes.
    const LIMIT: Duration = Duration::from_secs(600);

    /// A time limit of ten minutes.
    pub const fn new() -> Self {
        Self { limit: Self::LIMIT }
    }

    /// How long a call, or a [wait](Communicator::wait), may take.
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

impl Default for CommunicatorOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A rank behind its owner, and behind graphs that use it.
pub(super) struct Joined {
    pub(super) nccl: &'static Nccl,
    // INVARIANT: primary.
    pub(super) context: Context,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) limit: Duration,
    state: Mutex<State>,
    /// A thread waits to abort: calls in progress are to end.
    stop: AtomicBool,
    /// Operations, as reads of one byte.
    uses: Ledger,
}

struct State {
    // INVARIANT: live, or null once the communicator was aborted.
    raw: Handle<RawCommunicator>,
    finalized: bool,
}

/// The one byte that stands for a communicator in its ledger.
const ALL: std::ops::Range<usize> = 0..1;

/// A communicator that this thread may call.
pub(super) struct Held<'a> {
    pub(super) joined: &'a Joined,
    state: MutexGuard<'a, State>,
}

/// A context made current around calls of NCCL, which switches contexts itself. Foreign code that the
/// calls cause, such as drop hooks, runs when this ends, so that no lock is held.
pub(super) struct Scope {
    // Dropped in this order.
    _relaxed: Option<RelaxedCaptureMode>,
    _guard: Guard,
    _quiet: DeferForeignCode,
}

impl Scope {
    #[inline]
    pub(super) fn enter(context: &Context) -> Result<Self> {
        let _quiet = DeferForeignCode::begin();
        Ok(Self { _relaxed: None, _guard: Guard::enter(context)?, _quiet })
    }

    /// For calls that allocate or free, which must end no capture.
    pub(super) fn relaxed(context: &Context) -> Result<Self> {
        let scope = Self::enter(context)?;
        Ok(Self { _relaxed: Some(RelaxedCaptureMode::enter()?), ..scope })
    }
}

/// Asking again and again, more and more rarely, until a limit.
struct Polling {
    since: Instant,
    limit: Duration,
    pause: Duration,
}

impl Polling {
    /// How long it asks without pauses: most calls take less.
    const BUSY: Duration = Duration::from_micros(200);
    const SHORTEST: Duration = Duration::from_micros(10);
    const LONGEST: Duration = Duration::from_millis(1);

    fn begin(limit: Duration) -> Self {
        Self { since: Instant::now(), limit, pause: Self::SHORTEST }
    }

    /// Waits before another question; returns whether there is time for one.
    fn again(&mut self) -> bool {
        let spent = self.since.elapsed();
        if spent < Self::BUSY {
            thread::yield_now();
        } else {
            thread::sleep(self.pause);
            self.pause = (2 * self.pause).min(Self::LONGEST);
        }
        spent < self.limit
    }
}

/// Turns NCCL's result of a call outside a communicator into this crate's.
pub(super) fn checked(op: &'static str, nccl: &Nccl, code: c_int) -> Result<()> {
    check(op, nccl, code, (ptr::null_mut(), None))
}

#[inline]
fn check(
    op: &'static str,
    nccl: &Nccl,
    code: c_int,
    at: (RawCommunicator, Option<usize>),
) -> Result<()> {
    if code == SUCCESS { Ok(()) } else { Err(failed(op, nccl, code, at)) }
}

#[cold]
fn failed(
    op: &'static str,
    nccl: &Nccl,
    code: c_int,
    (raw, rank): (RawCommunicator, Option<usize>),
) -> Error {
    // SAFETY: the function takes any number, and returns a static text.
    let mut reason = text(unsafe { (nccl.error_string)(code) });
    // SAFETY: the communicator is live, or null, which the function takes; the text stays as it is
    // until the next error, and is copied here.
    let last = text(unsafe { (nccl.last_error)(raw) });
    if !last.is_empty() {
        reason = format!("{reason}: {}", last.trim_end());
    }
    NcclError::Failed { op, code, rank, reason }.into()
}

/// A text of NCCL's.
fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, so a C string of NCCL's.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Joined {
    /// Begins to join, which is in progress afterwards.
    pub(super) fn begin(
        context: &Context,
        id: &UniqueId,
        (rank, size): (usize, usize),
        options: &CommunicatorOptions,
    ) -> Result<Self> {
        let op = INIT_RANK;
        let nccl = nccl()?;
        let reason = "NCCL works in the primary context of a device; another was given";
        Error::unless(context.is_primary(), op, reason)?;
        let numbers = c_int::try_from(rank).ok().zip(c_int::try_from(size).ok());
        let (number, count) = numbers.ok_or(Error::SizeOverflow { len: size, element_size: 1 })?;
        within(rank, size)?;
        let mut raw = ptr::null_mut();
        let mut config = RawConfig::non_blocking();
        let scope = Scope::relaxed(context)?;
        // SAFETY: the context is current. The call reads the configuration, and writes one handle,
        // to locals that outlive it; what it leaves in progress uses neither.
        let code = unsafe { (nccl.init_rank)(&mut raw, count, id.raw(), number, &mut config) };
        drop(scope);
        // Dropped, if the call has failed after making it.
        let joined = Self::new(nccl, context, (rank, size), options.limit, raw);
        if code != IN_PROGRESS {
            check(op, nccl, code, (raw, Some(rank)))?;
        }
        Ok(joined)
    }

    /// A rank of this process, whose handle is known only here, and live or null.
    fn new(
        nccl: &'static Nccl,
        context: &Context,
        (rank, size): (usize, usize),
        limit: Duration,
        raw: RawCommunicator,
    ) -> Self {
        Self {
            nccl,
            context: context.clone(),
            rank,
            size,
            limit,
            state: Mutex::new(State { raw: Handle(raw), finalized: false }),
            stop: AtomicBool::new(false),
            uses: Ledger::default(),
        }
    }

    /// Locks the communicator for a call.
    ///
    /// # Errors
    /// [`NcclError::Aborted`], [`NcclError::Finalized`].
    #[inline]
    pub(super) fn hold(&self, op: &'static str) -> Result<Held<'_>> {
        let state = lock(&self.state);
        let rank = self.rank;
        if state.raw.0.is_null() || self.stop.load(Ordering::Acquire) {
            return Err(NcclError::Aborted { op, rank }.into());
        }
        if state.finalized {
            return Err(NcclError::Finalized { op, rank }.into());
        }
        Ok(Held { joined: self, state })
    }

    /// Notes that an operation was enqueued at this point.
    #[inline]
    pub(super) fn note_use(&self, stream: &Arc<Timeline>, seq: u64) {
        let (range, access, fences) = (&ALL, Access::Read, &Fences::none());
        self.uses.mark(Use { range, access, stream, seq, fences });
    }

    /// Whether work can never be done, since the context is lost.
    pub(super) fn is_lost(&self) -> bool {
        let reached = self.uses.last_uses(&ALL).query();
        reached.is_err_and(|error| error.is_sticky())
    }

    /// Ends calls in progress on other threads, and refuses further ones.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    fn abort(&self) -> Result<()> {
        driver::ensure()?;
        self.stop();
        let _scope = Scope::relaxed(&self.context)?;
        Held { joined: self, state: lock(&self.state) }.abort()
    }
}

impl Held<'_> {
    #[inline]
    pub(super) fn raw(&self) -> RawCommunicator {
        self.state.raw.0
    }

    /// The result of the call `op`, which returned `code`, once it is not in progress.
    #[inline]
    pub(super) fn finish(&mut self, op: &'static str, code: c_int) -> Result<()> {
        match code {
            IN_PROGRESS => await_all(op, std::slice::from_mut(self)),
            code => self.check(op, code),
        }
    }

    /// Turns NCCL's result into this crate's.
    #[inline]
    pub(super) fn check(&self, op: &'static str, code: c_int) -> Result<()> {
        check(op, self.joined.nccl, code, (self.raw(), Some(self.joined.rank)))
    }

    /// What the call in progress, or earlier work, has come to.
    fn async_result(&self) -> c_int {
        let mut result = SUCCESS;
        // SAFETY: the communicator is live and locked; the call writes one number, to a local that
        // outlives it.
        match unsafe { (self.joined.nccl.async_error)(self.raw(), &mut result) } {
            SUCCESS => result,
            refused => refused,
        }
    }

    /// Ends all work of the communicator, the call in progress included, and frees it, or reports that
    /// it may be left. Nothing if that was done before.
    pub(super) fn abort(&mut self) -> Result<()> {
        let raw = mem::replace(&mut self.state.raw, Handle(ptr::null_mut()));
        if raw.0.is_null() {
            return Ok(());
        }
        let ended = end(self.joined.nccl, raw, false, self.joined.rank);
        ended.inspect_err(|error| report(raw, error))
    }
}

fn report(raw: Handle<RawCommunicator>, error: &Error) {
    drop_hook::report(Resource::Communicator, raw.number(), 0, Some(error.clone()));
}

/// The result of calls that are in progress together. If one fails, if they take longer than the limit,
/// or if another thread is waiting to abort one, those that are still in progress are aborted.
pub(super) fn await_all(op: &'static str, all: &mut [Held<'_>]) -> Result<()> {
    let Some(limit) = all.iter().map(|held| held.joined.limit).min() else {
        return Ok(());
    };
    let mut polling = Polling::begin(limit);
    loop {
        let codes: InlineVec<c_int, 8> = all.iter().fold(InlineVec::new(), |mut codes, held| {
            codes.push(|| held.async_result());
            codes
        });
        let pending = |code: &c_int| *code == IN_PROGRESS;
        let first = codes.as_slice().iter().position(pending);
        let over = all.iter().zip(codes.as_slice()).filter(|(_, code)| !pending(code));
        let mut result = over.map(|(held, code)| held.check(op, *code)).fold(Ok(()), Result::and);
        let Some(first) = first else {
            return result;
        };
        let stopped = |held: &Held<'_>| held.joined.stop.load(Ordering::Acquire);
        if result.is_ok() {
            result = match all.iter().find(|held| stopped(held)) {
                Some(held) => Err(NcclError::Aborted { op, rank: held.joined.rank }.into()),
                None if polling.again() => continue,
                None => {
                    let rank = all[first].joined.rank;
                    Err(NcclError::TimedOut { op, rank, after: limit }.into())
                }
            };
        }
        let pending = all.iter_mut().zip(codes.as_slice()).filter(|(_, code)| pending(code));
        // Failures are reported.
        pending.for_each(|(held, _)| drop(held.abort()));
        return result;
    }
}

/// Frees a communicator: by `ncclCommDestroy` if it is finalised, else by `ncclCommAbort`. The caller has
/// the handle alone, and does not use it any more.
fn end(nccl: &Nccl, raw: Handle<RawCommunicator>, finalized: bool, rank: usize) -> Result<()> {
    let (op, function) = match finalized {
        true => ("ncclCommDestroy", nccl.destroy),
        false => ("ncclCommAbort", nccl.abort),
    };
    // SAFETY: the communicator is live and no other thread calls it, nor does this one again. The
    // function ends calls in progress, and lets pending kernels end before it frees what they use.
    match unsafe { function(raw.0) } {
        // It goes on without us: the handle must not be used to ask.
        IN_PROGRESS => Ok(()),
        code => check(op, nccl, code, (ptr::null_mut(), Some(rank))),
    }
}

/// A communicator that has no owner any more.
struct Remains {
    nccl: &'static Nccl,
    context: Context,
    rank: usize,
    raw: Handle<RawCommunicator>,
    finalized: bool,
}

impl Remains {
    /// Frees the communicator once its work on all of these streams is done; leaves it, if that cannot be
    /// proven, since freeing it would end the work.
    fn end_behind(self, mut marks: Vec<Mark>) {
        let Some(mark) = marks.pop() else {
            return self.end();
        };
        when_reached(
            mark,
            Box::new(move |reached| match reached {
                Err(error) if !error.is_sticky() => report(self.raw, &error),
                _ => self.end_behind(marks),
            }),
        );
    }

    fn end(self) {
        let ended = Scope::relaxed(&self.context)
            .and_then(|_scope| end(self.nccl, self.raw, self.finalized, self.rank));
        if let Err(error) = ended {
            report(self.raw, &error);
        }
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let State { raw, finalized } = *self.state.get_mut().unwrap_or_else(|it| it.into_inner());
        // In a fork's child, this crate's locks may be held by threads that do not exist there.
        if raw.0.is_null() || driver::is_gone() {
            return;
        }
        let uses = mem::take(&mut self.uses).last_uses(&ALL);
        let Self { nccl, rank, .. } = *self;
        let remains = Remains { nccl, context: self.context.clone(), rank, raw, finalized };
        deferred::run_or_defer(move || {
            let reached = uses.query().unwrap_or(false);
            remains.end_behind(if reached { Vec::new() } else { uses.marks().to_vec() });
        });
    }
}

impl KeptAlive for Arc<Joined> {
    /// Freeing the communicator waits for the launch.
    fn note_last_launch(&self, mark: &Mark) -> bool {
        self.note_use(&mark.timeline, mark.seq);
        true
    }
}

/// The call of [`Communicator::init_rank`], as errors name it.
pub(super) const INIT_RANK: &str = "ncclCommInitRankConfig";

/// # Joining
impl Communicator {
    /// Joins, with a device of this process, the communicator of `size` ranks that `id` stands for, as
    /// `rank`; waits until all others have joined, for [ten minutes](CommunicatorOptions) at most:
    /// `ncclCommInitRankConfig`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] unless `rank` is less than `size`; [`Error::Invalid`] if the context is
    /// not the primary one of its device; [`Error::Nccl`], with [`NcclError::TimedOut`] if a rank did
    /// not come.
    ///
    /// # Safety
    /// What NCCL cannot check, for the whole life of the communicator and of those split from it:
    /// * Each rank joins once, with the same `id` and `size`, and with a device of its own.
    /// * All ranks enqueue the same operations in the same order, with the same numbers of elements of
    ///   the same type, the same roots and reductions; each [`send`](super::OnStream::send) meets a
    ///   [`receive`](super::OnStream::receive) of as many. They [`split`](Self::split) alike, too.
    ///
    /// A rank that is lost, or that aborts, makes the others wait; nothing worse.
    ///
    /// ```no_run
    /// use cuda_core::nccl::{Communicator, UniqueId};
    ///
    /// # let (rank, size) = (0, 1);
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let id = UniqueId::new()?;
    /// // SAFETY: all ranks run this program, which makes the same calls at each.
    /// let communicator = unsafe { Communicator::init_rank(&context, &id, rank, size) }?;
    /// assert_eq!((communicator.rank(), communicator.size()), (rank, size));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclCommInitRankConfig", "ncclCommInitRank"))]
    pub unsafe fn init_rank(
        context: &Context,
        id: &UniqueId,
        rank: usize,
        size: usize,
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::init_rank_with(context, id, rank, size, &CommunicatorOptions::new()) }
    }

    /// [`Communicator::init_rank`] with options.
    ///
    /// # Errors
    /// As [`Communicator::init_rank`].
    ///
    /// # Safety
    /// As [`Communicator::init_rank`].
    #[doc(alias("ncclCommInitRankConfig"))]
    pub unsafe fn init_rank_with(
        context: &Context,
        id: &UniqueId,
        rank: usize,
        size: usize,
        options: &CommunicatorOptions,
    ) -> Result<Self> {
        Self::finish(vec![Joined::begin(context, id, (rank, size), options)?])
            .map(|mut it| it.remove(0))
    }

    /// Waits until ranks that began to join have joined.
    pub(super) fn finish(ranks: Vec<Joined>) -> Result<Vec<Self>> {
        // Dropped last: foreign code then finds the locks free.
        let ranks: Vec<_> = ranks.into_iter().map(Arc::new).collect();
        let Some(first) = ranks.first() else {
            return Ok(Vec::new());
        };
        let _scope = Scope::relaxed(&first.context)?;
        let held: Result<Vec<_>> = ranks.iter().map(|rank| rank.hold(INIT_RANK)).collect();
        await_all(INIT_RANK, &mut held?)?;
        Ok(ranks.iter().map(|rank| Self(rank.clone())).collect())
    }

    /// Makes communicators of parts of this one: the ranks that give the same `color` form one, ordered
    /// by `key`, and for equal keys by rank. [`None`] as colour for a rank that is to be in none.
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
        let Joined { nccl, limit, ref context, .. } = *self.0;
        let color = color.map_or(Ok(SPLIT_NOCOLOR), c_int::try_from);
        let color = color.map_err(|_| Error::invalid(op, "the colour is beyond i32::MAX"))?;
        let mut raw = ptr::null_mut();
        let mut config = RawConfig::non_blocking();
        let _scope = Scope::relaxed(context)?;
        let mut held = self.0.hold(op)?;
        // SAFETY: the communicator is live and locked, with its context current. The handle is written
        // to a local, which outlives the call: `finish` returns once it is over.
        let code = unsafe { (nccl.split)(held.raw(), color, key, &mut raw, &mut config) };
        let finished = held.finish(op, code);
        drop(held);
        // Dropped, if the call has failed after making it.
        let joined = (!raw.is_null()).then(|| Joined::new(nccl, context, (0, 0), limit, raw));
        finished?;
        let Some(mut joined) = joined else {
            return Ok(None);
        };
        let mut held = joined.hold(op)?;
        held.finish(op, IN_PROGRESS)?;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the communicator is live, and known only here; the call writes one number, to a local
        // that outlives it.
        held.check("ncclCommUserRank", unsafe { (nccl.user_rank)(raw, &mut rank) })?;
        // SAFETY: as above.
        held.check("ncclCommCount", unsafe { (nccl.count)(raw, &mut size) })?;
        drop(held);
        // Neither is ever negative.
        (joined.rank, joined.size) = (rank as usize, size as usize);
        Ok(Some(Self(Arc::new(joined))))
    }
}

/// # Asking
impl Communicator {
    /// The rank of this process's device in it: `ncclCommUserRank`. No call.
    #[doc(alias("ncclCommUserRank"))]
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// The number of ranks: `ncclCommCount`. No call.
    #[doc(alias("ncclCommCount"))]
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// The context that it works in, the primary one of its device.
    #[doc(alias("ncclCommCuDevice"))]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Whether work has failed that was enqueued before, here or at a rank that this one communicates
    /// with: `ncclCommGetAsyncError`. Such a communicator can only be aborted.
    ///
    /// # Errors
    /// [`Error::Nccl`] if it has.
    #[doc(alias("ncclCommGetAsyncError", "ncclGetLastError"))]
    pub fn async_error(&self) -> Result<()> {
        driver::ensure()?;
        let held = self.0.hold(ASYNC_ERROR)?;
        match held.async_result() {
            IN_PROGRESS => Ok(()),
            code => held.check(ASYNC_ERROR, code),
        }
    }
}

const ASYNC_ERROR: &str = "ncclCommGetAsyncError";

/// # Waiting and ending
impl Communicator {
    /// Blocks the calling thread until all work on the stream has completed, but not longer than the
    /// communicator's limit, and not if its work has failed: `cuEventQuery`, `ncclCommGetAsyncError`.
    ///
    /// # Errors
    /// [`Error::Nccl`]: [`NcclError::TimedOut`], after which the work is still pending: the communicator
    /// can be waited for again, or [aborted](Self::abort); [`NcclError::Failed`] if a rank has reported
    /// an error; [`NcclError::Aborted`]. The driver's.
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
    #[doc(alias("ncclCommGetAsyncError"))]
    pub fn wait<K: StreamKind>(&self, stream: &Stream<K>) -> Result<()> {
        self.wait_for(stream, self.0.limit)
    }

    /// [`Communicator::wait`] with another limit.
    ///
    /// # Errors
    /// As [`Communicator::wait`].
    pub fn wait_for<K: StreamKind>(&self, stream: &Stream<K>, limit: Duration) -> Result<()> {
        let (op, rank, timeline) = ("wait", self.0.rank, stream.core().timeline());
        // A point of its own, which also covers work of other libraries.
        let seq = stream.core().bind(op)?.count();
        let Some(pending) = PendingMark::of(&timeline.at(seq))? else {
            return self.look(op);
        };
        let mut polling = Polling::begin(limit);
        loop {
            let reached = pending.query()?;
            self.look(op)?;
            if reached {
                return Ok(());
            }
            if !polling.again() {
                return Err(NcclError::TimedOut { op, rank, after: limit }.into());
            }
        }
    }

    /// Returns the error of a communicator that was aborted or whose work has failed. Does not wait for
    /// a thread that is calling it.
    fn look(&self, op: &'static str) -> Result<()> {
        let Ok(state) = self.0.state.try_lock() else {
            return Ok(());
        };
        let held = Held { joined: &self.0, state };
        if held.raw().is_null() {
            return Err(NcclError::Aborted { op, rank: self.0.rank }.into());
        }
        match held.async_result() {
            IN_PROGRESS => Ok(()),
            code => held.check(op, code),
        }
    }

    /// Ends all work of the communicator, pending or in progress, at this rank, and frees it:
    /// `ncclCommAbort`. Streams go on; what the work would have written is unspecified. A call in
    /// progress on another thread, and every later one, returns [`NcclError::Aborted`].
    ///
    /// # Errors
    /// [`Error::Nccl`]; the communicator is not used any more then either.
    ///
    /// ```no_run
    /// # fn watch(communicator: cuda_core::nccl::Communicator) {
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| communicator.abort()); // from any thread
    /// });
    /// # }
    /// ```
    #[doc(alias("ncclCommAbort", "ncclCommRevoke"))]
    pub fn abort(&self) -> Result<()> {
        self.0.abort()
    }

    /// Waits until everything has been sent and received, at this rank; to be called by all ranks before
    /// they drop the communicator, if they are on several machines: `ncclCommFinalize`. Afterwards the
    /// communicator enqueues nothing, and dropping it destroys it.
    ///
    /// # Errors
    /// [`Error::Nccl`].
    #[doc(alias("ncclCommFinalize", "ncclCommDestroy"))]
    pub fn finalize(&self) -> Result<()> {
        finalize_all(&[&self.0])
    }
}

/// Finalises ranks of one communicator together.
pub(super) fn finalize_all(ranks: &[&Arc<Joined>]) -> Result<()> {
    let op = "ncclCommFinalize";
    driver::ensure()?;
    let Some(first) = ranks.first() else {
        return Ok(());
    };
    let _scope = Scope::relaxed(&first.context)?;
    let mut all = ranks.iter().map(|joined| joined.hold(op)).collect::<Result<Vec<_>>>()?;
    let mut result = Ok(());
    // Before any of them is waited for.
    for held in &all {
        // SAFETY: the communicator is live and locked.
        let code = unsafe { (held.joined.nccl.finalize)(held.raw()) };
        if code != IN_PROGRESS {
            result = result.and(held.check(op, code));
        }
    }
    let result = result.and_then(|()| await_all(op, &mut all));
    all.iter_mut().for_each(|held| held.state.finalized = result.is_ok());
    result
}

debug_by! { [] Communicator: |it| "Communicator" { rank: it.rank(), size: it.size(); .. } }
