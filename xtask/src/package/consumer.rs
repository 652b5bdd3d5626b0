//! Consumers: crates that depend on cuda-sys and cuda-core, which each row writes and builds.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Workshop;
use crate::cargo::Built;
use crate::process::output;
use crate::workspace::write;

/// The number of simulated devices: an unusual one, so that a program's output shows which driver it called.
const DEVICES: &str = "3";

const BUILD: &str = include_str!("../../package/build.rs");
const SYS: &str = include_str!("../../package/sys.rs");
const CORE: &str = include_str!("../../package/core.rs");

/// The file with cargo's settings for a consumer.
pub(super) const CONFIG: &str = ".cargo/config.toml";

/// The crates that a consumer depends on; it has a program for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crates {
    /// Only `cuda-sys`.
    Sys,
    /// `cuda-core` and `cuda-sys`.
    Core,
}

impl Crates {
    /// Each crate, with the name and the text of its program.
    fn programs(self) -> &'static [(&'static str, &'static str, &'static str)] {
        match self {
            Self::Sys => &[("cuda-sys", "sys", SYS)],
            Self::Core => &[("cuda-sys", "sys", SYS), ("cuda-core", "core", CORE)],
        }
    }
}

/// The features of cuda-sys and cuda-core that a consumer enables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Features {
    /// The defaults.
    Default,
    /// No bindgen.
    None,
}

/// The source of a consumer's dependencies.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// Directories below this one.
    Path(PathBuf),
    /// The snapshot, as a git repository.
    Git,
    /// By version, as from a registry; the packages are in this directory.
    Registry(PathBuf),
}

impl Source {
    /// Returns the dependency's fields in a manifest.
    fn fields(&self, workshop: &Workshop, krate: &str) -> String {
        match self {
            // A literal string of TOML, without escapes.
            Source::Path(folder) => format!("path = '{}'", folder.join(krate).display()),
            Source::Git => {
                let (folder, commit) = (workshop.source(), &workshop.commit);
                format!("git = 'file://{}', rev = '{commit}'", folder.display())
            }
            Source::Registry(_) => "version = '*'".to_owned(),
        }
    }
}

/// Variables for a build.
pub(super) type Variables<'a> = &'a [(&'a str, &'a dyn AsRef<OsStr>)];

/// A consumer on disk.
pub(super) struct Consumer<'a> {
    workshop: &'a Workshop,
    pub(super) directory: PathBuf,
    crates: Crates,
}

impl<'a> Consumer<'a> {
    /// Writes a consumer to a directory named `name`.
    pub(super) fn write(
        workshop: &'a Workshop,
        name: &str,
        source: &Source,
        crates: Crates,
        features: Features,
    ) -> Result<Self> {
        let defaults = features == Features::Default;
        let (mut dependencies, mut patches) = (String::new(), String::new());
        for (krate, ..) in crates.programs() {
            let fields = source.fields(workshop, krate);
            dependencies += &format!("{krate} = {{ {fields}, default-features = {defaults} }}\n");
            if let Source::Registry(packages) = source {
                let package = packages.join(krate);
                patches += &format!("{krate} = {{ path = '{}' }}\n", package.display());
            }
        }
        dependencies += &format!("\n[patch.crates-io]\n{patches}");
        let directory = workshop.project(name, "consumer", &dependencies)?;
        write(&directory.join("build.rs"), BUILD)?;
        for (_, program, text) in crates.programs() {
            write(&directory.join(format!("src/bin/{program}.rs")), text)?;
        }
        if !patches.is_empty() {
            // Keeps cargo from using the registry's crates with these names.
            write(&directory.join(CONFIG), "net.offline = true\n")?;
        }
        Ok(Self { workshop, directory, crates })
    }

    /// Returns a cargo command that builds this consumer.
    pub(super) fn cargo(&self, arguments: &str) -> Command {
        self.workshop.cargo(&self.directory, arguments)
    }

    /// Builds the consumer with these variables set, which must fail. Returns cuda-sys's errors.
    pub(super) fn fails(&self, variables: Variables<'_>) -> Result<String> {
        let built = Built::run(self.cargo("build").envs(variables.iter().copied()))?;
        ensure!(!built.success, "the build succeeded: {:?}", seen(&built));
        Ok(built.said_by("cuda-sys", "error").join("\n"))
    }

