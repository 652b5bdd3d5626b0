//! Random programs against a plain model of what memory holds.
//!
//! A program is a list of steps, each for one of three threads, which take turns. The order of its
//! steps is the order of their effects, whatever streams they use: that is what the library
//! promises, and what the model in [`world`] does. In [`concurrent`] programs each thread has steps
//! of its own, and nobody knows their order. `PROPTEST_CASES` sets the number of programs,
//! `PROPTEST_RNG_SEED` chooses them; a failure says which.

mod concurrent;
mod program;
mod threads;
mod world;

use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};

use cuda_sim::{LeakKind, Mode};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestCaseError, TestError, TestRunner};

use program::Step;
use support::judge::take_away;
use threads::Threads;
use world::World;

/// Some ten seconds; a handful under Miri, which takes a thousand times as long.
const CASES: u32 = if cfg!(miri) { 2 } else { 1000 };

/// Steps of a program.
const LONGEST: usize = if cfg!(miri) { 10 } else { 60 };

#[test]
fn lazy() {
    check(Just(Mode::Lazy));
}

#[test]
fn eager() {
    check(Just(Mode::Eager));
}

#[test]
fn threaded() {
    check(schedules());
}

/// How many random inputs a property is tested with, whoever tests it.
pub(crate) fn config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        // Better random numbers take an interpreter longer than many a program made of them.
        rng_algorithm: match cfg!(miri) {
            true => RngAlgorithm::XorShift,
            false => RngAlgorithm::default(),
        },
        ..Config::default()
    }
}

fn check(modes: impl Strategy<Value = Mode>) {
    prove(
        CASES,
        (modes, program::programs(LONGEST)),
        |steps| steps.iter().map(|step| format!("    {step:?}\n")).collect(),
        run,
    );
}

/// Threaded mode under any seed.
fn schedules() -> impl Strategy<Value = Mode> {
    any::<u32>().prop_map(|seed| Mode::Threaded { seed: seed.into() })
}

/// Runs random programs; prints the shortest that fails, and how to find it again.
fn prove<P: Clone + Debug>(
    cases: u32,
    programs: impl Strategy<Value = (Mode, P)>,
    print: impl Fn(&P) -> String,
    run: impl Fn(Mode, P) -> Result<(), String>,
) {
    let mut config = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config(Config::default().cases),
        None => config(cases),
    };
    // Drawn here where nobody chose it, so that it can be told.
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().build_hasher().finish() >> 32,
    };
    config.rng_seed = RngSeed::Fixed(seed);
    let result = TestRunner::new(config).run(&programs, |(mode, program)| {
        run(mode, program).map_err(TestCaseError::fail)
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, (mode, program))) => panic!(
            "{mode}: {reason}\nThe shortest program found under PROPTEST_RNG_SEED={seed}:\n{}",
            print(&program)
        ),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

/// Runs one program, and says where it departs from the model.
fn run(mode: Mode, steps: Vec<Step>) -> Result<(), String> {
    let session = support::simulator();
    session.set_mode(mode);
    let failures = cuda_core::drop_failures();
    let mut threads = Threads::start();
    let outcome = (|| {
        let mut world = World::new()?;
        for (number, step) in steps.into_iter().enumerate() {
            let told = format!("step {number}, {step:?}");
            world = threads
                .run(step, world)
                .map_err(|error| format!("{told}: {error}"))?;
        }
        world.compare_everything()?;
        Ok::<_, String>(world.into_forgotten())
    })();
    threads.end()?;
    cuda_core::flush_deferred_drops();
    session.settle();
    cuda_core::flush_deferred_drops();
    // What was dropped last may have recorded an event.
    session.settle();
    cuda_core::trim_staging().map_err(|error| error.to_string())?;
    let forgotten = outcome?;
    let violations = session.take_violations();
    if !violations.is_empty() {
        return Err(format!("{violations:#?}"));
    }
    if cuda_core::drop_failures() != failures {
        return Err("a drop failed".to_owned());
    }
    let leaks = session.leaks();
    let explained = forgotten.explain(&leaks);
    // A context may still be current somewhere; it stays.
    take_away(
        leaks
            .into_iter()
            .filter(|leak| leak.kind != LeakKind::Context)
            .collect(),
    );
    explained
}
