//! The program that measures cudarc, which the bench starts.

use std::path::PathBuf;
use std::process::Command;

use anyhow::anyhow;

use crate::cargo::Built;
use crate::process::cargo;
use crate::workspace;

/// The program of the package `xtask/bench/cudarc`.
pub(crate) const PROGRAM: &str = "bench-cudarc";

/// Builds [`PROGRAM`]. The error has one line.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    let built = of_program("build --release --locked")
        .and_then(|mut cargo| Ok(Built::of(&mut cargo)?.program(PROGRAM)?.to_owned()));
    built.map_err(|error| {
        let text = format!("{error:#}");
        let said = text.trim_end().lines().last().unwrap_or("it failed");
        anyhow!("{PROGRAM} could not be built: {}", said.trim())
    })
}

/// Returns a cargo command for the package of [`PROGRAM`], which is a workspace of its own.
pub(crate) fn of_program(arguments: &str) -> anyhow::Result<Command> {
    let root = workspace::root()?;
    let mut cargo = cargo(arguments);
    cargo.current_dir(root.join("xtask/bench/cudarc"));
    cargo.env("CARGO_TARGET_DIR", workspace::target(&root)?.join(PROGRAM));
    Ok(cargo)
}
