//! Runs the suite on real GPUs.

mod matrix;

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use fs_err as fs;

use crate::cargo::build;
use crate::progress::Progress;
use crate::suite::report::Status;
use crate::suite::{Case, Program, Report, Row, Setting, junit, libtest};
use crate::target::Target;
use crate::test::programs;
use crate::{Outcome, Refusal, refuse};
use matrix::Matrix;

/// The row of examples, on all devices.
const EXAMPLES: &str = "examples";

/// The programs with GPU tests, as arguments of cargo that build them.
pub(crate) const SUITES: &str = "test -p cuda-tests --test gpu --test sticky --no-run";

/// Runs the GPU suites on every combination of devices and settings that this machine allows.
///
/// Rows: 1, 2, 4 and 8 devices, each by default, with CUDA_LAUNCH_BLOCKING=1, with
/// CUDA_MODULE_LOADING=EAGER, with the driver's pool (CUDA_CORE_ALLOCATOR=driver), and under
/// compute-sanitizer's memcheck where it is installed. A row runs every test that its devices
/// suffice for; tests that its setting makes meaningless are left out and listed, and so are those
/// that need a CUDA runtime library (CUDA_TESTS_LIBCUDART names one), NVRTC (CUDA_CORE_NVRTC), NCCL
/// (CUDA_CORE_NCCL), libcudadevrt (CUDA_TESTS_LIBCUDADEVRT) or a newer driver, where that is
/// absent. The last row, `examples`, runs each example on all devices. A row that cannot run is
/// printed as not run, with the reason.
///
/// With --sim the settings are others: work done as late as CUDA permits (sim-lazy), at enqueue
/// (sim-eager), and by a seeded schedule (sim-threaded).
#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0 every test of every row that ran passed, 1 something failed, \
                        or did not compile, 2 it could not run: no GPU, no test program, or --require \
                        not met."
)]
pub(crate) struct Args {
    /// Fails with exit code 2 unless the rows of up to this many devices can run: 1, 2, 4 or 8.
    #[arg(long, value_name = "DEVICES", value_parser = devices_of_a_row)]
    require: Option<u32>,
    /// Uses the simulated driver with this many devices.
    #[arg(long, value_name = "DEVICES", value_parser = clap::value_parser!(u32).range(1..=64))]
    sim: Option<u32>,
    /// Runs only rows with a name that contains one of these: `2-default`, `memcheck`, `examples`.
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

/// A program under test, and its tests.
type Suite = (Program, Vec<Case>);

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let mut out: Box<dyn Write> =
        if args.json { Box::new(io::stderr()) } else { Box::new(io::stdout()) };
    let target = Target::asked_or_real(args.sim)?;
    let (settings, with_examples) = chosen(matrix::settings(&target), &args.row)?;
    let suites = match settings.is_empty() {
        true => Vec::new(),
        false => suites(args)?,
    };
    let started = Instant::now();
    let mut report = Report::default();
    let tests: usize = suites.iter().map(|(_, cases)| cases.len()).sum();
    writeln!(out, "{target}: {tests} tests")?;
    if let Some(libraries) = target.libraries() {
        write!(out, "{libraries}")?;
    }
    let of_tests = settings.iter().map(Some).chain(with_examples.then_some(None));
    for setting in of_tests {
        let row = match setting {
            Some(setting) => run_row(setting, &target, &suites, args)?,
            None => run_examples(&target, args).unwrap_or_else(|error| {
                // The other rows have run, and are reported.
                Row::failed_as_a_whole(EXAMPLES, format!("{error:#}"))
            }),
        };
        let name = &row.name;
        match &row.status {
            Status::NotRun(reason) => writeln!(out, "{name}: not run: {reason}")?,
            _ => {
                let (passed, failed, out_of_it) = (row.passed(), row.failed(), row.left_out.len());
                let counts = format!("{passed} passed, {failed} failed, {out_of_it} left out");
                writeln!(out, "{name}: {counts}, {:.1} s", row.seconds)?;
            }
        }
        out.flush()?;
        report.rows.push(row);
    }
    write!(out, "{}", report.text(started.elapsed()))?;
    let matrix = Matrix::new(&target, &suites, report, &settings, args.require);
    write!(out, "{matrix}")?;
    if let Some(path) = &args.junit {
        let shortfall = matrix.shortfall.clone();
        let shortfall = shortfall.map(|why| Row::failed_as_a_whole("required", why));
        fs::write(path, junit::report(matrix.report.rows.iter().chain(&shortfall)))?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&matrix)?);
    }
    Ok(matrix.outcome())
}

