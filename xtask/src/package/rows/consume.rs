//! Consumers that get the crates in each of the ways that cargo offers.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use crate::cargo::Built;
use crate::package::consumer::{CONFIG, expect, warnings};
use crate::package::{Consumer, Crates, Features, Source, Workshop};
use crate::process::output;
use crate::workspace::write;

/// The greatest number of third-party crates that either choice of crates compiles without bindgen: libc.
const MOST: usize = 1;

pub(super) fn no_default_features(workshop: &Workshop) -> Result<String> {
    let mut counts = Vec::new();
    for crates in [Crates::Sys, Crates::Core] {
        let consumer = workshop.consumer("plain-consumer", crates, Features::None)?;
        let names = third_party(workshop, &consumer.directory)?;
        ensure!(names.len() <= MOST, "{crates:?}: more than {MOST} third-party crates: {names:?}");
        counts.push(names.len());

        // A toolkit is present, but its bindings were not requested.
        let header = "#define CUDA_VERSION 13000\n#error no build reads this\n";
        let root = workshop.toolkit("plain", "include", header)?;
        let (_, built) = consumer.check(&[("CUDA_HOME", &root)], "bundled")?;
        warnings(&built, 0)?;

        let error = consumer.fails(&[("CUDA_SYS_BINDINGS", &"system")])?;
        ensure!(error.contains("buildtime-bindgen"), "the error names no feature:\n{error}");
    }
    let (sys, core) = (counts[0], counts[1]);
    Ok(format!("third-party crates: cuda-sys {sys}, cuda-core {core}"))
}

/// Returns the names of the registry crates that a build of `directory` compiles on this machine.
pub(super) fn third_party(workshop: &Workshop, directory: &Path) -> Result<Vec<String>> {
    let arguments = "metadata --format-version=1 --filter-platform";
    let mut cargo = workshop.cargo(directory, arguments);
    let metadata = output(cargo.arg(workshop.host()?))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array();
    let packages = packages.context("cargo lists packages")?.iter();
    let from_registry = packages.filter(|package| {
        let source = package["source"].as_str();
        source.is_some_and(|source| source.starts_with("registry+"))
    });
    Ok(from_registry.filter_map(|package| Some(package["name"].as_str()?.to_owned())).collect())
}

pub(super) fn path(workshop: &Workshop) -> Result<String> {
    build_and_run(workshop, "path-consumer", &Source::Path(workshop.source()))
}

pub(super) fn git(workshop: &Workshop) -> Result<String> {
    build_and_run(workshop, "git-consumer", &Source::Git)
}

/// Builds and runs a consumer of both crates, with bundled and with generated bindings.
pub(super) fn build_and_run(workshop: &Workshop, name: &str, source: &Source) -> Result<String> {
    let consumer = Consumer::write(workshop, name, source, Crates::Core, Features::Default)?;
    let (seen, _) = consumer.check(&[("CUDA_SYS_BINDINGS", &"bundled")], "bundled")?;
    let header = workshop.newest_header()?;
    let include = ("CUDA_SYS_INCLUDE_DIR", &header.include as _);
    let (generated, _) = consumer.check(&[include, ("CUDA_SYS_BINDINGS", &"system")], "system")?;
    Ok(format!("{seen}; {generated}"))
}

pub(super) fn vendor(workshop: &Workshop) -> Result<String> {
    let mut counts = Vec::new();
    for (crates, own) in [(Crates::Sys, 1), (Crates::Core, 2)] {
        let (source, name) = (&Source::Git, "vendor-consumer");
        let consumer = Consumer::write(workshop, name, source, crates, Features::None)?;
        let config = output(&mut consumer.cargo("vendor vendor"))?;
        write(&consumer.directory.join(CONFIG), config)?;
        let vendored = fs::read_dir(consumer.directory.join("vendor"))?.count();
        ensure!(
            (own..=own + MOST).contains(&vendored),
            "{crates:?}: {vendored} packages vendored; expected {own} of the workspace and up to {MOST}"
        );
        counts.push(vendored - own);

        // The folder is the only source to build from: cargo's home is empty.
        let home = workshop.directory("vendor-home")?;
        let mut cargo = consumer.cargo("build --frozen");
        cargo.env("CARGO_TARGET_DIR", workshop.directory("vendor-target")?);
        let built = Built::of(cargo.env("CARGO_HOME", home))?;
        expect(&built, "bundled")?;
        consumer.run(&built)?;
    }
    let (sys, core) = (counts[0], counts[1]);
    Ok(format!("vendored besides the workspace's own: {sys} for cuda-sys, {core} for cuda-core"))
}
