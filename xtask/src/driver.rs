//! The tasks that call the driver.

use std::path::PathBuf;

use clap::Subcommand;

use crate::process::own_program;
use crate::{Outcome, bench, demo, replay, target};

#[derive(Subcommand)]
pub(crate) enum Task {
    Demo(demo::Args),
    Bench(bench::Args),
    Replay(replay::Args),
    /// Prints the devices that the driver shows, and libraries beside it, as JSON; other tasks call it.
    #[command(hide = true)]
    Devices,
}

impl Task {
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        match self {
            Self::Demo(args) => demo::run(args),
            Self::Bench(args) => bench::run(args),
            Self::Replay(args) => replay::run(args),
            Self::Devices => target::print_machine(),
        }
    }
}

/// Returns the program that has these tasks: this one.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    Ok(own_program()?)
}
