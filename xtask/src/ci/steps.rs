//! The steps, those first that are quick and likely to fail.

use std::process::{Command, Stdio};

use anyhow::Context;

use super::tidy;
use crate::suite::build::{cargo, workspace_root};
use crate::test::{self, Depth};
use crate::{Outcome, run_task};

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    /// The step has printed the errors.
    Wrong,
    /// The reason why it did not run.
    NotRun(String),
}

pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// It keeps one processor busy at most times, and runs beside the neighbours of which that is true.
    pub(crate) beside: bool,
    pub(crate) run: fn(Depth) -> anyhow::Result<Verdict>,
}

pub(crate) static STEPS: [Step; 9] = [
    Step { name: "tidy", about: "rules about files", beside: false, run: check_files },
    Step {
        name: "lints",
        about: "format, and clippy with and without default features",
        beside: false,
        run: lints,
    },
    Step { name: "docs", about: "rustdoc without warnings", beside: false, run: docs },
    Step {
        name: "msrv",
        about: "both libraries on the oldest supported Rust",
        beside: false,
        run: msrv,
    },
    Step {
        name: "bindings",
        about: "the checked-in bindings are what the recipe makes",
        beside: false,
        run: |_| task(&["bindings", "--check"]),
    },
    Step {
        name: "headers",
        about: "the oldest and the newest cuda.h; with --full, every supported one",
        beside: true,
        run: headers,
    },
    Step {
        name: "package",
        about: "`cargo package`, and three other ways of using the crates; with --full, all",
        beside: true,
        run: package,
    },
    Step {
        name: "faults",
        about: "each GPU test once more for each of its driver calls, which then fails; of long tests, \
                for a sample of them",
        beside: false,
        run: faults,
    },
    Step {
        name: "miri",
        about: "the in-process suites; strict provenance, permissive for managed and mapped memory",
        beside: false,
        run: miri,
    },
];

/// The row of `package` that every sampled run has: what a registry would get.
const EVERY_TIME: &str = "package";

/// How many of the other rows a sampled run has.
const ROWS: usize = 3;

fn headers(depth: Depth) -> anyhow::Result<Verdict> {
    if depth == Depth::Full {
        return task(&["headers"]);
    }
    println!("not in this sample: the other headers: cargo xtask ci --full --step headers");
    task(&["headers", "--no-docs", "--only=11.8", "--only=13"])
}

fn package(depth: Depth) -> anyhow::Result<Verdict> {
    let (rows, left) = sampled_rows(&crate::package::usual_rows(), depth);
    if !left.is_empty() {
        let left = left.join(" ");
        println!("not in this sample: {left}: cargo xtask ci --full --step package");
    }
    let mut words = vec!["package"];
    words.extend(rows.iter().flat_map(|row| ["--only", row]));
    task(&words)
}

