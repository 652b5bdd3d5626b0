//! Runs the tests and prints what did not run.

mod depth;
mod faults;
mod miri;
pub(crate) mod programs;
mod template;

use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::cargo::{Built, build};
use crate::process::cargo;
use crate::suite::process::{Ended, follow};
use crate::suite::{Invocation, Program, Report, Row, Setting, Variant};
use crate::target::Target;
use crate::{Outcome, queue};
pub(crate) use depth::Depth;

/// The default number of devices of the simulated driver.
const DEVICES: u32 = 4;

/// The suite that runs first.
const LONGEST: &str = "cuda-tests::sim";

/// Builds all tests. Every task that needs one of them builds them all, since the features of a package
/// depend on the packages built with it: another selection would compile most packages again.
const TESTS: &str = "test --workspace --features xtask/driver --no-run";

/// Builds the programs that run beside tests. Only one more library is compiled, provided that everything
/// else is selected too.
const BESIDE: &str = "build --workspace --features xtask/driver --lib --bins --examples --tests";

/// The settings of tests that poison their process: they test how a process ends, which schedule and
/// allocator do not affect.
const STICKY: &[Variant] = &[Variant::Lazy, Variant::Eager];

/// The settings of GPU suites of which a sample has one.
const IN_TURN: [Variant; 3] = [Variant::LazyDriverPool, Variant::Plain, Variant::Oldest];

/// Runs the tests that need no GPU, and prints what did not run and why.
///
/// Unit tests, the suites that span the crates, and doc tests; the GPU suite on the simulated
/// driver, with work done as late as CUDA permits (lazy), at enqueue (eager) and by a seeded
/// schedule (threaded), and again, lazily, with each other allocator (CUDA_CORE_ALLOCATOR), and on
/// a driver with the symbols of CUDA 11.8 only; guards from Python, the examples, and the crate to
/// copy, docs/template. Tests that poison their process get one each.
#[derive(clap::Args)]
#[command(after_help = "Exit code: 0 passed, 1 a test failed, 2 the tests could not be run.")]
pub(crate) struct Args {
    /// Runs only tests with a path that contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Runs the in-process suites under Miri too: with strict provenance, and tests of managed and
    /// mapped memory, whose addresses the driver returns as numbers, with permissive provenance.
    #[arg(long)]
    miri: bool,
    /// Runs each GPU test on the simulated driver again for each of its driver calls, which is made
    /// to fail: takes half an hour on two processors.
    #[arg(long)]
    faults: bool,
    /// Of --faults, takes the sample that `cargo xtask ci` takes with that rotation.
    #[arg(long, value_name = "NUMBER", requires = "faults")]
    rotation: Option<u64>,
    /// Devices of the simulated driver.
    #[arg(long, value_name = "DEVICES", default_value_t = DEVICES, value_parser = clap::value_parser!(u32).range(1..=64))]
    sim: u32,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let started = Instant::now();
    let mut report = Report::default();
    let filter = args.filter.as_deref().unwrap_or_default();
    let built = build(TESTS).context("the tests do not build")?;
    let (programs, target) = (built.tests(), target(&built, args.sim)?);
    let sample = Depth::of_environment();
    let mut passes = Vec::new();
    for program in &programs {
        passes.extend(settings(program, args.sim, sample).into_iter().map(|pass| (program, pass)));
    }
    // This suite takes as long as all others together.
    passes.sort_by_key(|(program, _)| program.suite != LONGEST);
    // A pass runs one test at a time, on the driver that its process shares.
    let run = |(program, pass)| run_pass(program, pass, &target, filter);
    let (rows, others) = thread::scope(|scope| {
        // These build more than they run, and passes often wait.
        let others = scope.spawn(|| run_others(filter, args.sim));
        let rows = queue::each(queue::processors(), passes, run);
        (rows, others.join().expect("it does not panic"))
    });
    for row in rows {
        report.rows.push(row?);
    }
    report.rows.retain(|row| !row.is_empty());
    report.absorb(others?);
    if sample != Depth::Full {
        report.note(format!(
            "a sample, since CUDA_TESTS_ROTATION is set: {} runs with one setting of {}; {LONGEST} \
             makes one call in three fail in each way, and runs half of its random programs",
            faults::SUITE,
            IN_TURN.map(|variant| Setting { devices: args.sim, variant }.to_string()).join(", "),
        ));
    }
    if args.faults {
        let sampled = |rotation| Depth::Sampled { rotation };
        let depth = args.rotation.map_or(Depth::Full, sampled);
        faults::run(&programs, filter, &target, depth, &mut report)?;
    } else {
        let what = "the GPU suites, with a failure at every driver call";
        report.not_run("simulated", what, "cargo xtask test --faults");
    }
    if args.miri {
        miri::run(&programs, filter, Depth::Full, &mut report)?;
    } else {
        report.not_run("Miri", "the in-process suites", "cargo xtask test --miri");
    }
    report.not_run("real GPUs", "the GPU suites", "cargo xtask test-gpu");
    print!("{}", report.text(started.elapsed()));
    Ok(report.outcome())
}

/// Runs only the in-process suites under Miri.
pub(crate) fn run_miri(depth: Depth) -> Result<Outcome> {
    miri::check_installed()?;
    alone(|built, report| miri::run(&built.tests(), "", depth, report))
}

