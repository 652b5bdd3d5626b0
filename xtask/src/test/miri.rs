//! The in-process suites under Miri.

use std::process::{Command, Stdio};
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
    let units = [
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
    let gpu = ["-p", "cuda-tests", "--test", "gpu"];
    // First of all, so that the two do not wait for each other's build.
    for mut build in [command(&units), command(&gpu)] {
        let status = build.arg("--no-run").stdin(Stdio::null()).status()?;
        anyhow::ensure!(status.success(), "the suites do not build for Miri");
    }
    let (mut sim, mut gpu) = (command(&units), command(&gpu));
    for command in [&mut sim, &mut gpu] {
        command.arg("--");
        for (tag, _) in LEFT_OUT {
            command.args(["--skip", &format!("::{}::", tag.name())]);
        }
    }
    // Filters match anywhere in a name: not the soundness tests of a module called `contexts`.
    gpu.args(["--skip", "soundness::"]);
    sim.args(filter);
    match filter {
        Some(filter) => gpu.arg(filter),
        None => gpu.args(GPU_MODULES),
    };
    // An interpreter is one thread: two of them at a time.
    let (sim, gpu) = thread::scope(|scope| {
        let gpu = scope.spawn(|| follow(gpu, &mut |_| {}));
        (follow(sim, &mut super::show), gpu.join())
    });
    report.stream(&format!("{SUITE}: units, sim"), sim?);
    match gpu {
        Ok(gpu) => report.stream(&format!("{SUITE}: gpu"), gpu?),
        Err(_) => anyhow::bail!("the thread that followed the GPU suite panicked"),
    }
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
