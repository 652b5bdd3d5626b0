//! Random programs against a plain model of what memory holds.
//!
//! A program is a list of steps, each for one of three threads, which take turns. The effects come in the
//! order of the steps, whatever streams they use: the library promises that, and the model in [`world`] does
//! it. In [`failing`] programs driver calls fail. In [`concurrent`] programs each thread has steps of its
//! own, in an unknown order. Programs with [`graphs`] have their own kinds of steps. `PROPTEST_CASES` sets
//! the number of programs, half of which a run with samples has, and `PROPTEST_RNG_SEED` selects them; a failure prints the seed.

/// Declares the tests of a kind of random programs, one for each mode.
macro_rules! in_each_mode {
    ($check:ident) => {
        #[test]
        fn lazy() {
            $check(proptest::prelude::Just(cuda_sim::Mode::Lazy));
        }

        #[test]
        fn eager() {
            $check(proptest::prelude::Just(cuda_sim::Mode::Eager));
        }

        #[test]
        fn threaded() {
            $check(crate::property::schedules());
        }
    };
}

mod concurrent;
mod failing;
mod graphs;
mod outcome;
mod program;
mod steps;
mod threads;
mod world;

use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};

use cuda_core::{Context, Resource, staging::StagingOptions};
use cuda_sim::{Mode, Session};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestCaseError, TestError, TestRunner};

use failing::Failure;
use outcome::{Departure, Done};
use program::{Op, Step};
use support::DropReports;
use threads::{Answer, Threads};
use world::{Ending, Forgotten, World};

/// Number of programs: a few seconds' worth, and a handful under Miri, which takes a thousand times as long.
const CASES: u32 = if cfg!(miri) { 2 } else { 300 };

/// Number of steps of the longest program.
const LONGEST: usize = if cfg!(miri) { 10 } else { 60 };

in_each_mode!(check);

/// How a program ends after its steps.
#[derive(Debug, Clone, Copy)]
enum End {
    /// Waits for all work, and compares all memory.
    Compare,
    /// Drops everything as it is, while work is in progress.
    Drop,
}

/// A random program.
#[derive(Debug, Clone)]
struct Program {
    steps: Vec<Step>,
    end: End,
    ending: Ending,
    /// Driver calls that fail while everything is dropped.
    failures: Vec<Failure>,
}

fn programs(
    steps: impl Strategy<Value = Vec<Step>>,
    failures: impl Strategy<Value = Vec<Failure>>,
) -> impl Strategy<Value = Program> {
    let end = prop_oneof![Just(End::Compare), Just(End::Drop)];
    let ending = vec(any::<u8>(), 0..24);
    (steps, end, ending, failures).prop_map(|(steps, end, ending, failures)| Program {
        steps,
        end,
        ending,
        failures,
    })
}

fn print(program: &Program) -> String {
    let Program { steps, end, ending, failures } = program;
    let print = |step: &Step| {
        let Step { thread, op, failure } = step;
        match failure {
            Some(failure) => format!("    thread {thread}: {op:?}, with {failure:?}\n"),
            None => format!("    thread {thread}: {op:?}\n"),
        }
    };
    let steps: String = steps.iter().map(print).collect();
    format!("{steps}    then: {end:?}, in the order {ending:?}, with {failures:?}\n")
}

/// Configures the number of random inputs with which each property is tested.
pub(crate) fn config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        // A better generator would take as long as the programs themselves.
        rng_algorithm: RngAlgorithm::XorShift,
        ..Config::default()
    }
}

fn check(modes: impl Strategy<Value = Mode>) {
    let steps = program::programs(LONGEST, Just(None));
    let programs = programs(steps, Just(Vec::new()));
    prove(CASES, (modes, programs), print, run);
}

/// Returns threaded modes with any seed.
fn schedules() -> impl Strategy<Value = Mode> {
    any::<u32>().prop_map(|seed| Mode::Threaded { seed: seed.into() })
}

/// Runs random programs. Prints the shortest that fails, and the seed to find it again.
fn prove<P: Clone + Debug>(
    cases: u32,
    programs: impl Strategy<Value = (Mode, P)>,
    print: impl Fn(&P) -> String,
    run: impl Fn(Mode, P) -> Result<(), String>,
) {
    let mut config = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config(Config::default().cases),
        None => config(cases.div_ceil(support::sample::stride(2) as u32)),
    };
    // Drawn here if the environment sets none, so that a failure can print the seed.
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().build_hasher().finish() >> 32,
    };
    config.rng_seed = RngSeed::Fixed(seed);
    let result = TestRunner::new(config)
        .run(&programs, |(mode, program)| run(mode, program).map_err(TestCaseError::fail));
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, (mode, program))) => panic!(
            "{mode}: {reason}\nThe shortest program found under PROPTEST_RNG_SEED={seed}:\n{}",
            print(&program)
        ),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

/// Runs a program in which no call fails. An error says what is wrong, or what the program left behind.
fn run_alone(mode: Mode, enact: impl FnOnce(&Session) -> Result<(), String>) -> Result<(), String> {
    let session = support::simulator_in(mode);
    let failures = cuda_core::drops::failures();
    let outcome = enact(&session);
    cuda_core::drops::flush();
    session.settle();
    cuda_core::drops::flush();
    // The last drop may have recorded an event.
    session.settle();
    cuda_core::staging::trim().map_err(|error| error.to_string())?;
    support::trim_cache(&session).map_err(|error| error.to_string())?;
    // Compared before the session ends and drops of another test fail.
    let a_drop_failed = cuda_core::drops::failures() != failures;
    let report = session.finish();
    if !report.is_clean() {
        return Err(report.to_string());
    }
    outcome?;
    if a_drop_failed { Err("a drop failed".to_owned()) } else { Ok(()) }
}