/// Runs only the GPU suite with a failure at every driver call.
pub(crate) fn run_faults(depth: Depth) -> Result<Outcome> {
    alone(|built, report| {
        let programs = built.tests();
        if depth == Depth::Full {
            report.rows.push(faults::run_scenarios(&programs)?);
        }
        faults::run(&programs, "", &target(built, DEVICES)?, depth, report)
    })
}

/// Builds all tests, runs this part of them, and prints its report.
fn alone(part: impl FnOnce(&Built, &mut Report) -> Result<()>) -> Result<Outcome> {
    let started = Instant::now();
    let mut report = Report::default();
    part(&build(TESTS)?, &mut report)?;
    print!("{}", report.text(started.elapsed()));
    Ok(report.outcome())
}

/// Returns the simulated driver, as seen by the program that was built with the tests.
fn target(built: &Built, devices: u32) -> Result<Target> {
    Target::simulated(built.program("xtask")?, devices)
}

/// The settings with which a program runs, one after another; only the GPU suites need any.
fn settings(program: &Program, devices: u32, sample: Depth) -> Vec<Option<Setting>> {
    let variants = match program.suite.as_str() {
        faults::SUITE => Variant::ALL_SIMULATED,
        _ if program.poisons() => STICKY,
        _ => return vec![None],
    };
    let turn = sample.share(IN_TURN.len()).map(|share| IN_TURN[share]);
    let is_in_sample = |variant: &&Variant| {
        turn.is_none_or(|turn| turn == **variant || !IN_TURN.contains(variant))
    };
    let setting = |&variant| Some(Setting { devices, variant });
    variants.iter().filter(is_in_sample).map(setting).collect()
}

fn run_pass(
    program: &Program,
    setting: Option<Setting>,
    target: &Target,
    filter: &str,
) -> Result<Row> {
    let mut row = Row::new(&program.suite);
    let cases = program.list(filter)?;
    let (invocation, names) = match setting {
        None => (Invocation::default(), cases.iter().map(|case| case.name.as_str()).collect()),
        Some(setting) => {
            row.name += &format!(", {setting}");
            setting.choose(&mut row, program, &cases, target)?
        }
    };
    if !names.is_empty() {
        println!("{}: {} tests begin", row.name, names.len());
        // Other passes run concurrently: each prints its output as a whole.
        let mut lines = format!("\n== {}: {} tests\n", row.name, names.len());
        let run = program.run(&invocation, &names, &mut |line| append(&mut lines, line));
        print!("{lines}");
        row.add(&program.suite, run?);
    }
    Ok(row)
}

/// Whether to show a line. Every process prints lines around its tests; only the verdicts are shown.
fn is_worth_showing(line: &str) -> bool {
    let frame = line.starts_with("running ") || line.starts_with("test result: ok");
    !frame && !line.is_empty()
}

fn show(line: &str) {
    if is_worth_showing(line) {
        println!("{line}");
    }
}

fn append(lines: &mut String, line: &str) {
    if is_worth_showing(line) {
        lines.extend([line, "\n"]);
    }
}

/// Runs tests that are not test programs built by cargo: doc tests, Python, examples, and the template.
fn run_others(filter: &str, devices: u32) -> Result<Report> {
    let mut report = Report::default();
    run_doc_tests(filter, &mut report)?;
    let built = build(BESIDE)?;
    programs::interop(filter, &built, &mut report)?;
    programs::examples(filter, devices, &built, &mut report)?;
    template::run(filter, &built, &mut report)?;
    Ok(report)
}

fn run_doc_tests(filter: &str, report: &mut Report) -> Result<()> {
    let mut command = cargo("test --workspace --doc --no-fail-fast --");
    command.arg(filter);
    let ended = follow_as_a_whole("doc tests", command)?;
    report.row("doc tests").add("doc tests", ended.run);
    Ok(())
}

/// Runs cargo, and prints the output of its tests when it has ended, so that it does not mix with that of
/// passes.
fn follow_as_a_whole(name: &'static str, command: Command) -> Result<Ended> {
    println!("{name} begin");
    let mut lines = format!("\n== {name}\n");
    let ended = follow(command, &mut |line| append(&mut lines, line));
    print!("{lines}");
    ended.context(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(suite: &str, sample: Depth) -> Vec<String> {
        let program = Program { suite: suite.into(), path: "x".into(), directory: None };
        let settings = settings(&program, 4, sample).into_iter();
        let name = |setting: Option<Setting>| setting.map_or("none".into(), |it| it.to_string());
        settings.map(name).collect()
    }

    #[test]
    fn gpu_suites_run_with_every_schedule_allocator_and_driver() {
        let names_of = |suite| names(suite, Depth::Full);
        assert_eq!(names_of("cuda-core (unit tests)"), ["none"]);
        assert_eq!(names_of("cuda-tests::sticky"), ["4-sim-lazy", "4-sim-eager"]);
        let all = names_of("cuda-tests::gpu").join(" ");
        assert!(all.starts_with("4-sim-lazy 4-sim-eager 4-sim-threaded"));
        assert!(all.ends_with("4-sim-driver-pool 4-sim-plain 4-sim-cuda-11.8"));
    }

    #[test]
    fn samples_in_a_row_have_every_setting() {
        let sample = |rotation| names(faults::SUITE, Depth::Sampled { rotation });
        let mut had: Vec<_> = (7..10).flat_map(sample).collect();
        assert_eq!(had.len(), 3 * 4);
        had.sort_unstable();
        had.dedup();
        let mut all = names(faults::SUITE, Depth::Full);
        all.sort_unstable();
        assert_eq!(had, all);
    }
}
