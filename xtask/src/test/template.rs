//! Tests the crate that users copy, `docs/template`, as a cargo project of its own on the simulated driver.

use anyhow::Context;
use fs_err as fs;
use std::path::Path;

use crate::cargo::Built;
use crate::process::{Record, cargo};
use crate::suite::{Finished, Report, Run};
use crate::workspace;

const NAME: &str = "docs/template";

/// The library in the template's `.cargo/config.toml`.
const LIBRARY: &str = "../../target/debug/libcuda_sim.so";

/// Copies the template, sets its paths as a user does, and runs its tests, offline. Only `.cargo/config.toml`
/// names the driver: the simulator's report shows that it was loaded.
pub(super) fn run(filter: &str, built: &Built, report: &mut Report) -> anyhow::Result<()> {
    if !NAME.contains(filter) {
        return Ok(());
    }
    let (root, library) = (workspace::root()?, built.library("cuda_sim")?);
    let folder = library.with_file_name("template");
    let copy = folder.join("crate");
    copy_template(&root, library, &copy).context(NAME)?;
    let record = Record::new("template");
    let mut command = cargo("test --offline --no-fail-fast");
    command
        .current_dir(&copy)
        .env_remove("CUDA_SYS_LIBRARY")
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("CUDA_SIM_REPORT", &record.0);
    let mut run = super::follow_as_a_whole(NAME, command)?.run;
    if run.complaint.is_none() && !run.finished.iter().any(Finished::has_failed) {
        run.complaint = complaint(&run, &record.read());
    }
    report.row(NAME).add(NAME, run);
    Ok(())
}

/// Returns an error that occurred although no test failed.
fn complaint(run: &Run, simulated: &str) -> Option<String> {
    match simulated.lines().next() {
        _ if run.finished.is_empty() => Some("no test ran".to_owned()),
        None => Some(".cargo/config.toml did not lead to the simulated driver".to_owned()),
        Some(line) if !line.contains("no violation") => Some(simulated.to_owned()),
        Some(_) => None,
    }
}

fn copy_template(root: &Path, library: &Path, copy: &Path) -> anyhow::Result<()> {
    workspace::mirror(&root.join(NAME), copy)?;
    // The same versions, so that nothing must be downloaded.
    fs::copy(root.join("Cargo.lock"), copy.join("Cargo.lock"))?;
    let (from, to) = (format!("{LIBRARY:?}"), format!("{library:?}"));
    workspace::replace(&copy.join(".cargo/config.toml"), &from, &to)?;
    for path in ["cuda-core", "tests/driver-sim"] {
        let here = format!("{:?}", root.join(path));
        workspace::replace(&copy.join("Cargo.toml"), &format!("\"../../{path}\""), &here)?;
    }
    Ok(())
}
