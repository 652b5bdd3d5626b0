//! Runs cargo, and reads from its messages what it built.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// The output of one build script.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Script {
    /// `cargo::rustc-env`.
    pub(super) environment: BTreeMap<String, String>,
    /// `cargo::rustc-cfg`.
    pub(super) cfgs: Vec<String>,
}

/// The result of a cargo command.
#[derive(Debug, Default)]
pub(super) struct Built {
    pub(super) success: bool,
    pub(super) errors: String,
    /// Programs and C libraries, by the target's name.
    pub(super) files: BTreeMap<String, Vec<PathBuf>>,
    /// By the package's name.
    scripts: BTreeMap<String, Script>,
}

impl Built {
    /// Runs cargo; the caller decides whether a failure is an error.
    pub(super) fn run(command: &mut Command) -> anyhow::Result<Self> {
        command.arg("--message-format=json-render-diagnostics");
        let output = command.output().context("cargo could not be started")?;
        let mut built = Self {
            success: output.status.success(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
            ..Self::default()
        };
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            if let Ok(message) = serde_json::from_str(line) {
                built.note(&message);
            }
        }
        Ok(built)
    }

    fn note(&mut self, message: &Value) {
        let strings = |value: &Value| -> Vec<String> {
            let all = value.as_array().into_iter().flatten();
            all.filter_map(|text| Some(text.as_str()?.to_owned())).collect()
        };
        match message["reason"].as_str() {
            Some("compiler-artifact") => {
                let Some(name) = message["target"]["name"].as_str() else {
                    return;
                };
                let paths = strings(&message["filenames"]).into_iter().map(PathBuf::from);
                self.files.insert(name.to_owned(), paths.collect());
            }
            Some("build-script-executed") => {
                let pairs = message["env"].as_array().into_iter().flatten();
                let script = Script {
                    environment: pairs
                        .map(strings)
                        .filter_map(|pair| <[String; 2]>::try_from(pair).ok())
                        .map(|[name, value]| (name, value))
                        .collect(),
                    cfgs: strings(&message["cfgs"]),
                };
                let id = message["package_id"].as_str().unwrap_or_default();
                self.scripts.insert(package_name(id).to_owned(), script);
            }
            _ => {}
        }
    }

    /// Fails with the compiler's messages unless cargo succeeded.
    pub(super) fn succeeded(self) -> anyhow::Result<Self> {
        ensure!(self.success, "cargo failed:\n{}", last_lines(&self.errors));
        Ok(self)
    }

    /// Warnings that the build script of `package` printed.
    pub(super) fn script_warnings(&self, package: &str) -> Vec<&str> {
        self.said_by("warning", package)
    }

    /// Errors that the build script of `package` printed, without the rest of its output, which
    /// cargo shows too.
    pub(super) fn script_errors(&self, package: &str) -> String {
        self.said_by("error", package).join("\n")
    }

    fn said_by(&self, level: &str, package: &str) -> Vec<&str> {
        let prefix = format!("{level}: {package}@");
        let lines = self.errors.lines();
        lines.filter(|line| line.starts_with(&prefix)).collect()
    }

    /// The output of the build script of `package`.
    pub(super) fn script(&self, package: &str) -> anyhow::Result<&Script> {
        self.scripts.get(package).with_context(|| format!("no build script of {package} ran"))
    }

    /// Whether a build script of `package` ran.
    pub(super) fn has_script(&self, package: &str) -> bool {
        self.scripts.contains_key(package)
    }

    /// The only file of target `name` that satisfies `is`.
    pub(super) fn file(&self, name: &str, is: impl Fn(&str) -> bool) -> anyhow::Result<PathBuf> {
        let files = self.files.get(name).with_context(|| format!("cargo built no {name}"))?;
        let found = files
            .iter()
            .find(|file| file.file_name().and_then(|name| name.to_str()).is_some_and(&is));
        found.cloned().with_context(|| format!("not among {files:?}"))
    }
}

/// `cuda-sys` of `path+file:///somewhere/cuda-sys#0.1.0` and of `registry+…#cuda-sys@0.1.0`.
fn package_name(id: &str) -> &str {
    let (source, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => source.rsplit('/').next().unwrap_or(source),
    }
}

/// Runs a command that must succeed and returns its output.
pub(super) fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } =
        command.output().with_context(|| format!("{program} could not be started"))?;
    let errors = String::from_utf8_lossy(&stderr);
    if !status.success() {
        bail!("{} failed ({status}):\n{}", program, last_lines(&errors));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// The end of an output, which has the error.
pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
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
        built.note(&serde_json::json!({
            "reason": "build-script-executed",
            "package_id": "path+file:///w/consumer#0.0.0",
            "cfgs": ["a"],
            "env": [["SEEN_BINDINGS", "system"]],
        }));
        let script = built.script("consumer").unwrap();
        assert_eq!(script.environment["SEEN_BINDINGS"], "system");
        assert_eq!(script.cfgs, ["a"]);
        assert!(built.script("cuda-sys").is_err());
    }
}
