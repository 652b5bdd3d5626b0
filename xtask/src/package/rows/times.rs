//! How long a clean build takes, for our crates and for others, measured the same way.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::consume::third_party;
use crate::package::build::{last_lines, output};
use crate::package::report::not_run;
use crate::package::workshop::{Target, Workshop};

/// Jobs of every measured build, however many cores there are.
const JOBS: &str = "--jobs=2";

/// What `cuda-core` without bindgen may take.
const LIMIT: Duration = Duration::from_secs(10);

pub(super) fn without_bindgen(workshop: &Workshop) -> anyhow::Result<String> {
    let time = measure(workshop, &ours(workshop, false), 3)?;
    ensure!(
        time.best < LIMIT,
        "{time}; the limit is {} s",
        LIMIT.as_secs()
    );
    Ok(time.to_string())
}

pub(super) fn with_bindgen(workshop: &Workshop) -> anyhow::Result<String> {
    let time = measure(workshop, &ours(workshop, true), 1)?;
    Ok(time.to_string())
}

pub(super) fn cudarc(workshop: &Workshop) -> anyhow::Result<String> {
    let manifest = "cudarc = { version = '=0.19.8', default-features = false, \
        features = ['std', 'driver', 'dynamic-loading', 'cuda-13000'] }";
    Ok(measure(workshop, manifest, 3)?.to_string())
}

pub(super) fn nvidia(workshop: &Workshop) -> anyhow::Result<String> {
    match measure(workshop, "cuda-core = '=0.4.0'", 1) {
        Ok(time) => Ok(time.to_string()),
        Err(error) => Err(not_run(format!("{error:#}"))),
    }
}

fn ours(workshop: &Workshop, bindgen: bool) -> String {
    let path = workshop.source().join("cuda-core");
    format!(
        "cuda-core = {{ path = '{}', default-features = {bindgen} }}",
        path.display()
    )
}

struct Time {
    best: Duration,
    all: Vec<Duration>,
    crates: usize,
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.1} s, {} third-party crates",
            self.best.as_secs_f32(),
            self.crates
        )?;
        if self.all.len() > 1 {
            let all: Vec<_> = self
                .all
                .iter()
                .map(|t| format!("{:.1}", t.as_secs_f32()))
                .collect();
            write!(f, " (of {})", all.join(", "))?;
        }
        Ok(())
    }
}

/// The wall-clock time of the best of `runs` clean release builds of an empty crate with this
/// dependency; downloading is not counted.
fn measure(workshop: &Workshop, dependency: &str, runs: usize) -> anyhow::Result<Time> {
    let probe = workshop.directory("time-probe")?;
    fs::create_dir_all(probe.join("src"))?;
    fs::write(probe.join("src/lib.rs"), "")?;
    fs::write(
        probe.join("Cargo.toml"),
        format!(
            "[package]\nname = 'probe'\nversion = '0.0.0'\nedition = '2024'\n\n[workspace]\n\n\
             [dependencies]\n{dependency}\n"
        ),
    )?;
    fs::copy(
        workshop.source().join("Cargo.lock"),
        probe.join("Cargo.lock"),
    )?;
    output(workshop.cargo(&probe, Target::Shared)?.arg("fetch")).context("downloading")?;
    let crates = third_party(workshop, &probe)?.len();
    let mut all = Vec::new();
    for _ in 0..runs {
        let mut cargo = workshop.cargo(&probe, Target::Fresh("time-target"))?;
        cargo.args(["build", "--release", "--frozen", JOBS]);
        if let Ok(header) = workshop.headers.newest() {
            // So that bindgen does not merely get compiled.
            cargo.env(
                "CUDA_SYS_INCLUDE_DIR",
                header.file.parent().unwrap_or(&header.file),
            );
        }
        let start = Instant::now();
        let built = cargo.output()?;
        all.push(start.elapsed());
        ensure!(
            built.status.success(),
            "the build failed:\n{}",
            last_lines(&String::from_utf8_lossy(&built.stderr))
        );
    }
    let best = all.iter().min().copied().context("no run")?;
    Ok(Time { best, all, crates })
}
