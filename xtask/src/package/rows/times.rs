//! Times clean builds of these crates and of others, measured in the same way.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fs_err as fs;

use super::consume::third_party;
use crate::package::Workshop;
use crate::process::{last_lines, output};
use crate::refuse;
use crate::workspace::write;

/// Measured builds have two jobs, however many cores there are.
const BUILD: &str = "build --release --frozen --jobs=2";

/// The dependency that is built for comparison: a large crate that the lock file names.
const YARDSTICK: &str = "bindgen = { version = '0.73', default-features = false, features = ['runtime', 'prettyplease'] }";

pub(super) fn without_bindgen(workshop: &Workshop) -> anyhow::Result<String> {
    let (times, best) = measure(workshop, &own_dependency(workshop, false), 2)?;
    let (_, bindgen) = measure(workshop, YARDSTICK, 2)?;
    Ok(format!("{times}; {:.2} × bindgen's {bindgen:.1} s", best / bindgen))
}

pub(super) fn with_bindgen(workshop: &Workshop) -> anyhow::Result<String> {
    Ok(measure(workshop, &own_dependency(workshop, true), 1)?.0)
}

/// Measures cudarc like `cuda-core`: the driver API, loaded at run time. cudarc requires that a CUDA version
/// is selected.
pub(super) fn cudarc(workshop: &Workshop) -> anyhow::Result<String> {
    let dependency = "cudarc = { version = '=0.19.10', default-features = false, \
        features = ['std', 'driver', 'dynamic-loading', 'cuda-13000'] }";
    Ok(measure(workshop, dependency, 2)?.0)
}

/// Measures NVIDIA's cuda-core, which builds only with a whole toolkit, such as one that contains the file of
/// `--header`.
pub(super) fn nvidia(workshop: &Workshop) -> anyhow::Result<String> {
    let measured = measure(workshop, "cuda-core = '=0.4.0'", 1).map_err(|error| {
        let text = format!("{error:#}");
        // The message of its build script, rather than cargo's.
        let said = text.split_once("--- stderr").map_or(&*text, |(_, said)| said);
        let said: Vec<&str> = said.split_whitespace().collect();
        refuse(format!("it does not build here: {}", said.join(" ")))
    });
    Ok(measured?.0)
}

fn own_dependency(workshop: &Workshop, bindgen: bool) -> String {
    let path = workshop.source().join("cuda-core");
    format!("cuda-core = {{ path = '{}', default-features = {bindgen} }}", path.display())
}

/// Times clean release builds of an empty crate with this dependency, without downloads. Returns all times,
/// for the table, and the seconds of the fastest build.
fn measure(workshop: &Workshop, dependency: &str, times: usize) -> anyhow::Result<(String, f64)> {
    let probe = workshop.project("time-probe", "probe", &format!("{dependency}\n"))?;
    write(&probe.join("src/lib.rs"), "")?;
    output(&mut workshop.cargo(&probe, "fetch")).context("downloading")?;
    let crates = third_party(workshop, &probe)?.len();
    let header = workshop.newest_header().ok();
    let (mut runs, mut best) = (Vec::new(), f64::INFINITY);
    for _ in 0..times {
        let mut cargo = workshop.cargo(&probe, BUILD);
        cargo.env("CARGO_TARGET_DIR", workshop.directory("time-target")?);
        // A toolkit is present, so that bindgen is compiled and also runs.
        if let Some(include) = header.map(|header| &header.include) {
            cargo.env("CUDA_SYS_INCLUDE_DIR", include);
            cargo.env("CUDA_HOME", include.parent().unwrap_or(include));
        }
        let (start, before) = (Instant::now(), children_time());
        let built = cargo.output()?;
        let seconds = start.elapsed().as_secs_f64();
        let processor = before.zip(children_time()).map(|(before, now)| now - before);
        let errors = String::from_utf8_lossy(&built.stderr);
        ensure!(built.status.success(), "the build failed:\n{}", last_lines(&errors));
        best = best.min(seconds);
        // The sum over all cores; unknown except on Linux.
        let processor = processor.map(|it| format!(" ({:.1} s of processor)", it.as_secs_f64()));
        runs.push(format!("{seconds:.1} s{}", processor.unwrap_or_default()));
    }
    Ok((format!("{}; {crates} third-party crates", runs.join(", ")), best))
}

/// Returns the processor time of this process's ended children and their descendants.
fn children_time() -> Option<Duration> {
    in_children(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// Reads `cutime` and `cstime` from the text of `/proc/self/stat`.
fn in_children(stat: &str) -> Option<Duration> {
    // The second field is a name in parentheses, which may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(13).map(str::parse::<u64>);
    // The kernel counts time in hundredths of a second.
    Some(Duration::from_millis(10 * (times.next()?.ok()? + times.next()?.ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_children_is_in_fields_16_and_17() {
        let stat = "42 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 150 25 20 0 1";
        assert_eq!(in_children(stat), Some(Duration::from_millis(1750)));
        assert_eq!(in_children("42 (a) S 1"), None);
    }
}
