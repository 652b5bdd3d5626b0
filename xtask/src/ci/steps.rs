//! The steps. The first one is quick and likely to fail; the last ones keep all processors busy. The steps
//! between them run beside each other: the longest comes first, and `lints` and `docs`, which build in the
//! same folder, do not run at the same time.

use std::process::Command;

use super::{pages, tidy};
use crate::process::{cargo, cargo_of, require};
use crate::test::{self, Depth};
use crate::{Outcome, cudarc, run_task, workspace};

pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Whether the step keeps one processor busy at most times, and so runs beside other such steps.
    pub(crate) beside: bool,
    /// Prints what is wrong. A [`Refusal`](crate::Refusal) gives the reason why the step cannot run here.
    pub(crate) run: fn(Depth) -> anyhow::Result<Outcome>,
}

macro_rules! steps {
    ($($name:literal: $run:expr, beside: $beside:literal, $about:literal;)*) => {
        [$(Step { name: $name, about: $about, beside: $beside, run: $run }),*]
    };
}

pub(crate) static STEPS: [Step; 9] = steps! {
    "tidy": |_| print_all(&tidy::check(&workspace::root()?)?), beside: false, "rules about files";
    "package": package, beside: true,
        "`cargo package`; in turn, one other way of using the crates; with --full, all";
    "lints": lints, beside: true, "format and clippy; in turn, also without default features, and of the bench of cudarc";
    "headers": headers, beside: true,
        "the oldest and the newest cuda.h; with --full, every supported one";
    "docs": docs, beside: true, "rustdoc without warnings, and the order of its pages; in turn, of private items too";
    "msrv": msrv, beside: true, "the libraries on the oldest supported Rust; in turn, with default features too";
    "bindings": |_| run_task(&["bindings", "--check"]), beside: true,
        "the checked-in bindings are what the recipe makes";
    "faults": test::run_faults, beside: false,
        "half of the GPU tests, in turn, once more for each of their driver calls, which then fails; of long \
         tests, for a sample of them";
    "miri": |depth| test::run_miri(depth.every_second()), beside: false,
        "in turn, the in-process suites; strict provenance, permissive for managed and mapped memory";
};

/// The row of `package` that every sampled run has: the package that a registry would get.
const EVERY_TIME: &str = "package";

/// The step that every second sampled run has. The runs between have other rows of `package`.
const EVERY_SECOND: &str = "miri";

fn has_miri(depth: Depth) -> bool {
    depth.share(2).is_none_or(|share| share == 0)
}

/// Whether a run without a choice of steps has this one; prints if not.
pub(super) fn is_its_turn(step: &str, depth: Depth) -> bool {
    let turn = step != EVERY_SECOND || has_miri(depth);
    if !turn {
        println!("not in this sample: {step}: cargo xtask ci --step {step}");
    }
    turn
}

fn headers(depth: Depth) -> anyhow::Result<Outcome> {
    if depth == Depth::Full {
        return run_task(&["headers"]);
    }
    println!("not in this sample: the other headers: cargo xtask ci --full --step headers");
    run_task(&["headers", "--brief", "--only=11.8", "--only=13"])
}

fn package(depth: Depth) -> anyhow::Result<Outcome> {
    let (rows, left) = sampled_rows(&crate::package::usual_rows(), depth);
    if !left.is_empty() {
        let left = left.join(" ");
        println!("not in this sample: {left}: cargo xtask ci --full --step package");
    }
    let mut words = vec!["package"];
    words.extend(rows.iter().flat_map(|row| ["--only", row]));
    run_task(&words)
}

