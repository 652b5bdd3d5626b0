//! The in-process suites under Miri.

use std::process::{Command, Stdio};

use super::report::Report;
use crate::suite::process::follow;

const SUITE: &str = "Miri, strict provenance";

/// Runs them, or reports that Miri is not installed.
pub(crate) fn run(filter: Option<&str>, report: &mut Report) -> anyhow::Result<()> {
    if let Some(reason) = obstacle() {
        report.not_run(SUITE, "unit tests, sim, gpu", &reason);
        return Ok(());
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
pub(crate) fn command(filter: Option<&str>) -> Command {
    // Not `$CARGO`, which is the toolchain's own and takes no `+nightly`.
    let mut command = Command::new("cargo");
    command
        .args([
            "+nightly",
            "miri",
            "test",
            "--no-default-features",
            "--no-fail-fast",
        ])
        .args([
            "-p",
            "cuda-core",
            "-p",
            "cuda-driver-sim",
            "-p",
            "cuda-tests",
        ])
        .args(["--lib", "--test", "sim", "--test", "gpu", "--"])
        .args([
            "--include-ignored",
            "--skip",
            "::real::",
            "--skip",
            "::timing::",
        ])
        .args(filter)
        .env(
            "MIRIFLAGS",
            "-Zmiri-strict-provenance -Zmiri-env-forward=CUDA_SIM_MODE",
        )
        .env_remove("RUSTC")
        .env_remove("RUSTDOC")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}
