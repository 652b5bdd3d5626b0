//! The in-process suites under Miri.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::ensure;

use super::depth::Depth;
use super::report::Report;
use crate::suite::process::{Ended, follow};
use crate::suite::{Case, Finished, Tag, Verdict, libtest, queue};

const LABEL: &str = "Miri";

/// How Miri treats a pointer made from a number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Provenance {
    /// Such a pointer is invalid.
    Strict,
    /// It is taken for one whose address was exposed before: for managed and mapped memory the
    /// driver returns an address, and whether the host may use it.
    Permissive,
}

impl Provenance {
    fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict provenance",
            Self::Permissive => "permissive provenance",
        }
    }

    fn flag(self) -> &'static str {
        match self {
            Self::Strict => "-Zmiri-strict-provenance",
            Self::Permissive => "-Zmiri-permissive-provenance",
        }
    }

    /// The provenance that a test needs.
    fn of(test: &str) -> Self {
        match BY_ADDRESS.iter().any(|part| test.starts_with(part)) {
            true => Self::Permissive,
            false => Self::Strict,
        }
    }
}

/// Tests whose host code accesses memory by an address that the driver returned: the beginnings of
/// their paths.
const BY_ADDRESS: [&str; 6] = [
    "counts::memory::managed_",
    "faults::managed::",
    "managed::",
    "pinned_cache::f09_cached_memory_is_mapped::",
    "pointers::f09_mapped::",
    "soundness::managed::",
];

/// Tags of GPU tests that do not run here, and why.
const LEFT_OUT: [(Tag, &str); 3] = [
    (Tag::Real, "means nothing on the simulated driver"),
    (Tag::Timing, "the simulated driver has no timing"),
    (Tag::Heavy, "too much work for an interpreter"),
];

/// Modules of the GPU suite that are fast enough for Miri, beside [`BY_ADDRESS`]; the sim suite
/// covers the paths of the others, with less data.
const GPU_MODULES: [&str; 6] = [
    "guards", "contexts", "streams", "events", "errors", "harness",
];

/// The arguments that select tests for cargo.
struct Suite {
    name: &'static str,
    provenance: Provenance,
    selection: &'static [&'static str],
}

const SIM: &[&str] = &["-p", "cuda-tests", "--test", "sim"];
const GPU: &[&str] = &["-p", "cuda-tests", "--test", "gpu"];

const SUITES: [Suite; 5] = [
    Suite {
        name: "sim",
        provenance: Provenance::Strict,
        selection: SIM,
    },
    Suite {
        name: "gpu",
        provenance: Provenance::Strict,
        selection: GPU,
    },
    Suite {
        name: "sim",
        provenance: Provenance::Permissive,
        selection: SIM,
    },
    Suite {
        name: "gpu",
        provenance: Provenance::Permissive,
        selection: GPU,
    },
    Suite {
        name: "unit tests",
        provenance: Provenance::Strict,
        selection: &[
            "-p",
            "cuda-core",
            "-p",
            "cuda-driver-sim",
            "-p",
            "cuda-tests",
            "--lib",
        ],
    },
];

/// Number of Miri processes at a time. Each keeps one core busy.
const AT_A_TIME: usize = 2;

/// The most tests of one Miri process: small parts keep all cores busy to the end, without a list
/// of slow tests. Starting a process takes a few seconds.
const A_PART: usize = 16;

/// The tests of one Miri process.
struct Part {
    suite: &'static Suite,
    tests: Vec<String>,
}

