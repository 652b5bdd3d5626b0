//! The in-process suites under Miri.

use std::process::{Command, Stdio};

use super::report::Report;
use crate::suite::Tag;
use crate::suite::process::follow;

const SUITE: &str = "Miri, strict provenance";

/// Tags of GPU tests that mean nothing here, and why.
const LEFT_OUT: [(Tag, &str); 3] = [
    (Tag::Real, "means nothing on the simulated driver"),
    (Tag::Timing, "the simulated driver has no timing"),
    (Tag::Heavy, "too much work for an interpreter"),
];

/// Runs them, or reports that Miri is not installed.
pub(crate) fn run(filter: Option<&str>, report: &mut Report) -> anyhow::Result<()> {
    if let Some(reason) = obstacle() {
        report.not_run(SUITE, "unit tests, sim, gpu", &reason);
        return Ok(());
    }
    for (tag, reason) in LEFT_OUT {
        report.not_run(SUITE, &format!("GPU tests tagged {}", tag.name()), reason);
    }
    println!("\n== {SUITE}");
    report.stream(SUITE, follow(command(filter), &mut super::show)?);
    Ok(())
}

/// Why Miri cannot run here, if so.
pub(crate) fn obstacle() -> Option<String> {
    let answer = Command::new("cargo")
        .args(["+nightly", "miri", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match answer {
        Ok(status) if status.success() => None,
        _ => Some("no Miri: rustup toolchain install nightly --component miri,rust-src".into()),
    }
}

/// Everything that runs in one process on the simulated driver: no library to open, no child.
fn command(filter: Option<&str>) -> Command {
    let packages = [
        "-p",
        "cuda-core",
        "-p",
        "cuda-driver-sim",
        "-p",
        "cuda-tests",
    ];
    let targets = ["--lib", "--test", "sim", "--test", "gpu"];
    let flags = "-Zmiri-strict-provenance -Zmiri-env-forward=CUDA_SIM_MODE";
    // Not `$CARGO`, which is the toolchain's own and takes no `+nightly`.
    let mut command = Command::new("cargo");
    command.args([
        "+nightly",
        "miri",
        "test",
        "--no-default-features",
        "--no-fail-fast",
    ]);
    command.args(packages).args(targets).arg("--");
    for (tag, _) in LEFT_OUT {
        command.args(["--skip", &format!("::{}::", tag.name())]);
    }
    command.args(filter).env("MIRIFLAGS", flags);
    for toolchain in ["RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(toolchain);
    }
    command
}
