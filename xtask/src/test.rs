//! Runs the tests and prints what did not run.

mod depth;
mod examples;
mod faults;
mod interop;
mod miri;
mod plan;
mod report;
mod shares;

use std::num::NonZero;
use std::thread;
use std::time::Instant;

use anyhow::Context;

use crate::Outcome;
use crate::suite::build::{self, Artifact, cargo};
use crate::suite::process::{Ended, follow};
use crate::suite::{Finished, Invocation, Program, Verdict, queue};
pub(crate) use depth::Depth;
use plan::{Mode, Pass};
use report::Report;

/// Devices of the simulated driver by default.
const DEVICES: u32 = 4;

/// The suite that runs first.
const LONGEST: &str = "cuda-tests::sim";

/// Builds all tests. Every task that needs one of them builds them all, since the features of a
/// package depend on the packages built with it: another selection would compile most of them
/// again.
const TESTS: [&str; 3] = ["test", "--workspace", "--no-run"];

/// Builds what runs beside tests: one more library, as long as everything else is selected too.
const BESIDE: [&str; 6] = ["build", "--workspace", "--lib", "--bins", "--examples", "--tests"];

/// Runs the tests that need no GPU, and prints what did not run and why.
///
/// Unit tests, the suites that span the crates, and doc tests; the GPU suite on the simulated
/// driver, with work done as late as CUDA permits (lazy), at enqueue (eager) and by a seeded
/// schedule (threaded), and again, lazily, with each other allocator (CUDA_CORE_ALLOCATOR), and on
/// a driver with the symbols of CUDA 11.8 only; guards from Python, and the examples. Tests that
/// poison their process get one each.
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
    /// to fail: takes some minutes.
    #[arg(long)]
    faults: bool,
    /// Of --faults, takes the sample that `cargo xtask ci` takes with that rotation.
    #[arg(long, value_name = "NUMBER", requires = "faults")]
    rotation: Option<u64>,
    /// Devices of the simulated driver.
    #[arg(long, value_name = "DEVICES", default_value_t = DEVICES, value_parser = clap::value_parser!(u32).range(1..=64))]
    sim: u32,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let mut report = Report::default();
    let programs = match built() {
        Ok(programs) => programs,
        Err(error) => {
            eprintln!("error: the tests do not build: {error:#}");
            return Ok(Outcome::Failed);
        }
    };
    let passes = programs.iter().flat_map(|program| {
        let passes = plan::passes(program, args.sim);
        passes.into_iter().map(move |pass| (program, pass))
    });
    let mut passes: Vec<_> = passes.collect();
    // It takes as long as all others together.
    passes.sort_by_key(|(program, _)| program.suite != LONGEST);
    // A pass runs one test at a time, on the driver that its process shares.
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let reports = queue::each(workers, passes, |(program, pass)| run_pass(program, &pass, args));
    for of_pass in reports {
        report.absorb(of_pass?);
    }
    run_doc_tests(args, &mut report)?;
    let built = build::build(&BESIDE)?;
    interop::run(args.filter.as_deref(), &built, &mut report)?;
    examples::run(args.filter.as_deref(), args.sim, &built, &mut report)?;
    if args.faults {
        let suite = faults::suite(&programs)?;
        let filter = args.filter.as_deref();
        let depth = args.rotation.map_or(Depth::Full, |rotation| Depth::Sampled { rotation });
        faults::run(suite, filter, args.sim, depth, &mut report)?;
    } else {
        let what = "the GPU suites, with a failure at every driver call";
        report.not_run("simulated", what, "cargo xtask test --faults");
    }
    if args.miri {
        miri::run(&programs, args.filter.as_deref(), Depth::Full, &mut report)?;
    } else {
        report.not_run("Miri", "the in-process suites", "cargo xtask test --miri");
    }
    report.not_run("real GPUs", "the GPU suites", "cargo xtask test-gpu");
    report.print(started.elapsed());
    Ok(report.outcome())
}