/// Runs them, or reports that Miri is not installed.
pub(crate) fn run(filter: Option<&str>, depth: Depth, report: &mut Report) -> anyhow::Result<()> {
    if let Some(reason) = obstacle() {
        report.not_run(LABEL, "unit tests, sim, gpu", &reason);
        return Ok(());
    }
    let gpu = SUITES[1].label();
    for (tag, reason) in LEFT_OUT {
        report.not_run(&gpu, &format!("tests tagged {}", tag.name()), reason);
    }
    if filter.is_none() {
        let names = GPU_MODULES.join(" ");
        report.not_run(
            &gpu,
            &format!("tests outside {names}"),
            "too much work for an interpreter; the sim suite has the same paths",
        );
    }
    println!("\n== {LABEL}");
    let mut parts = Vec::new();
    let mut lists = HashMap::new();
    for suite in &SUITES {
        // Suites with the same selection are one program.
        let tests = match lists.entry(suite.selection) {
            Entry::Occupied(tests) => tests.into_mut(),
            Entry::Vacant(place) => place.insert(list(suite)?),
        };
        let wanted = tests.iter().filter(|name| wanted(suite, name, filter));
        let (taken, left): (Vec<_>, Vec<_>) = wanted
            .enumerate()
            .partition(|(number, _)| depth.interprets(*number));
        for (_, name) in left {
            report.not_run(
                &suite.label(),
                name,
                "not in this sample: cargo xtask ci --full",
            );
        }
        let taken = taken.into_iter().map(|(_, name)| name.clone());
        parts.extend(deal(suite, taken.collect()));
    }
    let mut times = Vec::new();
    let interpret = |part: Part| {
        let ended = follow(part.command(depth), &mut super::show);
        (part, ended)
    };
    for (part, ended) in queue::each(AT_A_TIME, parts, interpret) {
        let mut ended = ended?;
        part.account(&mut ended);
        times.extend(
            ended
                .output
                .finished
                .iter()
                .map(|test| (test.time, test.name.clone())),
        );
        report.stream(&part.suite.label(), ended);
    }
    report.note(slowest(times));
    Ok(())
}

impl Suite {
    fn label(&self) -> String {
        format!("{LABEL}, {}: {}", self.provenance.name(), self.name)
    }

    /// `cargo miri test` for tests that run in one process on the simulated driver: they open no
    /// library and start no process.
    fn command(&self) -> Command {
        // The simulator reports leaks, not Miri: the suites forget values on purpose.
        let flags = "-Zmiri-ignore-leaks -Zmiri-env-forward=CUDA_SIM_MODE \
                     -Zmiri-env-forward=CUDA_TESTS_CALLS -Zmiri-env-forward=CUDA_TESTS_ROTATION";
        // Not `$CARGO`, which is the toolchain's own and does not accept `+nightly`.
        let mut command = Command::new("cargo");
        command
            .args(["+nightly", "miri", "test", "--no-default-features"])
            .arg("--no-fail-fast")
            .args(self.selection)
            .env("MIRIFLAGS", format!("{} {flags}", self.provenance.flag()));
        for toolchain in ["RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
            command.env_remove(toolchain);
        }
        command
    }
}

/// Builds a suite and returns the names of its tests.
fn list(suite: &Suite) -> anyhow::Result<Vec<String>> {
    let mut command = suite.command();
    command.args(["--", "--list", "--format", "terse"]);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(
        output.status.success(),
        "the {} do not build for Miri",
        suite.name
    );
    Ok(libtest::listed(&String::from_utf8(output.stdout)?))
}

fn wanted(suite: &Suite, name: &str, filter: Option<&str>) -> bool {
    let case = Case::parse(name);
    if LEFT_OUT.iter().any(|(tag, _)| case.tags.contains(tag)) {
        return false;
    }
    if Provenance::of(name) != suite.provenance {
        return false;
    }
    match filter {
        Some(filter) => name.contains(filter),
        None if suite.name == "gpu" && suite.provenance == Provenance::Strict => {
            let module = name.split("::").next();
            module.is_some_and(|module| GPU_MODULES.contains(&module))
        }
        None => true,
    }
}

