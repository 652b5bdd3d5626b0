//! The in-process suites under Miri.

use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

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

/// Modules of the GPU suite that an interpreter gets through; the sim suite has the paths of the
/// others, with less data.
const GPU_MODULES: [&str; 6] = [
    "guards::",
    "contexts::",
    "streams::",
    "events::",
    "errors::",
    "harness::",
];

/// Modules of the sim suite that take about half of its time.
const FAULTS: &str = "faults::";

/// Runs them, or reports that Miri is not installed.
pub(crate) fn run(filter: Option<&str>, report: &mut Report) -> anyhow::Result<()> {
    if let Some(reason) = obstacle() {
        report.not_run(SUITE, "unit tests, sim, gpu", &reason);
        return Ok(());
    }
    for (tag, reason) in LEFT_OUT {
        report.not_run(SUITE, &format!("GPU tests tagged {}", tag.name()), reason);
    }
    if filter.is_none() {
        let names = GPU_MODULES.join(" ");
        report.not_run(
            SUITE,
            &format!("GPU tests outside {names}"),
            "too much work for an interpreter; the sim suite has the same paths",
        );
    }
    println!("\n== {SUITE}");
    // First of all, so that they do not wait for each other's build.
    for mut build in [command(&UNITS), command(&GPU)] {
        let status = build.arg("--no-run").stdin(Stdio::null()).status()?;
        anyhow::ensure!(status.success(), "the suites do not build for Miri");
    }
    // An interpreter is one thread: two of them at a time, each with the next part that is left.
    let parts = Mutex::new(parts(filter).into_iter());
    let ended = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = locked(&parts).next();
                    let Some((name, part)) = next else {
                        break;
                    };
                    let result = follow(part, &mut super::show);
                    locked(&ended).push((name, result));
                }
            });
        }
    });
    for (name, result) in ended.into_inner().unwrap_or_else(PoisonError::into_inner) {
        report.stream(&format!("{SUITE}: {name}"), result?);
    }
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const UNITS: [&str; 9] = [
    "-p",
    "cuda-core",
    "-p",
    "cuda-driver-sim",
    "-p",
    "cuda-tests",
    "--lib",
    "--test",
    "sim",
];

const GPU: [&str; 4] = ["-p", "cuda-tests", "--test", "gpu"];

/// Runs of much the same length, the longest first.
fn parts(filter: Option<&str>) -> Vec<(&'static str, Command)> {
    let run = |what: &[&str]| {
        let mut command = command(what);
        command.arg("--");
        for (tag, _) in LEFT_OUT {
            command.args(["--skip", &format!("::{}::", tag.name())]);
        }
        command
    };
    let mut gpu = run(&GPU);
    // Filters match anywhere in a name: not the soundness tests of a module called `contexts`.
    gpu.args(["--skip", "soundness::"]);
    if let Some(filter) = filter {
        let mut units = run(&UNITS);
        units.arg(filter);
        gpu.arg(filter);
        return vec![("units, sim", units), ("gpu", gpu)];
    }
    gpu.args(GPU_MODULES);
    let (mut faults, mut others) = (run(&["-p", "cuda-tests", "--test", "sim"]), run(&UNITS));
    faults.arg(FAULTS);
    others.args(["--skip", FAULTS]);
    vec![
        ("units, sim but faults", others),
        ("sim, faults", faults),
        ("gpu", gpu),
    ]
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

/// `cargo miri test` of what runs in one process on the simulated driver: no library to open, no
/// child.
fn command(what: &[&str]) -> Command {
    // Leaks are the simulator's to tell: the suites forget values on purpose.
    let flags = "-Zmiri-strict-provenance -Zmiri-ignore-leaks -Zmiri-env-forward=CUDA_SIM_MODE";
    // Not `$CARGO`, which is the toolchain's own and takes no `+nightly`.
    let mut command = Command::new("cargo");
    command
        .args(["+nightly", "miri", "test", "--no-default-features"])
        .arg("--no-fail-fast")
        .args(what)
        .env("MIRIFLAGS", flags);
    for toolchain in ["RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(toolchain);
    }
    command
}
