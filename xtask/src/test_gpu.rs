//! Runs the suite on real GPUs.

mod junit;
mod matrix;
mod result;

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};

use crate::bundle::Manifest;
use crate::suite::build::{self, Artifact};
use crate::suite::process::Run;
use crate::suite::{Case, Invocation, Program};
use crate::target::Target;
use crate::{Outcome, Refusal};
use matrix::Row;
use result::{LeftOut, Matrix, RowResult, Status};

/// Runs the GPU suites on every combination of devices and settings that this machine allows.
///
/// Rows: 1, 2, 4 and 8 devices, each by default, with CUDA_LAUNCH_BLOCKING=1, with
/// CUDA_MODULE_LOADING=EAGER, and under compute-sanitizer's memcheck where it is installed. A row
/// runs every test that its devices suffice for; tests that its setting makes meaningless are left
/// out and listed, and so are those that need a CUDA runtime library (CUDA_TESTS_LIBCUDART names
/// one), NVRTC (CUDA_CORE_NVRTC) or a newer driver, where that is absent. A row that cannot run is
/// printed as not run, with the reason.
///
/// With --sim the settings are others: work done as late as CUDA permits (sim-lazy), at enqueue
/// (sim-eager), by a seeded schedule (sim-threaded), and the simulated driver as a library that is
/// loaded in place of libcuda (sim-library).
#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0 every test of every row that ran passed, 1 something failed, \
                        2 it could not run: no GPU, no test program, or --require not met."
)]
pub(crate) struct Args {
    /// Fails with exit code 2 unless the rows of up to this many devices can run.
    #[arg(long, value_name = "DEVICES")]
    require: Option<u32>,
    /// Uses the simulated driver with this many devices.
    #[arg(long, value_name = "DEVICES", value_parser = clap::value_parser!(u32).range(1..=64))]
    sim: Option<u32>,
    /// Runs only rows with a name that contains one of these: `2-default`, `memcheck`.
    #[arg(long, value_name = "ROW")]
    row: Vec<String>,
    /// Runs only tests with a path that contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Runs the programs of an unpacked bundle instead of building any.
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// Writes a JUnit report.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Prints the results as JSON; all other output goes to standard error.
    #[arg(long)]
    json: bool,
}

/// The programs under test, and the simulated driver as a library.
struct Suites {
    programs: Vec<(Program, Vec<Case>)>,
    simulator: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut out: Box<dyn Write> =
        if args.json { Box::new(io::stderr()) } else { Box::new(io::stdout()) };
    let target = match args.sim {
        Some(devices) => Target::Simulated { devices },
        None => match Target::probe()? {
            Ok(target) => target,
            Err(reason) => {
                eprintln!("error: {reason}\nWithout a GPU: --sim 4, or cargo xtask test");
                return Ok(Outcome::CouldNotRun);
            }
        },
    };
    let rows = chosen(matrix::rows(&target), &args.row)?;
    let suites = match suites(args) {
        Ok(suites) => suites,
        Err(error) => {
            eprintln!("error: no test programs: {error:#}");
            return Ok(Outcome::CouldNotRun);
        }
    };
    let mut matrix = Matrix::new(&target, &suites.programs);
    writeln!(out, "{target}: {} tests", matrix.exist)?;
    if let Some(libraries) = target.libraries() {
        write!(out, "{libraries}")?;
    }
    for row in rows {
        let result = run_row(&row, &target, &suites, args)?;
        write!(out, "{result}")?;
        out.flush()?;
        matrix.rows.push(result);
    }
    matrix.conclude(args.require);
    write!(out, "\n{matrix}")?;
    if let Some(path) = &args.junit {
        std::fs::write(path, junit::report(&matrix)).with_context(|| path.display().to_string())?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&matrix)?);
    }
    Ok(matrix.outcome())
}

