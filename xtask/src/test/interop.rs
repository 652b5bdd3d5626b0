//! `tests/interop` on the simulated driver: cuda-core's guards among plain driver calls, from
//! Python.

use std::process::Stdio;
use std::time::Instant;
use std::{env, fs, process};

use anyhow::Context;

use super::report::Report;
use crate::python::{self, python};
use crate::suite::build::{self, Artifact, workspace_root};
use crate::suite::{Finished, Verdict};

const SUITE: &str = "tests/interop";
const NAME: &str = "without_frameworks";

/// The part that a run without PyTorch and CuPy leaves out.
const FRAMEWORKS: &str = "nested with PyTorch and CuPy";

/// Runs the cases that need neither PyTorch nor CuPy.
pub(super) fn run(
    filter: Option<&str>,
    built: &[Artifact],
    report: &mut Report,
) -> anyhow::Result<()> {
    if filter.is_some_and(|filter| !NAME.contains(filter)) {
        return Ok(());
    }
    let reason = "needs two GPUs: cargo xtask bundle DIR, then DIR/interop.sh";
    report.not_run(SUITE, FRAMEWORKS, reason);
    if !python::is_there() {
        report.not_run(SUITE, NAME, "there is no Python: PYTHON may name one");
        return Ok(());
    }
    println!("\n== {SUITE}, simulated: {NAME}");
    let said = env::temp_dir().join(format!("cuda-interop-{}.txt", process::id()));
    let started = Instant::now();
    let output = python()
        .arg(workspace_root()?.join("tests/interop/interop.py"))
        .arg("--without-frameworks")
        .arg("--library")
        .arg(build::library(built, "cuda_interop")?)
        .env("CUDA_SYS_LIBRARY", build::library(built, "cuda_sim")?)
        .env("CUDA_SIM_DEVICES", "2")
        .env("CUDA_SIM_REPORT", &said)
        .stdin(Stdio::null())
        .output()
        .context("Python")?;
    let time = started.elapsed();
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{}", printed.lines().last().unwrap_or("it printed nothing"));
    let simulated = fs::read_to_string(&said).unwrap_or_default();
    // The file does not exist if the simulated driver wrote no report.
    let _ = fs::remove_file(&said);
    let clean = simulated.lines().next().is_some_and(|line| line.contains("no violation"));
    let verdict = if output.status.success() && clean {
        Verdict::Passed
    } else {
        let failed = printed.lines().filter(|line| line.starts_with("FAILED"));
        let failed = failed.collect::<Vec<_>>().join("\n");
        let errors = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        Verdict::Failed(format!("{status}\n{failed}\n{errors}\n{simulated}"))
    };
    let name = NAME.into();
    let finished = Finished { name, verdict, time };
    report.suite(format!("{SUITE}, simulated"), vec![finished], None);
    Ok(())
}
