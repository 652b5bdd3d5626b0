//! Builds and tests against every supported cuda.h.

use crate::table::Table;
use crate::{Outcome, Refusal, asks_for, bindings, workspace};
use fetch::{FLOOR, RELEASES};

pub(crate) mod declared;
pub(crate) mod fetch;
mod row;

/// Builds and tests against every supported cuda.h.
///
/// pip fetches the headers into `.cuda-headers/`, where they are kept; delete `.cuda-headers/13` to
/// fetch a newer one. For each header, this task builds and tests both crates with it, checks
/// bindgen's output with the C compiler, compares that output with the bundled bindings, and
/// compares the bound functions with those that the header declares and those that are bundled. It also
/// runs `tests/abi.rs` and `tests/one_interface.rs`. Without --only, it also fetches the oldest and the newest
/// `nccl.h` (470 MB), and compares what `cuda-core` declares of NCCL with them.
#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0 all headers passed, 1 one failed, 2 one was not fetched, or no libclang."
)]
pub(crate) struct Args {
    /// Only this header; 13 is the newest.
    #[arg(long, value_name = "RELEASE", value_parser = RELEASES.map(|it| it.name))]
    only: Vec<String>,
    /// Leaves out unit tests, examples and the documentation's tests, which no header changes as a rule.
    #[arg(long)]
    brief: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let root = workspace::root()?;
    bindings::require_libclang()?;
    let mut outcome = Outcome::Passed;
    let headings = "cuda.h|declared|bound|undeclared|C asserts|tests passed|not run|verdict";
    let mut table = Table::new(headings.split('|'));
    let mut notes = Vec::new();
    // Not fetched for a sample: `nccl.h` is large, and the same in each row.
    let nccl = fetch::nccl(&root, args.only.is_empty());
    if let Err(why) = &nccl {
        notes.push(format!("nccl.h was not compared: {why:#}"));
        if args.only.is_empty() {
            outcome = Outcome::CouldNotRun;
        }
    }
    for release in RELEASES.into_iter().filter(|it| asks_for(&args.only, it.name)) {
        let kinds = if args.brief { "--test *" } else { "" };
        let include = fetch::include(&root, release);
        // The oldest `nccl.h` is compared with the oldest `cuda.h`, the newest with the others.
        let nccl = nccl.as_ref().ok().map(|all| &*all[usize::from(release.name != FLOOR.name)]);
        match include.and_then(|include| row::examine(&root, &include, kinds, nccl)) {
            Ok((cells, problems)) => {
                if !problems.is_empty() {
                    outcome = Outcome::Failed;
                }
                notes.extend(problems.iter().map(|it| format!("{}: WRONG: {it}", cells[0])));
                table.row(cells);
            }
            Err(error) => {
                let (ended, verdict) = match error.is::<Refusal>() {
                    true => (Outcome::CouldNotRun, "not run"),
                    false => (Outcome::Failed, "WRONG"),
                };
                if outcome != Outcome::Failed {
                    outcome = ended;
                }
                table.row([release.name, "-", "-", "-", "-", "-", "-", verdict]);
                notes.push(format!("{}: {verdict}: {error:#}", release.name));
            }
        }
    }
    println!("{table}");
    println!(
        "undeclared = bundled functions that are newer than this header, or that it has dropped"
    );
    if args.brief {
        println!("not run: unit tests, examples, the documentation's tests: cargo xtask headers");
    }
    for note in notes {
        println!("{note}");
    }
    Ok(outcome)
}