fn devices_of_a_row(text: &str) -> Result<u32, String> {
    let devices = text.parse().ok().filter(|it| matrix::DEVICES.contains(it));
    devices.ok_or_else(|| format!("rows have {:?} devices", matrix::DEVICES))
}

/// Returns the rows of tests with a name that contains one of `parts`, or all rows, and whether the row of
/// examples is selected. A part that matches no row is an error.
fn chosen(mut rows: Vec<Setting>, parts: &[String]) -> Result<(Vec<Setting>, bool)> {
    let names: Vec<String> =
        rows.iter().map(Setting::to_string).chain([EXAMPLES.to_owned()]).collect();
    let is_unknown = |part: &&String| names.iter().all(|name| !name.contains(part.as_str()));
    if let Some(part) = parts.iter().find(is_unknown) {
        let names = names.join(", ");
        bail!(Refusal(format!("no row is called {part}; the rows are {names}")));
    }
    let is_chosen = |name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(part));
    rows.retain(|row| is_chosen(&row.to_string()));
    Ok((rows, is_chosen(EXAMPLES)))
}

fn suites(args: &Args) -> Result<Vec<Suite>> {
    let programs = match &args.bundle {
        Some(directory) => {
            let program = |suite: &str| {
                let path = directory.join(file_name(suite)).canonicalize();
                let path = path.map_err(|_| {
                    refuse(format!("{} is no bundle: no program of {suite}", directory.display()))
                })?;
                Ok(Program { suite: suite.to_owned(), path, directory: None })
            };
            ["cuda-tests::gpu", "cuda-tests::sticky"]
                .into_iter()
                .map(program)
                .collect::<Result<_>>()?
        }
        None => build(SUITES)?.tests(),
    };
    let filter = args.filter.as_deref().unwrap_or_default();
    let listed = programs.into_iter().map(|program| {
        let cases = program.list(filter)?;
        Ok((program, cases))
    });
    listed.collect()
}

/// Returns the file name of a suite in a bundle.
pub(crate) fn file_name(suite: &str) -> &str {
    suite.rsplit("::").next().unwrap_or(suite)
}

/// Runs each example on all devices.
fn run_examples(target: &Target, args: &Args) -> Result<Row> {
    let mut row = Row::new(EXAMPLES);
    let filter = args.filter.as_deref().unwrap_or_default();
    let Some(libraries) = target.libraries() else {
        row.status = Status::NotRun("cargo xtask test runs them on the simulated driver".into());
        return Ok(row);
    };
    let examples = match &args.bundle {
        Some(directory) => in_folder(&directory.canonicalize()?.join(EXAMPLES))?,
        None => programs::examples_of(&build("build -p cuda-core --examples")?),
    };
    let device_runtime = libraries.device_runtime.as_deref().ok();
    programs::on_gpus(&examples, filter, device_runtime, &mut row);
    if row.is_empty() && args.filter.is_none() {
        row.status = Status::NotRun("there are none".into());
    }
    Ok(row)
}

/// Returns the names and paths of the files of a folder; none if the folder does not exist, as in older
/// bundles.
fn in_folder(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    if !folder.exists() {
        return Ok(BTreeMap::new());
    }
    let entries = fs::read_dir(folder)?.map(|entry| {
        let entry = entry?;
        Ok((entry.file_name().to_string_lossy().into_owned(), entry.path()))
    });
    entries.collect()
}

fn run_row(setting: &Setting, target: &Target, suites: &[Suite], args: &Args) -> Result<Row> {
    let mut row = Row::new(setting.to_string());
    for (program, cases) in suites {
        let (invocation, names) = match setting.choose(&mut row, program, cases, target) {
            Ok(chosen) => chosen,
            Err(Refusal(reason)) => {
                row.status = Status::NotRun(reason);
                return Ok(row);
            }
        };
        let progress = Progress::bar(names.len());
        let (mut seen, mut current) = (HashSet::new(), String::new());
        let run = program.run(&invocation, &names, &mut |line: &str| {
            let announced = libtest::announced(line).map(|(name, _)| name);
            if let Some(name) = announced.filter(|name| seen.insert((*name).to_owned())) {
                current = format!("{setting} {}", Case::parse(name).title);
                progress.step(current.clone());
            }
            // Shown at once: a row may take ten minutes, and its report comes at its end.
            if line == "FAILED" || line.ends_with(" ... FAILED") {
                progress.suspend(|| eprintln!("{current}: FAILED"));
            }
        });
        progress.finish();
        row.add(&program.suite, run?);
    }
    // A filter may match no test. Without a filter, a row without tests is not a success.
    if row.tests.is_empty() && args.filter.is_none() {
        row.status = Status::NotRun("no test is for this row".into());
    }
    Ok(row)
}
