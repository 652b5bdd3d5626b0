//! Where `cuda.h` is found, and what happens if there is none.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::package::build::Built;
use crate::package::consumer::{Consumer, Crates, Features, Seen, Source};
use crate::package::headers::Header;
use crate::package::machine::Mount;
use crate::package::report::not_run;
use crate::package::workshop::{Target, Workshop};

fn consumer(workshop: &Workshop) -> anyhow::Result<Consumer> {
    let source = Source::Path(workshop.source());
    Consumer::write(workshop, "toolkit-consumer", &source, Crates::Sys, Features::Default)
}

/// Puts `header` at `below` in a toolkit named `name` and returns the toolkit's root.
fn toolkit(
    workshop: &Workshop,
    name: &str,
    header: &Header,
    below: &str,
) -> anyhow::Result<PathBuf> {
    let root = workshop.directory(&format!("toolkits/{name}"))?;
    let include = root.join(below);
    fs::create_dir_all(&include)?;
    fs::copy(&header.file, include.join("cuda.h"))?;
    Ok(root)
}

/// Asserts that the bindings came from `header`, which lies in `include`.
fn generated(built: &Built, header: &Header, include: &Path) -> anyhow::Result<Seen> {
    let seen = built.seen().with_context(|| built.script_warnings("cuda-sys").join("\n"))?;
    ensure!(
        seen.bindings == "system"
            && seen.header == Some(header.version)
            && seen.include.as_deref() == Some(include)
            && seen.root.as_deref().is_some_and(|root| include.starts_with(root)),
        "expected bindings of {} in {}, got {seen:?}; warnings: {:#?}",
        header.version,
        include.display(),
        built.script_warnings("cuda-sys")
    );
    built.warns(0)?;
    Ok(seen)
}

/// Builds with one variable set and asserts that the header at `below` in the toolkit was found.
fn found(
    workshop: &Workshop,
    (variable, value): (&str, &OsStr),
    header: &Header,
    include: &Path,
) -> anyhow::Result<Seen> {
    let consumer = consumer(workshop)?;
    let built = consumer.build(workshop, &[(variable, value)])?.succeeded()?;
    let seen = generated(&built, header, include)?;
    consumer.run(workshop, &built)?;
    Ok(seen)
}

pub(super) fn none(workshop: &Workshop) -> anyhow::Result<String> {
    workshop.needs_no_toolkit()?;
    let consumer = consumer(workshop)?;
    let built = consumer.build(workshop, &[])?.succeeded()?;
    let seen = built.is_bundled()?;
    built.warns(0)?;
    consumer.run(workshop, &built)?;
    Ok(format!("{seen}, no warning"))
}

pub(super) fn no_libclang(workshop: &Workshop) -> anyhow::Result<String> {
    let header = workshop.headers.newest()?;
    let root = toolkit(workshop, "no-libclang", header, "include")?;
    let nothing = workshop.directory("no-libclang")?;
    let consumer = consumer(workshop)?;
    let environment = [("CUDA_HOME", root.as_os_str()), ("LIBCLANG_PATH", nothing.as_os_str())];
    let built = consumer.build(workshop, &environment)?.succeeded()?;
    let seen = built.is_bundled()?;
    built.warns(1)?;
    let warning = built.script_warnings("cuda-sys").join("");
    ensure!(warning.contains("libclang"), "the warning does not name libclang: {warning}");
    consumer.run(workshop, &built)?;
    Ok(format!("{seen}, 1 warning"))
}

pub(super) fn required(workshop: &Workshop) -> anyhow::Result<String> {
    workshop.needs_no_toolkit()?;
    let nowhere = workshop.directory("system-no-toolkit")?;
    let consumer = consumer(workshop)?;
    let environment =
        [("CUDA_SYS_BINDINGS", OsStr::new("system")), ("CUDA_ROOT", nowhere.as_os_str())];
    let built = consumer.build(workshop, &environment)?;
    ensure!(!built.success, "the build succeeded: {:?}", built.seen());
    let place = format!("CUDA_ROOT={}", nowhere.display());
    let error = built.script_errors("cuda-sys");
    for said in [place.as_str(), "/usr/local/cuda", "CUDA_SYS_INCLUDE_DIR", "CUDA_HOME"] {
        ensure!(error.contains(said), "the error lacks `{said}`:\n{error}");
    }
    Ok("fails, names the places tried and the variables".to_owned())
}

