//! Chooses between bindings from the system's `cuda.h` and the checked-in ones.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use choice::{Mode, Plan};
use toolkit::{Search, Toolkit};

#[path = "build/choice.rs"]
mod choice;
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
    for file in ["build.rs", "build", "wrapper.h"] {
        println!("cargo::rerun-if-changed={file}");
    }
    // docs.rs has no toolkit, and should show the same pages whatever machine it builds on.
    if env::var_os("DOCS_RS").is_some() {
        return bundled(None);
    }

    let (host, target) = (cargo("HOST")?, cargo("TARGET")?);
    let search = Search {
        env: &watched,
        machine: Path::new("/"),
        host: &host,
        target: &target,
    };
    let mode = Mode::parse(watched("CUDA_SYS_BINDINGS"))?;
    let found = search.run();
    let plan = mode.plan(&found, cfg!(feature = "buildtime-bindgen"))?;
    link(&search, found.toolkit.as_ref())?;
    if let Some(toolkit) = &found.toolkit {
        let header = toolkit.include.join("cuda.h");
        println!("cargo::rerun-if-changed={}", header.display());
        println!("cargo::metadata=root={}", toolkit.root.display());
        println!("cargo::metadata=include={}", toolkit.include.display());
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

/// Reads a variable of the user's environment; a change of it runs the script again.
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
    if let Some(warning) = warning {
        println!("cargo::warning={}", warning.replace('\n', " "));
    }
    let source = PathBuf::from(cargo("CARGO_MANIFEST_DIR")?).join("src/bindings");
    let constants = fs::read_to_string(source.join("constants.rs"))
        .map_err(|error| format!("{}: {error}", source.display()))?;
    let version = constants
        .lines()
        .find_map(|line| {
            line.strip_prefix("pub const CUDA_VERSION: u32 = ")?
                .strip_suffix(';')
        })
        .ok_or("the bundled bindings lack CUDA_VERSION")?;
    describe("bundled", version, &source);
    Ok(())
}

/// Generates the bindings; the inner error is one to fall back from.
#[cfg(feature = "buildtime-bindgen")]
fn generated(toolkit: &Toolkit) -> Result<Result<(), String>, String> {
    for name in [
        "LIBCLANG_PATH",
        "LLVM_CONFIG_PATH",
        "CLANG_PATH",
        "BINDGEN_EXTRA_CLANG_ARGS",
    ] {
        watched(name);
    }
    let package = PathBuf::from(cargo("CARGO_MANIFEST_DIR")?);
    let bindings = match generate::generate(&toolkit.include, &package) {
        Ok(bindings) => bindings,
        Err(error) => {
            let header = toolkit.include.join("cuda.h");
            return Ok(Err(format!("{} was found, but {error}", header.display())));
        }
    };
    let directory = PathBuf::from(cargo("OUT_DIR")?).join("bindings");
    fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    for (file, text) in bindings.files() {
        let file = directory.join(file);
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    println!("cargo::rustc-cfg=cuda_sys_generated");
    describe("system", &toolkit.version.to_string(), &directory);
    Ok(Ok(()))
}

#[cfg(not(feature = "buildtime-bindgen"))]
fn generated(_: &Toolkit) -> Result<Result<(), String>, String> {
    Ok(Err("the feature `buildtime-bindgen` is off".to_owned()))
}

/// Tells direct dependents which bindings they get: `DEP_CUDA_BINDINGS`, `DEP_CUDA_VERSION`,
/// `DEP_CUDA_SOURCE`.
fn describe(bindings: &str, version: &str, source: &Path) {
    println!("cargo::metadata=bindings={bindings}");
    println!("cargo::metadata=version={version}");
    println!("cargo::metadata=source={}", source.display());
}

/// Links the driver's library instead of loading it, if the final builder says so.
fn link(search: &Search<'_>, toolkit: Option<&Toolkit>) -> Result<(), String> {
    let value = watched("CUDA_SYS_LINK").unwrap_or_default();
    match value.to_string_lossy().as_ref() {
        "" | "0" => return Ok(()),
        "1" => println!("cargo::rustc-cfg=cuda_sys_link"),
        other => return Err(format!("CUDA_SYS_LINK is `{other}`; it takes `0` or `1`")),
    }
    let directories = match search.variable("CUDA_SYS_LIB_DIR") {
        Some((_, directory)) => vec![directory],
        None => toolkit.map_or(Vec::new(), |toolkit| search.link_directories(toolkit)),
    };
    for directory in directories {
        println!("cargo::rustc-link-search=native={}", directory.display());
    }
    Ok(())
}
