//! Checks for other targets, made on this machine.

use std::path::Path;

use anyhow::{Context, ensure};

use crate::cargo::Built;
use crate::package::consumer::{expect, warnings};
use crate::package::{Crates, Features, Workshop};
use crate::process::output;
use crate::refuse;

pub(super) fn aarch64_linux(workshop: &Workshop) -> anyhow::Result<String> {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    let seen = check(workshop, TARGET)?;
    let header = workshop.newest_header()?;
    // A toolkit for this target, installed beside the host's.
    let below = "targets/sbsa-linux/include";
    let root = workshop.toolkit("aarch64", below, &header.text)?;
    let consumer = workshop.consumer("target-consumer", Crates::Core, Features::Default)?;
    let mut cargo = consumer.cargo("check --target");
    cargo.arg(TARGET).env("CUDA_HOME", &root);
    let built = Built::of(cargo.env("CUDA_SYS_BINDINGS", "system"))?;
    let generated = expect(&built, "system")?;
    let is_of_target = generated.include.as_ref() == Some(&root.join(below));
    ensure!(is_of_target, "not the target's header: {generated:?}");
    Ok(format!("{seen}; {generated}"))
}

pub(super) fn windows(workshop: &Workshop) -> anyhow::Result<String> {
    check(workshop, "x86_64-pc-windows-gnu")
}

/// Checks a consumer with and without bindgen, in the presence of a host toolkit that must not be used for
/// the target.
fn check(workshop: &Workshop, target: &str) -> anyhow::Result<String> {
    ensure!(workshop.host()? != target, refuse("it is this machine's own"));
    has_std(workshop, target)?;
    let header = "#define CUDA_VERSION 13000\n#error for another target\n";
    let root = workshop.toolkit("host", "include", header)?;
    let mut said = String::new();
    for features in [Features::None, Features::Default] {
        let consumer = workshop.consumer("target-consumer", Crates::Core, features)?;
        let mut cargo = consumer.cargo("check --target");
        let built = Built::of(cargo.arg(target).env("CUDA_HOME", &root))?;
        said = expect(&built, "bundled")?.to_string();
        warnings(&built, 0)?;
        let warns = built.errors.lines().any(|line| line.starts_with("warning"));
        ensure!(!warns, "the compiler warns: {}", built.errors);
    }
    Ok(said)
}

/// Installs the target's standard library with rustup unless it is installed.
pub(super) fn has_std(workshop: &Workshop, target: &str) -> anyhow::Result<()> {
    let mut rustc = workshop.machine.command("rustc");
    let sysroot = output(rustc.args(["--print", "sysroot"]))?;
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib");
    if libraries.join(target).join("lib").is_dir() {
        return Ok(());
    }
    let mut rustup = workshop.machine.command("rustup");
    output(rustup.args(["target", "add", target]))
        .context("no standard library for it")
        .map(drop)
        .map_err(|error| refuse(format!("{error:#}")))
}
