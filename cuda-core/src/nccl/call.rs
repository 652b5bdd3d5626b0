//! Operations that are first described and then enqueued, alone or several together.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use cuda_sys::{CUdeviceptr, CUstream};

use super::failure::checked;
use super::joined::{HeldRanks, InGraph, Joined, LockedRank, await_all, hold_all};
use super::library::Nccl;
use super::polling::NcclScope;
use super::raw::{
    IN_PROGRESS, NO_REDUCTION, RawCommunicator, SCALAR_HOST_IMMEDIATE, SUCCESS, UINT8,
};
use super::reduction::{Operator, RawReduction};
use crate::error::{Error, Result};
use crate::process::driver;
use crate::timeline::ledger::{Fences, NO_FENCES, Touch};
use crate::timeline::recording::{CapturedPart, GraphTraits, Notes, Recording};
use crate::timeline::{Bound, StreamCore};
use crate::util::{InlineVec, lock_all};

/// An operation of one rank.
pub(super) struct Call<'a> {
    pub(super) joined: &'a Arc<Joined>,
    pub(super) core: &'a Arc<StreamCore>,
    pub(super) shape: CallShape,
    // INVARIANT: what the operation reads and writes is memory of the communicator's device, which
    // `used` covers. The address of an unused side is null.
    pub(super) from: CUdeviceptr,
    pub(super) to: CUdeviceptr,
    pub(super) used: Used<'a>,
    /// Whether source and destination are registered with the communicator; [`None`] for an unused
    /// side.
    pub(super) registered: [Option<bool>; 2],
}

/// The operations of a group.
pub(super) type Calls<'a> = InlineVec<Call<'a>, 8>;

