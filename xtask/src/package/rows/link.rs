//! Linked with a driver library, and built without cuda-sys's build script.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::package::build::{Built, output};
use crate::package::consumer::{Consumer, Crates, Features, Source};
use crate::package::report::not_run;
use crate::package::workshop::{Target, Workshop};

/// Builds with `CUDA_SYS_LINK=1` against a stub that the row makes, and runs with it.
pub(super) fn linked(workshop: &Workshop) -> anyhow::Result<String> {
    if !cfg!(target_os = "linux") {
        return Err(not_run("the stub library is made for Linux"));
    }
    let (library, symbols) = stub(workshop)?;
    let source = Source::Path(workshop.source());
    let consumer =
        Consumer::write(workshop, "linked-consumer", &source, Crates::Core, Features::None)?;
    let environment =
        [("CUDA_SYS_LINK", OsStr::new("1")), ("CUDA_SYS_LIB_DIR", library.as_os_str())];
    let newer = consumer.directory.join("src/bin/newer.rs");
    fs::write(newer, NEWER)?;
    let built = consumer.build(workshop, &environment)?.succeeded()?;
    built.is_bundled()?;
    consumer.run_with(workshop, &built, |command| {
        command.env("LD_LIBRARY_PATH", &library);
    })?;
    let mut newer = workshop.machine.command(built.program("newer")?.as_os_str());
    let answers = output(newer.env("LD_LIBRARY_PATH", &library))?;

    // The toolkit's own stub, in the toolkits' usual place.
    let root = workshop.directory("linked-toolkit")?;
    fs::create_dir_all(root.join("include"))?;
    fs::create_dir_all(root.join("lib64/stubs"))?;
    fs::write(root.join("include/cuda.h"), "#define CUDA_VERSION 13000\n")?;
    fs::copy(library.join("libcuda.so"), root.join("lib64/stubs/libcuda.so"))?;
    let environment = [("CUDA_SYS_LINK", OsStr::new("1")), ("CUDA_HOME", root.as_os_str())];
    let built = consumer.build(workshop, &environment)?.succeeded()?;

    // With a library of that name that lacks the symbols, the process must not even start: the
    // system's loader resolves the calls, not cuda-sys.
    let empty = workshop.directory("linked-empty")?;
    compile(workshop, &empty.join("libcuda.so.1"), "", &[])?;
    let mut command = workshop.machine.command(built.program("sys")?.as_os_str());
    let refused = command.env("LD_LIBRARY_PATH", &empty).output()?;
    let why = String::from_utf8_lossy(&refused.stderr);
    ensure!(
        !refused.status.success() && why.contains("symbol"),
        "the program does not need the linked library: {}, {why}",
        refused.status
    );
    Ok(format!(
        "{symbols} symbols linked, of CUDA 11.8; does not start without them; {}",
        answers.trim()
    ))
}

/// Calls functions that drivers for CUDA 11.8 lack.
const NEWER: &str = include_str!("../consumer/newer.rs");

/// A `libcuda.so.1` with exactly the symbols of CUDA 11.8: the simulated driver's functions, and
/// for the others functions that return `CUDA_ERROR_NOT_SUPPORTED`.
fn stub(workshop: &Workshop) -> anyhow::Result<(PathBuf, usize)> {
    let mut cargo = workshop.cargo(&workshop.source(), Target::Shared)?;
    cargo.args(["rustc", "--locked", "--package=cuda-driver-sim", "--lib"]);
    let built = Built::run(cargo.args(["--crate-type", "staticlib"]))?.succeeded()?;
    let archive = built.file("cuda_sim", |name| name.ends_with(".a"))?;

    let floor = workshop.source().join("cuda-sys/build/floor_11_8.txt");
    let floor = fs::read_to_string(&floor).context("the symbols of the floor")?;
    let mut text = String::new();
    for name in floor.lines() {
        text += &format!("__attribute__((weak)) int {name}(void) {{ return 801; }}\n");
    }
    let symbols = floor.lines().count();
    let directory = workshop.directory("linked-library")?;
    let library = directory.join("libcuda.so.1");
    let exported = directory.join("exported");
    let names: Vec<&str> = floor.lines().collect();
    fs::write(&exported, format!("{{ global: {}; local: *; }};\n", names.join("; ")))?;
    compile(
        workshop,
        &library,
        &text,
        &[
            OsStr::new("-Wl,--whole-archive"),
            archive.as_os_str(),
            OsStr::new("-Wl,--no-whole-archive"),
            OsStr::new("-lpthread"),
            OsStr::new("-ldl"),
            OsStr::new("-lm"),
            OsStr::new(&format!("-Wl,--version-script={}", exported.display())),
        ],
    )?;
    fs::copy(&library, directory.join("libcuda.so"))?;
    Ok((directory, symbols))
}

/// Compiles a shared library with the driver's name.
fn compile(workshop: &Workshop, library: &Path, text: &str, more: &[&OsStr]) -> anyhow::Result<()> {
    let source = library.with_extension("c");
    fs::write(&source, text)?;
    let mut cc = workshop.machine.command("cc".as_ref());
    cc.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"]).arg(library).arg(source);
    output(cc.args(more)).context("a stub library needs a C compiler").map(drop)
}

/// Builds with a `links` override, which makes cargo skip the build script of cuda-sys, and with no
/// build scripts at all, as build systems other than cargo may.
pub(super) fn without_scripts(workshop: &Workshop) -> anyhow::Result<String> {
    let source = Source::Path(workshop.source());
    let consumer =
        Consumer::write(workshop, "scriptless-consumer", &source, Crates::Core, Features::Default)?;
    let config = consumer.directory.join(".cargo/config.toml");
    fs::create_dir_all(consumer.directory.join(".cargo"))?;
    fs::write(
        &config,
        format!("[target.{}.cuda_sys_driver]\nbindings = 'overridden'\n", workshop.host()?),
    )?;
    // The script would fail if it ran.
    let environment = [("CUDA_SYS_BINDINGS", OsStr::new("no such mode"))];
    let built = consumer.build(workshop, &environment)?.succeeded()?;
    let seen = built.seen()?;
    ensure!(seen.bindings == "overridden", "the script ran: {seen:?}");
    consumer.run(workshop, &built)?;

    fs::remove_file(config)?;
    let built = consumer.build(workshop, &environment)?;
    ensure!(!built.success, "the script, when it does run, does not fail");

    let scriptless = workshop.directory("scriptless")?;
    copy(&workshop.source(), &scriptless)?;
    strip_script(&scriptless.join("cuda-sys"))?;
    let source = Source::Path(scriptless);
    let consumer =
        Consumer::write(workshop, "scriptless-consumer", &source, Crates::Core, Features::None)?;
    let built = consumer.build(workshop, &environment)?.succeeded()?;
    ensure!(!built.has_script("cuda-sys"), "a script of cuda-sys is left");
    consumer.run(workshop, &built)?;
    Ok("overridden, and left out: runs on the checked-in bindings".to_owned())
}

/// Removes the build script from the package in `directory`.
fn strip_script(directory: &Path) -> anyhow::Result<()> {
    let manifest = directory.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    let kept: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("links =") && !line.starts_with("build ="))
        .collect();
    fs::write(manifest, kept.join("\n").replace("[package]", "[package]\nbuild = false"))?;
    fs::remove_file(directory.join("build.rs")).context("a package without a build script")
}

/// Copies a directory without git's own files.
pub(super) fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if !entry.file_type()?.is_dir() {
            fs::copy(entry.path(), to)?;
        } else if entry.file_name() != ".git" {
            copy(&entry.path(), &to)?;
        }
    }
    Ok(())
}
