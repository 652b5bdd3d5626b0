//! Programs in which driver calls fail.
//!
//! The memory that a failed operation was to write is unknown from then on, and later errors are not a
//! departure. Everything else must hold: nothing is used after it was freed, known contents are right, the
//! current context is unchanged unless the drop hook reported otherwise, nothing panics, and leaks were
//! reported.

use std::cell::Cell;

use cuda_sim::{Fault, Leak, LeakKind, Mode};
use cuda_sys::CUresult;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use support::{Reported, judge};

use super::world::Left;
use super::{print, program, programs, prove, run};

/// Number of programs: some seconds' worth, and one under Miri.
const CASES: u32 = if cfg!(miri) { 1 } else { 400 };

/// Number of steps of the longest program.
const LONGEST: usize = if cfg!(miri) { 10 } else { 60 };

in_each_mode!(check);

fn check(modes: impl Strategy<Value = Mode>) {
    let here = prop_oneof![9 => Just(None), 1 => failure(12, 3).prop_map(Some)];
    let at_the_end = vec(failure(60, 6), 0..=2);
    let programs = programs(program::programs(LONGEST, here), at_the_end);
    prove(CASES, (modes, programs), print, run);
}

/// A driver call that fails.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failure {
    /// The function; [`None`] means any.
    function: Option<&'static str>,
    nth: u16,
    code: CUresult,
    effect: Effect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Nothing,
    /// The call takes effect, and returns the error of earlier work.
    AllTheSame,
    /// All later calls of its context fail.
    ContextLost,
    /// All later calls of the function fail.
    FromThenOn,
}

const CODES: &[CUresult] = &[
    cuda_sys::CUDA_ERROR_OUT_OF_MEMORY,
    cuda_sys::CUDA_ERROR_UNKNOWN,
    cuda_sys::CUDA_ERROR_LAUNCH_FAILED,
    cuda_sys::CUDA_ERROR_INVALID_VALUE,
    cuda_sys::CUDA_ERROR_NOT_SUPPORTED,
];

/// Errors of earlier work. All other codes refuse the call, which then has no effect.
const OF_WORK: &[CUresult] = &[cuda_sys::CUDA_ERROR_UNKNOWN, cuda_sys::CUDA_ERROR_LAUNCH_FAILED];

/// Functions that the generator selects more often.
const FUNCTIONS: &[&str] = &[
    "cuCtxCreate_v2",
    "cuCtxDestroy_v2",
    "cuCtxDisablePeerAccess",
    "cuCtxEnablePeerAccess",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuLaunchHostFunc",
    "cuMemAlloc_v2",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocManaged",
    "cuMemFree_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemcpyBatchAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyPeerAsync",
    "cuMemsetD8Async",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamWriteValue32_v2",
    "cuThreadExchangeStreamCaptureMode",
];

/// Generates a failure of one of `calls` calls, or of one of `of_function` calls of a single function.
fn failure(calls: u16, of_function: u16) -> impl Strategy<Value = Failure> {
    let of_any = (1..=calls).prop_map(|nth| (None, nth, Effect::Nothing));
    let effect = prop_oneof![
        6 => Just(Effect::Nothing),
        4 => Just(Effect::AllTheSame),
        1 => Just(Effect::FromThenOn),
        1 => Just(Effect::ContextLost),
    ];
    let of_function = (select(FUNCTIONS), 1..=of_function, effect);
    let of_function = of_function.prop_map(|(function, nth, effect)| (Some(function), nth, effect));
    let which = prop_oneof![of_function, of_any];
    let code = (select(CODES), select(OF_WORK));
    (which, code).prop_map(|((function, nth, effect), (any, of_work))| Failure {
        function,
        nth,
        code: match effect {
            Effect::AllTheSame => of_work,
            _ => any,
        },
        effect,
    })
}

impl Failure {
    pub(super) fn fault(self) -> Fault {
        let fault = Fault::new(self.code).nth(self.nth.into());
        let fault = match self.function {
            Some(function) => fault.function(function),
            None => fault,
        };
        match self.effect {
            Effect::Nothing => fault,
            Effect::AllTheSame => fault.takes_effect(),
            Effect::ContextLost => fault.sticky(),
            Effect::FromThenOn => fault.from_then_on(),
        }
    }

    /// Returns how many calls fail at least.
    pub(super) fn calls(self) -> usize {
        match self.effect {
            Effect::Nothing | Effect::AllTheSame => 1,
            Effect::ContextLost | Effect::FromThenOn => 2,
        }
    }

    pub(super) fn takes_effect(self) -> bool {
        self.effect == Effect::AllTheSame
    }
}

/// Checks that after a program with a failed call, the remaining objects are those that the drop hook
/// reported, and what those keep alive.
///
/// A call that took effect although it failed allows more: one object may exist for each such call, and what
/// the call released may be gone.
pub(super) fn compare(
    leaks: &[Leak],
    reported: &Reported,
    left: &Left,
    destroyed: bool,
    took_effect: usize,
) -> Result<(), String> {
    let made = Cell::new(took_effect);
    let failures = &reported.failures;
    // A piece of a segment or slab keeps the whole of it alive; any object keeps its context alive.
    let kept = |leak: &Leak| match leak.kind {
        LeakKind::Context => !failures.is_empty(),
        _ => (failures.iter()).any(|failure| contains(leak, failure.handle)),
    };
    let excused = |leak: &Leak| {
        let other = || made.get() > 0 && made.replace(made.get() - 1) > 0;
        left.keeps(leak) || kept(leak) || other()
    };
    if took_effect > 0 {
        return judge::leaked_unsaid(leaks, reported, excused);
    }
    if !left.calls_are_gone() {
        return Err("a host function was neither called nor dropped".to_owned());
    }
    judge::compare(leaks, reported, destroyed, excused)
}

/// Returns whether the leaked memory contains that address.
fn contains(leak: &Leak, address: u64) -> bool {
    let memory = matches!(leak.kind, LeakKind::Device | LeakKind::Pinned);
    memory && (leak.handle..leak.handle + leak.bytes as u64).contains(&address)
}
