//! Checks where `cuda.h` is found, and what happens if there is none.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, ensure};
use fs_err as fs;

use crate::cargo::Built;
use crate::package::consumer::{Seen, expect, warnings};
use crate::package::machine::overlay;
use crate::package::workshop::Header;
use crate::package::{Consumer, Crates, Features, Workshop};
use crate::refuse;
use crate::workspace::write;

fn consumer(workshop: &Workshop) -> anyhow::Result<Consumer<'_>> {
    workshop.consumer("toolkit-consumer", Crates::Sys, Features::Default)
}

/// Asserts that the bindings were generated from `header` in the directory `include`.
fn generated(built: &Built, header: &Header, include: &Path) -> anyhow::Result<Seen> {
    warnings(built, 0)?;
    let seen = expect(built, "system")?;
    let (version, place) = (header.version, include.display());
    let of_header = seen.header == Some(version) && seen.include.as_deref() == Some(include);
    let below_root = seen.root.as_ref().is_some_and(|it| include.starts_with(it));
    ensure!(of_header && below_root, "expected bindings of {version} in {place}, got {seen:?}");
    Ok(seen)
}

/// Builds with one variable set and asserts that the header in `include` was found.
fn found(
    workshop: &Workshop,
    (variable, value): (&str, impl AsRef<OsStr>),
    header: &Header,
    include: &Path,
) -> anyhow::Result<Seen> {
    let consumer = consumer(workshop)?;
    let built = consumer.build(&[(variable, &value)])?;
    let seen = generated(&built, header, include)?;
    consumer.run(&built)?;
    Ok(seen)
}

pub(super) fn none(workshop: &Workshop) -> anyhow::Result<String> {
    workshop.machine.needs_no_toolkit()?;
    let (seen, built) = consumer(workshop)?.check(&[], "bundled")?;
    warnings(&built, 0)?;
    Ok(format!("{seen}, no warning"))
}

pub(super) fn no_libclang(workshop: &Workshop) -> anyhow::Result<String> {
    let header = workshop.newest_header()?;
    let root = workshop.toolkit("no-libclang", "include", &header.text)?;
    let nothing = workshop.directory("no-libclang")?;
    let variables = [("CUDA_HOME", &root as _), ("LIBCLANG_PATH", &nothing as _)];
    let (seen, built) = consumer(workshop)?.check(&variables, "bundled")?;
    let warning = warnings(&built, 1)?;
    ensure!(warning.contains("libclang"), "the warning does not name libclang: {warning}");
    Ok(format!("{seen}, 1 warning"))
}

pub(super) fn required(workshop: &Workshop) -> anyhow::Result<String> {
    workshop.machine.needs_no_toolkit()?;
    let nowhere = workshop.directory("system-no-toolkit")?;
    let variables =
        [("CUDA_SYS_BINDINGS", &"system" as &dyn AsRef<OsStr>), ("CUDA_ROOT", &nowhere)];
    let error = consumer(workshop)?.fails(&variables)?;
    let place = format!("CUDA_ROOT={}", nowhere.display());
    for said in [&*place, "/usr/local/cuda", "CUDA_SYS_INCLUDE_DIR", "CUDA_HOME"] {
        ensure!(error.contains(said), "the error lacks `{said}`:\n{error}");
    }
    Ok("fails, names the places tried and the variables".to_owned())
}

pub(super) fn pip(workshop: &Workshop) -> anyhow::Result<String> {
    let mut seen = Vec::new();
    for (header, package) in [
        (workshop.newest_header()?, "nvidia/cu13"),
        (workshop.oldest_header()?, "nvidia/cuda_runtime"),
    ] {
        let below = format!("{package}/include");
        let site_packages = workshop.toolkit("pip", &below, &header.text)?;
        let include = site_packages.join(below);
        // The variable names the whole folder, or a single package.
        for root in [site_packages.clone(), site_packages.join(package)] {
            found(workshop, ("CUDA_HOME", &root), header, &include)
                .with_context(|| format!("CUDA_HOME={}", root.display()))?;
        }
        seen.push(format!("{package} {}", header.version));
    }
    Ok(seen.join(", "))
}

