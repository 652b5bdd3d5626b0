//! The tasks that call the driver, run by another program: this one is built without the feature `driver`.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use clap::Subcommand;

use crate::Outcome;
use crate::cargo::build;

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Moves data host → device → peer → host on every GPU and compares every byte
    Demo(Words),
    /// Times each operation of `cuda-core` beside the raw driver calls that it makes
    Bench(Words),
    /// Runs a log of allocations against each allocator and compares them
    Replay(Words),
}

/// The words of a task, including `--help`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<OsString>,
}

impl Task {
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        let status = Command::new(program()?).args(env::args_os().skip(1)).status();
        Ok(Outcome::of_exit(status.context("the task could not be started")?.code()))
    }
}

/// Returns a program that has these tasks; cargo builds it first.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    let built = build("build --profile quick --package xtask --features xtask/driver")?;
    Ok(built.program("xtask")?.to_owned())
}
