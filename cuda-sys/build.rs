//! Completes the checked-in bindings with the items that only the system's `cuda.h` declares.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use choice::{Mode, Plan};
use toolkit::{Found, Search, Toolkit};

#[cfg(feature = "buildtime-bindgen")]
#[path = "build/bindings.rs"]
mod bindings;
#[path = "build/choice.rs"]
mod choice;
#[cfg(feature = "buildtime-bindgen")]
#[path = "build/complete.rs"]
mod complete;
#[cfg(feature = "buildtime-bindgen")]
#[path = "build/generate.rs"]
mod generate;
#[path = "build/toolkit.rs"]
mod toolkit;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            for line in error.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    for file in ["build.rs", "build", "src/bindings", "wrapper.h"] {
        println!("cargo::rerun-if-changed={file}");
    }
    // docs.rs has no toolkit; its pages should not depend on the building machine.
    if watched("DOCS_RS").is_some() {
        return bundled(None);
    }

    let (host, target) = (cargo("HOST")?, cargo("TARGET")?);
    let search = Search { env: &watched, machine: Path::new("/"), host: &host, target: &target };
    let mode = Mode::parse(watched("CUDA_SYS_BINDINGS"))?;
    let generator = cfg!(feature = "buildtime-bindgen");
    let library = linked(&search)?;
    // The search reads variables, and a change of any of them runs this script again. One of them is `PATH`,
    // which often differs between an editor and a shell.
    let found = if mode.searches(generator) || library == Library::OfToolkit {
        search.run()
    } else {
        Found::default()
    };
    let plan = mode.plan(&found, generator)?;
    if let Some(toolkit) = &found.toolkit {
        let header = toolkit.include.join("cuda.h");
        println!("cargo::rerun-if-changed={}", header.display());
        // The path may be a link: an upgrade of the toolkit may remove the header that it leads to.
        if let Ok(real) = fs::canonicalize(&header) {
            println!("cargo::rerun-if-changed={}", real.display());
        }
        println!("cargo::metadata=root={}", toolkit.root.display());
        println!("cargo::metadata=include={}", toolkit.include.display());
    }
    if library == Library::OfToolkit {
        let toolkit = found.toolkit.as_ref();
        let directories = toolkit.map(|it| search.link_directories(it)).unwrap_or_default();
        if directories.is_empty() {
            let why = "no toolkit was found with the driver's library or its stub: if the linker does not find it, \
                       CUDA_SYS_LIB_DIR names its directory";
            warn(Some(why));
        }
        for directory in directories {
            println!("cargo::rustc-link-search=native={}", directory.display());
        }
    }

    let plan = match plan {
        Plan::Generate(toolkit) => match generated(&toolkit)? {
            Ok(()) => return Ok(()),
            Err(why) => mode.fall_back(&why)?,
        },
        bundled => bundled,
    };
    match plan {
        Plan::Bundled { warning } => bundled(warning),
        Plan::Generate(_) => unreachable!("falling back never generates"),
    }
}

/// Reads a variable of the user's environment. A change of it runs the script again.
fn watched(name: &str) -> Option<OsString> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var_os(name)
}

/// Reads a variable that cargo sets.
fn cargo(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("cargo did not set {name}: {error}"))
}

/// Leaves the checked-in bindings in place.
fn bundled(warning: Option<String>) -> Result<(), String> {
    warn(warning.as_deref());
    describe("bundled", &checked_in()?)
}

fn warn(warning: Option<&str>) {
    if let Some(warning) = warning {
        println!("cargo::warning={}", warning.replace('\n', " "));
    }
}

/// The directory of the checked-in bindings.
fn checked_in() -> Result<PathBuf, String> {
    Ok(PathBuf::from(cargo("CARGO_MANIFEST_DIR")?).join("src/bindings"))
}

/// Generates the bindings. The inner error permits a fallback to the bundled ones.
#[cfg(feature = "buildtime-bindgen")]
fn generated(toolkit: &Toolkit) -> Result<Result<(), String>, String> {
    for name in ["LIBCLANG_PATH", "LLVM_CONFIG_PATH", "CLANG_PATH", "BINDGEN_EXTRA_CLANG_ARGS"] {
        watched(name);
    }
    let target = cargo("TARGET")?;
    for target in [target.replace('-', "_"), target] {
        watched(&format!("BINDGEN_EXTRA_CLANG_ARGS_{target}"));
    }
    let package = PathBuf::from(cargo("CARGO_MANIFEST_DIR")?);
    let file = toolkit.include.join("cuda.h");
    let header = match generate::generate(&toolkit.include, &package, &[]) {
        Ok(header) => header,
        Err(error) => return Ok(Err(format!("{} was found, but {error}", file.display()))),
    };
    let bundled = bindings::Bindings::read(&checked_in()?)?;
    let completed = complete::complete(&bundled, &header);
    if !completed.unfit.is_empty() {
        let names = completed.unfit.join(", ");
        warn(Some(&format!(
            "{} is newer than cuda-sys, which leaves out what builds on types that grew: {names}",
            file.display()
        )));
    }

    let out = PathBuf::from(cargo("OUT_DIR")?);
    let (own, directory) = (out.join("header"), out.join("bindings"));
    let origin = Some((toolkit.version, &*completed.added));
    header.write(&own, origin)?;
    completed.bindings.write(&directory, origin)?;
    println!("cargo::rustc-cfg=cuda_sys_generated");
    println!("cargo::metadata=header_version={}", toolkit.version);
    println!("cargo::metadata=header_source={}", own.display());
    describe("system", &directory).map(Ok)
}

#[cfg(not(feature = "buildtime-bindgen"))]
fn generated(_: &Toolkit) -> Result<Result<(), String>, String> {
    Ok(Err("the feature `buildtime-bindgen` is off".to_owned()))
}

/// Passes the properties of the bindings to the build scripts of direct dependents.
fn describe(bindings: &str, source: &Path) -> Result<(), String> {
    let constants = fs::read_to_string(source.join("constants.rs"))
        .map_err(|error| format!("{}: {error}", source.display()))?;
    let version = constants
        .lines()
        .find_map(|line| line.strip_prefix("pub const CUDA_VERSION: u32 = ")?.strip_suffix(';'))
        .ok_or("the bindings lack CUDA_VERSION")?;
    println!("cargo::metadata=bindings={bindings}");
    println!("cargo::metadata=version={version}");
    println!("cargo::metadata=source={}", source.display());
    Ok(())
}

/// Where the linker finds the driver's library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Library {
    /// Nowhere: the library is not linked, but loaded at run time.
    Loaded,
    /// In a directory that the builder of the final program names.
    Named,
    /// In the toolkit's directories.
    OfToolkit,
}

/// Decides by `CUDA_SYS_LINK` whether to link the driver's library instead of loading it, and where it is.
fn linked(search: &Search<'_>) -> Result<Library, String> {
    let value = watched("CUDA_SYS_LINK").unwrap_or_default();
    match value.to_string_lossy().as_ref() {
        "" | "0" => return Ok(Library::Loaded),
        "1" => println!("cargo::rustc-cfg=cuda_sys_link"),
        other => return Err(format!("CUDA_SYS_LINK is `{other}`; it takes `0` or `1`")),
    }
    let Some((name, directory)) = search.variable("CUDA_SYS_LIB_DIR") else {
        return Ok(Library::OfToolkit);
    };
    match directory.to_str() {
        Some(directory) => println!("cargo::rustc-link-search=native={directory}"),
        None => {
            return Err(format!("{name} is not UTF-8, which cargo requires of directories"));
        }
    }
    Ok(Library::Named)
}