/// Splits the rows into those of this run and those left to other runs.
fn sampled_rows(all: &[&'static str], depth: Depth) -> (Vec<&'static str>, Vec<&'static str>) {
    let others = all.iter().filter(|row| takes_turns(row)).count();
    let Some(share) = depth.every_second().share(others) else {
        return (all.to_vec(), Vec::new());
    };
    let mut turns = (0..others).map(|number| number == share && !has_miri(depth));
    all.iter()
        .partition(|row| **row == EVERY_TIME || (takes_turns(row) && turns.next().unwrap_or(false)))
}

/// Whether sampled runs take the row in turn. Rows that measure the time of a build do not, since other steps
/// run beside them in a sampled run; nor do rows that run tests for other targets, which takes minutes.
fn takes_turns(row: &str) -> bool {
    row != EVERY_TIME && !row.starts_with("time") && !row.starts_with("run-")
}

/// Prints and runs each command until one fails.
fn commands(commands: &mut [Command]) -> anyhow::Result<Outcome> {
    for command in commands {
        let words = command.get_args().map(|word| word.to_string_lossy());
        println!("cargo {}", words.collect::<Vec<_>>().join(" "));
        if !command.status()?.success() {
            return Ok(Outcome::Failed);
        }
    }
    Ok(Outcome::Passed)
}

/// Prints the complaints of a step, which passes if there are none.
fn print_all(complaints: &[String]) -> anyhow::Result<Outcome> {
    for complaint in complaints {
        println!("{complaint}");
    }
    Ok(Outcome::of(complaints.is_empty()))
}

/// Of this many consecutive runs, each takes another one of the [extra checks](Extra), or none.
const OF_EXTRAS: usize = 4;

/// A check that a sampled run takes in turn. What breaks one of these usually breaks another step, too.
#[derive(Clone, Copy)]
enum Extra {
    /// The documentation of private items, and of packages that are not shipped.
    PrivateDocs,
    /// Clippy without default features.
    WithoutFeatures,
    /// The program that measures cudarc, since that must be built first.
    Cudarc,
    /// The default features on the oldest Rust, which then builds bindgen.
    OldestWithFeatures,
}

impl Extra {
    /// Whether this run takes the check; prints `what` it is if not.
    fn is_taken(self, depth: Depth, what: &str) -> bool {
        let taken = depth.share(OF_EXTRAS).is_none_or(|share| share == self as usize);
        if !taken {
            println!("not in this sample: {what}");
        }
        taken
    }
}

fn lints(depth: Depth) -> anyhow::Result<Outcome> {
    for (component, subcommand) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        let help = format!("rustup component add {component}");
        require(cargo(&format!("{subcommand} --version")), help)?;
    }
    let mut all = vec![
        cargo("fmt --all --check"),
        cargo("clippy --workspace --features xtask/driver --all-targets -- --deny warnings"),
        cudarc::of_program("fmt --check")?,
    ];
    if Extra::WithoutFeatures.is_taken(depth, "clippy without default features") {
        // No source of `cuda-core` depends on a feature.
        let without = "-p cuda-sys -p xtask --no-default-features";
        all.push(cargo(&format!("clippy {without} --all-targets -- --deny warnings")));
    }
    if Extra::Cudarc.is_taken(depth, "the program that measures cudarc") {
        all.push(cudarc::of_program("clippy --locked -- --deny warnings")?);
    }
    commands(&mut all)
}

fn docs(depth: Depth) -> anyhow::Result<Outcome> {
    let mut documents = vec![cargo("doc --no-deps -p cuda-sys -p cuda-core")];
    if Extra::PrivateDocs.is_taken(depth, "private items, other packages") {
        documents.insert(
            0,
            cargo("doc --workspace --features xtask/driver --no-deps --document-private-items"),
        );
    }
    for document in &mut documents {
        document.env("RUSTDOCFLAGS", "--deny warnings");
    }
    if commands(&mut documents)? == Outcome::Failed {
        return Ok(Outcome::Failed);
    }
    let pages = workspace::target(&workspace::root()?)?.join("doc");
    print_all(&pages::complaints(&pages)?)
}

fn msrv(depth: Depth) -> anyhow::Result<Outcome> {
    let version = env!("CARGO_PKG_RUST_VERSION");
    require(cargo_of(version, "--version"), format!("rustup toolchain install {version}"))?;
    let all = "check -p cuda-sys -p cuda-core -p cuda-driver-sim";
    let mut checks = vec![cargo_of(version, &format!("{all} --no-default-features"))];
    if Extra::OldestWithFeatures.is_taken(depth, "the default features on the oldest Rust") {
        checks.push(cargo_of(version, all));
    }
    commands(&mut checks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_in_a_row_have_each_way_of_packaging() {
        let all = crate::package::usual_rows();
        let turns: Vec<_> = all.iter().copied().filter(|row| takes_turns(row)).collect();
        let runs = 2 * turns.len() as u64;
        let mut had = Vec::new();
        for rotation in 500..500 + runs {
            let (rows, left) = sampled_rows(&all, Depth::Sampled { rotation });
            assert!(rows.contains(&EVERY_TIME) && rows.len() <= 2, "{rows:?}");
            assert_eq!(rows.len() == 1, has_miri(Depth::Sampled { rotation }));
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
