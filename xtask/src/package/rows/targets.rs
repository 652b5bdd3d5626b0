//! Other targets, checked from this machine.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};

use crate::package::build::{Built, output};
use crate::package::consumer::{Consumer, Crates, Features, Source};
use crate::package::report::not_run;
use crate::package::workshop::Workshop;

pub(super) fn aarch64_linux(workshop: &Workshop) -> anyhow::Result<String> {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    let bundled = check(workshop, TARGET)?;
    let Ok(header) = workshop.headers.newest() else {
        return Ok(format!("{bundled}; none generated: no cuda.h here"));
    };
    // A toolkit that was installed for this target beside the host's.
    let root = workshop.directory("aarch64-toolkit")?;
    let include = root.join("targets/sbsa-linux/include");
    fs::create_dir_all(&include)?;
    fs::copy(&header.file, include.join("cuda.h"))?;
    let consumer = consumer(workshop, Features::Default)?;
    let mut cargo = consumer.cargo(workshop, "check")?;
    cargo.args(["--target", TARGET]).env("CUDA_HOME", &root);
    let seen = Built::run(cargo.env("CUDA_SYS_BINDINGS", "system"))?.succeeded()?.seen()?;
    ensure!(seen.include.as_deref() == Some(&include), "not the target's header: {seen:?}");
    Ok(format!("{bundled}; {seen}"))
}

pub(super) fn windows(workshop: &Workshop) -> anyhow::Result<String> {
    check(workshop, "x86_64-pc-windows-gnu")
}

fn consumer(workshop: &Workshop, features: Features) -> anyhow::Result<Consumer> {
    let source = Source::Path(workshop.source());
    Consumer::write(workshop, "target-consumer", &source, Crates::Core, features)
}

/// Checks a consumer with and without bindgen beside a toolkit of the host, which must not be used
/// for the target.
fn check(workshop: &Workshop, target: &str) -> anyhow::Result<String> {
    if workshop.host()? == target {
        return Err(not_run("it is this machine's own"));
    }
    has_std(workshop, target)?;
    let root = workshop.directory("host-toolkit")?;
    fs::create_dir_all(root.join("include"))?;
    let text = "#define CUDA_VERSION 13000\n#error for another target\n";
    fs::write(root.join("include/cuda.h"), text)?;
    let mut said = String::new();
    for features in [Features::None, Features::Default] {
        let consumer = consumer(workshop, features)?;
        let mut cargo = consumer.cargo(workshop, "check")?;
        let built = Built::run(cargo.args(["--target", target]).env("CUDA_HOME", &root))?;
        let built = built.succeeded()?;
        said = built.is_bundled()?.to_string();
        built.warns(0)?;
        let warned = built.errors.lines().find(|line| line.starts_with("warning"));
        ensure!(warned.is_none(), "the compiler warns: {}", built.errors);
    }
    Ok(said)
}

/// Installs the target's standard library with rustup unless it is there.
fn has_std(workshop: &Workshop, target: &str) -> anyhow::Result<()> {
    let sysroot = output(workshop.machine.command("rustc".as_ref()).args(["--print", "sysroot"]))?;
    let std = Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("lib");
    if std.is_dir() {
        return Ok(());
    }
    let mut rustup = workshop.machine.command("rustup".as_ref());
    output(rustup.args(["target", "add", target]))
        .context("no standard library for it")
        .map(drop)
        .map_err(|error| not_run(format!("{error:#}")))
}
