//! A header's row: the functions that it declares, the bound functions, and the results of the tests.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use fs_err as fs;

use super::{declared, fetch};
use crate::cargo::Built;
use crate::ci::named::word;
use crate::process::cargo;
use crate::suite;
use crate::suite::process::follow;

/// The build directory; one for all headers, so that bindgen is compiled once.
const TARGET: &str = "target/headers";

/// The arguments of the tests. With both libraries selected, each has the features that its own tests have;
/// `cuda-sys` alone would have its default features, which include the generator.
const CRATES: &str = "test --profile quick --no-fail-fast -p cuda-sys -p cuda-core";

/// The cells of a table for one header, and its errors, one line each.
type Row = (Vec<String>, Vec<String>);

/// Examines one header. `kinds` are arguments of cargo that select the tests of the two crates; `nccl` is the
/// directory of an `nccl.h` that is compared, too.
pub(super) fn examine(
    root: &Path,
    include: &Path,
    kinds: &str,
    nccl: Option<&Path>,
) -> anyhow::Result<Row> {
    let version = fetch::version(include)?;
    eprintln!("cuda.h {version}: building and testing");
    let declared = declared::functions(include)?;
    let bundled = functions(&root.join("cuda-sys/src/bindings/functions.rs"))?;
    let mut problems = Vec::new();
    let mut cells = vec![version, declared.len().to_string()];
    match bound(root, include) {
        Ok(bound) => {
            let known = &declared | &bundled;
            problems.extend((&known - &bound).iter().map(|it| format!("{it} is not bound")));
            let more = &bound - &known;
            problems
                .extend(more.iter().map(|it| format!("{it} is bound, but nothing declares it")));
            let completed = bound.difference(&declared).count();
            let [assertions, passed, not_run] = test(root, (include, nccl), kinds, &mut problems)?;
            let counts = [bound.len(), completed, assertions, passed, not_run];
            cells.extend(counts.map(|count| count.to_string()));
        }
        Err(error) => {
            problems.push(format!("{error:#}"));
            cells.resize(7, "-".to_owned());
        }
    }
    cells.push(if problems.is_empty() { "passed" } else { "FAILED" }.to_owned());
    Ok((cells, problems))
}

/// Returns the numbers of assertions in C, of tests that passed, and of tests that did not run.
fn test(
    root: &Path,
    (include, nccl): (&Path, Option<&Path>),
    kinds: &str,
    problems: &mut Vec<String>,
) -> anyhow::Result<[usize; 3]> {
    let mut assertions = None;
    let mut tests = suite::Row::new("cargo test");
    for (selection, what) in [
        (kinds, "the tests of cuda-sys and cuda-core"),
        ("-p cuda-tests --test abi -- --nocapture", "the comparison with C"),
        // Tests functions that older headers lack, on the simulated driver.
        ("-p cuda-tests --test one_interface", "what later drivers bring"),
    ] {
        let mut command = cargo_for(root, include, &format!("{CRATES} {selection}"));
        command.envs(nccl.map(|nccl| ("CUDA_TESTS_NCCL_INCLUDE", nccl)));
        let ended = follow(command, &mut |line| {
            let asserted = line.split_once("abi oracle: ");
            let count = asserted.and_then(|(_, it)| it.strip_suffix(" assertions passed"));
            let count = count.and_then(|it| it.parse().ok());
            assertions = assertions.or(count);
        })?;
        tests.add(what, ended.run);
    }
    for (test, output) in tests.failures() {
        eprintln!("{test}: {output}");
        problems.push(format!("{test} failed"));
    }
    if assertions.is_none() {
        problems.push("the C compiler was not asked".to_owned());
    }
    Ok([assertions.unwrap_or(0), tests.passed(), tests.left_out.len()])
}

/// Returns a cargo command that generates the bindings from this header and no other.
fn cargo_for(root: &Path, include: &Path, arguments: &str) -> Command {
    let mut cargo = cargo(arguments);
    cargo
        .current_dir(root)
        .env("CARGO_TARGET_DIR", TARGET)
        .env("CUDA_SYS_BINDINGS", "system")
        .env("CUDA_SYS_INCLUDE_DIR", include)
        .env_remove("CUDA_SYS_LINK");
    cargo
}

/// The names of the functions in the bindings that the build script generates.
fn bound(root: &Path, include: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut cargo = cargo_for(root, include, "build --profile quick -p cuda-sys");
    let built = Built::of(cargo.stderr(Stdio::inherit()))?;
    let script = built.script("cuda-sys")?;
    functions(&script.out_dir.join("bindings/functions.rs"))
}

/// The names of the functions that a file of bindings declares.
fn functions(file: &Path) -> anyhow::Result<BTreeSet<String>> {
    let text = fs::read_to_string(file)?;
    Ok(text.split("pub fn ").skip(1).map(|rest| word(rest).to_owned()).collect())
}