    /// Builds the consumer with these variables set.
    pub(super) fn build(&self, variables: Variables<'_>) -> Result<Built> {
        Built::of(self.cargo("build").envs(variables.iter().copied()))
    }

    /// Builds the consumer with these variables set, asserts the kind of its bindings, and runs it.
    pub(super) fn check(&self, variables: Variables<'_>, bindings: &str) -> Result<(Seen, Built)> {
        let built = self.build(variables)?;
        let seen = expect(&built, bindings)?;
        self.run(&built)?;
        Ok((seen, built))
    }

    /// Runs every program on the simulated driver.
    pub(super) fn run(&self, built: &Built) -> Result<()> {
        self.run_with(built, "CUDA_SYS_LIBRARY", self.workshop.simulator()?)
    }

    /// Runs every program with the variable `name` set.
    pub(super) fn run_with(&self, built: &Built, name: &str, value: &Path) -> Result<()> {
        for (_, program, _) in self.crates.programs() {
            let mut command = self.workshop.machine.command(built.program(program)?);
            command.env("CUDA_SIM_DEVICES", DEVICES).env(name, value);
            let said = output(&mut command).with_context(|| format!("running `{program}`"))?;
            let is_simulated = said.starts_with(&format!("{DEVICES} devices, "));
            ensure!(is_simulated, "`{program}` did not ask the simulated driver: {said}");
        }
        Ok(())
    }
}

/// The properties of cuda-sys that a consumer's build script received.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// `DEP_CUDA_SYS_DRIVER_BINDINGS`.
    pub(super) bindings: String,
    /// `.._VERSION`.
    pub(super) version: Option<u32>,
    /// `.._HEADER_VERSION`.
    pub(super) header: Option<u32>,
    /// `.._INCLUDE`.
    pub(super) include: Option<PathBuf>,
    /// `.._ROOT`.
    pub(super) root: Option<PathBuf>,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bindings", self.bindings)?;
        for (word, version) in [(" of", self.version), (", cuda.h", self.header)] {
            if let Some(version) = version {
                write!(f, "{word} {}.{}", version / 1000, version % 1000 / 10)?;
            }
        }
        Ok(())
    }
}

/// Returns the properties that the consumer's build script received; they must agree with what cuda-sys
/// compiles.
fn seen(built: &Built) -> Result<Seen> {
    let consumer = built.script("consumer")?;
    let number = |name| consumer.variable(name).and_then(|text| text.parse().ok());
    let bindings = consumer.variable("SEEN_BINDINGS");
    let seen = Seen {
        bindings: bindings.context("no DEP_CUDA_SYS_DRIVER_BINDINGS came")?.to_owned(),
        version: number("SEEN_VERSION"),
        header: number("SEEN_HEADER_VERSION"),
        include: consumer.variable("SEEN_INCLUDE").map(PathBuf::from),
        root: consumer.variable("SEEN_ROOT").map(PathBuf::from),
    };
    let cfgs = built.script("cuda-sys").map_or(&[][..], |script| &script.cfgs);
    let generated = cfgs.iter().any(|cfg| cfg == "cuda_sys_generated");
    let agrees = generated == (seen.bindings == "system");
    ensure!(agrees, "cuda_sys_generated is {generated}, but got {seen:?}");
    Ok(seen)
}

/// Asserts that the bindings are `system`, `bundled` (those checked in) or another kind.
pub(super) fn expect(built: &Built, bindings: &str) -> Result<Seen> {
    let seen = seen(built)?;
    ensure!(seen.bindings == bindings, "expected {bindings} bindings, got {seen:?}");
    Ok(seen)
}

/// Asserts the number of warnings that cuda-sys printed, and returns them.
pub(super) fn warnings(built: &Built, times: usize) -> Result<String> {
    let warnings = built.said_by("cuda-sys", "warning");
    ensure!(warnings.len() == times, "expected {times} warnings, got {warnings:#?}");
    Ok(warnings.join("\n"))
}