pub(super) fn debian(workshop: &Workshop) -> anyhow::Result<String> {
    let header = workshop.newest_header()?;
    let root = workshop.toolkit("debian", "usr/include", &header.text)?;
    let bin = root.join("usr/bin");
    write(&bin.join("nvcc"), "#!/bin/sh\nexit 1\n")?;
    let path = workshop.machine.path_behind(&bin)?;
    let seen = found(workshop, ("PATH", &path), header, &root.join("usr/include"))?;
    Ok(format!("{seen}, found through nvcc"))
}

pub(super) fn debian_customary(workshop: &Workshop) -> anyhow::Result<String> {
    let header = workshop.newest_header()?;
    let why = "a header in /usr/include needs user namespaces to put it there";
    ensure!(workshop.machine.namespaces, refuse(why));
    let upper = workshop.toolkit("debian-customary", ".", &header.text)?;
    let scratch = workshop.directory("debian-scratch")?;
    let mounts = [overlay(Path::new("/usr/include"), &upper, &scratch)];
    let mut probe = workshop.machine.command_among("test".as_ref(), &mounts);
    let probe = probe.args(["-f", "/usr/include/cuda.h"]).output()?;
    let why = String::from_utf8_lossy(&probe.stderr);
    let why = format!("/usr/include cannot be overlaid: {}", why.trim());
    ensure!(probe.status.success(), refuse(why));
    let consumer = consumer(workshop)?;
    let mut cargo = workshop.cargo_among(&mounts, &consumer.directory, "build");
    // The default value, but a change of the environment: a new header alone does not make cargo run the
    // script again.
    let built = Built::of(cargo.env("CUDA_SYS_BINDINGS", "auto"))?;
    let seen = generated(&built, header, Path::new("/usr/include"))?;
    consumer.run(&built)?;
    Ok(format!("{seen}, found unasked"))
}

pub(super) fn conda(workshop: &Workshop) -> anyhow::Result<String> {
    let header = workshop.newest_header()?;
    let below = format!("targets/{}-linux/include", target_directory(workshop)?);
    let prefix = workshop.toolkit("conda", &below, &header.text)?;
    let seen = found(workshop, ("CONDA_PREFIX", &prefix), header, &prefix.join(below))?;
    Ok(seen.to_string())
}

pub(super) fn targets(workshop: &Workshop) -> anyhow::Result<String> {
    let header = workshop.newest_header()?;
    let arch = target_directory(workshop)?;
    let below = format!("targets/{arch}-linux/include");
    let root = workshop.toolkit("targets", &below, &header.text)?;
    // A header for another architecture beside it, which must not be used.
    let other = if arch == "sbsa" { "x86_64" } else { "sbsa" };
    let trap = root.join(format!("targets/{other}-linux/include/cuda.h"));
    write(&trap, "#define CUDA_VERSION 12340\n#error of another target\n")?;
    let seen = found(workshop, ("CUDA_PATH", &root), header, &root.join(below))?;

    // With only the other header, there is none for this target.
    fs::remove_dir_all(root.join(format!("targets/{arch}-linux")))?;
    workshop.machine.needs_no_toolkit()?;
    let variables = [("CUDA_SYS_BINDINGS", &"system" as &dyn AsRef<OsStr>), ("CUDA_PATH", &root)];
    consumer(workshop)?.fails(&variables)?;
    Ok(format!("{seen} of {arch}, none of {other}"))
}

/// Returns CUDA's name for this machine in `targets/`.
fn target_directory(workshop: &Workshop) -> anyhow::Result<&'static str> {
    let host = workshop.host()?;
    match host.split_once('-') {
        Some(("x86_64", rest)) if rest.contains("linux") => Ok("x86_64"),
        Some(("aarch64", rest)) if rest.contains("linux") => Ok("sbsa"),
        _ => Err(refuse(format!("toolkits for {host} have no targets/"))),
    }
}
