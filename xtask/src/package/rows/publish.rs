//! Runs `cargo package`, with the crates as they would go to a registry.

use anyhow::ensure;
use fs_err as fs;

use super::consume::build_and_run;
use crate::package::{Source, Workshop};
use crate::process::output;
use crate::workspace::{mirror, replace};

/// The size limit of crates.io.
const LIMIT: u64 = 10 << 20;

/// The version of all packages of the workspace, including this program's.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The line that keeps cargo from publishing a package.
const PRIVATE: &str = "publish = false\n";

/// Packages both crates and consumes the packages.
///
/// Neither crate may be published until its name is settled, so this uses a copy without [`PRIVATE`]. Both
/// names are taken on crates.io. Since one command packages both, `cuda-core` is verified against the
/// `cuda-sys` packaged with it, not against the other crate with that name.
pub(super) fn package(workshop: &Workshop) -> anyhow::Result<String> {
    let source = workshop.directory("publishable")?;
    mirror(&workshop.source(), &source)?;
    for krate in ["cuda-sys", "cuda-core"] {
        replace(&source.join(krate).join("Cargo.toml"), PRIVATE, "")?;
    }
    output(&mut workshop.cargo(&source, "fetch --locked"))?;
    // Everything is downloaded, so crates.io is not needed. The consumer builds what cargo would build to
    // verify the packages.
    let arguments = "package --quiet --offline --no-verify --package=cuda-sys --package=cuda-core";
    output(&mut workshop.cargo(&source, arguments))?;
    let packages = workshop.target().join("package");
    let unpacked = workshop.directory("packages")?;
    let mut sizes = Vec::new();
    for krate in ["cuda-sys", "cuda-core"] {
        let name = format!("{krate}-{VERSION}");
        let archive = packages.join(format!("{name}.crate"));
        let size = fs::metadata(&archive)?.len();
        ensure!(size < LIMIT, "{krate}: {size} bytes packed, {LIMIT} allowed");
        let mut tar = workshop.machine.command("tar");
        output(tar.arg("-xzf").arg(&archive).arg("-C").arg(&unpacked))?;
        fs::rename(unpacked.join(name), unpacked.join(krate))?;
        sizes.push(format!("{krate} {} KiB", size.div_ceil(1024)));
    }

    let source = Source::Registry(unpacked);
    let seen = build_and_run(workshop, "package-consumer", &source)?;
    Ok(format!("{}; consumed: {seen}", sizes.join(", ")))
}
