//! Builds that link a driver library, and builds without cuda-sys's build script.

use std::env::consts::DLL_PREFIX;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use fs_err as fs;

use crate::cargo::Built;
use crate::package::consumer::{CONFIG, Variables, expect};
use crate::package::{Consumer, Crates, Features, Source, Workshop};
use crate::process::output;
use crate::refuse;
use crate::workspace::{mirror, replace, write};

/// The text of a program that calls functions that drivers for CUDA 11.8 lack.
const NEWER: &str = include_str!("../../../package/newer.rs");

/// The text of a program that calls the driver by its table alone.
const TABLE: &str = include_str!("../../../package/table.rs");

/// Builds with `CUDA_SYS_LINK=1` against a stub that the row creates, and runs with it.
pub(super) fn linked(workshop: &Workshop) -> anyhow::Result<String> {
    const SEARCHED: &str = "LD_LIBRARY_PATH";
    ensure!(cfg!(target_os = "linux"), refuse("the stub library is made for Linux"));
    let (library, symbols) = stub(workshop)?;
    let consumer = workshop.consumer("linked-consumer", Crates::Core, Features::None)?;
    for (program, text) in [("newer", NEWER), ("table", TABLE)] {
        fs::write(consumer.directory.join(format!("src/bin/{program}.rs")), text)?;
    }
    let built = consumer.build(&[("CUDA_SYS_LINK", &"1"), ("CUDA_SYS_LIB_DIR", &library)])?;
    expect(&built, "bundled")?;
    consumer.run_with(&built, SEARCHED, &library)?;
    let mut newer = workshop.machine.command(built.program("newer")?);
    let answers = output(newer.env(SEARCHED, &library))?;
    let mut table = workshop.machine.command(built.program("table")?);
    output(table.env(SEARCHED, &library)).context("the table of the linked library")?;

    // The toolkit's own stub, at the usual place in a toolkit.
    let root = workshop.toolkit("linked", "include", "#define CUDA_VERSION 13000\n")?;
    write(&root.join("lib64/stubs/libcuda.so"), fs::read(library.join("libcuda.so"))?)?;
    let built = consumer.build(&[("CUDA_SYS_LINK", &"1"), ("CUDA_HOME", &root)])?;

    // With a library of that name without the symbols, the process must not even start: the system's loader
    // resolves the calls, not cuda-sys.
    let empty = workshop.directory("linked-empty")?;
    compile(workshop, &empty.join("libcuda.so.1"), "", &[])?;
    let mut command = workshop.machine.command(built.program("sys")?);
    let refused = command.env(SEARCHED, &empty).output()?;
    let (status, why) = (refused.status, String::from_utf8_lossy(&refused.stderr));
    let is_needed = !status.success() && why.contains("symbol");
    ensure!(is_needed, "the program does not need the linked library: {status}, {why}");
    let answers = answers.trim();
    Ok(format!("{symbols} symbols linked, of CUDA 11.8; does not start without them; {answers}"))
}

/// Creates a `libcuda.so.1` with exactly the symbols of CUDA 11.8: the simulated driver's functions and, for
/// the others, functions that return `CUDA_ERROR_NOT_SUPPORTED`.
fn stub(workshop: &Workshop) -> anyhow::Result<(PathBuf, usize)> {
    let source = workshop.source();
    let arguments =
        "rustc --locked --profile=quick --package=cuda-driver-sim --lib --crate-type staticlib";
    let built = Built::of(&mut workshop.cargo(&source, arguments))?;
    let archive = built.file(&format!("{DLL_PREFIX}cuda_sim.a"))?;

    let floor = fs::read_to_string(source.join("cuda-sys/build/floor_11_8.txt"))?;
    let names: Vec<&str> = floor.lines().collect();
    let function = |name| format!("__attribute__((weak)) int {name}(void) {{ return 801; }}\n");
    let functions: String = names.iter().map(function).collect();
    let directory = workshop.directory("linked-library")?;
    let library = directory.join("libcuda.so.1");
    let exported = directory.join("exported");
    let script = format!("{{ global: {}; local: *; }};\n", names.join("; "));
    fs::write(&exported, script)?;
    let whole = format!("-Wl,--whole-archive,{},--no-whole-archive", archive.display());
    let only = format!("-Wl,--version-script={}", exported.display());
    compile(workshop, &library, &functions, &[&whole, "-lpthread", "-ldl", "-lm", &only])?;
    fs::copy(&library, directory.join("libcuda.so"))?;
    Ok((directory, names.len()))
}

/// Compiles a shared library with the driver's name.
fn compile(workshop: &Workshop, library: &Path, text: &str, more: &[&str]) -> anyhow::Result<()> {
    let source = library.with_extension("c");
    fs::write(&source, text)?;
    let mut cc = workshop.machine.command("cc");
    cc.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"]).arg(library).arg(source);
    output(cc.args(more)).context("a stub library needs a C compiler").map(drop)
}

/// Builds with a `links` override, which makes cargo skip cuda-sys's build script, and without any build
/// scripts, as build systems other than cargo may.
pub(super) fn without_scripts(workshop: &Workshop) -> anyhow::Result<String> {
    let name = "scriptless-consumer";
    let consumer = workshop.consumer(name, Crates::Core, Features::Default)?;
    let config = consumer.directory.join(CONFIG);
    let host = workshop.host()?;
    let overridden = format!("[target.{host}.cuda_sys_driver]\nbindings = 'overridden'\n");
    write(&config, overridden)?;
    // The script would fail if it ran.
    let invalid: Variables<'_> = &[("CUDA_SYS_BINDINGS", &"no such mode")];
    consumer.check(invalid, "overridden")?;

    fs::remove_file(config)?;
    // Now the script runs, and fails.
    consumer.fails(invalid)?;

    let scriptless = workshop.directory("scriptless")?;
    mirror(&workshop.source(), &scriptless)?;
    let package = scriptless.join("cuda-sys");
    let manifest = package.join("Cargo.toml");
    replace(&manifest, "links = \"cuda_sys_driver\"\n", "")?;
    replace(&manifest, "build = \"build.rs\"", "build = false")?;
    fs::remove_file(package.join("build.rs"))?;
    let source = Source::Path(scriptless);
    let consumer = Consumer::write(workshop, name, &source, Crates::Core, Features::None)?;
    let built = consumer.build(invalid)?;
    ensure!(built.script("cuda-sys").is_err(), "a script of cuda-sys is left");
    consumer.run(&built)?;
    Ok("overridden, and left out: runs on the checked-in bindings".to_owned())
}
