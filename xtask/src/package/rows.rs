//! The rows, in the order in which they run.

use super::workshop::Workshop;

mod consume;
mod link;
mod neighbours;
mod publish;
mod targets;
mod times;
mod toolkit;

/// A way to use the crates.
pub(super) struct Row {
    /// The name for `--only`.
    pub(super) name: &'static str,
    /// What is asserted.
    pub(super) about: &'static str,
    /// Runs the row and returns what it found.
    pub(super) run: fn(&Workshop) -> anyhow::Result<String>,
}

const fn row(
    name: &'static str,
    about: &'static str,
    run: fn(&Workshop) -> anyhow::Result<String>,
) -> Row {
    Row { name, about, run }
}

/// All rows. Those named `peer-…` run on request only.
pub(super) const ALL: [Row; 23] = [
    row("no-toolkit", "bundled bindings, no warning", toolkit::none),
    row("no-libclang", "a toolkit, no libclang: bundled, one warning", toolkit::no_libclang),
    row("system-no-toolkit", "`system` without a toolkit fails and says why", toolkit::required),
    row("pip", "a toolkit in pip's layouts", toolkit::pip),
    row("debian", "a toolkit in Debian's layout: nvcc on PATH", toolkit::debian),
    row("debian-customary", "cuda.h in /usr/include itself", toolkit::debian_customary),
    row("conda", "a toolkit in conda's layout", toolkit::conda),
    row("targets", "a toolkit with targets/<arch>-linux", toolkit::targets),
    row(
        "no-default-features",
        "one third-party crate each, a header ignored",
        consume::no_default_features,
    ),
    row("path", "a consumer by path", consume::path),
    row("git", "a consumer by git URL", consume::git),
    row("vendor", "a vendored consumer, offline, features off", consume::vendor),
    row("package", "`cargo package`, and a consumer of the packages", publish::package),
    row("neighbour", "beside a package that links `cuda`", neighbours::links),
    row("watched", "what runs the build script again", neighbours::watched),
    row("linked", "CUDA_SYS_LINK=1 against a libcuda of CUDA 11.8", link::linked),
    row(
        "no-build-script",
        "a `links` override, and no build scripts at all",
        link::without_scripts,
    ),
    row("aarch64-linux", "checks for aarch64-unknown-linux-gnu", targets::aarch64_linux),
    row("windows", "checks for x86_64-pc-windows-gnu", targets::windows),
    row("time", "clean release build, features off, 2 cores: < 10 s", times::without_bindgen),
    row("time-bindgen", "clean release build, default features, 2 cores", times::with_bindgen),
    row("peer-cudarc", "the same build of cudarc", times::cudarc),
    row("peer-nvidia", "the same build of NVIDIA's cuda-core", times::nvidia),
];
