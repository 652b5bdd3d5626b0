//! `cargo package`, as the crates would go to a registry.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use fs_err as fs;

use super::consume::build_and_run;
use crate::package::{Source, Target, Workshop};
use crate::process::output;
use crate::workspace::mirror;

/// The size limit of crates.io.
const LIMIT: u64 = 10 << 20;

/// The line that keeps cargo from publishing a package.
const PRIVATE: &str = "publish = false\n";

/// Packages both crates and consumes the packages.
///
/// Neither may be published until their names are settled, so a copy is used here without that
/// line. Both names are taken on crates.io. Packaged in one command, `cuda-core` is verified
/// against the `cuda-sys` packaged with it, not against the other crate of that name.
pub(super) fn package(workshop: &Workshop) -> anyhow::Result<String> {
    let source = workshop.directory("publishable")?;
    mirror(&workshop.source(), &source)?;
    for krate in ["cuda-sys", "cuda-core"] {
        let manifest = source.join(krate).join("Cargo.toml");
        let text = fs::read_to_string(&manifest)?;
        ensure!(text.contains(PRIVATE), "{krate} can be published");
        fs::write(&manifest, text.replace(PRIVATE, ""))?;
    }
    for arguments in [
        "fetch --locked",
        // Everything is downloaded, so crates.io is not needed.
        "package --quiet --offline --package=cuda-sys --package=cuda-core",
    ] {
        output(&mut workshop.cargo(&source, Target::Shared, arguments)?)?;
    }
    let packages = workshop.target().join("package");
    let unpacked = workshop.directory("packages")?;
    let mut sizes = Vec::new();
    for krate in ["cuda-sys", "cuda-core"] {
        let archive = the_archive(&packages, krate)?;
        let size = fs::metadata(&archive)?.len();
        ensure!(size < LIMIT, "{krate}: {size} bytes packed, {LIMIT} allowed");
        let mut tar = workshop.machine.command("tar");
        output(tar.arg("-xzf").arg(&archive).arg("-C").arg(&unpacked))?;
        let name = archive.file_stem().context("an archive has a name")?;
        fs::rename(unpacked.join(name), unpacked.join(krate))?;
        sizes.push(format!("{krate} {} KiB", size.div_ceil(1024)));
    }

    let source = Source::Registry { packages: unpacked };
    let seen = build_and_run(workshop, "package-consumer", &source)?;
    Ok(format!("{}; consumed: {seen}", sizes.join(", ")))
}

/// The file `cuda-sys-0.1.0.crate`, of any version.
fn the_archive(packages: &Path, krate: &str) -> anyhow::Result<PathBuf> {
    let prefix = format!("{krate}-");
    let entries = fs::read_dir(packages)?.flatten();
    let found = entries.map(|entry| entry.path()).find(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(&prefix) && name.ends_with(".crate"))
    });
    found.with_context(|| format!("cargo packed no {krate}"))
}
