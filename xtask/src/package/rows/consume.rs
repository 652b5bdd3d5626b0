//! Consumers that get the crates in each of cargo's ways.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};

use crate::package::build::{Built, output};
use crate::package::consumer::{Consumer, Crates, Features, Source};
use crate::package::workshop::{Target, Workshop};

/// Third-party crates that a consumer of `cuda-sys` compiles without bindgen: libc.
const SYS_CRATES: usize = 1;
/// And of `cuda-core`: the same.
const CORE_CRATES: usize = 1;

pub(super) fn no_default_features(workshop: &Workshop) -> anyhow::Result<String> {
    let source = Source::Path(workshop.source());
    let mut counts = Vec::new();
    for (crates, most) in [(Crates::Sys, SYS_CRATES), (Crates::Core, CORE_CRATES)] {
        let consumer =
            Consumer::write(workshop, "plain-consumer", &source, crates, Features::None)?;
        let names = third_party(workshop, &consumer.directory)?;
        ensure!(names.len() <= most, "{crates:?}: more than {most} third-party crates: {names:?}");
        counts.push(names.len());

        // A toolkit is present, but bindings of it were not requested.
        let header = workshop.directory("plain-toolkit/include")?.join("cuda.h");
        fs::write(&header, "#define CUDA_VERSION 13000\n#error no build reads this\n")?;
        let root = header.ancestors().nth(2).context("a toolkit's root")?;
        let built = consumer.build(workshop, &[("CUDA_HOME", root.as_os_str())])?.succeeded()?;
        built.is_bundled()?;
        built.warns(0)?;
        consumer.run(workshop, &built)?;

        let built = consumer.build(workshop, &[("CUDA_SYS_BINDINGS", OsStr::new("system"))])?;
        ensure!(!built.success, "`system` without bindgen succeeded");
        let error = built.script_errors("cuda-sys");
        ensure!(
            error.contains("buildtime-bindgen"),
            "the error names no feature:
{error}"
        );
    }
    Ok(format!("third-party crates: cuda-sys {}, cuda-core {}", counts[0], counts[1]))
}

/// Names of the registry crates that building `directory` compiles on this machine.
pub(super) fn third_party(workshop: &Workshop, directory: &Path) -> anyhow::Result<Vec<String>> {
    let mut cargo = workshop.cargo(directory, Target::Shared)?;
    cargo.args(["metadata", "--format-version=1", "--filter-platform", &workshop.host()?]);
    let metadata: serde_json::Value = serde_json::from_str(&output(&mut cargo)?)?;
    let packages = metadata["packages"].as_array().context("cargo lists packages")?;
    Ok(packages
        .iter()
        .filter(|package| {
            package["source"].as_str().is_some_and(|source| source.starts_with("registry+"))
        })
        .filter_map(|package| Some(package["name"].as_str()?.to_owned()))
        .collect())
}

pub(super) fn path(workshop: &Workshop) -> anyhow::Result<String> {
    let source = Source::Path(workshop.source());
    let consumer =
        Consumer::write(workshop, "path-consumer", &source, Crates::Core, Features::Default)?;
    build_and_run(workshop, &consumer)
}

pub(super) fn git(workshop: &Workshop) -> anyhow::Result<String> {
    let consumer = Consumer::write(
        workshop,
        "git-consumer",
        &repository(workshop),
        Crates::Core,
        Features::Default,
    )?;
    build_and_run(workshop, &consumer)
}

fn repository(workshop: &Workshop) -> Source {
    let url = format!("file://{}", workshop.source().display());
    Source::Git { url, commit: workshop.commit().to_owned() }
}

/// With bundled bindings, and with generated ones if there is a header.
pub(super) fn build_and_run(workshop: &Workshop, consumer: &Consumer) -> anyhow::Result<String> {
    let built =
        consumer.build(workshop, &[("CUDA_SYS_BINDINGS", OsStr::new("bundled"))])?.succeeded()?;
    let bundled = built.is_bundled()?;
    consumer.run(workshop, &built)?;
    let Ok(header) = workshop.headers.newest() else {
        return Ok(format!("{bundled}; none generated: no cuda.h here"));
    };
    let Some(include) = header.file.parent() else {
        return Ok(bundled.to_string());
    };
    let environment =
        [("CUDA_SYS_INCLUDE_DIR", include.as_os_str()), ("CUDA_SYS_BINDINGS", "system".as_ref())];
    let built = consumer.build(workshop, &environment)?.succeeded()?;
    let seen = built.seen()?;
    ensure!(seen.bindings == "system", "expected generated bindings, got {seen:?}");
    consumer.run(workshop, &built)?;
    Ok(format!("{bundled}; {seen}"))
}

pub(super) fn vendor(workshop: &Workshop) -> anyhow::Result<String> {
    let mut counts = Vec::new();
    for (crates, own, most) in [(Crates::Sys, 1, SYS_CRATES), (Crates::Core, 2, CORE_CRATES)] {
        let source = repository(workshop);
        let consumer =
            Consumer::write(workshop, "vendor-consumer", &source, crates, Features::None)?;
        let config = output(consumer.cargo(workshop, "vendor")?.arg("vendor"))?;
        fs::create_dir_all(consumer.directory.join(".cargo"))?;
        fs::write(consumer.directory.join(".cargo/config.toml"), config)?;
        let vendored = fs::read_dir(consumer.directory.join("vendor"))?.count();
        ensure!(
            (own..=own + most).contains(&vendored),
            "{crates:?}: {vendored} packages vendored; expected {own} of the workspace and up to {most}"
        );
        counts.push(vendored - own);

        // Only the folder is available to build from: cargo's home is empty.
        let home = workshop.directory("vendor-home")?;
        let mut cargo = workshop.cargo(&consumer.directory, Target::Fresh("vendor-target"))?;
        cargo.env("CARGO_HOME", home).args(["build", "--frozen"]);
        let built = Built::run(&mut cargo)?.succeeded()?;
        built.is_bundled()?;
        consumer.run(workshop, &built)?;
    }
    Ok(format!(
        "vendored besides the workspace's own: {} for cuda-sys, {} for cuda-core",
        counts[0], counts[1]
    ))
}