/// Memory that an operation uses.
pub(super) enum Used<'a> {
    One([Touch<'a>; 1]),
    Two([Touch<'a>; 2]),
}

impl<'a> Used<'a> {
    #[inline]
    fn touches(&self) -> &[Touch<'a>] {
        match self {
            Self::One(one) => one,
            Self::Two(two) => two,
        }
    }

    #[inline]
    fn touches_mut(&mut self) -> &mut [Touch<'a>] {
        match self {
            Self::One(one) => one,
            Self::Two(two) => two,
        }
    }
}

/// What must be equal at all ranks of an operation.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct CallShape {
    pub(super) operation: Operation,
    /// The number of elements; where each rank has its own part, of one part.
    pub(super) count: usize,
    /// The size of an element in bytes.
    pub(super) size: usize,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Operation {
    AllReduce(RawReduction),
    Reduce(RawReduction, c_int),
    Broadcast(c_int),
    AllGather,
    ReduceScatter(RawReduction),
    AllToAll,
    Send(c_int),
    Receive(c_int),
}

impl Operation {
    /// Returns the function of NCCL, as errors name it.
    #[inline]
    pub(super) fn op(self) -> &'static str {
        match self {
            Self::AllReduce(_) => "ncclAllReduce",
            Self::Reduce(..) => "ncclReduce",
            Self::Broadcast(_) => "ncclBroadcast",
            Self::AllGather => "ncclAllGather",
            Self::ReduceScatter(_) => "ncclReduceScatter",
            Self::AllToAll | Self::Send(_) => "ncclSend",
            Self::Receive(_) => "ncclRecv",
        }
    }
}

impl<'a> Call<'a> {
    /// Returns whether the memory of both calls, or of neither, is registered with their
    /// communicators.
    #[inline]
    pub(super) fn is_registered_as(&self, other: &Self) -> bool {
        let mut sides = self.registered.iter().zip(&other.registered);
        sides.all(|(one, other)| one.is_none() || other.is_none() || one == other)
    }

    #[inline]
    pub(super) fn op(&self) -> &'static str {
        self.shape.operation.op()
    }

    /// Keeps what the call uses, since it has failed: the communicator may have been aborted in the
    /// meantime.
    #[cold]
    fn keep(&self) {
        self.joined.ending.keep(self.used.touches(), self.core);
    }
}

/// Makes the calls of NCCL. Returns the code of the last call, or of the first that was refused.
///
/// # Safety
/// The arguments are parts of one [`Call`], and the handle is that of its communicator, which is
/// locked. The memory stays allocated until the operation has completed, and the stream is live. An
/// operation of several calls is made in a group.
#[inline]
unsafe fn issue(
    joined: &Joined,
    shape: CallShape,
    (from, to): (CUdeviceptr, CUdeviceptr),
    raw: RawCommunicator,
    stream: CUstream,
) -> c_int {
    let nccl = joined.nccl;
    let CallShape { operation, count, size } = shape;
    let (from, to) = (pointer(from), pointer(to));
    // Operations that only copy may have any element type; NCCL copies bytes.
    let bytes = count * size;
    match operation {
        Operation::AllReduce(reduction) => reduced(nccl, raw, reduction, |ty, number| {
            // SAFETY: the communicator is live and locked, and the stream is of its device; both
            // sides have `count` elements, by the invariant, and stay allocated, by the caller's
            // promise.
            unsafe { (nccl.all_reduce)(from, to, count, ty, number, raw, stream) }
        }),
        Operation::Reduce(reduction, root) => reduced(nccl, raw, reduction, |ty, number| {
            // SAFETY: as above; only the root has a destination.
            unsafe { (nccl.reduce)(from, to, count, ty, number, root, raw, stream) }
        }),
        Operation::Broadcast(root) => {
            // SAFETY: as above; only the root has a source.
            unsafe { (nccl.broadcast)(from, to, bytes, UINT8, root, raw, stream) }
        }
        Operation::AllGather => {
            // SAFETY: as above; the destination has `count` elements for each rank.
            unsafe { (nccl.all_gather)(from, to, bytes, UINT8, raw, stream) }
        }
        Operation::ReduceScatter(reduction) => reduced(nccl, raw, reduction, |ty, number| {
            // SAFETY: as above; the source has `count` elements for each rank.
            unsafe { (nccl.reduce_scatter)(from, to, count, ty, number, raw, stream) }
        }),
        Operation::Send(peer) => {
            // SAFETY: as above.
            unsafe { (nccl.send)(from, bytes, UINT8, peer, raw, stream) }
        }
        Operation::Receive(peer) => {
            // SAFETY: as above.
            unsafe { (nccl.receive)(to, bytes, UINT8, peer, raw, stream) }
        }
        Operation::AllToAll => {
            for rank in 0..joined.size {
                let at = rank * bytes;
                let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
                // A communicator's size fits in a `c_int`.
                let peer = rank as c_int;
                // SAFETY: as above; both sides have `count` elements for each rank.
                let sent = unsafe { (nccl.send)(from, bytes, UINT8, peer, raw, stream) };
                // SAFETY: as above.
                let received = unsafe { (nccl.receive)(to, bytes, UINT8, peer, raw, stream) };
                if let Some(refused) = [sent, received].into_iter().find(|it| is_refusal(*it)) {
                    return refused;
                }
            }
            SUCCESS
        }
    }
}

/// Returns a device address as NCCL takes it.
fn pointer(address: CUdeviceptr) -> *mut c_void {
    ptr::without_provenance_mut(address as usize)
}

pub(super) fn is_refusal(code: c_int) -> bool {
    code != SUCCESS && code != IN_PROGRESS
}

/// Makes a call with the element type and the number of a reduction. A reduction with a factor is
/// created for this call alone.
#[inline]
fn reduced(
    nccl: &Nccl,
    raw: RawCommunicator,
    RawReduction { element, operator }: RawReduction,
    call: impl FnOnce(c_int, c_int) -> c_int,
) -> c_int {
    let mut factor = match operator {
        Operator::Number(number) => return call(element, number),
        Operator::ScaledSum(factor) => factor,
    };
    let (mut number, factor) = (0, (&raw mut factor).cast());
    let residence = SCALAR_HOST_IMMEDIATE;
    // SAFETY: the communicator is live and locked. The call reads a factor of that type and writes
    // a number, both in locals that outlive it.
    let made = unsafe { (nccl.create_scaled_sum)(&mut number, factor, element, residence, raw) };
    if made != SUCCESS {
        return made;
    }
    let called = call(element, number);
    // SAFETY: created just now; "an operator may be destroyed as soon as the last NCCL function
    // which is given that operator returns". If that fails, it lives as long as the communicator.
    unsafe { (nccl.destroy_reduction)(number, raw) };
    called
}

/// Makes calls as a group. Returns the code of the group, or of the refused call.
pub(super) fn grouped(nccl: &Nccl, calls: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: no precondition; the group is ended below.
    let started = unsafe { (nccl.group_start)() };
    if started != SUCCESS {
        return started;
    }
    let called = calls();
    // SAFETY: this thread began the group. It is ended in any case: otherwise it would take in
    // later calls.
    let ended = unsafe { (nccl.group_end)() };
    if is_refusal(called) { called } else { ended }
}

/// Binds the stream; refuses one that no operation can be enqueued on.
// Inlined: a call would pass the result through memory.
#[inline(always)]
fn bind<'a>(op: &'static str, core: &'a Arc<StreamCore>) -> Result<Bound<'a>> {
    let bound = core.bind_work(op)?;
    if bound.entered().is_some() {
        let reason = "NCCL works on threads of its own, for which a default stream may be another";
        return Err(Error::invalid(op, reason));
    }
    Ok(bound)
}

/// What a capture notes for an operation: it keeps the communicator.
#[cold]
fn notes(joined: &Arc<Joined>) -> Notes {
    let once = Some((Arc::as_ptr(joined).addr(), Arc::new(InGraph::new(joined)) as _));
    Notes { traits: GraphTraits::RANKS, once, ..Notes::default() }
}

/// Checks an operation without elements like any other, but calls no function of NCCL.
#[cold]
pub(super) fn enqueue_nothing(
    op: &'static str,
    joined: &Joined,
    core: &Arc<StreamCore>,
) -> Result<()> {
    bind(op, core)?;
    if let Some(recording) = core.timeline().recording() {
        recording.require_can_hold(op, GraphTraits::RANKS)?;
    }
    joined.hold(op).map(drop)
}

/// Enqueues one operation, which has elements.
#[inline]
pub(super) fn enqueue(call: Call<'_>) -> Result<()> {
    let Call { joined, core, shape, from, to, mut used, .. } = call;
    let op = shape.operation.op();
    let bound = bind(op, core)?;
    let mut scope = NcclScope::enter(&joined.context)?;
    let mut held = joined.hold(op)?;
    // Closures that capture values show the compiler which operation it is.
    let (bound, held) = (&bound, &mut held);
    let (_, result) = bound.order(
        op,
        used.touches_mut(),
        || notes(joined),
        move || {
            bound.enqueue_by(move |stream| {
                let raw = held.raw();
                // SAFETY: memory stays allocated until the marks that `order` makes are reached,
                // and these are made when the call is no longer in progress; `bound` keeps the
                // stream alive. If the call may still run after it has failed, `Ending` keeps both.
                let issue = move || unsafe { issue(joined, shape, (from, to), raw, stream) };
                let code = match shape.operation {
                    Operation::AllToAll => grouped(joined.nccl, issue),
                    _ => issue(),
                };
                held.finish(op, code)
            })
        },
    );
    let timeline = core.timeline();
    // The work may be enqueued even if the call has failed.
    if timeline.recording().is_none() {
        joined.note_use(timeline, timeline.issued());
    }
    match result {
        Ok(()) => scope.calls_succeeded(),
        Err(_) => joined.ending.keep(used.touches(), core),
    }
    result
}

/// The function of a group, as errors name it.
pub(super) const GROUP: &str = "ncclGroupEnd";

/// Enqueues operations together, each with elements: `ncclGroupStart`, `ncclGroupEnd`.
pub(super) fn enqueue_together(calls: &mut [Call<'_>]) -> Result<()> {
    let Some(&Call { joined, core, .. }) = calls.first() else {
        return driver::ensure();
    };
    let (first, mut together) = (core.timeline(), true);
    for call in calls.iter() {
        let why = "some of the communicators block and others do not";
        Error::unless(call.joined.blocks == joined.blocks, GROUP, why)?;
        together &= bind(call.op(), call.core)?.timeline().is_captured_with(first);
    }
    if !together {
        return Err(Error::NotCapturable { op: GROUP });
    }
    let mut scope = NcclScope::enter(&joined.context)?;
    let _turn = lock_all(calls.iter().filter_map(|call| call.joined.turn()));
    let mut held = HeldRanks::new();
    hold_all(GROUP, calls.iter().map(|call| call.joined), &mut held)?;
    let all = held.as_mut_slice();
    if let Some(recording) = first.recording() {
        let captured = capture_together(recording, calls, all);
        if captured.is_err() {
            calls.iter().for_each(Call::keep);
        }
        return captured;
    }
    // Asked only now: a launch that had its turn first is among what the streams wait for.
    let is_quiet = |call: &Call<'_>| {
        call.used.touches().iter().all(|touch| touch.is_quiet(call.core.timeline()))
    };
    let quiet = calls.iter().all(is_quiet);
    let waited_for = if quiet { Vec::new() } else { wait_together(calls)? };
    let result = issue_together(calls, all);
    // Marked after all calls, since NCCL may enqueue the operations together.
    for (at, call) in calls.iter_mut().enumerate() {
        let fences = waited_for.get(at).unwrap_or(&NO_FENCES);
        // Counting suffices: none of the streams is a default stream.
        let (timeline, seq) = (call.core.timeline(), call.core.timeline().issue());
        call.used.touches_mut().iter_mut().for_each(|touch| touch.mark(timeline, seq, fences));
        call.joined.note_use(timeline, seq);
        if result.is_err() {
            call.keep();
        }
    }
    if result.is_ok() {
        scope.calls_succeeded();
    }
    result
}

/// Makes each stream wait for what conflicts with its operation. Returns what each waits for.
#[cold]
fn wait_together(calls: &[Call<'_>]) -> Result<Vec<Fences>> {
    let wait = |call: &Call<'_>| call.core.bind_work(GROUP)?.wait_behind(call.used.touches());
    calls.iter().map(wait).collect()
}

/// Works as [`enqueue_together`], for streams of one capture.
#[cold]
fn capture_together(
    recording: &Recording,
    calls: &[Call<'_>],
    all: &mut [LockedRank<'_>],
) -> Result<()> {
    calls.iter().try_for_each(|call| recording.require_can_hold(call.op(), GraphTraits::RANKS))?;
    let mut parts: Vec<CapturedPart<'_>> = Vec::new();
    for call in calls {
        let known = parts.iter().position(|part| ptr::eq(part.bound.core(), &**call.core));
        let at = known.unwrap_or(parts.len());
        if at == parts.len() {
            parts.push(CapturedPart { bound: call.core.bind_work(GROUP)?, touches: Vec::new() });
        }
        parts[at].touches.extend(call.used.touches().iter().map(Touch::as_shared));
    }
    let notes = calls.iter().map(|call| notes(call.joined)).collect();
    recording.record_together(GROUP, &parts, notes, || {
        parts.iter().try_for_each(|part| part.bound.prepare())?;
        issue_together(calls, all)
    })
}

/// An operation that NCCL refuses for its reduction.
const REFUSED: Operation =
    Operation::AllReduce(RawReduction { element: UINT8, operator: Operator::Number(NO_REDUCTION) });

/// Makes the calls of NCCL, and waits until no call is in progress.
fn issue_together(calls: &[Call<'_>], all: &mut [LockedRank<'_>]) -> Result<()> {
    // Each stream will wait for the others.
    if calls.iter().any(|call| call.core.timeline().is_held_up_now()) {
        calls.iter().try_for_each(|call| call.core.timeline().hold_up(None))?;
    }
    let mut refused = None;
    let code = grouped(all[0].joined.nccl, || {
        for call in calls {
            let held = all.iter().find(|held| ptr::eq(held.joined, &**call.joined));
            let Some(held) = held else { unreachable!("all communicators are held") };
            let Call { joined, core, shape, from, to, .. } = *call;
            let (raw, stream) = (held.raw(), core.raw());
            // SAFETY: memory stays allocated until the marks that the callers make are reached, and
            // these are made when no call is in progress; the stream is bound. If calls may still
            // run after they have failed, `Ending` keeps both.
            let code = unsafe { issue(joined, shape, (from, to), raw, stream) };
            if is_refusal(code) {
                refused = Some(held.check(GROUP, code));
                // A reduction that was not made is no operation, and only a refused operation makes the
                // group fail: its end would enqueue those of other ranks, which wait for this one.
                let refused = CallShape { operation: REFUSED, ..shape };
                // One side may be unused.
                let place = from.max(to);
                // SAFETY: as above; NCCL refuses the reduction, and enqueues nothing.
                unsafe { issue(joined, refused, (place, place), raw, stream) };
                return code;
            }
        }
        SUCCESS
    });
    if is_refusal(code) {
        let result = refused.unwrap_or_else(|| {
            let failed = all.iter().find(|held| held.look(GROUP).is_err());
            let nccl = all[0].joined.nccl;
            failed.map_or_else(|| checked(GROUP, nccl, code), |held| held.check(GROUP, code))
        });
        // Leaves no call in progress.
        return result.and(await_all(GROUP, all));
    }
    // Blocking calls have completed; for others, NCCL 2.28 may report success too early.
    match code == SUCCESS && all.iter().all(|held| held.joined.blocks) {
        true => Ok(()),
        false => await_all(GROUP, all),
    }
}
