//! The in-process suites under Miri.

mod passed;
mod suites;
mod times;

use std::collections::HashSet;
use std::process::Command;

use anyhow::Context as _;

use super::depth::Depth;
use crate::Outcome;
use crate::process::{cargo_of, require};
use crate::suite::process::{Ended, follow};
use crate::suite::{Case, Finished, Program, Report, Run, Tag, slowest};
use crate::{queue, workspace};
use passed::Passed;
use suites::{Provenance, SAMPLES, SUITES, Suite, Turn};
use times::{Times, deal};

const LABEL: &str = "Miri";

/// Tags of GPU tests that do not run under Miri, with the reason.
const LEFT_OUT: [(Tag, &str); 4] = [
    (Tag::Real, "means nothing on the simulated driver"),
    (Tag::Nvrtc, "an interpreter loads no library"),
    (Tag::Timing, "the simulated driver has no timing"),
    (Tag::Heavy, "too much work for an interpreter"),
];

/// Modules of the GPU suite that are fast enough for Miri, besides those that use addresses. The sim suite
/// covers the paths of the others, with less data.
const GPU_MODULES: &str = "guards contexts streams events errors harness dlpack";

/// The number of Miri processes at a time. Each keeps one core busy.
const AT_A_TIME: usize = 2;

/// The target run time of a Miri process in seconds, unless a single test takes longer. Starting a process,
/// which compiles the tests, and its first test take some thirty seconds; but a process slows down with each
/// test: one that takes 6 s alone took 63 s after twenty others.
const A_PART: f64 = 150.0;

/// Tests that take longer, in seconds, are left to full runs, so that all samples take about equally long.
const LONGEST_OF_A_SAMPLE: f64 = 60.0;

/// The tests of one Miri process.
struct Part {
    suite: &'static Suite,
    tests: Vec<String>,
}

/// Runs the suites, or reports that Miri is not installed. Lists the tests with `programs`, which are built
/// for this machine.
pub(crate) fn run(
    programs: &[Program],
    filter: &str,
    depth: Depth,
    report: &mut Report,
) -> anyhow::Result<()> {
    if let Err(reason) = check_installed() {
        report.not_run(LABEL, "unit tests, sim, gpu", &reason.to_string());
        return Ok(());
    }
    let gpu = SUITES[1].label();
    for (tag, reason) in LEFT_OUT {
        report.not_run(&gpu, &format!("tests tagged {}", tag.name()), reason);
    }
    if filter.is_empty() {
        let outside = format!("tests outside {GPU_MODULES}");
        let reason = "too much work for an interpreter; the sim suite has the same paths";
        report.not_run(&gpu, &outside, reason);
    }
    println!("\n== {LABEL}");
    let root = workspace::root()?;
    let times = Times::read(&root);
    let is_whole_run = depth == Depth::Full && filter.is_empty();
    let passed = if is_whole_run { Passed::read(&root)? } else { None };
    let (mut parts, mut measured, mut before) = (Vec::new(), Vec::new(), 0);
    let (mut taken, mut left) = (Vec::new(), Vec::new());
    for suite in &SUITES {
        let mut tests = suite.tests(programs)?;
        tests.retain(|name| wanted(suite, name, filter));
        let (mut some, others) = sample(suite.turn, tests, depth, &times);
        let earlier = |name: &String| passed.as_ref()?.finished(suite, name);
        let finished: Vec<_> = some.iter().filter_map(earlier).collect();
        some.retain(|name| earlier(name).is_none());
        measured.extend(finished.iter().map(|test| (test.time, test.name.clone())));
        before += finished.len();
        if !finished.is_empty() {
            report.row(&suite.label()).add(LABEL, Run { finished, ..Run::default() });
        }
        let reason = "not in this sample: cargo xtask ci --full --step miri";
        for name in &others {
            report.not_run(&suite.label(), name, reason);
        }
        taken.extend(some.iter().cloned());
        left.extend(others);
        parts.extend(suite.parts(some, &times));
    }
    let seconds = times.of_all(&taken);
    let note = format!(
        "{LABEL}: {} of {} tests, {seconds:.0} s of {:.0} s by the last full run",
        taken.len(),
        taken.len() + left.len(),
        seconds + times.of_all(&left),
    );
    println!("{note}");
    report.note(note);
    if before > 0 {
        let note = format!("{LABEL}: {before} tests have passed in an earlier run of this commit");
        println!("{note}");
        report.note(note);
    }
    // Long parts begin first.
    parts.sort_by(|a, b| times.of_all(&b.tests).total_cmp(&times.of_all(&a.tests)));
    let interpret = |part: Part| {
        let ended = follow(part.command(depth), &mut super::show).and_then(|ended| {
            passed.as_ref().map(|it| it.add(part.suite, &ended.run.finished)).transpose()?;
            Ok(ended)
        });
        (part, ended)
    };
    for (part, ended) in queue::each(AT_A_TIME, parts, interpret) {
        let Ended { mut run, is_whole, .. } = ended?;
        let row = report.row(&part.suite.label());
        for name in part.account(&mut run, is_whole) {
            let reason = "not compiled for an interpreter: cfg(not(miri))";
            row.leave_out(LABEL, &name, reason);
        }
        let tests = run.finished.iter();
        measured.extend(tests.map(|test| (test.time, test.name.clone())));
        row.add(LABEL, run);
    }
    // A lost test would be recorded as taking no time.
    if is_whole_run && report.outcome() == Outcome::Passed {
        times::write(&root, &measured)?;
        passed.map(Passed::remove).transpose()?;
    }
    report.note(format!("{LABEL}: {}", slowest(measured, 25)));
    Ok(())
}

