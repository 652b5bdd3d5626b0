//! Breaks `cuda-core` in the ways in which a naive design would be wrong, and requires that the
//! tests notice.

mod mutation;
mod tree;

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::suite::build::{self, Artifact};
use crate::suite::table::Table;
use crate::suite::{Finished, Invocation, Program, Verdict};
use crate::{Outcome, Refusal};
use mutation::Mutation;
use tree::Tree;

/// Seconds after which a test that hangs is ended: some mutants deadlock.
const WATCHDOG: &str = "6";

/// Breaks cuda-core on purpose, one way at a time, and requires that the named tests fail.
///
/// The mutations are those of tests/mutants/mutants.json: each is an error of a naive ledger, guard
/// or callback. They are made in a copy of the workspace under target/mutants. A mutant that does
/// not compile is not caught, and neither is one that only some of its tests notice.
#[derive(clap::Args)]
#[command(after_help = "Exit code: 0 if every mutant was caught, 1 otherwise.")]
pub(crate) struct Args {
    /// Mutants to run; all of them if none is named.
    names: Vec<String>,
    /// Lists the mutants and what each gets wrong.
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let root = build::workspace_root()?;
    let mutations = selected(mutation::read(&root)?, &args.names)?;
    if args.list {
        for mutation in &mutations {
            println!("{}\n    {}", mutation.name, mutation.wrong);
        }
        return Ok(Outcome::Passed);
    }
    let started = Instant::now();
    let stale = stale(&root, &mutations);
    if !stale.is_empty() {
        bail!(
            "the source has changed under {} of {} mutations; adapt them in {}:\n  {}",
            stale.len(),
            mutations.len(),
            mutation::FILE,
            stale.join("\n  ")
        );
    }
    let tree = Tree::copy(&root)?;
    println!("unmutated: the tests must pass");
    if !passes_unmutated(&tree, &mutations)? {
        return Ok(Outcome::Failed);
    }
    let mut table = Table::new(["mutant", "tests", "red", "seconds", "verdict"]);
    let mut caught = 0;
    for mutation in &mutations {
        println!("{}: {}", mutation.name, mutation.wrong);
        let began = Instant::now();
        let trial = try_mutation(&tree, mutation)?;
        caught += usize::from(trial.is_caught());
        println!("    {}", trial.text());
        table.row([
            mutation.name.clone(),
            mutation.tests.len().to_string(),
            trial.red().to_string(),
            seconds(began.elapsed()),
            trial.text(),
        ]);
    }
    println!("\n{table}");
    println!("{caught} of {} mutants caught in {} s", mutations.len(), seconds(started.elapsed()));
    Ok(if caught == mutations.len() { Outcome::Passed } else { Outcome::Failed })
}

/// Mutations that can no longer be applied, and tests of mutations that are not among `tests`: the
/// file must be adapted to these.
pub(crate) fn complaints(root: &Path, tests: &HashSet<String>) -> anyhow::Result<Vec<String>> {
    let mutations = mutation::read(root)?;
    let mut complaints = stale(root, &mutations);
    for mutation in &mutations {
        let gone = mutation.test_names().filter(|path| {
            let name = path.rsplit("::").next();
            name.is_none_or(|name| !tests.contains(name))
        });
        complaints.extend(gone.map(|test| format!("{}: no test {test}", mutation.name)));
    }
    let place = |complaint| format!("{}: {complaint}", mutation::FILE);
    Ok(complaints.into_iter().map(place).collect())
}

/// For each mutation that no longer fits the source, why it does not.
fn stale(root: &Path, mutations: &[Mutation]) -> Vec<String> {
    let errors = mutations.iter().filter_map(|mutation| mutation.mutants(root).err());
    errors.map(|error| format!("{error:#}")).collect()
}

fn selected(mutations: Vec<Mutation>, names: &[String]) -> anyhow::Result<Vec<Mutation>> {
    if let Some(unknown) =
        names.iter().find(|name| mutations.iter().all(|mutation| mutation.name != **name))
    {
        bail!(Refusal(format!("no mutant is called {unknown}; --list names them")));
    }
    let chosen = |mutation: &Mutation| names.is_empty() || names.contains(&mutation.name);
    Ok(mutations.into_iter().filter(chosen).collect())
}

fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}

fn passes_unmutated(tree: &Tree, mutations: &[Mutation]) -> anyhow::Result<bool> {
    let program = build_suite(tree).context("the unmutated workspace")?;
    let mut names: Vec<&str> = mutations.iter().flat_map(Mutation::test_names).collect();
    names.sort_unstable();
    names.dedup();
    let wrong: Vec<Finished> = run_tests(&program, &names)?
        .into_iter()
        .filter(|test| test.verdict != Verdict::Passed)
        .collect();
    for test in &wrong {
        println!("    {} does not pass unmutated: {:?}", test.name, test.verdict);
    }
    Ok(wrong.is_empty())
}

/// The result of one mutant.
enum Trial {
    DoesNotCompile,
    Ran { red: usize, green: Vec<String> },
}

impl Trial {
    fn is_caught(&self) -> bool {
        matches!(self, Self::Ran { green, .. } if green.is_empty())
    }

    fn red(&self) -> usize {
        match self {
            Self::DoesNotCompile => 0,
            Self::Ran { red, .. } => *red,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::DoesNotCompile => "does not compile".into(),
            Self::Ran { green, .. } if green.is_empty() => "caught".into(),
            Self::Ran { green, .. } => format!("NOT CAUGHT by {}", green.join(", ")),
        }
    }
}

fn try_mutation(tree: &Tree, mutation: &Mutation) -> anyhow::Result<Trial> {
    let originals = mutation
        .mutants(tree.path())?
        .into_iter()
        .map(|(file, mutant)| Ok((tree.replace(&file, &mutant)?, file)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let program = build_suite(tree);
    let trial = match program {
        Err(_) => Trial::DoesNotCompile,
        Ok(program) => {
            let names: Vec<&str> = mutation.test_names().collect();
            let finished = run_tests(&program, &names)?;
            let (red, green): (Vec<_>, Vec<_>) =
                finished.into_iter().partition(|test| matches!(test.verdict, Verdict::Failed(_)));
            Trial::Ran { red: red.len(), green: green.into_iter().map(|test| test.name).collect() }
        }
    };
    for (original, file) in originals {
        tree.replace(&file, &original)?;
    }
    Ok(trial)
}

/// Builds the one suite that contains the mutations' tests.
fn build_suite(tree: &Tree) -> anyhow::Result<Program> {
    let manifest = tree.path().join("Cargo.toml");
    let target = tree.target();
    let arguments = [
        "test".as_ref(),
        "--quiet".as_ref(),
        "--no-run".as_ref(),
        "--test=sim".as_ref(),
        // Mutants are not debugged.
        "--config=profile.dev.debug=false".as_ref(),
        "--manifest-path".as_ref(),
        manifest.as_os_str(),
        "--target-dir".as_ref(),
        target.as_os_str(),
    ];
    let arguments: Vec<&str> = arguments
        .iter()
        .map(|argument: &&std::ffi::OsStr| argument.to_str().context("a path is not UTF-8"))
        .collect::<anyhow::Result<_>>()?;
    build::build(&arguments)?
        .into_iter()
        .find_map(|artifact| match artifact {
            Artifact::Test(program) if program.suite == "cuda-tests::sim" => Some(program),
            _ => None,
        })
        .context("cargo built no test program `sim`")
}

/// Runs tests one after the other; a test that the program lacks is an error.
fn run_tests(program: &Program, names: &[&str]) -> anyhow::Result<Vec<Finished>> {
    let known = program.list()?;
    if let Some(unknown) = names.iter().find(|name| known.iter().all(|case| case.name != **name)) {
        bail!("{}: there is no test {unknown}", mutation::FILE);
    }
    let invocation = Invocation {
        environment: vec![
            ("CUDA_TESTS_WATCHDOG".into(), WATCHDOG.into()),
            ("RUST_BACKTRACE".into(), "0".into()),
        ],
        serial: true,
        ..Invocation::default()
    };
    Ok(program.run(&invocation, names, &mut |_| {})?.finished)
}
