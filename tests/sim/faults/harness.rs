//! Runs a scenario with a fault at each of its driver calls, and checks the remaining state.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::thread;

use cuda_core::{Context, Device, Resource, Result, drops::DropFailure};
use cuda_sim::{Fault, Mode, Session};
use cuda_sys::CUresult;
use support::context::{self, Foreign};
use support::{DropReports, judge, sample};

use super::stack;

pub(super) type Scenario = fn() -> Result<()>;

/// How a call fails.
#[derive(Debug, Clone, Copy)]
enum Failure {
    /// Only this call; the next one works.
    Once(CUresult),
    /// This call and all later ones of the context: the context is lost.
    Sticky(CUresult),
    /// All later calls of any kind: the driver has shut down.
    Shutdown,
}

impl Failure {
    fn fault(self, nth: u64) -> Fault {
        match self {
            Failure::Once(code) => Fault::new(code).nth(nth),
            Failure::Sticky(code) => Fault::new(code).nth(nth).sticky(),
            Failure::Shutdown => {
                Fault::new(cuda_sys::CUDA_ERROR_DEINITIALIZED).nth(nth).from_then_on()
            }
        }
    }
}

const FAILURES: &[Failure] = &[
    Failure::Once(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY),
    Failure::Once(cuda_sys::CUDA_ERROR_INVALID_VALUE),
    Failure::Once(cuda_sys::CUDA_ERROR_LAUNCH_FAILED),
    Failure::Sticky(cuda_sys::CUDA_ERROR_ILLEGAL_ADDRESS),
    Failure::Shutdown,
];

/// The current context at the beginning of a scenario.
#[derive(Debug, Clone, Copy)]
enum Before {
    Nothing,
    /// Another device's primary context.
    Primary,
    /// A context that the library does not know, on top of a primary one.
    Foreign,
}

const BEFORES: &[Before] = &[Before::Nothing, Before::Primary, Before::Foreign];

impl Before {
    fn establish(self) {
        match self {
            Before::Nothing => {}
            Before::Primary => context::push(primary(3)),
            Before::Foreign => {
                context::push(primary(0));
                context::push(foreign().handle());
            }
        }
    }
}

/// All parameters of a run; its `Debug` output reproduces it.
#[derive(Debug, Clone, Copy)]
struct Run {
    mode: Mode,
    before: Before,
    fault: Option<(u64, Failure)>,
}

impl Run {
    fn shuts_down(self) -> bool {
        matches!(self.fault, Some((_, Failure::Shutdown)))
    }
}

/// Runs the scenario without a fault, then with each kind of fault at its first driver call, at its
/// second, and so on until none fires. Asserts of each run that
/// * nothing panicked, and data read without an error was right (the scenario's own assertions);
/// * the simulated driver saw no misuse: nothing freed twice, nothing used that was freed, no race;
/// * the thread's whole context stack is unchanged;
/// * the objects that still exist are exactly those that the drop hook reported: nothing leaked
///   beyond what a failed call was to release, or what could not be proven idle;
/// * every host function has been called or dropped.
pub(super) fn sweep(scenario: Scenario) {
    prepare();
    let sweep = || {
        let mut passes = 0;
        for mode in [Mode::Lazy, Mode::Eager] {
            for (index, &failure) in FAILURES.iter().enumerate() {
                // The handling of a code does not depend on the current context: only the first kind
                // of failure runs with each of them.
                let befores = if index == 0 { BEFORES } else { &BEFORES[..1] };
                for &before in befores {
                    every_call(scenario, Run { mode, before, fault: None }, failure, passes);
                    if cfg!(miri) {
                        return;
                    }
                    passes += 1;
                }
            }
        }
    };
    // On a thread of its own, without a current context.
    let swept = thread::scope(|scope| scope.spawn(sweep).join());
    swept.unwrap_or_else(|panic| resume_unwind(panic));
}

/// Makes each call fail in turn; the fault of the last run never fires. In a run that takes samples, one call
/// in three fails, another in each pass. Under Miri, which takes a thousand times as long, `sweep` makes one
/// pass, and one call in 31 fails.
fn every_call(scenario: Scenario, run: Run, failure: Failure, pass: u64) {
    let stride = if cfg!(miri) { 31 } else { sample::stride(3) };
    let failing = |nth| Run { fault: Some((nth, failure)), ..run };
    let every = |first: u64| {
        let calls = (first..).step_by(stride as usize);
        let failed = calls.take_while(|&nth| attempt(scenario, failing(nth)));
        failed.count()
    };
    let first = sample::first(stride, pass);
    // A short scenario may have fewer calls than `first`.
    let fails = every(first) > 0 || (first > 1 && every(1) > 0);
    assert!(fails, "the scenario calls no driver function");
}

