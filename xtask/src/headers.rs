//! Builds and tests against every supported cuda.h.

use anyhow::bail;

use crate::Outcome;
use crate::table::Table;
use crate::workspace;
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

fn parse_release(name: &str) -> anyhow::Result<Release> {
    match RELEASES.iter().find(|release| release.name == name) {
        Some(release) => Ok(*release),
        None => bail!("the headers are {}", RELEASES.map(|release| release.name).join(", ")),
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let root = workspace::root()?;
    let releases = if args.only.is_empty() { RELEASES.to_vec() } else { args.only.clone() };
    let mut outcome = Outcome::Passed;
    let headings = "cuda.h|declared|bound|undeclared|C asserts|tests passed|not run|verdict";
    let mut table = Table::new(headings.split('|'));
    let mut notes = Vec::new();
    for release in releases {
        let kinds = if args.no_docs { "--lib --tests" } else { "" };
        let row = fetch::include(&root, release);
        match row.and_then(|include| Row::build(&root, &include, kinds)) {
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
                table.row([release.name, "-", "-", "-", "-", "-", "-", "not run"]);
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