/// The rows of a run, and those that it leaves to others.
fn sampled_rows(all: &[&'static str], depth: Depth) -> (Vec<&'static str>, Vec<&'static str>) {
    let others = all.iter().filter(|row| takes_turns(row)).count();
    let Some(share) = depth.share(others.div_ceil(ROWS)) else {
        return (all.to_vec(), Vec::new());
    };
    let mut turns = (0..others).map(|number| number / ROWS == share);
    all.iter()
        .partition(|row| **row == EVERY_TIME || (takes_turns(row) && turns.next().unwrap_or(false)))
}

/// Not the rows that measure how long a build takes: other steps run beside them in a sampled run.
fn takes_turns(row: &str) -> bool {
    row != EVERY_TIME && !row.starts_with("time")
}

fn task(words: &[&str]) -> anyhow::Result<Verdict> {
    Ok(match run_task(words)? {
        Outcome::Passed => Verdict::Fine,
        Outcome::Failed => Verdict::Wrong,
        Outcome::CouldNotRun => {
            Verdict::NotRun(format!("`cargo xtask {}` says why", words.join(" ")))
        }
    })
}

/// Prints and runs each command until one fails.
fn commands(commands: &mut [Command]) -> anyhow::Result<Verdict> {
    for command in commands {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        println!("cargo {}", words.join(" "));
        if !command.stdin(Stdio::null()).status().context("cargo")?.success() {
            return Ok(Verdict::Wrong);
        }
    }
    Ok(Verdict::Fine)
}

fn with(words: &[&str]) -> Command {
    let mut command = cargo();
    command.args(words);
    command
}

/// Whether cargo has a subcommand that rustup installs as a component.
fn missing(component: &str, subcommand: &str) -> Option<Verdict> {
    let answer = cargo()
        .args([subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let present = answer.is_ok_and(|status| status.success());
    (!present).then(|| Verdict::NotRun(format!("rustup component add {component}")))
}

fn check_files(_: Depth) -> anyhow::Result<Verdict> {
    let complaints = tidy::check(&workspace_root()?)?;
    complaints.iter().for_each(|complaint| println!("{complaint}"));
    Ok(if complaints.is_empty() { Verdict::Fine } else { Verdict::Wrong })
}

fn lints(_: Depth) -> anyhow::Result<Verdict> {
    if let Some(verdict) = missing("rustfmt", "fmt").or_else(|| missing("clippy", "clippy")) {
        return Ok(verdict);
    }
    let clippy = ["clippy", "--workspace", "--all-targets"];
    let deny = ["--", "--deny", "warnings"];
    commands(&mut [
        with(&["fmt", "--all", "--check"]),
        with(&[&clippy[..], &deny].concat()),
        with(&[&clippy[..], &["--no-default-features"], &deny].concat()),
    ])
}

fn docs(_: Depth) -> anyhow::Result<Verdict> {
    let mut doc = with(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    doc.env("RUSTDOCFLAGS", "--deny warnings");
    let mut public = with(&["doc", "--no-deps", "-p", "cuda-sys", "-p", "cuda-core"]);
    public.env("RUSTDOCFLAGS", "--deny warnings");
    commands(&mut [doc, public])
}

fn msrv(_: Depth) -> anyhow::Result<Verdict> {
    let version = env!("CARGO_PKG_RUST_VERSION");
    let toolchain = format!("+{version}");
    let rustup = |words: &[&str]| {
        // Not `$CARGO`, which is the toolchain's own and does not accept `+version`.
        let mut command = Command::new("cargo");
        command.arg(&toolchain).args(words).env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
        command
    };
    let answer = rustup(&["--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !answer.is_ok_and(|status| status.success()) {
        return Ok(Verdict::NotRun(format!("rustup toolchain install {version}")));
    }
    commands(&mut [rustup(&[
        "check",
        "-p",
        "cuda-sys",
        "-p",
        "cuda-core",
        "--no-default-features",
    ])])
}

fn faults(depth: Depth) -> anyhow::Result<Verdict> {
    Ok(match test::run_faults(depth)? {
        Outcome::Passed => Verdict::Fine,
        Outcome::Failed => Verdict::Wrong,
        Outcome::CouldNotRun => Verdict::NotRun("there are no GPU tests".into()),
    })
}

fn miri(depth: Depth) -> anyhow::Result<Verdict> {
    Ok(match test::run_miri(depth)? {
        Ok(Outcome::Failed) => Verdict::Wrong,
        Ok(Outcome::Passed) => Verdict::Fine,
        Ok(Outcome::CouldNotRun) => Verdict::NotRun("no test ran".into()),
        Err(reason) => Verdict::NotRun(reason),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_in_a_row_have_each_way_of_packaging() {
        let all = crate::package::usual_rows();
        let turns: Vec<_> = all.iter().copied().filter(|row| takes_turns(row)).collect();
        let runs = turns.len().div_ceil(ROWS) as u64;
        let mut had = Vec::new();
        for rotation in 500..500 + runs {
            let (rows, left) = sampled_rows(&all, Depth::Sampled { rotation });
            assert!(rows.contains(&EVERY_TIME) && rows.len() <= ROWS + 1, "{rows:?}");
            assert_eq!(rows.len() + left.len(), all.len());
            had.extend(rows.into_iter().filter(|row| *row != EVERY_TIME));
        }
        had.sort_unstable();
        let mut wanted = turns;
        wanted.sort_unstable();
        assert_eq!(had, wanted);
        assert_eq!(sampled_rows(&all, Depth::Full), (all, vec![]));
    }
}
