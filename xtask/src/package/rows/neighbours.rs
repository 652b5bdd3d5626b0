//! Builds beside other packages, editors and shells.

use anyhow::ensure;

use crate::cargo::Built;
use crate::package::consumer::{Variables, expect};
use crate::package::{Crates, Features, Workshop};
use crate::workspace::{replace, write};

/// Builds in one graph with a package that links `cuda`, as RustaCUDA's does.
pub(super) fn links(workshop: &Workshop) -> anyhow::Result<String> {
    let consumer = workshop.consumer("neighbours-consumer", Crates::Sys, Features::None)?;
    let neighbour = consumer.directory.join("neighbour");
    let package =
        "[package]\nname = 'neighbour'\nversion = '0.0.0'\nedition = '2024'\nlinks = 'cuda'\n";
    write(&neighbour.join("Cargo.toml"), package)?;
    write(&neighbour.join("build.rs"), "fn main() {}\n")?;
    write(&neighbour.join("src/lib.rs"), "")?;
    let manifest = consumer.directory.join("Cargo.toml");
    replace(&manifest, "[dependencies]\n", "[dependencies]\nneighbour.path = 'neighbour'\n")?;
    let built = consumer.build(&[])?;
    consumer.run(&built)?;
    Ok("in one graph with a package that links `cuda`".to_owned())
}

/// Checks which changes make the build script run again, and which do not.
pub(super) fn watched(workshop: &Workshop) -> anyhow::Result<String> {
    let include = &workshop.newest_header()?.include;
    let consumer = workshop.consumer("neighbours-consumer", Crates::Sys, Features::Default)?;

    // `DOCS_RS` takes effect only while it is set.
    let system: Variables<'_> =
        &[("CUDA_SYS_BINDINGS", &"system"), ("CUDA_SYS_INCLUDE_DIR", &include)];
    expect(&consumer.build(&[system, &[("DOCS_RS", &"1")]].concat())?, "bundled")?;
    expect(&consumer.build(system)?, "system")?;

    // Without a search on `PATH`, a change of it rebuilds nothing.
    let path = workshop.machine.path_behind(&consumer.directory)?;
    let settings: [Variables<'_>; 2] = [system, &[("CUDA_SYS_BINDINGS", &"bundled")]];
    for variables in settings {
        consumer.build(variables)?;
        let mut cargo = consumer.cargo("build --verbose");
        cargo.envs(variables.iter().copied()).env("PATH", &path);
        let again = Built::of(&mut cargo)?;
        ensure!(again.errors.contains("Fresh cuda-sys"), "PATH is watched: {}", again.errors);
    }
    Ok("DOCS_RS while it is set; no PATH where none is searched".to_owned())
}
