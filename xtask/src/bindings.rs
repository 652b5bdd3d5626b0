//! Regenerates the checked-in bindings, and compares them with what the headers yield.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::headers::{declared, fetch};
use crate::process::{self, cargo, command};
use crate::workspace::{self, empty};
use crate::{Outcome, refuse};

/// The functions that CUDA 11.8 has, one a line.
const FLOOR: &str = include_str!("../../cuda-sys/build/floor_11_8.txt");

/// Symbols that first appeared after the floor's header and that the newest no longer declares.
const DROPPED: [&str; 3] = ["cuGraphAddNode", "cuMemcpy3DBatchAsync", "cuMemcpyBatchAsync"];

/// The checked-in bindings, below the workspace.
const BINDINGS: &str = "cuda-sys/src/bindings";

/// Where `check` has the bindings written to, below the workspace.
const FRESH: &str = "target/bindings";

/// Regenerates the checked-in bindings from the newest cuda.h.
///
/// pip fetches the header into `.cuda-headers/`, where it is kept. Needs libclang.
#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0 done, or nothing differs, 1 something differs, 2 no header or no libclang."
)]
pub(crate) struct Args {
    /// Writes nothing, and fails if the checked-in bindings, or the list of CUDA 11.8's functions,
    /// differ from what bindgen makes of the headers.
    #[arg(long)]
    check: bool,
    /// The directory of another cuda.h to use.
    #[arg(long, value_name = "DIR")]
    header: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let root = workspace::root()?;
    require_libclang()?;
    let include = include(&root, args.header.as_deref())?;
    let version = fetch::version(&include)?;
    if args.check {
        return check(&root, &include, &version);
    }
    let directory = root.join(BINDINGS);
    generate(&root, &include, &directory)?;
    println!("{} is of CUDA {version}", directory.display());
    Ok(Outcome::Passed)
}

/// Refuses to go on without libclang.
pub(crate) fn require_libclang() -> anyhow::Result<()> {
    let loaded = recipe().stderr(Stdio::null()).status()?;
    let help = "bindgen finds no libclang: apt install libclang-dev, or set LIBCLANG_PATH";
    if loaded.code() == Some(2) { Err(refuse(help)) } else { Ok(()) }
}

/// Returns a command for the generator.
fn recipe() -> Command {
    cargo("run --quiet --package=xtask-bindgen --features=bindgen --")
}

/// Compares the bindings of the header with the checked-in ones.
fn check(root: &Path, include: &Path, version: &str) -> anyhow::Result<Outcome> {
    let fresh = root.join(FRESH);
    empty(&fresh)?;
    generate(root, include, &fresh)?;
    let mut compare = command("git --no-pager diff --no-index --stat");
    compare.args([&root.join(BINDINGS), &fresh]);
    let same = compare.status()?.success();
    if !same {
        println!("the bindings are not what cuda.h {version} yields: cargo xtask bindings");
    }
    let is_right = is_floor(&fetch::include(root, fetch::FLOOR)?)? && same;
    if is_right {
        println!("the bindings are what cuda.h {version} yields, the floor is that of 11.8");
    }
    Ok(Outcome::of(is_right))
}

/// Writes the bindings of the header, with every symbol that an older header has declared, to
/// `directory`.
fn generate(root: &Path, include: &Path, directory: &Path) -> anyhow::Result<()> {
    let mut recipe = recipe();
    recipe.args([include, &root.join("cuda-sys"), directory]);
    process::run(recipe.args(DROPPED).current_dir(root))
}

/// The header's directory that was passed, or the newest header's.
fn include(root: &Path, header: Option<&Path>) -> anyhow::Result<PathBuf> {
    match header {
        Some(include) if include.join("cuda.h").is_file() => Ok(include.to_owned()),
        Some(include) => Err(refuse(format!("no cuda.h in {}", include.display()))),
        None => fetch::include(root, fetch::NEWEST),
    }
}

/// Whether the list of the floor's functions is that of its header; prints how they differ.
fn is_floor(include: &Path) -> anyhow::Result<bool> {
    let declared = declared::functions(include)?;
    let listed: BTreeSet<String> = FLOOR.lines().map(str::to_owned).collect();
    let [missing, more] =
        [&declared - &listed, &listed - &declared].map(|names| Vec::from_iter(names).join(" "));
    if declared != listed {
        println!(
            "cuda-sys/build/floor_11_8.txt is not what cuda.h 11.8 declares; missing: [{missing}]; \
             too many: [{more}]"
        );
    }
    Ok(declared == listed)
}
