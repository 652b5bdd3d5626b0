//! Runs cargo, and reads from its messages what was built.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::process::{cargo, last_lines};
use crate::suite::Program;

/// The result of a cargo command.
#[derive(Debug, Default)]
pub(crate) struct Built {
    pub(crate) success: bool,
    /// Cargo's error output, unless that went to the terminal.
    pub(crate) errors: String,
    artifacts: Vec<Artifact>,
    scripts: Vec<Script>,
}

/// A line of cargo's output.
#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Message {
    CompilerArtifact(Artifact),
    BuildScriptExecuted(Script),
    #[serde(other)]
    Other,
}

/// The files that cargo built for one target.
#[derive(Debug, Deserialize)]
struct Artifact {
    package_id: String,
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
    filenames: Vec<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

/// The output of one build script.
#[derive(Debug, Deserialize)]
pub(crate) struct Script {
    package_id: String,
    /// `cargo::rustc-env`.
    env: Vec<(String, String)>,
    /// `cargo::rustc-cfg`.
    pub(crate) cfgs: Vec<String>,
    pub(crate) out_dir: PathBuf,
}

/// Builds with cargo; `arguments` are separated by spaces. The compiler's messages go to the terminal.
pub(crate) fn build(arguments: &str) -> anyhow::Result<Built> {
    let built = Built::of(cargo(arguments).stderr(Stdio::inherit()));
    built.with_context(|| format!("cargo {arguments}"))
}

impl Built {
    /// Runs cargo. The caller decides whether a failure is an error.
    pub(crate) fn run(command: &mut Command) -> anyhow::Result<Self> {
        command.arg("--message-format=json-render-diagnostics");
        let output = command.output().context("cargo could not be started")?;
        let mut built = Self {
            success: output.status.success(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
            ..Self::default()
        };
        for line in String::from_utf8(output.stdout)?.lines() {
            built.note(line)?;
        }
        Ok(built)
    }

    /// Runs cargo. An error contains the compiler's messages.
    pub(crate) fn of(command: &mut Command) -> anyhow::Result<Self> {
        let built = Self::run(command)?;
        ensure!(built.success, "cargo failed:\n{}", last_lines(&built.errors));
        Ok(built)
    }

    fn note(&mut self, line: &str) -> anyhow::Result<()> {
        match serde_json::from_str(line).with_context(|| format!("a message of cargo's: {line}"))? {
            Message::CompilerArtifact(artifact) => self.artifacts.push(artifact),
            Message::BuildScriptExecuted(script) => self.scripts.push(script),
            Message::Other => {}
        }
        Ok(())
    }

    /// The test programs.
    pub(crate) fn tests(&self) -> Vec<Program> {
        let tests = self.artifacts.iter().filter(|built| built.profile.test);
        let program = |built: &Artifact| {
            let (package, Target { kind, name }) = (package_name(&built.package_id), &built.target);
            let suite = match kind.iter().any(|kind| kind == "test" || kind == "example") {
                true => format!("{package}::{name}"),
                false => format!("{package} (unit tests)"),
            };
            let directory = built.manifest_path.parent().map(Path::to_owned);
            Some(Program { suite, path: built.executable.clone()?, directory })
        };
        tests.filter_map(program).collect()
    }

    /// Names and paths of the programs that are not tests.
    pub(crate) fn programs(&self) -> impl Iterator<Item = (&str, &Path)> {
        let programs = self.artifacts.iter().filter(|built| !built.profile.test);
        programs.filter_map(|built| Some((&*built.target.name, built.executable.as_deref()?)))
    }

    /// Returns the program with that name.
    pub(crate) fn program(&self, name: &str) -> anyhow::Result<&Path> {
        let found = self.programs().find(|(program, _)| *program == name);
        let (_, path) = found.with_context(|| format!("cargo built no program {name}"))?;
        Ok(path)
    }

    /// Returns the C library that cargo built from the crate with that name.
    pub(crate) fn library(&self, name: &str) -> anyhow::Result<&Path> {
        self.file(&library_file(name))
    }

    /// Returns the file with that name.
    pub(crate) fn file(&self, name: &str) -> anyhow::Result<&Path> {
        let mut files = self.artifacts.iter().flat_map(|built| &built.filenames);
        let found = files.find(|file| file.file_name() == Some(name.as_ref()));
        Ok(found.with_context(|| format!("cargo built no {name}"))?)
    }

    /// The output of the build script of `package`.
    pub(crate) fn script(&self, package: &str) -> anyhow::Result<&Script> {
        let is_its = |script: &&Script| package_name(&script.package_id) == package;
        let script = self.scripts.iter().find(is_its);
        script.with_context(|| format!("no build script of {package} ran"))
    }

    /// Returns the lines of `level` (`warning`, `error`) that the build script of `package` printed, without
    /// the rest of its output, which cargo also shows.
    pub(crate) fn said_by(&self, package: &str, level: &str) -> Vec<&str> {
        let prefix = format!("{level}: {package}@");
        self.errors.lines().filter(|line| line.starts_with(&prefix)).collect()
    }
}

impl Script {
    /// A variable that the script set for the compiler.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().find(|(variable, _)| variable == name).map(|(_, value)| value.as_str())
    }
}

/// The file name of a crate's C library.
pub(crate) fn library_file(name: &str) -> String {
    format!("{DLL_PREFIX}{name}{DLL_SUFFIX}")
}

/// Returns the package's name: `cuda-sys` for `path+file:///somewhere/cuda-sys#0.1.0` and for
/// `registry+…#cuda-sys@0.1.0`.
fn package_name(id: &str) -> &str {
    let (source, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => source.rsplit('/').next().unwrap_or(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_ids_of_every_source() {
        for id in [
            "path+file:///home/cuda/cuda-sys#0.1.0",
            "path+file:///home/cuda/other#cuda-sys@0.1.0",
            "git+file:///home/source?rev=a1#cuda-sys@0.1.0",
            "registry+https://example.org/index#cuda-sys@0.1.0",
        ] {
            assert_eq!(package_name(id), "cuda-sys", "{id}");
        }
    }

    #[test]
    fn a_script_is_read_from_its_message() {
        let mut built = Built::default();
        let message = r#"{"reason": "build-script-executed", "package_id": "path+file:///w/consumer#0.0.0",
            "cfgs": ["a"], "env": [["SEEN_BINDINGS", "system"]], "out_dir": "/o", "linked_libs": []}"#;
        built.note(message).unwrap();
        built.note(r#"{"reason": "build-finished", "success": true}"#).unwrap();
        let script = built.script("consumer").unwrap();
        assert_eq!(script.variable("SEEN_BINDINGS"), Some("system"));
        assert_eq!(script.cfgs, ["a"]);
        assert!(built.script("cuda-sys").is_err());
    }
}
