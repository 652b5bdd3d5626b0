//! Builds test programs with cargo, and finds where cargo put them.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::Deserialize;

use super::Program;

/// The cargo that runs this task, or the one on `PATH`.
pub(crate) fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")))
}

/// The workspace that the current directory is in.
pub(crate) fn workspace_root() -> anyhow::Result<PathBuf> {
    let output = cargo()
        .args(["locate-project", "--workspace", "--message-format", "plain"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo locate-project")?;
    if !output.status.success() {
        bail!("the current directory is not inside the workspace");
    }
    let manifest = PathBuf::from(String::from_utf8(output.stdout)?.trim_end());
    manifest.parent().map(Path::to_path_buf).context("a manifest lies in a directory")
}

/// A file that cargo built.
pub(crate) enum Artifact {
    /// A test program.
    Test(Program),
    /// A program that is not a test: its name and path.
    Binary(String, PathBuf),
    /// A library for C: its path.
    Cdylib(PathBuf),
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    package_id: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Runs cargo with `arguments` and returns what it built; compiler messages go to the terminal.
pub(crate) fn build(arguments: &[&str]) -> anyhow::Result<Vec<Artifact>> {
    let output = cargo()
        .args(arguments)
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    if !output.status.success() {
        bail!("cargo {}: {}", arguments.join(" "), output.status);
    }
    let mut artifacts = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let message: Message = serde_json::from_str(line).context("a message of cargo's")?;
        if message.reason == "compiler-artifact" {
            artifacts.extend(artifact(message));
        }
    }
    Ok(artifacts)
}

/// The C library built from a crate.
pub(crate) fn library(built: &[Artifact], name: &str) -> anyhow::Result<PathBuf> {
    let file = format!("{}{name}{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let path = built.iter().find_map(|artifact| match artifact {
        Artifact::Cdylib(path) if path.file_name() == Some(file.as_ref()) => Some(path.clone()),
        _ => None,
    });
    path.with_context(|| format!("cargo built no {file}"))
}

fn artifact(message: Message) -> Option<Artifact> {
    let target = message.target?;
    let directory = message.manifest_path?.parent()?.to_path_buf();
    let package = package_name(&message.package_id);
    let kind = target.kind.first()?.as_str();
    match message.executable {
        Some(path) if message.profile?.test => {
            let suite = match kind {
                "test" => format!("{package}::{}", target.name),
                _ => format!("{package} (unit tests)"),
            };
            Some(Artifact::Test(Program { suite, path, directory: Some(directory) }))
        }
        Some(path) => Some(Artifact::Binary(target.name, path)),
        None => {
            let library = message.filenames.into_iter().find(|file| {
                file.extension()
                    .is_some_and(|extension| extension == std::env::consts::DLL_EXTENSION)
            });
            library
                .filter(|_| target.kind.iter().any(|kind| kind == "cdylib"))
                .map(Artifact::Cdylib)
        }
    }
}

/// `path+file:///somewhere/cuda-sys#0.1.0`, `path+file:///somewhere#cuda-tests@0.1.0`.
fn package_name(id: &str) -> &str {
    let (source, fragment) = id.rsplit_once('#').unwrap_or(("", id));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => source.rsplit('/').next().unwrap_or(source),
    }
}

#[cfg(test)]
mod tests {
    use super::package_name;

    #[test]
    fn package_names() {
        assert_eq!(package_name("path+file:///somewhere/cuda-sys#0.1.0"), "cuda-sys");
        assert_eq!(package_name("path+file:///somewhere#cuda-tests@0.1.0"), "cuda-tests");
    }
}