/// Splits the tests of a suite into those of this run and those left to other runs.
fn sample(
    turn: Turn,
    tests: Vec<String>,
    depth: Depth,
    times: &Times,
) -> (Vec<String>, Vec<String>) {
    let Some(sample) = depth.share(SAMPLES) else {
        return (tests, Vec::new());
    };
    let (pace, first) = turn;
    if sample % pace != first {
        return (Vec::new(), tests);
    }
    let is_long = |name: &String| times.of(name) > LONGEST_OF_A_SAMPLE;
    let (mut left, tests): (Vec<_>, Vec<_>) = tests.into_iter().partition(is_long);
    let mut shares = deal(tests, SAMPLES / pace, |name| times.of(name));
    let taken = shares.swap_remove(sample / pace);
    left.extend(shares.into_iter().flatten());
    (taken, left)
}

impl Suite {
    fn label(&self) -> String {
        format!("{LABEL}, {} provenance: {}", self.provenance.word(), self.name)
    }

    /// Lists the suite's tests with the programs built for this machine, since asking Miri takes as long as
    /// starting it. Tests that are not compiled for Miri are reported after the run.
    fn tests(&self, programs: &[Program]) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        for suite in self.programs {
            let program = programs.iter().find(|program| program.suite == *suite);
            let program = program.with_context(|| format!("{suite} was not built"))?;
            names.extend(program.list("")?.into_iter().map(|case| case.name));
        }
        Ok(names)
    }

    fn parts(&'static self, tests: Vec<String>, times: &Times) -> Vec<Part> {
        let count = (times.of_all(&tests) / A_PART).ceil() as usize;
        let parts = deal(tests, count, |name| times.of(name)).into_iter();
        let parts = parts.filter(|tests| !tests.is_empty());
        parts.map(|tests| Part { suite: self, tests }).collect()
    }
}

fn wanted(suite: &Suite, name: &str, filter: &str) -> bool {
    let case = Case::parse(name);
    let module = name.split("::").next();
    !LEFT_OUT.iter().any(|(tag, _)| case.tags.contains(tag))
        && Provenance::of(name) == suite.provenance
        && match filter {
            "" if suite.name == "gpu" && suite.provenance == Provenance::Strict => {
                GPU_MODULES.split(' ').any(|slow| module == Some(slow))
            }
            _ => name.contains(filter),
        }
}

impl Part {
    /// Returns the command `cargo miri test` for these tests, which run in one process on the simulated
    /// driver: they open no library and start no process.
    fn command(&self, depth: Depth) -> Command {
        // The simulator reports leaks instead of Miri: the suites forget values on purpose.
        let flags = "-Zmiri-ignore-leaks -Zmiri-env-forward=CUDA_SIM_MODE \
                     -Zmiri-env-forward=CUDA_TESTS_CALLS -Zmiri-env-forward=CUDA_TESTS_ROTATION";
        let test = "miri test --no-default-features --no-fail-fast";
        let mut command = cargo_of("nightly", &format!("{test} {}", self.suite.selection));
        let provenance = self.suite.provenance.word();
        command.env("MIRIFLAGS", format!("-Zmiri-{provenance}-provenance {flags}"));
        command.envs(depth.environment());
        command.args(["--", "--exact"]).args(&self.tests);
        command
    }

    /// Counts a test without a verdict as failed, since Miri stops at the first undefined behaviour. If Miri
    /// completed its run, the test is not in the program, and is returned.
    fn account(&self, run: &mut Run, is_whole: bool) -> Vec<String> {
        let known: HashSet<&str> = run.finished.iter().map(|test| &*test.name).collect();
        let lost = self.tests.iter().filter(|test| !known.contains(&***test));
        let mut lost: Vec<_> = lost.cloned().collect();
        if !is_whole {
            let reason = "the interpreter did not get to it";
            run.finished.extend(lost.drain(..).map(|name| Finished::lost(name, reason)));
        }
        lost
    }
}

