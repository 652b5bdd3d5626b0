//! Consumers: crates that depend on cuda-sys and cuda-core, which each row writes and builds.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::build::{Built, output};
use super::workshop::{Target, Workshop};

/// Number of simulated devices: an unusual one, so that a program's output shows which driver it
/// called.
const DEVICES: &str = "3";

const BUILD: &str = include_str!("consumer/build.rs");
const SYS: &str = include_str!("consumer/sys.rs");
const CORE: &str = include_str!("consumer/core.rs");

/// Which crates a consumer depends on; it has a program for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crates {
    /// `cuda-sys` alone.
    Sys,
    /// `cuda-core`, and `cuda-sys` beside it.
    Core,
}

/// Which features of cuda-sys and cuda-core a consumer enables.
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
    /// A commit of this repository.
    Git { url: String, commit: String },
    /// By version, as from a registry that has these packages.
    Registry { packages: PathBuf },
}

impl Source {
    /// The dependency's fields in a manifest.
    fn fields(&self, krate: &str) -> String {
        match self {
            // A literal string of TOML: nothing in it is escaped.
            Source::Path(folder) => format!("path = '{}'", folder.join(krate).display()),
            Source::Git { url, commit } => format!("git = '{url}', rev = '{commit}'"),
            Source::Registry { .. } => "version = '*'".to_owned(),
        }
    }
}

/// A consumer on disk.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) directory: PathBuf,
    crates: Crates,
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
    /// Whether cuda-sys compiled generated bindings.
    pub(super) generated: bool,
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

impl Consumer {
    /// Writes a consumer to a directory named `name`.
    pub(super) fn write(
        workshop: &Workshop,
        name: &str,
        source: &Source,
        crates: Crates,
        features: Features,
    ) -> anyhow::Result<Self> {
        let directory = workshop.directory(name)?;
        let defaults = features == Features::Default;
        let mut manifest = "[package]\nname = 'consumer'\nversion = '0.0.0'\nedition = '2024'\n\n\
            [workspace]\n\n[dependencies]\n"
            .to_owned();
        let programs = directory.join("src/bin");
        fs::create_dir_all(&programs)?;
        fs::write(directory.join("build.rs"), BUILD)?;
        let names: &[_] = match crates {
            Crates::Sys => &[("cuda-sys", "sys.rs", SYS)],
            Crates::Core => &[("cuda-sys", "sys.rs", SYS), ("cuda-core", "core.rs", CORE)],
        };
        for (krate, file, text) in names {
            let fields = source.fields(krate);
            manifest += &format!("{krate} = {{ {fields}, default-features = {defaults} }}\n");
            fs::write(programs.join(file), text)?;
        }
        if let Source::Registry { packages } = source {
            // The crates of these names on the registry are not used.
            fs::create_dir_all(directory.join(".cargo"))?;
            fs::write(directory.join(".cargo/config.toml"), "net.offline = true\n")?;
            manifest += "\n[patch.crates-io]\n";
            for (krate, ..) in names {
                let package = packages.join(krate);
                manifest += &format!("{krate} = {{ path = '{}' }}\n", package.display());
            }
        }
        fs::write(directory.join("Cargo.toml"), manifest)?;
        // The versions that the workspace was tested with, which are already downloaded.
        fs::copy(workshop.source().join("Cargo.lock"), directory.join("Cargo.lock"))?;
        Ok(Self { directory, crates })
    }

    /// cargo, set up to build this consumer.
    pub(super) fn cargo(&self, workshop: &Workshop, task: &str) -> anyhow::Result<Command> {
        let mut cargo = workshop.cargo(&self.directory, Target::Shared)?;
        cargo.arg(task);
        Ok(cargo)
    }

    /// Builds the consumer with these variables set.
    pub(super) fn build(
        &self,
        workshop: &Workshop,
        environment: &[(&str, &OsStr)],
    ) -> anyhow::Result<Built> {
        Built::run(self.cargo(workshop, "build")?.envs(environment.iter().copied()))
    }

    /// Runs every program on the simulated driver.
    pub(super) fn run(&self, workshop: &Workshop, built: &Built) -> anyhow::Result<()> {
        let simulator = workshop.simulator()?;
        self.run_with(workshop, built, |command| {
            command.env("CUDA_SYS_LIBRARY", simulator);
        })
    }

    /// Runs every program, prepared by `prepare`.
    pub(super) fn run_with(
        &self,
        workshop: &Workshop,
        built: &Built,
        prepare: impl Fn(&mut Command),
    ) -> anyhow::Result<()> {
        for program in self.programs() {
            let mut command = workshop.machine.command(built.program(program)?.as_os_str());
            command.env("CUDA_SIM_DEVICES", DEVICES);
            prepare(&mut command);
            let said = output(&mut command).with_context(|| format!("running `{program}`"))?;
            ensure!(
                said.starts_with(&format!("{DEVICES} devices, ")),
                "`{program}` did not ask the simulated driver: {said}"
            );
        }
        Ok(())
    }

    /// The names of its programs.
    pub(super) fn programs(&self) -> &'static [&'static str] {
        match self.crates {
            Crates::Sys => &["sys"],
            Crates::Core => &["sys", "core"],
        }
    }
}

impl Built {
    /// The path of one of the consumer's programs.
    pub(super) fn program(&self, name: &str) -> anyhow::Result<PathBuf> {
        self.file(name, |file| Path::new(file).file_stem() == Some(OsStr::new(name)))
    }

    /// What the consumer's build script received, which must agree with what cuda-sys compiles.
    pub(super) fn seen(&self) -> anyhow::Result<Seen> {
        let seen = &self.script("consumer")?.environment;
        let path = |name: &str| seen.get(name).map(PathBuf::from);
        let number = |name: &str| seen.get(name).and_then(|text| text.parse().ok());
        let seen = Seen {
            bindings: seen
                .get("SEEN_BINDINGS")
                .cloned()
                .context("no DEP_CUDA_SYS_DRIVER_BINDINGS came")?,
            version: number("SEEN_VERSION"),
            header: number("SEEN_HEADER_VERSION"),
            include: path("SEEN_INCLUDE"),
            root: path("SEEN_ROOT"),
            generated: self.has_script("cuda-sys")
                && self.script("cuda-sys")?.cfgs.iter().any(|cfg| cfg == "cuda_sys_generated"),
        };
        ensure!(
            seen.generated == (seen.bindings == "system"),
            "the bindings are {}, but cuda_sys_generated is {}",
            seen.bindings,
            if seen.generated { "on" } else { "off" }
        );
        Ok(seen)
    }

    /// Asserts that the checked-in bindings were used.
    pub(super) fn is_bundled(&self) -> anyhow::Result<Seen> {
        let seen = self.seen()?;
        ensure!(seen.bindings == "bundled", "expected bundled bindings, got {seen:?}");
        Ok(seen)
    }

    /// Asserts the number of warnings that cuda-sys printed.
    pub(super) fn warns(&self, times: usize) -> anyhow::Result<()> {
        let warnings = self.script_warnings("cuda-sys");
        ensure!(warnings.len() == times, "expected {times} warnings, got {warnings:#?}");
        Ok(())
    }
}
