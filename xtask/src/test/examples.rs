//! The examples of `cuda-core` on the simulated driver.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, fs, process};

use anyhow::Context;

use super::report::Report;
use crate::suite::build::{self, Artifact};
use crate::suite::{Finished, Verdict};

const SUITE: &str = "cuda-core (examples)";

/// The exit code of an example on a machine that lacks what the example needs.
const COULD_NOT_RUN: i32 = 2;

/// Runs each example with a name that contains `filter`; examples that report that they cannot run
/// are listed so.
pub(super) fn run(
    filter: Option<&str>,
    devices: u32,
    built: &[Artifact],
    report: &mut Report,
) -> anyhow::Result<()> {
    let simulator = build::library(built, "cuda_sim")?;
    let mut examples: Vec<_> = built
        .iter()
        .filter_map(|artifact| match artifact {
            Artifact::Binary(name, path) => Some((name.as_str(), path.as_path())),
            _ => None,
        })
        .filter(|(_, path)| path.parent().is_some_and(|folder| folder.ends_with("examples")))
        .filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter)))
        .collect();
    if examples.is_empty() {
        return Ok(());
    }
    examples.sort_unstable();
    println!("\n== {SUITE}, simulated: {} examples", examples.len());
    let mut finished = Vec::new();
    for (name, path) in examples {
        let started = Instant::now();
        match example(path, &simulator, devices).with_context(|| name.to_owned())? {
            Ok(verdict) => {
                let passed = verdict == Verdict::Passed;
                println!("example {name} ... {}", if passed { "ok" } else { "FAILED" });
                finished.push(Finished { name: name.into(), verdict, time: started.elapsed() });
            }
            Err(reason) => {
                report.not_run(SUITE, name, &format!("on the simulated driver {reason}"))
            }
        }
    }
    report.suite(format!("{SUITE}, simulated"), finished, None);
    Ok(())
}

/// Runs one; the inner error is what the example says the machine lacks.
fn example(path: &Path, simulator: &Path, devices: u32) -> anyhow::Result<Result<Verdict, String>> {
    let said = env::temp_dir().join(format!("cuda-examples-{}.txt", process::id()));
    let output = Command::new(path)
        .env("CUDA_SYS_LIBRARY", simulator)
        .env("CUDA_SIM_DEVICES", devices.to_string())
        .env("CUDA_SIM_REPORT", &said)
        .stdin(Stdio::null())
        .output()?;
    let simulated = fs::read_to_string(&said).unwrap_or_default();
    // The file does not exist if the simulated driver wrote no report.
    let _ = fs::remove_file(&said);
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let clean = simulated.lines().next().is_some_and(|line| line.contains("no violation"));
    Ok(match output.status.code() {
        Some(0) if clean => Ok(Verdict::Passed),
        Some(COULD_NOT_RUN) if clean => Err(lacking(&errors).into()),
        _ => {
            let status = output.status;
            Ok(Verdict::Failed(format!("{status}\n{printed}\n{errors}\n{simulated}")))
        }
    })
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