pub(super) fn pip(workshop: &Workshop) -> anyhow::Result<String> {
    let mut seen = Vec::new();
    for (header, package) in [
        (workshop.headers.newest()?, "nvidia/cu13"),
        (workshop.headers.oldest()?, "nvidia/cuda_runtime"),
    ] {
        let below = format!("{package}/include");
        let site_packages = toolkit(workshop, "pip", header, &below)?;
        let include = site_packages.join(below);
        // The variable names the whole folder, or the one package.
        for root in [site_packages.clone(), site_packages.join(package)] {
            found(workshop, ("CUDA_HOME", root.as_os_str()), header, &include)
                .with_context(|| format!("CUDA_HOME={}", root.display()))?;
        }
        seen.push(format!("{package} {}", header.version));
    }
    Ok(seen.join(", "))
}

pub(super) fn debian(workshop: &Workshop) -> anyhow::Result<String> {
    let header = workshop.headers.newest()?;
    let root = toolkit(workshop, "debian", header, "usr/include")?;
    let bin = root.join("usr/bin");
    fs::create_dir_all(&bin)?;
    fs::write(bin.join("nvcc"), "#!/bin/sh\nexit 1\n")?;
    let path =
        env::join_paths([bin].into_iter().chain(env::split_paths(&workshop.machine.path())))?;
    let seen = found(workshop, ("PATH", &path), header, &root.join("usr/include"))?;
    Ok(format!("{seen}, found through nvcc"))
}

pub(super) fn debian_customary(workshop: &Workshop) -> anyhow::Result<String> {
    let header = workshop.headers.newest()?;
    if !workshop.machine.has_namespaces() {
        return Err(not_run("a header in /usr/include needs user namespaces to put it there"));
    }
    let upper = toolkit(workshop, "debian-customary", header, ".")?;
    let mounts = [Mount::Overlay {
        lower: PathBuf::from("/usr/include"),
        upper,
        scratch: workshop.directory("debian-scratch")?,
    }];
    let probe = workshop
        .machine
        .command_among("test".as_ref(), &mounts)
        .args(["-f", "/usr/include/cuda.h"])
        .output()?;
    if !probe.status.success() {
        let why = String::from_utf8_lossy(&probe.stderr);
        return Err(not_run(format!("/usr/include cannot be overlaid: {}", why.trim())));
    }
    let consumer = consumer(workshop)?;
    let mut cargo = workshop.cargo_among(&mounts, &consumer.directory, Target::Shared)?;
    // The default value, but a change to the environment: a new header alone does not make cargo
    // run the script again.
    cargo.env("CUDA_SYS_BINDINGS", "auto");
    let built = Built::run(cargo.arg("build"))?.succeeded()?;
    let seen = generated(&built, header, Path::new("/usr/include"))?;
    consumer.run(workshop, &built)?;
    Ok(format!("{seen}, found unasked"))
}

pub(super) fn conda(workshop: &Workshop) -> anyhow::Result<String> {
    let header = workshop.headers.newest()?;
    let below = format!("targets/{}-linux/include", target_directory(workshop)?);
    let prefix = toolkit(workshop, "conda", header, &below)?;
    let seen = found(workshop, ("CONDA_PREFIX", prefix.as_os_str()), header, &prefix.join(below))?;
    Ok(seen.to_string())
}

pub(super) fn targets(workshop: &Workshop) -> anyhow::Result<String> {
    let header = workshop.headers.newest()?;
    let arch = target_directory(workshop)?;
    let below = format!("targets/{arch}-linux/include");
    let root = toolkit(workshop, "targets", header, &below)?;
    // A header for another architecture beside it must not be used.
    let other = if arch == "sbsa" { "x86_64" } else { "sbsa" };
    let trap = root.join(format!("targets/{other}-linux/include"));
    fs::create_dir_all(&trap)?;
    fs::write(trap.join("cuda.h"), "#define CUDA_VERSION 12340\n#error of another target\n")?;
    let seen = found(workshop, ("CUDA_PATH", root.as_os_str()), header, &root.join(&below))?;

    // With the other header alone, there is none for this target.
    fs::remove_dir_all(root.join(format!("targets/{arch}-linux")))?;
    let environment =
        [("CUDA_SYS_BINDINGS", OsString::from("system")), ("CUDA_PATH", root.into_os_string())];
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_os_str()));
    workshop.needs_no_toolkit()?;
    let built = consumer(workshop)?.build(workshop, &environment)?;
    ensure!(!built.success, "a header of {other} was taken: {:?}", built.seen());
    Ok(format!("{seen} of {arch}, none of {other}"))
}

/// CUDA's name for the machine in `targets/`.
fn target_directory(workshop: &Workshop) -> anyhow::Result<&'static str> {
    let host = workshop.host()?;
    match host.split_once('-') {
        Some(("x86_64", rest)) if rest.contains("linux") => Ok("x86_64"),
        Some(("aarch64", rest)) if rest.contains("linux") => Ok("sbsa"),
        _ => Err(not_run(format!("toolkits for {host} have no targets/"))),
    }
}
