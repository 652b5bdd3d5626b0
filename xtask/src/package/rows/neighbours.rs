//! Beside other packages, editors and shells.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::ensure;

use crate::package::build::Built;
use crate::package::consumer::{Consumer, Crates, Features, Source};
use crate::package::workshop::Workshop;

fn consumer(workshop: &Workshop, features: Features) -> anyhow::Result<Consumer> {
    let source = Source::Path(workshop.source());
    Consumer::write(workshop, "neighbours-consumer", &source, Crates::Sys, features)
}

/// A package that links `cuda`, as RustaCUDA's does, in the same graph.
pub(super) fn links(workshop: &Workshop) -> anyhow::Result<String> {
    let consumer = consumer(workshop, Features::None)?;
    let neighbour = consumer.directory.join("neighbour");
    fs::create_dir_all(neighbour.join("src"))?;
    fs::write(
        neighbour.join("Cargo.toml"),
        "[package]\nname = 'neighbour'\nversion = '0.0.0'\nedition = '2024'\nlinks = 'cuda'\n",
    )?;
    fs::write(neighbour.join("build.rs"), "fn main() {}\n")?;
    fs::write(neighbour.join("src/lib.rs"), "")?;
    let manifest = consumer.directory.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)? + "neighbour = { path = 'neighbour' }\n";
    fs::write(&manifest, text)?;
    let built = consumer.build(workshop, &[])?.succeeded()?;
    consumer.run(workshop, &built)?;
    Ok("in one graph with a package that links `cuda`".to_owned())
}

/// Which changes make the build script run again, and which do not.
pub(super) fn watched(workshop: &Workshop) -> anyhow::Result<String> {
    let header = workshop.headers.newest()?;
    let include = header.file.parent().unwrap_or(Path::new("/")).as_os_str();
    let consumer = consumer(workshop, Features::Default)?;

    // `DOCS_RS` takes effect only while it is set.
    let system = [("CUDA_SYS_BINDINGS", OsStr::new("system")), ("CUDA_SYS_INCLUDE_DIR", include)];
    let documented = [&system[..], &[("DOCS_RS", OsStr::new("1"))]].concat();
    consumer.build(workshop, &documented)?.succeeded()?.is_bundled()?;
    let seen = consumer.build(workshop, &system)?.succeeded()?.seen()?;
    ensure!(seen.bindings == "system", "DOCS_RS sticks: {seen:?}");

    // Without a search on `PATH`, another value of it rebuilds nothing.
    let mut others = vec![consumer.directory.clone()];
    others.extend(env::split_paths(&workshop.machine.path()));
    let path = env::join_paths(others)?;
    let bundled = [("CUDA_SYS_BINDINGS", OsStr::new("bundled"))];
    for settings in [&system[..], &bundled] {
        consumer.build(workshop, settings)?.succeeded()?;
        let mut cargo = consumer.cargo(workshop, "build")?;
        cargo.arg("--verbose").envs(settings.iter().copied());
        let again = Built::run(cargo.env("PATH", &path))?.succeeded()?;
        ensure!(
            again.errors.contains("Fresh cuda-sys"),
            "PATH is watched with {settings:?}: {}",
            again.errors
        );
    }
    Ok("DOCS_RS while it is set; no PATH where none is searched".to_owned())
}