/// Runs one program. An error says where it departs from the model.
fn run(mode: Mode, program: Program) -> Result<(), String> {
    crate::faults::harness::prepare();
    let session = support::simulator_in(mode);
    let settings = cuda_core::staging::options().map_err(|error| error.to_string())?;
    let before = cuda_sim::context_stack();
    let in_steps = program.steps.iter().filter_map(|step| step.failure);
    let failures = in_steps.chain(program.failures.iter().copied());
    let took_effect = failures.filter(|failure| failure.takes_effect()).count();
    let mut run = Run {
        session: &session,
        drops: DropReports::listen(),
        injected: 0,
        lost_current: 0,
        fired: false,
    };
    let mut threads = Threads::start();
    let outcome = run.enact(&mut threads, program);
    let ended = threads.end();
    cuda_core::drops::flush();
    run.clear_faults();
    let outcome = outcome.and_then(|forgotten| {
        run.excuse(forgotten.compare())?;
        Ok(forgotten.into_left())
    });
    // The last drop may have recorded an event.
    for _ in 0..2 {
        session.settle();
        cuda_core::drops::flush();
    }
    let peers = outcome.as_ref().map_or(&[][..], |left| &left.peers);
    let tidied = tidy(&session, settings, peers).map_err(|error| format!("afterwards: {error}"));
    let (reported, fired) = (run.drops.end(), run.fired);
    let violations = session.take_violations();
    let leaks = session.leaks();
    (|| {
        if !violations.is_empty() {
            return Err(format!("{violations:#?}"));
        }
        let left = outcome?;
        ended?;
        tidied?;
        let current = reported.failures.iter().any(|failure| failure.resource == Resource::Current);
        if cuda_sim::context_stack() != before && !current {
            return Err("what is current has changed".to_owned());
        }
        if reported.counted != reported.failures.len() as u64 {
            return Err(format!("counter and hook disagree: {reported:#?}"));
        }
        if fired {
            let destroyed = session.calls("cuCtxDestroy_v2") > 0;
            return failing::compare(&leaks, &reported, &left, destroyed, took_effect);
        }
        if reported.counted > 0 {
            return Err(format!("drops failed: {reported:#?}"));
        }
        left.explain(&leaks)
    })()
}

/// Releases what the process keeps, so that the next program starts in the same state.
fn tidy(
    session: &Session,
    settings: StagingOptions,
    peers: &[(Context, Context)],
) -> cuda_core::Result<()> {
    for (from, to) in peers {
        from.disable_peer_access(to)?;
    }
    cuda_core::staging::set_options(settings)?;
    cuda_core::staging::trim()?;
    cuda_core::PinnedPool::shared().trim(0)?;
    support::trim_cache(session)
}

/// A running program.
struct Run<'a> {
    session: &'a Session,
    drops: DropReports,
    /// How many driver calls were set to fail.
    injected: usize,
    /// How often the drop hook reported that a guard could not restore the current context.
    lost_current: usize,
    /// Whether a driver call has failed as planned.
    fired: bool,
}

impl Run<'_> {
    fn enact(&mut self, threads: &mut Threads, program: Program) -> Result<Forgotten, String> {
        let mut world = World::new().map_err(|error| error.to_string())?;
        for (number, step) in program.steps.into_iter().enumerate() {
            let label = format!("step {number}");
            self.inject(step.failure);
            let op = step.op.clone();
            let answer = threads.run(step, world)?;
            world = self.judge(&op, answer).map_err(|wrong| format!("{label}: {wrong}"))?;
        }
        self.clear_faults();
        if let End::Compare = program.end {
            self.excuse(world.compare_everything())?;
        }
        self.inject(program.failures);
        Ok(world.into_forgotten(&program.ending))
    }

    fn inject(&mut self, failures: impl IntoIterator<Item = Failure>) {
        for failure in failures {
            self.injected += failure.calls();
            self.session.inject(failure.fault());
        }
    }

    fn clear_faults(&mut self) {
        self.fired |= self.session.fault_fired();
        self.session.clear_faults();
    }

    /// Excuses errors once a driver call has failed: they are then no departure.
    fn excuse(&mut self, done: Done) -> Result<(), String> {
        self.fired |= self.session.fault_fired();
        match done {
            Err(Departure::Failed(_)) if self.fired => Ok(()),
            done => done.map_err(|departure| departure.to_string()),
        }
    }

    fn judge(&mut self, op: &Op, answer: Answer) -> Result<World, String> {
        let lost = self.drops.reported(Resource::Current);
        let changing = matches!(op, Op::Context(op) if op.changes_current());
        // If a call and the call that undoes it both fail, only the returned error shows it.
        let returned = (changing || self.injected > 1) && answer.done.is_err();
        let excused = lost > self.lost_current || returned;
        self.lost_current = lost;
        self.excuse(answer.done)?;
        match answer.current {
            Err(_) if excused => {}
            other => other?,
        }
        Ok(answer.world)
    }
}
