//! NVIDIA's headers, fetched as Python wheels into `.cuda-headers/` and kept there.
//!
//! The wheels of all platforms contain the same `cuda.h`; it is never committed.

use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, ensure};
use fs_err as fs;

use crate::process::{python, run};
use crate::refuse;
use crate::workspace::empty;

/// The directory of the headers, below the workspace; ignored by git.
const CACHE: &str = ".cuda-headers";

/// The script is passed to Python as an argument, so that no file is needed beside this program.
const UNPACK: &str = include_str!("../../headers/unpack.py");

/// A release of CUDA, or of NCCL, with a header that can be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    /// `12.4`, or `13` for the newest release of that series.
    pub(crate) name: &'static str,
    /// The wheel and its accepted versions.
    requirement: &'static str,
    header: &'static str,
}

const fn release(name: &'static str, requirement: &'static str) -> Release {
    Release { name, requirement, header: "cuda.h" }
}

/// The oldest header, and the source of `cuda-sys/build/floor_11_8.txt`.
pub(crate) const FLOOR: Release = release("11.8", "nvidia-cuda-runtime-cu11==11.8.*");

/// The newest header, and the source of the checked-in bindings.
pub(crate) const NEWEST: Release = release("13", "nvidia-cuda-runtime>=13,<14");

/// The oldest and the newest header of NCCL, from wheels of 220 and 250 MB.
const NCCL: [Release; 2] = [
    Release { name: "nccl-2.18", requirement: "nvidia-nccl-cu12==2.18.*", header: "nccl.h" },
    Release { name: "nccl", requirement: "nvidia-nccl-cu13", header: "nccl.h" },
];

/// All headers to build with.
pub(crate) const RELEASES: [Release; 6] = [
    FLOOR,
    release("12.0", "nvidia-cuda-runtime-cu12==12.0.*"),
    release("12.4", "nvidia-cuda-runtime-cu12==12.4.*"),
    release("12.9", "nvidia-cuda-runtime-cu12==12.9.*"),
    release("13.0", "nvidia-cuda-runtime==13.0.*"),
    NEWEST,
];

/// Returns the directory of the release's header, which is fetched if absent; an error says why it cannot be
/// fetched.
pub(crate) fn include(root: &Path, release: Release) -> anyhow::Result<PathBuf> {
    let Release { name, header, .. } = release;
    let refused = |error| refuse(format!("{header} {name} could not be fetched: {error:#}"));
    fetched(root, release).map_err(refused)
}

/// Returns the directories of the oldest and the newest `nccl.h`, which are fetched only if `fetches`.
pub(crate) fn nccl(root: &Path, fetches: bool) -> anyhow::Result<[PathBuf; 2]> {
    let is_kept = |of: Release| find(&root.join(CACHE).join(of.name), of.header).is_some();
    let kept = NCCL.into_iter().all(is_kept);
    ensure!(fetches || kept, refuse("`cargo xtask headers` without --only fetches it (470 MB)"));
    let [oldest, newest] = NCCL;
    Ok([include(root, oldest)?, include(root, newest)?])
}

fn fetched(root: &Path, release: Release) -> anyhow::Result<PathBuf> {
    let Release { name, requirement, header } = release;
    let directory = root.join(CACHE).join(name);
    if let Some(include) = find(&directory, header) {
        return Ok(include);
    }
    eprintln!("fetching {header} {name} ({requirement})");
    // Unpacked in another folder and then moved as a whole, so that an interrupted fetch leaves no header.
    // Steps that run at the same time use folders of their own.
    let fresh = root.join(CACHE).join(format!("{name}.{}.part", process::id()));
    empty(&fresh)?;
    let mut pip = python(
        "-m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
         --platform manylinux2014_x86_64 --platform manylinux_2_18_x86_64",
    );
    run(pip.arg("--dest").arg(&fresh).arg(requirement))?;
    // Extracts the header and NVIDIA's licence, and removes the wheel.
    run(python("-c").arg(UNPACK).arg(&fresh))?;
    if let Some(include) = find(&directory, header) {
        fs::remove_dir_all(&fresh)?;
        return Ok(include);
    }
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::rename(&fresh, &directory)?;
    find(&directory, header).with_context(|| format!("{requirement} has no {header}"))
}

/// Returns the directory of the first such header below `directory`.
fn find(directory: &Path, header: &str) -> Option<PathBuf> {
    if directory.join(header).is_file() {
        return Some(directory.to_owned());
    }
    let mut entries = fs::read_dir(directory).ok()?.flatten();
    entries.find_map(|entry| find(&entry.path(), header))
}

/// Returns the release of a header: `12.4` for 12040.
pub(crate) fn version(include: &Path) -> anyhow::Result<String> {
    let version = cuda_version(&include.join("cuda.h"))?;
    Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
}

/// Returns the `CUDA_VERSION` of a header.
pub(crate) fn cuda_version(header: &Path) -> anyhow::Result<u32> {
    let text = fs::read_to_string(header)?;
    let number = |line: &str| line.strip_prefix("#define CUDA_VERSION ")?.trim().parse().ok();
    let version = text.lines().find_map(number);
    let version = version.with_context(|| format!("{}: no CUDA_VERSION", header.display()))?;
    ensure!(version >= 1000, "{}: CUDA_VERSION is {version}", header.display());
    Ok(version)
}
