//! One header: the functions it declares, those that are bound, and the results of the tests.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use fs_err as fs;

use super::{declared, fetch};
use crate::cargo::Built;
use crate::process::cargo;
use crate::suite;
use crate::suite::process::follow;

/// Where the crates are built; one for all headers, so that bindgen is compiled once.
const TARGET: &str = "target/headers";

/// With both libraries selected, each has the features that its own tests have; `cuda-sys` alone would
/// have its default ones, which include the generator.
const CRATES: &str = "test --no-fail-fast -p cuda-sys -p cuda-core";

/// The result for one header.
#[derive(Default)]
pub(super) struct Row {
    version: String,
    declared: usize,
    bound: usize,
    /// How many functions are bound although the header does not declare them.
    completed: usize,
    assertions: usize,
    passed: usize,
    not_run: usize,
    /// The errors, one line each.
    pub(super) problems: Vec<String>,
}

impl Row {
    /// `kinds` says which kinds of tests the two crates' own are.
    pub(super) fn build(root: &Path, include: &Path, kinds: &str) -> anyhow::Result<Self> {
        let version = fetch::version(include)?;
        eprintln!("cuda.h {version}: building and testing");
        let declared = declared::functions(include)?;
        let mut row = Self { version, declared: declared.len(), ..Self::default() };
        let bundled = root.join("cuda-sys/src/bindings/functions.rs");
        match bound(root, include) {
            Ok(bound) => row.compare(&declared, &bound, &functions(&bundled)?),
            Err(error) => {
                row.problems.push(format!("{error:#}"));
                return Ok(row);
            }
        }

        let mut assertions = None;
        let abi = "-p cuda-tests --test abi -- --nocapture";
        // Functions that older headers lack, with their own test, on the simulated driver.
        let newer = "-p cuda-tests --test one_interface";
        for (selection, what) in [
            (kinds, "the tests of cuda-sys and cuda-core"),
            (abi, "the comparison with C"),
            (newer, "what later drivers bring"),
        ] {
            let tests = cargo_for(root, include, &format!("{CRATES} {selection}"));
            let ended = follow(tests, &mut |line| {
                let asserted = line.split_once("abi oracle: ");
                let count = asserted.and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
                assertions = assertions.or(count);
            })?;
            let mut tests = suite::Row::new(what);
            tests.add(what, ended.into_run());
            for (test, output) in tests.failures() {
                eprintln!("{test}: {output}");
            }
            if tests.failed() > 0 {
                row.problems.push(format!("{what} failed"));
            }
            row.passed += tests.passed();
            row.not_run += tests.left_out.len();
        }
        match assertions {
            Some(assertions) => row.assertions = assertions,
            None => row.problems.push("the C compiler was not asked".to_owned()),
        }
        Ok(row)
    }

    /// Checks that the bound functions are exactly those that are declared or bundled.
    fn compare(
        &mut self,
        declared: &BTreeSet<String>,
        bound: &BTreeSet<String>,
        bundled: &BTreeSet<String>,
    ) {
        self.bound = bound.len();
        self.completed = bound.difference(declared).count();
        let known: BTreeSet<_> = declared.union(bundled).cloned().collect();
        let missing = known.difference(bound);
        let more = bound.difference(&known);
        let more = more.map(|name| format!("{name} is bound, but nothing declares it"));
        self.problems.extend(missing.map(|name| format!("{name} is not bound")));
        self.problems.extend(more);
    }

    pub(super) fn cells(&self) -> [String; 8] {
        let passed = self.problems.is_empty();
        [
            self.version.clone(),
            self.declared.to_string(),
            self.bound.to_string(),
            self.completed.to_string(),
            self.assertions.to_string(),
            self.passed.to_string(),
            self.not_run.to_string(),
            if passed { "passed" } else { "FAILED" }.to_owned(),
        ]
    }

    /// The errors.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let problems = self.problems.iter();
        problems.map(|problem| format!("{}: WRONG: {problem}", self.version))
    }
}

/// cargo, set up to generate the bindings from this header and no other.
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

/// Names of the functions in the bindings that the build script generates.
fn bound(root: &Path, include: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut cargo = cargo_for(root, include, "build -p cuda-sys");
    let built = Built::run(cargo.stderr(Stdio::inherit()))?.succeeded()?;
    let script = built.script("cuda-sys")?;
    functions(&script.out_dir.join("bindings/functions.rs"))
}

/// Names of the functions that a file of bindings declares.
fn functions(file: &Path) -> anyhow::Result<BTreeSet<String>> {
    let text = fs::read_to_string(file)?;
    let names = text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix("pub fn ")?;
        Some(rest.split('(').next()?.to_owned())
    });
    Ok(names.collect())
}
