//! Programs on the simulated driver: the examples of `cuda-core`, and `tests/interop`, in which Python
//! has cuda-core's guards among plain driver calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::Context;

use crate::cargo::Built;
use crate::process::{Record, python, succeeds};
use crate::suite::{Finished, Report, Run, Verdict};
use crate::workspace;

const EXAMPLES: &str = "cuda-core (examples)";
const INTEROP: &str = "tests/interop";

/// The exit code of an example on a machine that lacks what the example needs.
const COULD_NOT_RUN: i32 = 2;

/// Examples that run more than once: the arguments of each further run, and what it then prints.
const FURTHER_RUNS: [(&str, &str, &str); 4] = [
    ("distributed", "--threads 2 --compare", "all 2 ranks have the same weights"),
    ("distributed", "--threads 4", "all 4 ranks have the same weights"),
    ("distributed", "--threads 4 --kill 2@9 --limit 1", "3 ranks, from step 8"),
    ("distributed", "--threads 3 --kill 0@9 --limit 1", "2 ranks, from step 8"),
];

/// Runs each example with a name that contains `filter`; examples that report that they cannot run
/// are listed so.
pub(super) fn examples(
    filter: &str,
    devices: u32,
    built: &Built,
    report: &mut Report,
) -> anyhow::Result<()> {
    let is_example = |path: &Path| path.parent().is_some_and(|it| it.ends_with("examples"));
    let programs = built.programs();
    let examples = programs.filter(|(name, path)| is_example(path) && name.contains(filter));
    for (name, path) in BTreeMap::from_iter(examples) {
        let further = FURTHER_RUNS.iter().filter(|(it, ..)| *it == name);
        for (_, arguments, prints) in [(name, "", "")].iter().chain(further) {
            let mut command = Command::new(path);
            command.args(arguments.split_whitespace());
            let name = format!("{name} {arguments}");
            run(&mut command, devices, built, (EXAMPLES, name.trim_end()), prints, report)?;
        }
    }
    Ok(())
}

/// Runs the cases that need neither PyTorch nor CuPy.
pub(super) fn interop(filter: &str, built: &Built, report: &mut Report) -> anyhow::Result<()> {
    let name = "without_frameworks";
    if !name.contains(filter) {
        return Ok(());
    }
    let reason = "needs two GPUs: cargo xtask bundle DIR, then DIR/interop.sh";
    report.not_run(INTEROP, "nested with PyTorch and CuPy", reason);
    if !succeeds(python("--version")) {
        report.not_run(INTEROP, name, "there is no Python: PYTHON may name one");
        return Ok(());
    }
    let mut command = python("");
    command
        .arg(workspace::root()?.join("tests/interop/interop.py"))
        .args(["--without-frameworks", "--library"])
        .arg(built.library("cuda_interop")?);
    run(&mut command, 2, built, (INTEROP, name), "", report)
}

/// Runs a program, which must succeed, and print `prints`, without a violation of the driver's rules.
fn run(
    command: &mut Command,
    devices: u32,
    built: &Built,
    (suite, name): (&str, &str),
    prints: &str,
    report: &mut Report,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let record = Record::new("simulated");
    let output = command
        .env("CUDA_SYS_LIBRARY", built.library("cuda_sim")?)
        .env("CUDA_CORE_NCCL", built.library("cuda_sim")?)
        .env("CUDA_SIM_DEVICES", devices.to_string())
        .env("CUDA_SIM_REPORT", &record.0)
        .output()
        .with_context(|| name.to_owned())?;
    let (word, verdict) = verdict(suite, &output, &record.read(), prints);
    println!("{suite} {name} ... {word}");
    let finished = Finished { name: name.to_owned(), verdict, time: started.elapsed() };
    let row = report.row(&format!("{suite}, simulated"));
    row.add(suite, Run { finished: vec![finished], ..Run::default() });
    Ok(())
}

/// The result, in a word and for the report.
fn verdict(suite: &str, output: &Output, simulated: &str, prints: &str) -> (&'static str, Verdict) {
    let [printed, errors] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    let clean = simulated.lines().next().is_some_and(|it| it.contains("no violation"));
    match output.status.code() {
        Some(0) if clean && printed.contains(prints) => ("ok", Verdict::Passed),
        Some(COULD_NOT_RUN) if clean && suite == EXAMPLES => {
            let reason = format!("on the simulated driver {}", lacking(&errors));
            ("could not run", Verdict::Ignored(reason))
        }
        _ => {
            let text = format!("{}\n{printed}\n{errors}\n{simulated}", output.status);
            ("FAILED", Verdict::Failed(text))
        }
    }
}

/// The reason printed by an example that could not run.
fn lacking(errors: &str) -> &str {
    let said = errors.lines().last().unwrap_or_default();
    said.strip_prefix("could not run: ").unwrap_or(said)
}

#[cfg(test)]
mod tests {
    use super::lacking;

    #[test]
    fn the_reason_is_what_the_example_says() {
        let errors = "a warning\ncould not run: this example needs two GPUs\n";
        assert_eq!(lacking(errors), "this example needs two GPUs");
        assert_eq!(lacking(""), "");
    }
}
