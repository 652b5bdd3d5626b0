//! The project's tasks: `cargo xtask` lists them.

use std::fmt;
use std::iter;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

#[cfg(feature = "driver")]
mod bench;
mod bindings;
mod bundle;
mod cargo;
mod checks;
mod ci;
mod cudarc;
#[cfg(feature = "driver")]
mod demo;
#[cfg_attr(not(feature = "driver"), path = "driver_elsewhere.rs")]
mod driver;
mod headers;
mod mutants;
mod package;
mod process;
mod progress;
mod queue;
#[cfg(feature = "driver")]
mod replay;
mod suite;
#[cfg(feature = "driver")]
mod svg;
mod table;
mod target;
mod test;
mod test_gpu;
mod workspace;
mod xml;

/// The outcome of a task, with its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed = 0,
    /// The task ran and found an error.
    Failed = 1,
    /// The task could not run here.
    CouldNotRun = 2,
}

impl Outcome {
    /// The outcome of a task that ran.
    fn of(found_no_error: bool) -> Self {
        if found_no_error { Self::Passed } else { Self::Failed }
    }

    /// The outcome of a task that another process ran.
    fn of_exit(code: Option<i32>) -> Self {
        match code {
            Some(0) => Self::Passed,
            Some(2) => Self::CouldNotRun,
            _ => Self::Failed,
        }
    }
}

/// The error of a request that cannot be met here; ends a task as [`Outcome::CouldNotRun`].
#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// Returns an error with the reason why the request cannot be met here.
fn refuse(reason: impl Into<String>) -> anyhow::Error {
    Refusal(reason.into()).into()
}

/// The project's tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Option<Task>,
}

#[derive(Subcommand)]
enum Task {
    Test(test::Args),
    TestGpu(test_gpu::Args),
    #[command(flatten)]
    Driver(driver::Task),
    Bundle(bundle::Args),
    Bindings(bindings::Args),
    Headers(headers::Args),
    Package(package::Args),
    Mutants(mutants::Args),
    Ci(ci::Args),
}

impl Task {
    fn run(&self) -> anyhow::Result<Outcome> {
        let outcome = match self {
            Self::Test(args) => test::run(args),
            Self::TestGpu(args) => test_gpu::run(args),
            Self::Driver(task) => task.run(),
            Self::Bundle(args) => bundle::run(args),
            Self::Bindings(args) => bindings::run(args),
            Self::Headers(args) => headers::run(args),
            Self::Package(args) => package::run(args),
            Self::Mutants(args) => mutants::run(args),
            Self::Ci(args) => ci::run(args),
        };
        match outcome {
            Err(error) if error.is::<Refusal>() => {
                eprintln!("error: {error:#}");
                Ok(Outcome::CouldNotRun)
            }
            outcome => outcome,
        }
    }
}

/// Whether an option that lists names asks for this one. Without names, it asks for all.
fn asks_for(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|it| it == name)
}

/// Runs another task as from the command line: `["bindings", "--check"]`.
fn run_task(words: &[&str]) -> anyhow::Result<Outcome> {
    let words = iter::once("cargo xtask").chain(words.iter().copied());
    Cli::try_parse_from(words)?.task.map_or(Ok(Outcome::Passed), |task| task.run())
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Some(task) => task.run(),
        // Without a task, prints the list of tasks.
        None => Cli::command().print_help().map(|()| Outcome::Passed).map_err(Into::into),
    };
    let outcome = outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        Outcome::Failed
    });
    ExitCode::from(outcome as u8)
}