/// Divides `tests` into parts. Neighbours, which take similar times, go into different parts.
fn deal(suite: &'static Suite, tests: Vec<String>) -> Vec<Part> {
    let count = tests.len().div_ceil(A_PART);
    let part = |first| Part {
        suite,
        tests: tests.iter().skip(first).step_by(count).cloned().collect(),
    };
    (0..count).map(part).collect()
}

/// The slowest tests: those to shrink if a run takes too long.
fn slowest(mut times: Vec<(Duration, String)>) -> String {
    const NAMED: usize = 25;
    times.sort_unstable();
    let all: Duration = times.iter().map(|(time, _)| *time).sum();
    let mut text = format!(
        "{LABEL}: {:.0} s of interpreters; the slowest tests:",
        all.as_secs_f64()
    );
    for (time, name) in times.iter().rev().take(NAMED) {
        text += &format!("\n    {:6.1} s {name}", time.as_secs_f64());
    }
    text
}

impl Part {
    fn command(&self, depth: Depth) -> Command {
        let mut command = self.suite.command();
        command.envs(depth.environment());
        command.args(["--", "--exact"]).args(&self.tests);
        command
    }

    /// Counts a test without a verdict as failed: Miri stops at the first undefined behaviour.
    fn account(&self, ended: &mut Ended) {
        let output = &mut ended.output;
        let mut known: HashSet<&str> = output.finished.iter().map(|test| &*test.name).collect();
        known.extend(output.interrupted.as_deref());
        let lost = self.tests.iter().filter(|test| !known.contains(&***test));
        let lost: Vec<_> = lost
            .map(|test| Finished {
                name: test.clone(),
                verdict: Verdict::Failed("the interpreter did not get to it".into()),
                time: Duration::ZERO,
            })
            .collect();
        output.finished.extend(lost);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const SIM: &Suite = &SUITES[0];
    const GPU: &Suite = &SUITES[1];
    const BY_ADDRESS: &Suite = &SUITES[3];

    #[test]
    fn a_module_is_not_the_end_of_another_name() {
        let wanted = |name| wanted(GPU, name, None);
        assert!(wanted("streams::b01_create::needs_1"));
        assert!(!wanted("streams::b01_create::heavy::needs_1"));
        assert!(!wanted("managed::g01_on_every_devices_streams::needs_2"));
        assert!(!wanted("soundness::contexts::s38_two_writers::needs_2"));
        assert!(!wanted(
            "foreign_streams::c22_external_owner_alive::needs_1"
        ));
    }

    #[test]
    fn what_uses_addresses_is_interpreted_permissively_alone() {
        for name in [
            "managed::g01_round_trip::needs_1",
            "pointers::f09_mapped::needs_1",
        ] {
            assert!(wanted(BY_ADDRESS, name, None), "{name}");
            assert!(!wanted(GPU, name, Some("")), "{name}");
        }
        assert!(!wanted(
            BY_ADDRESS,
            "streams::b01_create::needs_1",
            Some("b01")
        ));
        assert!(!wanted(
            BY_ADDRESS,
            "managed::many_gibibytes::heavy::needs_1",
            None
        ));
    }

    #[test]
    fn the_sim_suite_runs_whole_unless_told() {
        assert!(wanted(SIM, "soundness::faults::heavy", None));
        assert!(wanted(SIM, "faults::staged::forms", Some("staged")));
        assert!(!wanted(SIM, "faults::copies::forms", Some("staged")));
    }

    #[test]
    fn each_test_is_in_one_part() {
        let tests: Vec<_> = (0..2 * A_PART + 1)
            .map(|n| format!("test {n:02}"))
            .collect();
        let parts = deal(SIM, tests.clone());
        assert_eq!(parts.len(), 3);
        assert!(parts.iter().all(|part| part.tests.len() <= A_PART));
        let mut dealt: Vec<_> = parts.into_iter().flat_map(|part| part.tests).collect();
        dealt.sort();
        assert_eq!(dealt, tests);
        assert!(deal(SIM, Vec::new()).is_empty());
    }
}
