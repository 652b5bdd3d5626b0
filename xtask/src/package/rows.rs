//! The rows, in the order in which they run.

use super::workshop::Workshop;

mod consume;
mod elsewhere;
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
    /// What the row asserts.
    pub(super) about: &'static str,
    /// Runs the row and returns its findings.
    pub(super) run: fn(&Workshop) -> anyhow::Result<String>,
}

macro_rules! rows {
    ($($name:literal: $run:path, $about:literal;)*) => {
        [$(Row { name: $name, about: $about, run: $run }),*]
    };
}

/// All rows. Those named `peer-…` run on request only.
pub(super) static ALL: [Row; 25] = rows! {
    "no-toolkit": toolkit::none, "bundled bindings, no warning";
    "no-libclang": toolkit::no_libclang, "a toolkit, no libclang: bundled, one warning";
    "system-no-toolkit": toolkit::required, "`system` without a toolkit fails and says why";
    "pip": toolkit::pip, "a toolkit in pip's layouts";
    "debian": toolkit::debian, "a toolkit in Debian's layout: nvcc on PATH";
    "debian-customary": toolkit::debian_customary, "cuda.h in /usr/include itself";
    "conda": toolkit::conda, "a toolkit in conda's layout";
    "targets": toolkit::targets, "a toolkit with targets/<arch>-linux";
    "no-default-features": consume::no_default_features, "one third-party crate each, a header ignored";
    "path": consume::path, "a consumer by path";
    "git": consume::git, "a consumer by git URL";
    "vendor": consume::vendor, "a vendored consumer, offline, features off";
    "package": publish::package, "`cargo package`, and a consumer of the packages";
    "neighbour": neighbours::links, "beside a package that links `cuda`";
    "watched": neighbours::watched, "what runs the build script again";
    "linked": link::linked, "CUDA_SYS_LINK=1 against a libcuda of CUDA 11.8";
    "no-build-script": link::without_scripts, "a `links` override, and no build scripts at all";
    "aarch64-linux": targets::aarch64_linux, "checks for aarch64-unknown-linux-gnu";
    "windows": targets::windows, "checks for x86_64-pc-windows-gnu";
    "run-aarch64-linux": elsewhere::aarch64_linux, "the simulator and its tests on aarch64, by qemu";
    "run-windows": elsewhere::windows, "the simulator and its tests on Windows, by wine";
    "time": times::without_bindgen, "clean release build, features off, beside one of bindgen";
    "time-bindgen": times::with_bindgen, "clean release build, default features, 2 cores";
    "peer-cudarc": times::cudarc, "the same build of cudarc";
    "peer-nvidia": times::nvidia, "the same build of NVIDIA's cuda-core";
};