/// The rows with a name that contains one of `parts`, or all; a part that matches none is an error.
fn chosen(rows: Vec<Row>, parts: &[String]) -> anyhow::Result<Vec<Row>> {
    let names: Vec<String> = rows.iter().map(Row::to_string).collect();
    if let Some(part) =
        parts.iter().find(|part| names.iter().all(|name| !name.contains(part.as_str())))
    {
        bail!(Refusal(format!("no row is called {part}; the rows are {}", names.join(", "))));
    }
    let named = |name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(part));
    let rows = rows.into_iter().zip(&names);
    Ok(rows.filter(|(_, name)| named(name)).map(|(row, _)| row).collect())
}

fn suites(args: &Args) -> anyhow::Result<Suites> {
    let (programs, simulator) = match &args.bundle {
        Some(directory) => {
            let manifest = Manifest::read(directory)?;
            let directory = directory.canonicalize()?;
            (manifest.programs(&directory), directory.join(&manifest.simulator))
        }
        None => built()?,
    };
    let listed = programs.into_iter().map(|program| {
        let mut cases = program.list()?;
        cases.retain(|case| args.filter.as_deref().is_none_or(|filter| case.name.contains(filter)));
        Ok((program, cases))
    });
    Ok(Suites { programs: listed.collect::<anyhow::Result<_>>()?, simulator })
}

/// The GPU suites and the simulated driver, built from this workspace.
fn built() -> anyhow::Result<(Vec<Program>, PathBuf)> {
    let mut programs = Vec::new();
    let tests = ["test", "-p", "cuda-tests", "--test", "gpu", "--test", "sticky", "--no-run"];
    for artifact in build::build(&tests)? {
        if let Artifact::Test(program) = artifact {
            programs.push(program);
        }
    }
    let simulator = build::build(&["build", "-p", "cuda-driver-sim"])?
        .into_iter()
        .find_map(|artifact| match artifact {
            Artifact::Cdylib(path) => Some(path),
            Artifact::Test(_) | Artifact::Binary(..) => None,
        })
        .context("cuda-driver-sim builds no library")?;
    Ok((programs, simulator))
}

fn run_row(row: &Row, target: &Target, suites: &Suites, args: &Args) -> anyhow::Result<RowResult> {
    let started = Instant::now();
    let mut result = RowResult::new(row);
    let wrapper = match matrix::obstacle(row, target) {
        Ok(wrapper) => wrapper,
        Err(reason) => {
            result.status = Status::NotRun(reason);
            return Ok(result);
        }
    };
    let invocation = Invocation {
        wrapper,
        environment: row.environment(target, &suites.simulator),
        ignored: true,
        serial: true,
    };
    for (program, cases) in &suites.programs {
        let mut names = Vec::new();
        for case in cases {
            match row.leaves_out(case, target) {
                None => names.push(case.name.as_str()),
                Some(reason) => result.left_out.push(LeftOut {
                    suite: program.suite.clone(),
                    test: case.title().into(),
                    reason,
                }),
            }
        }
        let run = run_program(program, &invocation, &names, row)?;
        result.add(&program.suite, &names, run);
    }
    result.conclude(started.elapsed());
    // A filter may match no test; without one, a row without tests is not a success.
    if result.tests.is_empty() && args.filter.is_none() {
        result.status = Status::NotRun("no test is for this row".into());
    }
    Ok(result)
}

fn run_program(
    program: &Program,
    invocation: &Invocation,
    names: &[&str],
    row: &Row,
) -> anyhow::Result<Run> {
    let bar = ProgressBar::new(names.len() as u64);
    bar.set_style(ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg:30}")?);
    bar.set_prefix(format!("{row} {}", program.suite));
    let mut seen = HashSet::new();
    let mut echo = |line: &str| {
        let Some((name, _)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        else {
            return;
        };
        if seen.insert(name.to_owned()) {
            bar.inc(1);
            bar.set_message(Case::parse(name).title().to_owned());
        }
    };
    let run = if program.suite.ends_with("sticky") {
        program.run_apart(invocation, names, &mut echo)
    } else {
        program.run(invocation, names, &mut echo)
    };
    bar.finish_and_clear();
    run
}
