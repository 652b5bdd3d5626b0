//! Builds and tests against every supported cuda.h.

use std::path::Path;

use anyhow::bail;

use crate::Outcome;
use crate::suite::build::workspace_root;
use crate::suite::table::Table;
use fetch::{RELEASES, Release};
use row::Row;

pub(crate) mod declared;
pub(crate) mod fetch;
mod row;

/// Builds and tests against every supported cuda.h.
///
/// pip fetches the headers into `.cuda-headers/`, where they are kept; delete `.cuda-headers/13` to
/// fetch a newer one. For each header, this task builds and tests both crates with it, checks
/// bindgen's output with the C compiler, compares that output with the bundled bindings, and
/// compares the bound functions with those that the header declares and those that are bundled. All
/// suites must build, and have the same tests.
#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0 every header passed, 1 one failed, 2 one could not be fetched."
)]
pub(crate) struct Args {
    /// Only this header: 11.8, 12.0, 12.4, 12.9, 13.0, or 13 for the newest.
    #[arg(long, value_name = "RELEASE", value_parser = parse_release)]
    only: Vec<Release>,
    /// Leaves out the examples and the documentation's tests, which no header changes as a rule.
    #[arg(long)]
    no_docs: bool,
}

/// The arguments that select the kinds of tests of the two crates for `cargo test`.
const ALL_KINDS: &[&str] = &[];
const WITHOUT_DOCS: &[&str] = &["--lib", "--tests"];

fn parse_release(name: &str) -> anyhow::Result<Release> {
    match RELEASES.iter().find(|release| release.name == name) {
        Some(release) => Ok(*release),
        None => bail!("the headers are {}", RELEASES.map(|release| release.name).join(", ")),
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let root = workspace_root()?;
    let releases = if args.only.is_empty() { RELEASES.to_vec() } else { args.only.clone() };
    let mut outcome = Outcome::Passed;
    let mut table = Table::new([
        "cuda.h",
        "declared",
        "bound",
        "undeclared",
        "C asserts",
        "tests passed",
        "not run",
        "verdict",
    ]);
    let mut notes = Vec::new();
    for release in releases {
        match one(&root, release, args.no_docs) {
            Ok(row) => {
                if !row.problems.is_empty() {
                    outcome = Outcome::Failed;
                }
                table.row(row.cells());
                notes.extend(row.notes());
            }
            Err(error) => {
                if outcome == Outcome::Passed {
                    outcome = Outcome::CouldNotRun;
                }
                let blank = || "-".to_owned();
                let name = release.name.to_owned();
                let word = "not run".to_owned();
                table.row([name, blank(), blank(), blank(), blank(), blank(), blank(), word]);
                notes.push(format!("{} was not run: {error:#}", release.name));
            }
        }
    }
    println!("{table}");
    println!(
        "undeclared = bundled functions that are newer than this header, or that it has dropped"
    );
    if args.no_docs {
        println!("not run: examples and the documentation's tests: cargo xtask headers");
    }
    for note in notes {
        println!("{note}");
    }
    Ok(outcome)
}

fn one(root: &Path, release: Release, no_docs: bool) -> anyhow::Result<Row> {
    let include = fetch::include(root, release)?;
    let kinds = if no_docs { WITHOUT_DOCS } else { ALL_KINDS };
    Row::build(root, &include, kinds)
}
