//! Breaks `cuda-core` with the errors of naive designs, and requires that the tests notice.

mod mutation;

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::cargo::Built;
use crate::process::cargo;
use crate::suite::{Finished, Program, Setting, Variant, Verdict};
use crate::table::Table;
use crate::target::Target;
use crate::{Outcome, Refusal, asks_for, workspace};
use mutation::Mutation;

/// Seconds after which a hanging test is ended: some mutants deadlock.
const WATCHDOG: &str = "6";

/// Breaks cuda-core on purpose, one way at a time, and requires that the named tests fail.
///
/// The mutations are those of tests/mutants/mutants.json: each is an error of a naive ledger, guard
/// or callback. They are made in a copy of the workspace under target/mutants. A mutant that does
/// not compile is not caught, and neither is one that only some of its tests notice.
#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0 every mutant was caught, 1 one was not, 2 there is none of a given name."
)]
pub(crate) struct Args {
    /// Mutants to run; all of them if none is named.
    names: Vec<String>,
    /// Lists the mutants and what each gets wrong.
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
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
        let (file, stale) = (mutation::FILE, stale.join("\n  "));
        bail!("the source has changed under mutations; adapt them in {file}:\n  {stale}");
    }
    let tree = root.join("target/mutants/tree");
    workspace::mirror(&root, &tree)?;
    println!("unmutated: the tests must pass");
    let Some(of_gpu) = pass_unmutated(&tree, &mutations)? else {
        return Ok(Outcome::Failed);
    };
    let mut table = Table::new(["mutant", "tests", "red", "seconds", "verdict"]);
    let mut caught = 0;
    for mutation in &mutations {
        println!("{}: {}", mutation.name, mutation.wrong);
        let began = Instant::now();
        let gpu = mutation.tests.iter().any(|test| of_gpu.contains(test));
        let tests = mutation.tests.len();
        let (red, verdict) = match try_mutation(&tree, mutation, gpu)? {
            None => (0, "does not compile".to_owned()),
            Some(green) if green.is_empty() => (tests, "caught".to_owned()),
            Some(green) => (tests - green.len(), format!("NOT CAUGHT by {}", green.join(", "))),
        };
        caught += usize::from(red == tests);
        println!("    {verdict}");
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

/// Returns complaints about the file: mutations that can no longer be applied, and tests of mutations that
/// are not among `tests`.
pub(crate) fn complaints(root: &Path, tests: &HashSet<&str>) -> Result<Vec<String>> {
    let mutations = mutation::read(root)?;
    let mut complaints = stale(root, &mutations);
    for mutation in &mutations {
        let is_gone = |name: &str| !tests.contains(name);
        let gone =
            mutation.tests.iter().filter(|path| path.rsplit("::").next().is_none_or(is_gone));
        complaints.extend(gone.map(|test| format!("{}: no test {test}", mutation.name)));
    }
    let place = |complaint| format!("{}: {complaint}", mutation::FILE);
    Ok(complaints.into_iter().map(place).collect())
}

/// Returns, for each mutation that no longer fits the source, the reason.
fn stale(root: &Path, mutations: &[Mutation]) -> Vec<String> {
    let errors = mutations.iter().filter_map(|mutation| mutation.mutants(root).err());
    errors.map(|error| format!("{error:#}")).collect()
}

fn selected(mut mutations: Vec<Mutation>, names: &[String]) -> Result<Vec<Mutation>> {
    let is_unknown = |name: &&String| mutations.iter().all(|mutation| mutation.name != **name);
    if let Some(unknown) = names.iter().find(is_unknown) {
        bail!(Refusal(format!("no mutant is called {unknown}; --list names them")));
    }
    mutations.retain(|mutation| asks_for(names, &mutation.name));
    Ok(mutations)
}

/// Builds the suites that contain the mutations' tests in `tree`, a copy of the workspace: the library's
/// tests on the simulated driver, and, if `gpu`, those for real GPUs. All mutants share one target directory.
fn build(tree: &Path, gpu: bool) -> Result<Vec<Program>> {
    // Mutants are not debugged.
    let mut cargo = cargo("test --quiet --no-run --test=sim --config=profile.dev.debug=false");
    cargo.args(gpu.then_some("--test=gpu"));
    cargo.arg("--manifest-path").arg(tree.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(tree.with_file_name("build"));
    let built = Built::of(cargo.stderr(Stdio::inherit()))?;
    let mut programs = built.tests();
    programs.retain(|program| ["cuda-tests::sim", GPU].contains(&program.suite.as_str()));
    programs.sort_by_key(|program| program.suite == GPU);
    Ok(programs)
}

/// The suite for real GPUs; its tests' names end in their requirements.
const GPU: &str = "cuda-tests::gpu";

/// Runs all tests without a mutation. If they pass, returns those that only the suite for real GPUs has.
fn pass_unmutated(tree: &Path, mutations: &[Mutation]) -> Result<Option<HashSet<String>>> {
    let programs = build(tree, true).context("the unmutated workspace")?;
    let names = mutations.iter().flat_map(|mutation| &mutation.tests);
    let names: BTreeSet<&str> = names.map(String::as_str).collect();
    let (finished, of_gpu) = run_tests(&programs, names)?;
    let failed: Vec<_> = finished.iter().filter(|it| it.verdict != Verdict::Passed).collect();
    for Finished { name, verdict, .. } in &failed {
        println!("    {name} does not pass unmutated: {verdict:?}");
    }
    Ok(failed.is_empty().then_some(of_gpu))
}

/// Returns the tests that did not notice a mutation; [`None`] if it does not compile.
fn try_mutation(tree: &Path, mutation: &Mutation, gpu: bool) -> Result<Option<Vec<String>>> {
    let mut originals = Vec::new();
    for (file, mutant) in mutation.mutants(tree)? {
        let file = tree.join(file);
        originals.push((file.clone(), fs::read_to_string(&file)?));
        fs::write(file, mutant)?;
    }
    let names = mutation.tests.iter().map(String::as_str).collect();
    let finished = build(tree, gpu).ok().map(|programs| run_tests(&programs, names));
    for (file, original) in originals {
        fs::write(file, original)?;
    }
    let green = finished.transpose()?.map(|(finished, _)| {
        let green = finished.into_iter().filter(|test| !test.has_failed());
        green.map(|test| test.name).collect()
    });
    Ok(green)
}

/// Runs tests one after another, each in the first program that has it; returns an error if none has it. Also
/// returns the tests that only the suite for real GPUs has.
fn run_tests(
    programs: &[Program],
    mut left: BTreeSet<&str>,
) -> Result<(Vec<Finished>, HashSet<String>)> {
    let lazy = Setting { devices: 4, variant: Variant::Lazy };
    let mut invocation = lazy.invocation(&Target::Simulated { devices: 4, without_nvrtc: None })?;
    let settings = [
        ("CUDA_TESTS_WATCHDOG", WATCHDOG),
        ("CUDA_TESTS_ROTATION", "0"), // programs that are known to catch them
        ("RUST_BACKTRACE", "0"),
    ];
    invocation.environment.extend(settings.map(|(name, value)| (name, value.to_owned())));
    let (mut of_gpu, mut finished) = (HashSet::new(), Vec::new());
    for program in programs {
        let mut cases = program.list("")?;
        cases.retain(|case| left.remove(case.title.as_str()));
        if program.suite == GPU {
            of_gpu.extend(cases.iter().map(|case| case.title.clone()));
        }
        let names: Vec<_> = cases.iter().map(|case| case.name.as_str()).collect();
        finished.extend(program.run(&invocation, &names, &mut |_| {})?.finished);
    }
    if let Some(unknown) = left.first() {
        bail!("{}: there is no test {unknown}", mutation::FILE);
    }
    Ok((finished, of_gpu))
}
