//! Packs the files that a machine without cargo needs.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use fs_err as fs;

use crate::cargo::{build, library_file};
use crate::table::Table;
use crate::test::programs;
use crate::{Outcome, cudarc, test_gpu, workspace};

/// The size limit: a bundle is copied to the machine with the GPUs, often over a slow connection.
const LIMIT: u64 = 60 << 20;

/// Files that are packed as they are in the workspace, where the scripts are executable.
const FILES: [&str; 7] = [
    "tests/interop/interop.py",
    "tests/interop/cases.sh",
    "tests/interop/ranks.sh",
    "tests/interop/slurm.sh",
    "xtask/bundle/interop.sh",
    "xtask/bundle/bench.sh",
    "xtask/bundle/run.sh",
];

/// Packs the files that a machine with GPUs and without cargo needs.
///
/// The GPU suites, the examples, the simulated driver, cuda-core as a library for Python, the bench of
/// cudarc where it can be built, and this program, which runs the suites, the demo and the benches. The
/// other machine must be x86-64 Linux with a C library at least as new as this machine's: `./run.sh` runs
/// the matrix and the examples, `./bench.sh` the bench, `./interop.sh` guards among those of PyTorch and
/// CuPy, `./ranks.sh` and `./slurm.sh` training by several processes, `./xtask` everything else.
#[derive(clap::Args)]
#[command(after_help = "Exit code: 0 packed, 1 it does not build or is over 60 MiB.")]
pub(crate) struct Args {
    /// Directory to write; files of an earlier bundle there are overwritten.
    directory: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let directory = &args.directory;
    fs::create_dir_all(directory)?;
    let mut sizes = Vec::new();
    let mut pack = |from: &Path, name: &str| -> anyhow::Result<()> {
        let to = directory.join(name);
        // The file of a running program cannot be overwritten, but it can be replaced.
        if to.exists() {
            fs::remove_file(&to)?;
        }
        sizes.push((name.to_owned(), fs::copy(from, &to)?));
        Ok(())
    };
    for program in build(&format!("{} --profile bundle", test_gpu::SUITES))?.tests() {
        pack(&program.path, test_gpu::file_name(&program.suite))?;
    }
    let built = build(
        "build -p xtask --features xtask/driver -p cuda-driver-sim-library -p cuda-interop --profile bundle",
    )?;
    for (name, path) in built.programs() {
        pack(path, name)?;
    }
    match cudarc::build() {
        Ok(path) => pack(&path, cudarc::PROGRAM)?,
        Err(why) => eprintln!("left out: {why}"),
    }
    fs::create_dir_all(directory.join("examples"))?;
    let examples = programs::examples_of(&build("build -p cuda-core --examples --profile bundle")?);
    for (name, path) in &examples {
        pack(path, &format!("examples/{name}"))?;
    }
    for library in ["cuda_sim", "cuda_interop"] {
        pack(built.library(library)?, &library_file(library))?;
    }
    let root = workspace::root()?;
    for file in FILES {
        pack(&root.join(file), file.rsplit('/').next().unwrap_or(file))?;
    }
    let mebibytes = |bytes: u64| format!("{:.2}", bytes as f64 / f64::from(1 << 20));
    let total = sizes.iter().map(|(_, size)| size).sum();
    let mut table = Table::new(["file", "MiB"]);
    for (name, size) in &sizes {
        table.row([name, &mebibytes(*size)]);
    }
    table.row(["total", &mebibytes(total)]);
    println!("{table}");
    ensure!(total <= LIMIT, "the bundle is over {} MiB", LIMIT >> 20);
    println!(
        "{}/run.sh runs the matrix and the examples, bench.sh measures, interop.sh nests guards with PyTorch \
         and CuPy, and ranks.sh and slurm.sh train by several processes",
        directory.display()
    );
    Ok(Outcome::Passed)
}
