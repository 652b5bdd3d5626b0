//! The project's tasks: `cargo xtask` lists them.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod bindings;
mod bundle;
mod ci;
mod demo;
mod headers;
mod package;
mod suite;
mod target;
mod test;
mod test_gpu;

/// How a task ended; the exit code says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Exit code 0.
    Passed,
    /// Exit code 1: it ran and something was wrong.
    Failed,
    /// Exit code 2: it could not run here.
    CouldNotRun,
}

/// The project's tasks.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Demo(demo::Args),
    Test(test::Args),
    TestGpu(test_gpu::Args),
    Bench(bench::Args),
    Bundle(bundle::Args),
    Bindings(bindings::Args),
    Headers(headers::Args),
    Package(package::Args),
    Ci(ci::Args),
    /// Prints what the driver shows, as JSON; `test-gpu` asks so.
    #[command(hide = true)]
    Devices,
}

fn main() -> ExitCode {
    let outcome = match &Cli::parse().task {
        Task::Demo(args) => demo::run(args),
        Task::Test(args) => test::run(args),
        Task::TestGpu(args) => test_gpu::run(args),
        Task::Bench(args) => bench::run(args),
        Task::Bundle(args) => bundle::run(args),
        Task::Bindings(args) => bindings::run(args),
        Task::Headers(args) => headers::run(args),
        Task::Package(args) => package::run(args),
        Task::Ci(args) => ci::run(args),
        Task::Devices => test_gpu::print_devices(),
    };
    match outcome {
        Ok(Outcome::Passed) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::FAILURE,
        Ok(Outcome::CouldNotRun) => ExitCode::from(2),
        Err(error) => {
            eprintln!("error: {error:?}");
            ExitCode::FAILURE
        }
    }
}
