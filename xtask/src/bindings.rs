//! Regenerates the checked-in bindings.

use std::path::PathBuf;

use crate::Outcome;

#[cfg(feature = "bindgen")]
mod regenerate;

/// Regenerates the checked-in bindings from the newest cuda.h.
///
/// pip fetches the header into `.cuda-headers/`, where it is kept. Needs libclang.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Writes nothing, and fails if the checked-in bindings, or the list of CUDA 11.8's functions,
    /// differ from what bindgen makes of the headers.
    #[arg(long)]
    check: bool,
    /// The directory of another cuda.h to use.
    #[arg(long, value_name = "DIR")]
    header: Option<PathBuf>,
}

#[cfg(feature = "bindgen")]
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let root = crate::suite::build::workspace_root()?;
    if args.check {
        regenerate::check(&root, args.header.as_deref())
    } else {
        regenerate::write(&root, args.header.as_deref())
    }
}

/// Runs this task again with bindgen compiled in, in a target directory of its own, since some
/// systems cannot replace the file of a running program.
#[cfg(not(feature = "bindgen"))]
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    use anyhow::Context;

    let root = crate::suite::build::workspace_root()?;
    let mut cargo = crate::suite::build::cargo();
    cargo
        .args([
            "run",
            "--quiet",
            "--package",
            "xtask",
            "--features",
            "bindgen",
        ])
        .arg("--target-dir")
        .arg(root.join("target/bindgen"))
        .args(["--", "bindings"]);
    if args.check {
        cargo.arg("--check");
    }
    if let Some(header) = &args.header {
        cargo.arg("--header").arg(header);
    }
    match cargo.status().context("cargo run")?.code() {
        Some(0) => Ok(Outcome::Passed),
        Some(2) => Ok(Outcome::CouldNotRun),
        _ => Ok(Outcome::Failed),
    }
}