/// Runs only the in-process suites under Miri; the inner error says why it cannot run here.
pub(crate) fn run_miri(depth: Depth) -> anyhow::Result<Result<Outcome, String>> {
    if let Some(reason) = miri::obstacle() {
        return Ok(Err(reason));
    }
    let started = Instant::now();
    let mut report = Report::default();
    miri::run(&built()?, None, depth, &mut report)?;
    report.print(started.elapsed());
    Ok(Ok(report.outcome()))
}

/// Runs only the GPU suite with a failure at every driver call.
pub(crate) fn run_faults(depth: Depth) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let mut report = Report::default();
    let programs = built()?;
    let suite = faults::suite(&programs)?;
    faults::run(suite, None, DEVICES, depth, &mut report)?;
    report.print(started.elapsed());
    Ok(report.outcome())
}

/// Builds all tests.
fn built() -> anyhow::Result<Vec<Program>> {
    let artifacts = build::build(&TESTS)?.into_iter();
    Ok(artifacts.filter_map(program).collect())
}

fn program(artifact: Artifact) -> Option<Program> {
    match artifact {
        Artifact::Test(program) => Some(program),
        Artifact::Binary(..) | Artifact::Cdylib(_) => None,
    }
}

fn run_pass(program: &Program, pass: &Pass, args: &Args) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let suite = match &pass.label {
        Some(label) => format!("{}, {label}", program.suite),
        None => program.suite.clone(),
    };
    let cases = program.list()?;
    let mut names = Vec::new();
    for case in cases.iter().filter(|case| matches(args, &case.name)) {
        if let Some(reason) = plan::obstacle(case, pass) {
            report.not_run(&program.suite, case.title(), &reason);
        } else if let Some(reason) = plan::too_old(case, pass) {
            report.not_run(&suite, case.title(), &reason);
        } else {
            names.push(case.name.as_str());
        }
    }
    if names.is_empty() {
        return Ok(report);
    }
    println!("{suite}: {} tests begin", names.len());
    let invocation = Invocation {
        environment: pass.environment.clone(),
        ignored: pass.ignored,
        serial: pass.ignored,
        ..Invocation::default()
    };
    // Other passes run concurrently: each prints its output as a whole.
    let mut lines = format!("\n== {suite}: {} tests\n", names.len());
    let mut echo = |line: &str| {
        if is_worth_showing(line) {
            lines += &format!("{line}\n");
        }
    };
    let run = match pass.mode {
        Mode::Together => program.run(&invocation, &names, &mut echo),
        Mode::Apart => program.run_apart(&invocation, &names, &mut echo),
    };
    print!("{lines}");
    let run = run?;
    for test in &run.finished {
        if let Verdict::Ignored(reason) = &test.verdict {
            report.not_run(&program.suite, &test.name, reason);
        }
    }
    report.notes(&suite, run.notes);
    report.suite(suite, run.finished, run.complaint);
    Ok(report)
}

fn matches(args: &Args, name: &str) -> bool {
    args.filter.as_deref().is_none_or(|filter| name.contains(filter))
}

fn show(line: &str) {
    if !line.is_empty() {
        println!("{line}");
    }
}

/// Every process prints lines around its tests; only the verdicts are shown.
fn is_worth_showing(line: &str) -> bool {
    let frame = line.starts_with("running ") || line.starts_with("test result: ok");
    !frame && !line.is_empty()
}

fn show_test(line: &str) {
    if is_worth_showing(line) {
        println!("{line}");
    }
}

fn run_doc_tests(args: &Args, report: &mut Report) -> anyhow::Result<()> {
    println!("\n== doc tests");
    let mut command = cargo();
    command.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    if let Some(filter) = &args.filter {
        command.args(["--", filter]);
    }
    let ended = follow(command, &mut show).context("doc tests")?;
    report.stream("doc tests", ended);
    Ok(())
}

/// The error of a process in which all tests passed, or that printed none.
fn complaint(ended: &Ended, finished: &[Finished]) -> Option<String> {
    let failed = finished.iter().any(|test| matches!(test.verdict, Verdict::Failed(_)));
    (!ended.status.success() && !failed).then(|| ended.report())
}