/// Runs once with all assertions; returns whether the fault fired.
fn attempt(scenario: Scenario, run: Run) -> bool {
    let session = support::simulator_in(run.mode);
    let drops = DropReports::listen();
    let seen = if run.shuts_down() {
        // Without a driver, contexts cannot be popped: they are released with the thread.
        let enact = || enact(&session, scenario, run);
        let seen = thread::scope(|scope| scope.spawn(enact).join());
        seen.unwrap_or_else(|panic| resume_unwind(panic))
    } else {
        enact(&session, scenario, run)
    };
    session.settle();
    cuda_core::drops::flush();
    session.settle();
    cuda_core::staging::trim().expect("no fault is left");
    cuda_core::PinnedPool::shared().trim(0).expect("no fault is left");
    support::trim_cache(&session).expect("no fault is left");
    let mut reported = drops.end();
    // The context is kept with the objects in it that could not be freed; the harness keeps it anyway.
    let of_harness = |failure: &DropFailure| {
        failure.resource == Resource::Context && failure.handle == foreign().handle().addr() as u64
    };
    let all = reported.failures.len();
    reported.failures.retain(|failure| !of_harness(failure));
    reported.counted -= (all - reported.failures.len()) as u64;

    let here = format!("{run:?}, which hit {:?}", seen.victim);
    let (counted, failures) = (reported.counted, &reported.failures);
    assert_eq!(counted, failures.len() as u64, "{here}: counter and hook disagree: {failures:#?}");
    if let Err(panic) = seen.outcome {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or(panic.downcast_ref::<&str>().copied());
        panic!("{here}: panicked: {}", message.unwrap_or("?"));
    }
    let violations = session.take_violations();
    assert!(violations.is_empty(), "{here}: {violations:#?}");
    let alive = Token::reset();
    assert_eq!(alive, 0, "{here}: values of host functions leaked");
    let leaks = session.leaks();
    if !run.shuts_down() {
        assert_eq!(seen.after, seen.before, "{here}: the context stack changed; {failures:#?}");
        let ends = ["cuCtxDestroy_v2", "cuGreenCtxDestroy"];
        let destroyed = ends.iter().any(|call| session.calls(call) > 0);
        let compared = judge::compare(&leaks, &reported, destroyed, |_| false);
        compared.unwrap_or_else(|wrong| panic!("{here}: {wrong}"));
    }
    if !seen.fired {
        assert!(failures.is_empty(), "{here}: {failures:#?}");
    }
    judge::take_away(&session, leaks);
    seen.fired
}

struct Seen {
    outcome: thread::Result<()>,
    fired: bool,
    victim: Option<&'static str>,
    before: Vec<usize>,
    after: Vec<usize>,
}

fn enact(session: &Session, scenario: Scenario, run: Run) -> Seen {
    run.before.establish();
    let before = stack::snapshot();
    let mark = session.mark();
    if let Some((nth, failure)) = run.fault {
        session.inject(failure.fault(nth));
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let result = scenario();
        let excused = session.fault_fired();
        assert!(excused || result.is_ok(), "without a fault: {result:?}");
    }));
    cuda_core::drops::flush();
    let fired = session.fault_fired();
    session.clear_faults();
    let victim = run.fault.filter(|_| fired).and_then(|(nth, _)| {
        let calls = session.since(mark).into_iter().map(|call| call.name);
        let mut countable = calls.filter(|name| !name.starts_with("cuGetError"));
        countable.nth(nth as usize - 1)
    });
    let after = stack::unwind();
    Seen { outcome, fired, victim, before, after }
}

/// Initialises what exists once per process, which no scenario includes: `process.rs` tests it.
pub(crate) fn prepare() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        let _session = support::simulator();
        for device in Device::all().expect("the simulated driver has devices") {
            device.context().expect("without a fault");
        }
        foreign();
    });
}

fn primary(ordinal: u32) -> cuda_sys::CUcontext {
    let device = Device::get(ordinal).expect("four devices");
    device.context().expect("retained in `prepare`").as_raw()
}

/// Returns a foreign context that exists for the life of the process.
pub(super) fn foreign() -> &'static Foreign {
    static FOREIGN: OnceLock<Foreign> = OnceLock::new();
    FOREIGN.get_or_init(|| Foreign::create(2))
}

/// A value that a host function owns: none may exist when a run ends.
pub(super) struct Token(());

static TOKENS: AtomicIsize = AtomicIsize::new(0);

impl Token {
    pub(super) fn new() -> Self {
        TOKENS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    pub(super) fn reset() -> isize {
        TOKENS.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        TOKENS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Repeats the operation after a failure: a single fault must leave a state in which that is possible.
pub(super) fn again<R>(mut operation: impl FnMut() -> Result<R>) -> Result<R> {
    operation().or_else(|_| operation())
}

/// Pops what the scenario pushed, even if the first attempt fails.
pub(super) fn pop() -> Result<Context> {
    again(Context::pop)
}

/// Returns device 0 with its context.
pub(super) fn first() -> Result<(Device, Context)> {
    let device = Device::get(0)?;
    Ok((device, device.context()?))
}
