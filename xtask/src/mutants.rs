//! Breaks `cuda-core` in the ways in which a naive design would be wrong, and requires that the
//! tests notice.

mod mutation;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, bail};
use fs_err as fs;

use crate::cargo::Built;
use crate::process::cargo;
use crate::suite::{Finished, Invocation, Program, Verdict};
use crate::table::Table;
use crate::{Outcome, Refusal, workspace};
use mutation::Mutation;

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
    let root = workspace::root()?;
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
        let stale = stale.join("\n  ");
        bail!(
            "the source has changed under mutations; adapt them in {}:\n  {stale}",
            mutation::FILE
        );
    }
    let scratch = Scratch(root.join("target/mutants"));
    workspace::mirror(&root, &scratch.tree())?;
    println!("unmutated: the tests must pass");
    if !passes_unmutated(&scratch, &mutations)? {
        return Ok(Outcome::Failed);
    }
    let mut table = Table::new(["mutant", "tests", "red", "seconds", "verdict"]);
    let mut caught = 0;
    for mutation in &mutations {
        println!("{}: {}", mutation.name, mutation.wrong);
        let began = Instant::now();
        let green = try_mutation(&scratch, mutation)?;
        let verdict = match &green {
            None => "does not compile".to_owned(),
            Some(green) if green.is_empty() => "caught".to_owned(),
            Some(green) => format!("NOT CAUGHT by {}", green.join(", ")),
        };
        caught += usize::from(green.as_ref().is_some_and(Vec::is_empty));
        println!("    {verdict}");
        let tests = mutation.tests.len();
        let red = green.map_or(0, |green| tests - green.len());
        table.row([
            mutation.name.clone(),
            tests.to_string(),
            red.to_string(),
            format!("{:.1}", began.elapsed().as_secs_f64()),
            verdict,
        ]);
    }
    println!("\n{table}");
    let (all, time) = (mutations.len(), started.elapsed().as_secs_f64());
    println!("{caught} of {all} mutants caught in {time:.1} s");
    Ok(Outcome::of(caught == all))
}

/// Mutations that can no longer be applied, and tests of mutations that are not among `tests`: the
/// file must be adapted to these.
pub(crate) fn complaints(root: &Path, tests: &HashSet<String>) -> anyhow::Result<Vec<String>> {
    let mutations = mutation::read(root)?;
    let mut complaints = stale(root, &mutations);
    for mutation in &mutations {
        let gone = mutation.tests.iter().filter(|path| {
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

fn selected(mut mutations: Vec<Mutation>, names: &[String]) -> anyhow::Result<Vec<Mutation>> {
    let is_unknown = |name: &&String| mutations.iter().all(|mutation| mutation.name != **name);
    if let Some(unknown) = names.iter().find(is_unknown) {
        bail!(Refusal(format!("no mutant is called {unknown}; --list names them")));
    }
    mutations.retain(|mutation| names.is_empty() || names.contains(&mutation.name));
    Ok(mutations)
}

/// The folder with a copy of the workspace, in which mutations are made.
struct Scratch(PathBuf);

impl Scratch {
    fn tree(&self) -> PathBuf {
        self.0.join("tree")
    }

    /// Builds the one suite that contains the mutations' tests; the target directory is the same for
    /// every mutant.
    fn build(&self) -> anyhow::Result<Program> {
        // Mutants are not debugged.
        let mut cargo = cargo("test --quiet --no-run --test=sim --config=profile.dev.debug=false");
        cargo.arg("--manifest-path").arg(self.tree().join("Cargo.toml"));
        cargo.arg("--target-dir").arg(self.0.join("build"));
        let built = Built::run(cargo.stderr(Stdio::inherit()))?.succeeded()?;
        let mut tests = built.tests().into_iter();
        let sim = tests.find(|program| program.suite == "cuda-tests::sim");
        sim.context("cargo built no test program `sim`")
    }
}

fn passes_unmutated(scratch: &Scratch, mutations: &[Mutation]) -> anyhow::Result<bool> {
    let program = scratch.build().context("the unmutated workspace")?;
    let names = mutations.iter().flat_map(|mutation| &mutation.tests);
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let mut wrong = run_tests(&program, &names)?;
    wrong.retain(|test| test.verdict != Verdict::Passed);
    for Finished { name, verdict, .. } in &wrong {
        println!("    {name} does not pass unmutated: {verdict:?}");
    }
    Ok(wrong.is_empty())
}

/// The tests that did not notice a mutation, unless it does not compile.
fn try_mutation(scratch: &Scratch, mutation: &Mutation) -> anyhow::Result<Option<Vec<String>>> {
    let tree = scratch.tree();
    let mut originals = Vec::new();
    for (file, mutant) in mutation.mutants(&tree)? {
        let file = tree.join(file);
        originals.push((file.clone(), fs::read_to_string(&file)?));
        fs::write(file, mutant)?;
    }
    let names: Vec<&str> = mutation.tests.iter().map(String::as_str).collect();
    let program = scratch.build().ok();
    let finished = program.map(|program| run_tests(&program, &names));
    for (file, original) in originals {
        fs::write(file, original)?;
    }
    let green = finished.transpose()?.map(|finished| {
        let green = finished.into_iter().filter(|test| !test.has_failed());
        green.map(|test| test.name).collect()
    });
    Ok(green)
}

/// Runs tests one after the other; a test that the program lacks is an error.
fn run_tests(program: &Program, names: &[&str]) -> anyhow::Result<Vec<Finished>> {
    let known = program.list()?;
    let is_unknown = |name: &&&str| known.iter().all(|case| case.name != **name);
    if let Some(unknown) = names.iter().find(is_unknown) {
        bail!("{}: there is no test {unknown}", mutation::FILE);
    }
    let watchdog = ("CUDA_TESTS_WATCHDOG", WATCHDOG.to_owned());
    let invocation = Invocation {
        environment: vec![watchdog, ("RUST_BACKTRACE", "0".to_owned())],
        serial: true,
        ..Invocation::default()
    };
    Ok(program.run(&invocation, names, &mut |_| {})?.finished)
}
