//! Runs the examples of `cuda-core`, on the simulated driver and on GPUs. On the simulated driver, also runs
//! `tests/interop`, in which Python mixes cuda-core's guards with plain driver calls.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::cargo::Built;
use crate::process::{Record, follow, python, succeeds};
use crate::suite::{Finished, Report, Row, Run, Verdict};
use crate::workspace;

const EXAMPLES: &str = "cuda-core (examples)";
const INTEROP: &str = "tests/interop";

/// The exit code of an example on a machine that lacks what the example needs.
const COULD_NOT_RUN: i32 = 2;

/// The time limit of an example on a GPU; examples take some seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// The prefix of a line with the name of a part that an example leaves out, and the reason.
const LEFT_OUT: &str = "not run: ";

/// Additional runs of examples: the arguments, and a text that the example must then print.
const FURTHER_RUNS: [(&str, &str, &str); 4] = [
    ("distributed", "--threads 2 --compare", "all 2 ranks have the same weights"),
    ("distributed", "--threads 4", "all 4 ranks have the same weights"),
    ("distributed", "--threads 4 --kill 2@9 --limit 2", "3 ranks, from step 8"),
    ("distributed", "--threads 3 --kill 0@9 --limit 2", "2 ranks, from step 8"),
];

/// Runs each example with a name that contains `filter`. Examples that report that they cannot run are listed
/// as not run.
pub(super) fn examples(
    filter: &str,
    devices: u32,
    built: &Built,
    report: &mut Report,
) -> anyhow::Result<()> {
    for (name, path) in examples_of(built).iter().filter(|(name, _)| name.contains(filter)) {
        let further = FURTHER_RUNS.iter().filter(|(it, ..)| *it == name);
        for (_, arguments, prints) in [(&**name, "", "")].iter().chain(further) {
            let mut command = Command::new(path);
            command.args(arguments.split_whitespace());
            let name = format!("{name} {arguments}");
            run(&mut command, devices, built, (EXAMPLES, name.trim_end()), prints, report)?;
        }
    }
    Ok(())
}

/// Returns the names and paths of the examples among the programs that cargo built.
pub(crate) fn examples_of(built: &Built) -> BTreeMap<String, PathBuf> {
    let is_example = |path: &Path| path.parent().is_some_and(|it| it.ends_with("examples"));
    let examples = built.programs().filter(|(_, path)| is_example(path));
    examples.map(|(name, path)| (name.to_owned(), path.to_owned())).collect()
}

/// Runs each example with a name that contains `filter` on the visible GPUs. `device_runtime` is the
/// toolkit's archive, for the example that links with it.
pub(crate) fn on_gpus(
    examples: &BTreeMap<String, PathBuf>,
    filter: &str,
    device_runtime: Option<&str>,
    row: &mut Row,
) {
    for (name, path) in examples.iter().filter(|(name, _)| name.contains(filter)) {
        let started = Instant::now();
        let mut command = Command::new(path);
        command.args(device_runtime.filter(|_| name == "graphs"));
        let mut printed = String::new();
        let take = |line: &str| printed.extend([line, "\n"]);
        let ended = follow(command, PATIENCE, take, |lines| lines.collect::<Vec<_>>().join("\n"));
        let (word, verdict) = match ended {
            Ok((status, errors)) => verdict(EXAMPLES, status, [&printed, &errors], None, ""),
            Err(why) => ("FAILED", Verdict::Failed(format!("{why:#}\n{printed}"))),
        };
        // Standard output may be reserved for the report.
        eprintln!("{EXAMPLES} {name} ... {word}");
        add(row, (EXAMPLES, name), &printed, verdict, started);
    }
}

/// Runs the interop cases that need neither PyTorch nor CuPy.
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

/// Runs a program, which must succeed and print `prints`, without a violation of the driver's rules.
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
    let [printed, errors] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    let texts = [&*printed, &*errors];
    let (word, verdict) = verdict(suite, output.status, texts, Some(&record.read()), prints);
    println!("{suite} {name} ... {word}");
    let row = report.row(&format!("{suite}, simulated"));
    add(row, (suite, name), &printed, verdict, started);
    Ok(())
}

/// Adds the result, and the parts that the program reports as left out.
fn add(
    row: &mut Row,
    (suite, name): (&str, &str),
    printed: &str,
    verdict: Verdict,
    started: Instant,
) {
    for said in printed.lines() {
        if let Some((part, why)) = said.strip_prefix(LEFT_OUT).and_then(|it| it.split_once(": ")) {
            row.leave_out(suite, &format!("{name}, {part}"), why);
        }
    }
    let finished = Finished { name: name.to_owned(), verdict, time: started.elapsed() };
    row.add(suite, Run { finished: vec![finished], ..Run::default() });
}

/// Returns the result, as a word and for the report. `simulated` is the simulated driver's report, if that
/// driver ran.
fn verdict(
    suite: &str,
    status: ExitStatus,
    [printed, errors]: [&str; 2],
    simulated: Option<&str>,
    prints: &str,
) -> (&'static str, Verdict) {
    let found_none = |it: &str| it.lines().next().is_some_and(|it| it.contains("no violation"));
    let clean = simulated.is_none_or(found_none);
    match status.code() {
        Some(0) if clean && printed.contains(prints) => ("ok", Verdict::Passed),
        Some(COULD_NOT_RUN) if clean && suite == EXAMPLES => {
            let place = if simulated.is_some() { "on the simulated driver " } else { "" };
            let reason = format!("{place}{}", lacking(errors));
            ("could not run", Verdict::Ignored(reason))
        }
        _ => {
            let simulated = simulated.unwrap_or_default();
            ("FAILED", Verdict::Failed(format!("{status}\n{printed}\n{errors}\n{simulated}")))
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
    use std::env;

    use fs_err as fs;

    use super::*;

    #[test]
    fn the_reason_is_what_the_example_says() {
        let errors = "a warning\ncould not run: this example needs two GPUs\n";
        assert_eq!(lacking(errors), "this example needs two GPUs");
        assert_eq!(lacking(""), "");
    }

    #[cfg(unix)]
    #[test]
    fn on_gpus_each_example_says_what_it_left_out() {
        let folder = env::temp_dir().join(format!("examples-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // A process of its own writes the file. Otherwise a process that another test starts meanwhile could
        // hold the file open for writing, and it could not be run.
        let write = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1""#;
        let program = |name: &str, script: &str| {
            let path = folder.join(name);
            let mut shell = Command::new("sh");
            shell.args(["-c", write, "sh"]).arg(&path).arg(script);
            assert!(succeeds(shell));
            (name.to_owned(), path)
        };
        let examples = BTreeMap::from([
            program("fails", "echo half; exit 1"),
            program("graphs", "test $1 = archive && echo not run: a loop: needs NVRTC"),
            program("lacks", "echo could not run: this example needs two GPUs >&2; exit 2"),
        ]);
        let mut row = Row::new("examples");
        on_gpus(&examples, "", Some("archive"), &mut row);
        fs::remove_dir_all(&folder).unwrap();
        let failed: Vec<_> = row.failures().map(|(name, _)| name).collect();
        assert_eq!((row.passed(), failed), (1, vec!["examples: fails".to_owned()]));
        let left_out = row.left_out.iter().map(|it| (&*it.test, &*it.reason));
        let expected =
            [("graphs, a loop", "needs NVRTC"), ("lacks", "this example needs two GPUs")];
        assert!(left_out.eq(expected), "{:?}", row.left_out);
    }
}
