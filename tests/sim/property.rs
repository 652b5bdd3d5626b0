//! Random programs against a plain model of what memory holds.
//!
//! A program is a list of steps, each for one of three threads, which take turns. The order of its
//! steps is the order of their effects, whatever streams they use: that is what the library
//! promises, and what the model in [`world`] does. `PROPTEST_CASES` sets the number of programs.

mod program;
mod threads;
mod world;

use cuda_sim::{LeakKind, Mode};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

use crate::faults::harness::remove;
use program::Step;
use threads::Threads;
use world::World;

/// Some ten seconds; a handful under Miri, which takes a thousand times as long.
const CASES: u32 = if cfg!(miri) { 3 } else { 1000 };

/// Steps of a program.
const LONGEST: usize = if cfg!(miri) { 10 } else { 60 };

#[test]
fn lazy() {
    check(Mode::Lazy);
}

#[test]
fn eager() {
    check(Mode::Eager);
}

fn check(mode: Mode) {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let config = Config {
        cases: asked.map_or(CASES, |cases| cases.parse().expect("a number of cases")),
        // Programs depend on nothing but their steps: what fails is found again by its seed.
        failure_persistence: None,
        ..Config::default()
    };
    let programs = program::programs(LONGEST);
    let result = TestRunner::new(config).run(&programs, |steps| {
        run(mode, steps).map_err(TestCaseError::fail)
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, steps)) => {
            let steps: Vec<_> = steps.iter().map(|step| format!("    {step:?}\n")).collect();
            panic!(
                "{mode:?}: {reason}\nThe shortest program found:\n{}",
                steps.concat()
            );
        }
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
    remove(
        leaks
            .into_iter()
            .filter(|leak| leak.kind != LeakKind::Context)
            .collect(),
    );
    explained
}
