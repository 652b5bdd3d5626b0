//! NVIDIA's headers, fetched as Python wheels into `.cuda-headers/`, where they are kept.
//!
//! A `cuda.h` is the same in the wheels of all platforms; it is never committed.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::python::python;

/// Below the workspace; ignored by git.
const CACHE: &str = ".cuda-headers";

/// A release of CUDA with a header that can be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    /// `12.4`, or `13` for the newest of that series.
    pub(crate) name: &'static str,
    /// The wheel, and the versions of it that are accepted.
    requirement: &'static str,
}

/// The oldest header, and the source of `cuda-sys/build/floor_11_8.txt`.
pub(crate) const FLOOR: Release =
    Release { name: "11.8", requirement: "nvidia-cuda-runtime-cu11==11.8.*" };

/// The newest header, and the source of the checked-in bindings.
pub(crate) const NEWEST: Release =
    Release { name: "13", requirement: "nvidia-cuda-runtime>=13,<14" };

/// All headers to build with.
pub(crate) const RELEASES: [Release; 6] = [
    FLOOR,
    Release { name: "12.0", requirement: "nvidia-cuda-runtime-cu12==12.0.*" },
    Release { name: "12.4", requirement: "nvidia-cuda-runtime-cu12==12.4.*" },
    Release { name: "12.9", requirement: "nvidia-cuda-runtime-cu12==12.9.*" },
    Release { name: "13.0", requirement: "nvidia-cuda-runtime==13.0.*" },
    NEWEST,
];

/// The directory of the release's `cuda.h`, which is fetched if it is absent.
pub(crate) fn include(root: &Path, release: Release) -> anyhow::Result<PathBuf> {
    let directory = root.join(CACHE).join(release.name);
    if let Some(include) = find(&directory) {
        return Ok(include);
    }
    eprintln!("fetching cuda.h {} ({})", release.name, release.requirement);
    // Unpacked elsewhere and then moved as a whole: an interrupted fetch leaves no header.
    let fresh = root.join(CACHE).join(format!("{}.part", release.name));
    if fresh.exists() {
        fs::remove_dir_all(&fresh).with_context(|| fresh.display().to_string())?;
    }
    fs::create_dir_all(&fresh).with_context(|| fresh.display().to_string())?;
    download(release, &fresh)?;
    unpack(&fresh)?;
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    fs::rename(&fresh, &directory).with_context(|| directory.display().to_string())?;
    find(&directory).with_context(|| format!("the wheel of CUDA {} has no cuda.h", release.name))
}

fn download(release: Release, directory: &Path) -> anyhow::Result<()> {
    let mut pip = python();
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"])
        .args(["--no-deps", "--only-binary", ":all:", "--platform", "manylinux2014_x86_64"])
        .arg("--dest")
        .arg(directory)
        .arg(release.requirement);
    run(&mut pip)
}

/// Extracts the header, and NVIDIA's licence, from the wheel.
fn unpack(directory: &Path) -> anyhow::Result<()> {
    let wheel = fs::read_dir(directory)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension() == Some(OsStr::new("whl")))
        .context("pip downloaded no wheel")?;
    let script = "import sys, zipfile\n\
                  wheel = zipfile.ZipFile(sys.argv[1])\n\
                  names = [n for n in wheel.namelist() if n.endswith(('/cuda.h', 'License.txt'))]\n\
                  wheel.extractall(sys.argv[2], names)\n";
    run(python().args(["-c", script]).arg(&wheel).arg(directory))?;
    fs::remove_file(&wheel).with_context(|| wheel.display().to_string())
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| {
        format!("{} is needed to fetch headers", command.get_program().to_string_lossy())
    })?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// The directory of the first `cuda.h` below `directory`.
fn find(directory: &Path) -> Option<PathBuf> {
    if directory.join("cuda.h").is_file() {
        return Some(directory.to_owned());
    }
    let entries = fs::read_dir(directory).ok()?;
    entries.flatten().filter(|entry| entry.path().is_dir()).find_map(|entry| find(&entry.path()))
}

/// `12.4` for a header with 12040.
pub(crate) fn version(include: &Path) -> anyhow::Result<String> {
    let header = include.join("cuda.h");
    let text = fs::read_to_string(&header).with_context(|| header.display().to_string())?;
    let version: Option<u32> = text
        .lines()
        .find_map(|line| line.strip_prefix("#define CUDA_VERSION ")?.trim().parse().ok());
    let version = version.with_context(|| format!("{}: no CUDA_VERSION", header.display()))?;
    ensure!(version >= 1000, "{}: CUDA_VERSION is {version}", header.display());
    Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
}