/// Returns an error that says what to install, unless Miri is installed.
pub(super) fn check_installed() -> anyhow::Result<()> {
    let help = "no Miri: rustup toolchain install nightly --component miri,rust-src";
    require(cargo_of("nightly", "miri --version"), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIM: &Suite = &SUITES[0];
    const GPU: &Suite = &SUITES[1];
    const BY_ADDRESS: &Suite = &SUITES[4];

    #[test]
    fn a_module_is_not_the_end_of_another_name() {
        let wanted = |name| wanted(GPU, name, "");
        assert!(wanted("streams::b01_create::needs_1"));
        assert!(!wanted("streams::b01_create::heavy::needs_1"));
        assert!(!wanted("managed::g01_on_every_devices_streams::needs_2"));
        assert!(!wanted("soundness::contexts::s38_two_writers::needs_2"));
        assert!(!wanted("foreign_streams::c22_external_owner_alive::needs_1"));
    }

    #[test]
    fn what_uses_addresses_is_interpreted_permissively_alone() {
        for name in ["managed::g01_round_trip::needs_1", "pointers::f09_mapped::needs_1"] {
            assert!(wanted(BY_ADDRESS, name, ""), "{name}");
            assert!(!wanted(GPU, name, "::"), "{name}");
        }
        assert!(!wanted(BY_ADDRESS, "streams::b01_create::needs_1", "b01"));
        assert!(!wanted(BY_ADDRESS, "managed::many_gibibytes::heavy::needs_1", ""));
    }

    #[test]
    fn the_sim_suite_runs_whole_without_a_filter() {
        assert!(wanted(SIM, "soundness::faults::heavy", ""));
        assert!(wanted(SIM, "faults::staged::forms", "staged"));
        assert!(!wanted(SIM, "faults::copies::forms", "staged"));
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("test {n:03}")).collect()
    }

    #[test]
    fn each_test_is_in_one_part() {
        let tests = names(2 * A_PART as usize + 1);
        let parts = SIM.parts(tests.clone(), &Times::default());
        assert_eq!(parts.len(), 3);
        let mut dealt: Vec<_> = parts.into_iter().flat_map(|part| part.tests).collect();
        dealt.sort();
        assert_eq!(dealt, tests);
        assert!(SIM.parts(Vec::new(), &Times::default()).is_empty());
    }

    #[test]
    fn commits_in_a_row_interpret_each_test_once() {
        let (tests, times) = (names(333), Times::default());
        for turn in SUITES.map(|suite| suite.turn) {
            let mut had = Vec::new();
            for rotation in 1000..1000 + SAMPLES as u64 {
                let depth = Depth::Sampled { rotation };
                let (taken, left) = sample(turn, tests.clone(), depth, &times);
                assert_eq!(taken.len() + left.len(), tests.len());
                had.extend(taken);
            }
            had.sort();
            assert_eq!(had, tests);
            let (all, left) = sample(turn, tests.clone(), Depth::Full, &times);
            assert_eq!((all.len(), left.len()), (tests.len(), 0));
        }
    }

    #[test]
    fn every_sample_has_two_suites() {
        for sample in 0..SAMPLES {
            let has_turn = |suite: &&Suite| sample % suite.turn.0 == suite.turn.1;
            assert_eq!(SUITES.iter().filter(has_turn).count(), 2, "{sample}");
        }
    }

    #[test]
    fn a_long_test_is_in_no_sample_but_in_the_whole() {
        let (tests, times) = (names(10), Times::parse("61 test 003"));
        for rotation in 0..SAMPLES as u64 {
            let (taken, left) = sample((1, 0), tests.clone(), Depth::Sampled { rotation }, &times);
            assert!(!taken.contains(&tests[3]) && left.contains(&tests[3]));
        }
        assert_eq!(sample((1, 0), tests.clone(), Depth::Full, &times), (tests, vec![]));
    }

    #[test]
    fn what_an_interpreter_that_fails_did_not_get_to_has_failed() {
        let part = Part { suite: SIM, tests: vec!["a".into(), "b".into()] };
        let run =
            || Run { finished: vec![Finished::lost("a", "undefined behaviour")], ..Run::default() };
        let mut whole = run();
        assert_eq!(part.account(&mut whole, true), ["b"]);
        assert_eq!(whole.finished.len(), 1);
        let mut broken = run();
        assert!(part.account(&mut broken, false).is_empty());
        let last = broken.finished.last().expect("two tests");
        assert!(last.has_failed() && last.name == "b");
    }
}
