//! One header: the functions it declares, those that are bound, and the results of the tests.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::{declared, fetch};
use crate::suite::build::cargo;

/// Where the crates are built; one for all headers, so that bindgen is compiled once.
const TARGET: &str = "target/headers";

/// The result for one header.
pub(super) struct Row {
    version: String,
    declared: usize,
    bound: usize,
    /// How many functions are bound although the header does not declare them.
    completed: usize,
    assertions: usize,
    tests: Tests,
    /// The errors, one line each.
    pub(super) problems: Vec<String>,
}

#[derive(Default)]
struct Tests {
    passed: usize,
    failed: usize,
    ignored: usize,
}

impl Row {
    /// `kinds` says which kinds of tests the two crates' own are.
    pub(super) fn build(root: &Path, include: &Path, kinds: &[&str]) -> anyhow::Result<Self> {
        let version = fetch::version(include)?;
        eprintln!("cuda.h {version}: building and testing");
        let declared = declared::functions(include)?;
        let mut row = Self {
            version,
            declared: declared.len(),
            bound: 0,
            completed: 0,
            assertions: 0,
            tests: Tests::default(),
            problems: Vec::new(),
        };
        let bundled = root.join("cuda-sys/src/bindings/functions.rs");
        match bound(root, include) {
            Ok(bound) => row.compare(&declared, &bound, &functions(&bundled)?),
            Err(error) => {
                row.problems.push(format!("{error:#}"));
                return Ok(row);
            }
        }

        let crates = [&["-p", "cuda-sys", "-p", "cuda-core"], kinds].concat();
        let crates = test(root, include, &crates)?;
        row.count(&crates, "the tests of cuda-sys and cuda-core");
        // Selecting cuda-sys enables its default features, which include the generator. With
        // cuda-core selected too, both crates have the features of the tests above.
        let oracle = [
            "-p",
            "cuda-sys",
            "-p",
            "cuda-core",
            "-p",
            "cuda-tests",
            "--test",
            "abi",
            "--",
            "--nocapture",
        ];
        let oracle = test(root, include, &oracle)?;
        row.count(&oracle, "the comparison with C");
        let assertions = oracle.text.lines().find_map(|line| {
            let count = line.split_once("abi oracle: ")?.1.strip_suffix(" assertions passed")?;
            count.parse().ok()
        });
        match assertions {
            Some(assertions) => row.assertions = assertions,
            None => row.problems.push("the C compiler was not asked".to_owned()),
        }

        // Functions that older headers lack, with their own test, on the simulated driver.
        let newer =
            ["-p", "cuda-sys", "-p", "cuda-core", "-p", "cuda-tests", "--test", "one_interface"];
        let newer = test(root, include, &newer)?;
        row.count(&newer, "what later drivers bring");
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
        for name in declared.union(bundled).filter(|name| !bound.contains(*name)) {
            self.problems.push(format!("{name} is not bound"));
        }
        for name in bound {
            if !declared.contains(name) && !bundled.contains(name) {
                self.problems.push(format!("{name} is bound, but nothing declares it"));
            }
        }
    }

    fn count(&mut self, run: &Run, what: &str) {
        for line in run.text.lines() {
            let Some(rest) = line.strip_prefix("test result: ") else {
                continue;
            };
            let number = |word: &str| -> usize {
                rest.split(['.', ';'])
                    .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
                    .unwrap_or(0)
            };
            self.tests.passed += number("passed");
            self.tests.failed += number("failed");
            self.tests.ignored += number("ignored");
        }
        if !run.success {
            self.problems.push(format!("{what} failed"));
        }
    }

    pub(super) fn cells(&self) -> [String; 8] {
        [
            self.version.clone(),
            self.declared.to_string(),
            self.bound.to_string(),
            self.completed.to_string(),
            self.assertions.to_string(),
            self.tests.passed.to_string(),
            self.tests.ignored.to_string(),
            if self.problems.is_empty() { "passed" } else { "FAILED" }.to_owned(),
        ]
    }

    /// The errors.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let problems = self.problems.iter();
        problems.map(|problem| format!("{}: WRONG: {problem}", self.version))
    }
}

/// cargo, set up to generate the bindings from this header and no other.
fn cargo_for(root: &Path, include: &Path) -> Command {
    let mut cargo = cargo();
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
    #[derive(Deserialize)]
    struct Message {
        reason: String,
        package_id: Option<String>,
        out_dir: Option<PathBuf>,
    }

    let output = cargo_for(root, include)
        .args(["build", "-p", "cuda-sys", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo build")?;
    ensure!(output.status.success(), "cuda-sys does not build: {}", output.status);
    let out_dir = String::from_utf8(output.stdout)?
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter(|message| message.reason == "build-script-executed")
        .filter(|message| message.package_id.as_ref().is_some_and(|id| id.contains("/cuda-sys#")))
        .find_map(|message| message.out_dir)
        .context("cargo does not say where the bindings are")?;
    functions(&out_dir.join("bindings/functions.rs"))
}

/// Names of the functions that a file of bindings declares.
fn functions(file: &Path) -> anyhow::Result<BTreeSet<String>> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    Ok(text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("pub fn ")?.split('(').next())
        .map(str::to_owned)
        .collect())
}

struct Run {
    success: bool,
    text: String,
}

fn test(root: &Path, include: &Path, arguments: &[&str]) -> anyhow::Result<Run> {
    let output = cargo_for(root, include)
        .args([OsStr::new("test"), OsStr::new("--quiet"), OsStr::new("--no-fail-fast")])
        .args(arguments)
        .output()
        .context("cargo test")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let success = output.status.success();
    if !success {
        eprintln!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(Run { success, text })
}
